// SPDX-License-Identifier: BSD-3-Clause
/* The output of `vittrain predict` as an HDF5 file that is also NetCDF-4: one data set for each
 * variable of data.y in its units, or the classes and their probabilities, with the coordinates of
 * the samples. */
#ifndef VITTRAIN_COMMANDS_PREDICTION_ARRAYS_H
#define VITTRAIN_COMMANDS_PREDICTION_ARRAYS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "arrays/arrays.h"
#include "train/inference.h"

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
    enum coordinate_axis axis[ARRAY_DIMENSIONS];
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
