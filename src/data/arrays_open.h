// SPDX-License-Identifier: BSD-3-Clause
/* The files of data.format=arrays and their descriptions. Used by arrays.c only. */
#ifndef VITTRAIN_DATA_ARRAYS_OPEN_H
#define VITTRAIN_DATA_ARRAYS_OPEN_H

#include "comm/comm.h"
#include "data/array_files.h"
#include "data/array_path.h"
#include "data/arrays_variable.h"
#include "data/dataset.h"
#include "data/file_series.h"
#include "data/grid.h"
#include "data/split.h"

struct arrays_file {
    char *path;
    struct array_path place;
    int64_t chunk;       /* samples in its largest chunks that have to be decoded; at least 1 */
    int64_t first_chunk; /* number of chunks of the files before */
    struct array *array; /* [x_count + y_count] */
    int opened;          /* number of arrays that are open */
    bool is_empty;       /* it could not be opened because an array has no elements */
    struct series_file times;
    char time_name[64]; /* of the coordinate of its samples, if they have times */
};

struct arrays {
    struct split_files files;
    struct arrays_file *file; /* [file_count] in the order of records */
    int64_t file_count;
    struct variable *x, *y; /* [x_count], [y_count] */
    int x_count, y_count;
    int array_count; /* of a file: x_count + y_count; x_count if the files do not have data.y */
    struct file_series series;     /* its files are those in `file` */
    struct grid grid;              /* of the first file */
    struct joined_bytes joined[2]; /* descriptions of files, whose tables are used */
    int joined_count;
    struct array_missing missing;
    bool has_planes; /* the targets are planes, which are read with the pixels */
    double ignored;  /* train.ignore_label, or NAN */
    float *target;   /* [count, target.count]: targets that are not planes, or NULL */
    int32_t *label;  /* [count]: classes, or NULL */
};

/* Return a variable of data.x, or after them one of data.y. */
struct variable *arrays_variable(const struct arrays *self, int number);

/* Return the number of samples at both ends of a series without times that are not records. */
int64_t arrays_samples_at_ends(const struct file_series *series);

/* Return the number of the first array of the same data set, which may be named twice: u@-1,u. */
int arrays_first_of(const struct arrays_file *file, int number);

/* Collective over dataset->comm. Describe the files of a split, self->files, and append them to
 * self->file. Rank 0 describes the first file, whose shape and grid the others must have. Each rank
 * describes a part of the others. Then each rank has all descriptions; the ranks of a node share
 * one copy of large tables of chunks. */
MUST_CHECK bool arrays_open_split(struct dataset *dataset, const struct options *options,
                                  struct hdf5_reader *reader, enum data_split split,
                                  struct error *error);

/* List the data sets that both options may name, for the HDF5 reader. Freed by the caller. */
char *arrays_names(const struct arrays *self);

void arrays_file_close(struct arrays_file *file);

#endif
