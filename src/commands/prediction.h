// SPDX-License-Identifier: BSD-3-Clause
/* The output of `vittrain predict`: one sample's prediction as a table, CSV or JSON, or the
 * predictions of all samples as arrays. */
#ifndef VITTRAIN_COMMANDS_PREDICTION_H
#define VITTRAIN_COMMANDS_PREDICTION_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "arrays/arrays.h"
#include "train/inference.h"

enum { PREDICTION_TOP = 5 };

struct prediction_line {
    const char *file; /* name, any bytes; NULL for a record of a split */
    uint32_t record;
    int32_t label, predicted; /* class numbers; a label of -1 is unknown; files have none */
    char *const *class_name;  /* [named]: any bytes */
    int64_t named, classes;
    const float *probabilities; /* [classes]; the outputs of a regression */
    const double *origin;       /* [classes]: added to outputs and targets; NULL: 0 */
    bool has_targets;           /* targets instead of label, predicted and names */
    const float *targets;       /* [classes]; NULL: unknown */
    bool is_number;             /* of a regression, not marks of several labels */
};

/* Write the header line of the CSV for lines like this one. */
void prediction_write_header(FILE *text, const struct prediction_line *line);

/* RFC 4180: a name with commas, quotes or line ends is quoted. A probability that is not
 * finite is an empty cell. */
void prediction_write_csv(FILE *text, const struct prediction_line *line);

/* One JSON object on one line; names as in result.json. A probability that is not finite is null.
 */
void prediction_write_json(FILE *text, const struct prediction_line *line);

/* Write the file's name and its PREDICTION_TOP most probable classes, one per line. A class without
 * a name is written as its number. Control characters in names become spaces. */
void prediction_write_table(FILE *text, const struct prediction_line *line);

/* ---- Predictions as an HDF5 file that is also NetCDF-4 (prediction_arrays.c): one data set for
 * each variable of data.y in its units, or the classes and their probabilities, with the
 * coordinates of the samples. */

enum prediction_kind {
    PREDICTION_VALUES,
    PREDICTION_CLASS,
    PREDICTION_PROBABILITY,
    PREDICTION_SOURCE /* where a sample is from; it has no outputs */
};

struct prediction_variable {
    char name[ARRAY_NAME];
    enum prediction_kind kind;
    int64_t first, outputs; /* outputs of the model */
    int dimensions;
    int64_t extent[ARRAY_DIMENSIONS];
    int64_t value_bytes;
    size_t row_bytes;          /* of a sample */
    int64_t offset;            /* in the file */
    struct json_t *attributes; /* NULL: none */
};

struct prediction_arrays {
    const struct inference *inference;
    const struct dataset *dataset;
    const struct arrays *arrays;
    const struct model *model;
    int count, predicted;                 /* the last count - predicted are sources */
    struct prediction_variable *variable; /* [count] */
    struct coordinate *axes;              /* [predicted, AXES]; rank 0 only */
    int64_t rows_written;
    const char *path;
    char part[OPTION_TEXT + 16];
    int descriptor; /* rank 0 only, else -1 */
};

/* True if the name of an output is that of an HDF5 or NetCDF-4 file. */
bool prediction_arrays_is_file(const char *path);

/* Collective. Create the file PATH.part on rank 0. `path` must stay valid. Call
 * prediction_arrays_close in any case. */
MUST_CHECK bool prediction_arrays_open(struct prediction_arrays *self,
                                       const struct inference *inference, const char *path,
                                       struct comm *world, struct error *error);

/* Write the rows of the predictions of `count` samples to a stream, which prediction_arrays_write
 * appends on rank 0. */
void prediction_arrays_convert(const struct prediction_arrays *self, int64_t count,
                               const int32_t *predicted, const float *outputs, FILE *rows);
MUST_CHECK bool prediction_arrays_write(struct prediction_arrays *self, const char *rows,
                                        size_t bytes, struct error *error);

/* Rename the file to its name, or remove it if `error` is set. */
void prediction_arrays_close(struct prediction_arrays *self, struct error *error);

#endif
