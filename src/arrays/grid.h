// SPDX-License-Identifier: BSD-3-Clause
/* The grid of arrays: name, coordinates and units of each dimension, and the units of the values.
 * They come from dimension scales of HDF5 and NetCDF-4, and from the names of dimensions of Zarr;
 * .npy files have none. Kinds of dimensions follow the CF conventions: the attributes axis,
 * standard_name and units, then common names. */
#ifndef VITTRAIN_ARRAYS_GRID_H
#define VITTRAIN_ARRAYS_GRID_H

#include "arrays/path.h"
#include "arrays/series.h"

enum dimension_kind {
    DIMENSION_UNKNOWN,
    DIMENSION_TIME,
    DIMENSION_CHANNEL, /* level, depth, band */
    DIMENSION_ROW,     /* latitude, y */
    DIMENSION_COLUMN   /* longitude, x */
};

enum { GRID_UNITS = 64, GRID_NONE = -1 };

struct dimension {
    char path[HDF5_NAME]; /* of its coordinate in the file; "": none */
    char name[ARRAY_NAME], units[GRID_UNITS];
    enum dimension_kind kind;
    int64_t count;
    double *values; /* [count], or NULL: it has no coordinates that are numbers */
    struct json_t *attributes;
};

/* An array, and the numbers of its dimensions or GRID_NONE. */
struct grid_array {
    char name[OPTION_TEXT], units[GRID_UNITS];
    int dimensions, dimension[ARRAY_DIMENSIONS];
    int rows; /* dimension of the rows of its images; GRID_NONE: it has none */
    struct json_t *attributes;
};

/* Initialize with zeros. */
struct grid {
    char *path; /* of the file or of the weights, for messages */
    struct dimension *dimension;
    struct grid_array *array;
    int dimension_count, array_count;
    struct time_step step;     /* of the series */
    struct json_t *attributes; /* of the file */
};

/* Add an array of an open file. */
void grid_add(struct grid *grid, const struct array_path *source, const char *name,
              const struct array *array);

/* Return a dimension of an array, or NULL if the file does not name it. */
const struct dimension *grid_dimension(const struct grid *grid, int array, int dimension);

/* Decide which dimensions of an array of images have the rows and the channels: by their names, or
 * as `order` (enum data_order_choice) states. By default channels are the last of four dimensions
 * if that is the smallest. Names that contradict the order or that are no images are an error. */
MUST_CHECK bool grid_set_order(struct grid *grid, int array, const int64_t *extent, int order,
                               bool *channels_last, struct error *error);

/* Compare the samples, rows and columns of all arrays of a file with those of the first one. */
MUST_CHECK bool grid_check(const struct grid *grid, struct error *error);

/* Compare all but the first dimension of each array, and its units, with the array of the same name
 * in another grid, and the steps of time. Coordinates may differ by 1e-4 of their spacing,
 * longitudes also by 360 degrees. */
MUST_CHECK bool grid_compare(const struct grid *first, const struct grid *other,
                             struct error *error);

/* Return the grid as JSON, without the first dimensions, to be freed by the caller. */
char *grid_write(const struct grid *grid);

/* Read what grid_write wrote; an invalid text is an empty grid. */
void grid_parse(const char *text, const char *path, struct grid *grid);

void grid_close(struct grid *grid);

#endif
