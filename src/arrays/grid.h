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
    DIMENSION_COLUMN,  /* longitude, x */
    DIMENSION_MEMBER   /* of an ensemble, or a run */
};

/* Roles of the dimensions of an array. Dimensions with the same role keep their order. */
enum dimension_role {
    ROLE_RUN, /* series of samples, before ROLE_SAMPLE */
    ROLE_SAMPLE,
    ROLE_CHANNEL, /* or an output */
    ROLE_ROW,
    ROLE_COLUMN,
    ROLES
};

/* True if a dimension of this role numbers samples, not values of a sample. */
static inline bool role_is_sample(enum dimension_role role)
{
    return role == ROLE_RUN || role == ROLE_SAMPLE;
}

enum { GRID_UNITS = 64, GRID_NONE = -1 };

struct dimension {
    char path[HDF5_NAME]; /* of its coordinate in the file; "": none */
    char name[ARRAY_NAME], units[GRID_UNITS];
    enum dimension_kind kind;
    const struct array_path *source; /* of its file, which may be closed */
    int64_t count;
    bool is_cut;    /* arrays_cut_grid has removed what is not selected */
    double *values; /* [count], or NULL: it has no coordinates that are numbers */
    struct json_t *attributes;
};

/* An array, and the numbers of its dimensions or GRID_NONE. */
struct grid_array {
    char name[OPTION_TEXT], units[GRID_UNITS];
    int dimensions, dimension[ARRAY_DIMENSIONS];
    bool is_static; /* all samples have the same values: no dimension is that of samples */
    enum dimension_role role[ARRAY_DIMENSIONS];
    struct json_t *attributes;
};

/* Initialize with zeros and the first member. */
struct grid {
    bool ignores_names; /* all dimensions are DIMENSION_UNKNOWN */
    char *path;         /* of the file or of the weights, for messages */
    struct dimension *dimension;
    struct grid_array *array;
    int dimension_count, array_count;
    struct time_step step;     /* of the series */
    struct json_t *attributes; /* of the file */
};

/* Add an array of an open file. */
void grid_add(struct grid *grid, const struct array_path *source, const char *name,
              const struct array *array);

/* Find the times of the samples of an array whose roles are set. If the coordinate of their
 * dimension has no dates, use one that the attribute `coordinates` lists, as NEMO writes it, or
 * `time` if the dimension has no name. */
void grid_find_times(struct grid *grid, const struct array_path *source, int array,
                     const int64_t *extent);

/* Return a dimension of an array, or NULL if the file does not name it. */
struct dimension *grid_dimension(const struct grid *grid, int array, int dimension);

/* Return the first dimension of an array that has a role, or NULL if no dimension has it or the
 * file does not name it. */
struct dimension *grid_role_dimension(const struct grid *grid, int array, enum dimension_role role);

/* True if units, standard name or name are those of latitudes (DIMENSION_ROW) or longitudes
 * (DIMENSION_COLUMN) in degrees, also if the pole is rotated. */
bool dimension_in_degrees(const struct dimension *dimension, enum dimension_kind kind);

/* True if, by their names, an array has only dimensions of images, and another array has times. */
bool grid_lacks_samples(const struct grid *grid, int array);

/* Set the roles of the dimensions of an array: by their names, or as `order` (enum
 * data_order_choice) states. By default channels are the last dimensions if the last one is the
 * smallest. named: the name or the number of the dimension of the samples, or "". It is an error if
 * the names contradict the order, or if no two neighbours can be rows and columns. */
MUST_CHECK bool grid_set_roles(struct grid *grid, int array, const int64_t *extent, int order,
                               const char *named, struct error *error);

/* True if the columns of the first array are longitudes in degrees that cover the globe: their
 * spacing is 360 degrees divided by their number. */
bool grid_is_periodic(const struct grid *grid);

/* Compare the samples, rows and columns of all arrays of a file with those of the first one. */
MUST_CHECK bool grid_check(const struct grid *grid, struct error *error);

/* Compare the dimensions of each array except those of samples, and its units, with the array of
 * the same name in another grid, and the steps of time. Coordinates may differ by 1e-4 of their
 * spacing, longitudes also by 360 degrees. */
MUST_CHECK bool grid_compare(const struct grid *first, const struct grid *other,
                             struct error *error);

/* Return the grid as JSON, without the dimensions of samples, to be freed by the caller. */
char *grid_write(const struct grid *grid);

/* Read what grid_write wrote; an invalid text is an empty grid. */
void grid_parse(const char *text, const char *path, struct grid *grid);

void grid_close(struct grid *grid);

#endif
