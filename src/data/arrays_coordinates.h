// SPDX-License-Identifier: BSD-3-Clause
/* Coordinates of the samples and pixels of a data set of data.format=arrays: the dimension scales
 * of its first images, such as time, lat and lon. */
#ifndef VITTRAIN_DATA_ARRAYS_COORDINATES_H
#define VITTRAIN_DATA_ARRAYS_COORDINATES_H

#include "data/array_attributes.h"
#include "data/arrays.h"

/* The outputs of a model have no coordinates. */
enum coordinate_axis { AXIS_SAMPLES, AXIS_ROWS, AXIS_COLUMNS, AXIS_OUTPUTS, AXES };

struct coordinate {
    char name[ARRAY_NAME];
    int64_t count; /* 0: the axis has no coordinates */
    double *values;
    struct array_attributes attributes;
};

/* Read the coordinates of the samples and pixels. A sample has those of its target. An axis whose
 * coordinates cannot be read, or have different units in two files, has none; the latter is a
 * warning. `y`, if not NULL: the attributes of the data sets of data.y in the first file.
 * Initialize both with zeros. */
void arrays_coordinates_read(const struct dataset *dataset, struct coordinate axes[AXES],
                             struct array_attributes *y);

/* Return allocated weights of the rows of the images, with a mean of 1: the cosine of the latitude
 * (WeatherBench, Rasp et al. 2020). Without a coordinate of the latitude in the first file, the
 * rows are equally spaced from pole to pole. */
float *arrays_row_weights(const struct dataset *dataset, bool logs);

/* Make a coordinate empty. */
void coordinate_free(struct coordinate *coordinate);

#endif
