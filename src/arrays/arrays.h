// SPDX-License-Identifier: BSD-3-Clause
/* The open data set of data.format=arrays: variables, files, series of samples and grid. */
#ifndef VITTRAIN_ARRAYS_ARRAYS_H
#define VITTRAIN_ARRAYS_ARRAYS_H

#include "arrays/forcing.h"
#include "arrays/grid.h"
#include "arrays/path.h"
#include "arrays/series.h"
#include "comm/comm.h"
#include "data/dataset.h"
#include "options/options.h"

enum { CHANNEL_DIMENSIONS = 2 /* most of a variable */ };
enum { VARIABLE_TEXT = OPTION_TEXT + OFFSET_TEXT /* a name and an offset */ };

struct index_part {
    int64_t begin, count;
};

/* A dimension of an array. Selected indices are counted over its parts. */
struct variable_dimension {
    enum dimension_role role;
    int64_t extent;          /* values in the files; 0 for samples: files may differ */
    int64_t count;           /* selected values */
    int part_count;          /* 0: all are selected */
    struct index_part *part; /* [part_count], allocated */
};

/* A data set that data.x or data.y names. In memory a sample is [channels, height, width]; the
 * channels have all dimensions with ROLE_CHANNEL, in row-major order. An array without dimensions
 * of samples has the same values in all samples. */
struct variable {
    char name[OPTION_TEXT];     /* without the slash at its start */
    bool is_target;             /* of data.y */
    struct series_offset shift; /* "u@+6", "u@-12h"; 0 steps: none */
    char at[OFFSET_TEXT];       /* as in the option: "@+6", "@-12h" or "" */
    int offset;                 /* its number in the series; 0: none */
    enum value_transform transform;
    int dimensions;
    struct variable_dimension dimension[ARRAY_DIMENSIONS];
    int64_t channels, height, width; /* 1 if there is no such dimension */
    float *static_values; /* [channels, height, width] of all samples; NULL: each has its own */
};

struct arrays_file {
    char *path;
    struct array_path place;
    int64_t chunk;       /* samples in its largest chunks that have to be decoded; at least 1 */
    int64_t first_chunk; /* number of chunks of the files before */
    struct array *array; /* [array_count] */
    int opened;          /* number of arrays that are open */
    bool is_shared;      /* times and chunks are in arrays.joined */
    struct series_file times;
};

struct arrays {
    struct variable *variable; /* [x_count + y_count]: those of data.x, then those of data.y */
    struct variable *y;        /* the first one of data.y */
    int x_count, y_count;
    int sampled;     /* the first variable that has dimensions of samples */
    int array_count; /* of a file: x_count + y_count; x_count if the files do not have data.y */
    struct forcings forcings;      /* their channels follow those of data.x */
    struct array_path static_file; /* of data.static_file, or zeros */
    struct split_files files;
    struct arrays_file *file; /* [file_count] in the order of records */
    int64_t file_count;
    struct file_series series;     /* its files are those in `file` */
    struct grid grid;              /* of the first file; its arrays are the variables */
    struct joined_bytes joined[2]; /* descriptions of files, whose tables are used */
    int joined_count;
    bool has_planes; /* the targets are planes, which are read with the pixels */
    double ignored;  /* train.ignore_label, or NAN */
    float *target;   /* [count, target.count]: targets that are not planes, or NULL */
    int32_t *label;  /* [count]: classes, or NULL */
};

/* Return the data of an open data set, or NULL if it has another format. */
const struct arrays *arrays_of(const struct dataset *dataset);

/* Compare the grid of a data set with that of weights (grid_write; NULL: not known) in the file
 * `path`. Times after the end of a series continue in the step of the weights. */
MUST_CHECK bool arrays_check_grid(struct dataset *dataset, const char *text, const char *path,
                                  struct error *error);

/* ---- Coordinates (arrays.c). */

/* Dimensions of predictions. AXIS_OUTPUTS: the channels of a variable, such as level. AXIS_INNER: a
 * second dimension of channels. */
