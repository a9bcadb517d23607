// SPDX-License-Identifier: BSD-3-Clause
/* Coordinates of the samples and pixels of a data set of data.format=arrays: the dimension scales
 * of its first images, such as time, lat and lon. */
#ifndef VITTRAIN_DATA_ARRAYS_COORDINATES_H
#define VITTRAIN_DATA_ARRAYS_COORDINATES_H

#include "data/array_attributes.h"
#include "data/arrays.h"

/* Dimensions of predictions. AXIS_OUTPUTS, the outputs of a model, has no coordinates. */
enum coordinate_axis { AXIS_SAMPLES, AXIS_ROWS, AXIS_COLUMNS, AXIS_OUTPUTS, AXES };

struct coordinate {
    char name[ARRAY_NAME];
    int64_t count; /* 0: the axis has no coordinates */
    double *values;
    struct array_attributes attributes;
};

/* The coordinate of the first dimension of a file. */
struct sample_range {
    char name[ARRAY_NAME], units[ARRAY_NAME]; /* "": none */
    double first, last;                       /* of the samples; first is NaN if there is none */
};

void arrays_sample_range_read(const struct array_path *source, const struct variable *x,
                              int64_t samples, struct sample_range *range);

/* Read the coordinates of samples and pixels. The coordinate of a sample is that of its target. An
 * axis has no coordinates if they cannot be read, or if their units differ between files, with a
 * warning. Unless `y` is NULL, read the attributes of the data sets of data.y in the first file.
 * Initialize both with zeros. */
void arrays_coordinates_read(const struct dataset *dataset, struct coordinate axes[AXES],
                             struct array_attributes *y);

/* Set allocated weights of the rows of the images, with a mean of 1: the cosine of the latitude
 * (WeatherBench, Rasp et al. 2020), which is the same in all files. If the files have none, the
 * rows are assumed to be equally spaced from pole to pole. A latitude that cannot be used is an
 * error. Log which of these is used. */
MUST_CHECK bool arrays_row_weights(const struct dataset *dataset, float **weights,
                                   struct error *error);

/* Make a coordinate empty. */
void coordinate_free(struct coordinate *coordinate);

#endif
