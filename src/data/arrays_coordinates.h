// SPDX-License-Identifier: BSD-3-Clause
/* Coordinates of predictions and weights of rows of a data set of data.format=arrays. */
#ifndef VITTRAIN_DATA_ARRAYS_COORDINATES_H
#define VITTRAIN_DATA_ARRAYS_COORDINATES_H

#include "data/array_attributes.h"
#include "data/arrays.h"

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