enum coordinate_axis { AXIS_SAMPLES, AXIS_ROWS, AXIS_COLUMNS, AXIS_OUTPUTS, AXIS_INNER, AXES };

struct coordinate {
    const struct dimension *dimension; /* in the files; NULL: not known */
    double *values;                    /* of samples: allocated; NULL: those of the dimension */
};

/* Return the coordinates of an axis of the predictions of variable `y` of data.y. Those of samples
 * are the times of its targets, in the units of the first file. */
void arrays_coordinate(const struct dataset *dataset, int y, enum coordinate_axis axis,
                       struct coordinate *to);

/* ---- Variables (arrays.c). */

/* Skip the slashes before a name: "/u" and "u" are the same data set. */
const char *variable_name_begin(const char *text);

/* Write the transform of each of `total` channels. A variable whose number of channels is not known
 * has one channel, or all channels if it is the only variable. */
void variables_list_transforms(const struct variable *variables, int count, int64_t total,
                               uint8_t transforms[IMAGE_CHANNELS]);

/* Return the offset of a variable in steps, once the series are paired. */
int64_t variable_steps(const struct arrays *self, const struct variable *variable);

/* Return the option that names a variable: "data.x". */
const char *variable_option(const struct variable *variable);

/* Return the first dimension that has a role, or GRID_NONE. */
int variable_find_role(const struct variable *variable, enum dimension_role role);

/* Return the number of samples of a variable's array in a file. */
int64_t variable_samples(const struct variable *variable, const struct array *array);

/* Read the values of a variable without samples from the array of a file. */
MUST_CHECK bool variable_read_static(const struct variable *variable, struct array *array,
                                     float *to, struct error *error);

/* Write the variable as in the option: "u", "u@+6". */
void variable_write(const struct variable *variable, char text[VARIABLE_TEXT]);

/* Write the name of a channel: the variable, and the coordinates or numbers of its dimensions of
 * channels: "z@+6 500 hPa", "z 500 hPa number 3", "u 2". */
void variable_write_channel(const struct arrays *self, int number, int64_t channel,
                            char text[ARRAY_NAME]);

/* ---- Selection (selection.c). */

/* Set the parts of the dimensions, and the sizes, for data.levels, data.rows and data.columns. The
 * shapes of the variables and the grid of the first file must be set. */
MUST_CHECK bool arrays_select(struct arrays *self, const struct options *options,
                              struct error *error);

/* Remove the coordinates that are not selected from the grid of a file. */
void arrays_cut_grid(const struct arrays *self, struct grid *grid);

/* Log the parts of the rows and columns of the first variable. */
void arrays_log_parts(const struct arrays *self);

/* Return the index in the files of a selected index. */
int64_t variable_index(const struct variable_dimension *dimension, int64_t selected);

/* ---- Opening; used by arrays.c only (open.c, targets.c). */

/* Collective over dataset->comm. Describe the files of a split, self->files, and pair their samples
 * to records. Rank 0 describes the first file, whose shape and grid the others must have. Each rank
 * describes a part of the others. Then each rank has all descriptions; the ranks of a node share
 * one copy of large tables of chunks. */
MUST_CHECK bool arrays_open_files(struct dataset *dataset, const struct options *options,
                                  enum data_split split, struct error *error);

void arrays_file_close(struct arrays_file *file);

/* Read the names of classes, an attribute of data.y, from a file. Later files have the names of the
 * first one, or none. */
MUST_CHECK bool arrays_class_names(struct dataset *dataset, const struct arrays_file *file,
                                   struct error *error);

/* Set classes, names of the outputs and the checksum. Single labels are moved from self->target to
 * self->label. training: one image with its mask and more than 64 targets of a sample are errors
 * unless model.classes confirms them, labels that seem to count from 1 are a warning, and several
 * labels of which each sample has one are a note. */
MUST_CHECK bool arrays_targets_use(struct dataset *dataset, const struct options *options,
                                   bool training, struct error *error);

#endif
