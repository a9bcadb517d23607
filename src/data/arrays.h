// SPDX-License-Identifier: BSD-3-Clause
/* Variables and files of an open data set of data.format=arrays, for predictions. */
#ifndef VITTRAIN_DATA_ARRAYS_H
#define VITTRAIN_DATA_ARRAYS_H

#include "config/options.h"
#include "data/array_attributes.h"
#include "data/arrays_variable.h"
#include "data/dataset.h"
#include "data/grid.h"

struct arrays_view {
    const struct variable *x, *y; /* [x_count], [y_count]: of data.x and data.y */
    int x_count, y_count;
    bool has_targets; /* the files have data.y */
    const struct file_series *series;
    const struct grid *grid; /* of the first file */
};

/* Return false if the data set has another format. */
bool arrays_view(const struct dataset *dataset, struct arrays_view *view);

/* Compare the grid of a data set with that of weights (grid_write; NULL: not known) in the file
 * `path`. Times after the end of a series continue in the step of the weights. */
MUST_CHECK bool arrays_check_grid(struct dataset *dataset, const char *text, const char *path,
                                  struct error *error);
/* Return the file that has a record, and set the number of the sample in it. */
int64_t arrays_find(const struct dataset *dataset, int64_t record, int64_t *sample);

/* What a model learns from the targets of data.format=arrays. */

/* Set classes, names of the outputs and the checksum. *values: [count, target.count], or NULL if
 * the targets are planes. Single labels are moved to *label, [count]. training: shapes and values
 * that often have another meaning than the user's are errors or warnings. */
MUST_CHECK bool arrays_targets_use(struct dataset *dataset, const struct options *options,
                                   const struct arrays_view *view, bool training, float **values,
                                   int32_t **label, struct error *error);

/* Coordinates of predictions and weights of rows of a data set of data.format=arrays. */

/* Dimensions of predictions. AXIS_OUTPUTS: the channels of a variable, such as level. */
enum coordinate_axis { AXIS_SAMPLES, AXIS_ROWS, AXIS_COLUMNS, AXIS_OUTPUTS, AXES };

struct coordinate {
    const struct dimension *dimension; /* in the files; NULL: not known */
    double *values;                    /* of samples: allocated; NULL: those of the dimension */
};

/* Return the coordinates of an axis of the predictions of variable `y` of data.y. Those of samples
 * are the times of its targets, in the units of the first file. */
void arrays_coordinate(const struct dataset *dataset, int y, enum coordinate_axis axis,
                       struct coordinate *to);

/* Set allocated weights of the rows of the images, with a mean of 1: the cosine of the latitude
 * (WeatherBench, Rasp et al. 2020), which is the same in all files. If the files have none, the
 * rows are assumed to be equally spaced from pole to pole. A latitude that cannot be used is an
 * error. Log which of these is used. */
MUST_CHECK bool arrays_row_weights(const struct dataset *dataset, float **weights,
                                   struct error *error);

#endif
