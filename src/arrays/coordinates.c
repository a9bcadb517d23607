// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/arrays.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/log.h"
#include "base/text.h"

void arrays_coordinate(const struct dataset *dataset, int y, enum coordinate_axis axis,
                       struct coordinate *to)
{
    const struct arrays *self = arrays_of(dataset);
    *to = (struct coordinate){.values = NULL};
    if (self == NULL)
        return;
    for (int64_t f = 0; axis == AXIS_SAMPLES && f < self->series.count; f++)
        if (self->series.file[f].time == NULL)
            return;
    const int number = axis == AXIS_OUTPUTS ? self->x_count + y : 0;
    const int rows = self->grid.array[0].rows;
    if (number >= self->grid.array_count)
        return;
    const struct grid_array *array = &self->grid.array[number];
    const bool has_outputs = array->dimensions == 2 || array->dimensions == 4;
    const int places[AXES] = {0, rows, rows + 1,
                              has_outputs ? array->rows == 1 ? 3 : 1 : GRID_NONE};
    if (places[axis] != GRID_NONE)
        to->dimension = grid_dimension(&self->grid, number, places[axis]);
    if (to->dimension == NULL || axis != AXIS_SAMPLES)
        return;
    const int64_t records = window_records(dataset), tiles = dataset->count / records;
    to->values = allocate((size_t)records, sizeof *to->values);
    for (int64_t n = 0; n < records; n++)
        to->values[n] =
            file_series_time(&self->series, dataset_record(dataset, tiles * n), self->y[y].offset);
}

/* ---- latitudes ---- */

/* True if units, standard name (CF conventions) or name are those of a latitude. */
static bool is_latitude(const char *path, const json_t *attributes)
{
    const char *name = text_base_name(path);
    const char *units = array_attribute_text(attributes, "units");
    const bool is_north = strncmp(units, "degree", strlen("degree")) == 0 &&
                          (text_ends_with(units, "_north") || text_ends_with(units, "_N") ||
                           text_ends_with(units, "eN") || text_ends_with(units, "sN"));
    return is_north || strcmp(name, "lat") == 0 || strcmp(name, "latitude") == 0 ||
           strcmp(array_attribute_text(attributes, "standard_name"), "latitude") == 0;
}

/* Find a latitude that is no coordinate of the rows: one of those that the attribute `coordinates`
 * lists, or `lat` or `latitude` in the group of the images. */
static bool other_latitude_find(const struct array_path *source, const char *x,
                                char path[HDF5_NAME])
{
    json_t *attributes = array_attributes(source, x);
    char names[HDF5_NAME], *rest = names, *name;
    bool found = false;
    snprintf(names, sizeof names, "lat latitude %s",
             array_attribute_text(attributes, "coordinates"));
    json_decref(attributes);
    while (!found && (name = strtok_r(rest, " ", &rest)) != NULL) {
        if (!array_path_sibling(source, x, name, path))
            continue;
        attributes = array_attributes(source, path);
        found = is_latitude(path, attributes);
        json_decref(attributes);
    }
    return found;
}

static bool latitude_refuse(const char *file, const char *path, const char *reason,
                            struct error *error)
{
    return error_set(error, ERROR_DATA,
                     "%s: train.row_weight=latitude cannot use the latitude '%s': %s; make it a "
                     "coordinate [rows] of data.x in degrees, or set train.row_weight=none",
                     file, path, reason);
}

/* Check the coordinates of the rows, which are a latitude. */
static bool latitudes_check(const struct grid *grid, const struct dimension *rows, int64_t height,
                            struct error *error)
{
    char reason[ARRAY_NAME] = "";
    if (rows->values == NULL || rows->count != height)
        snprintf(reason, sizeof reason, "it does not have one number for each of the %lld rows",
                 (long long)height);
    else if (rows->units[0] != '\0' && strncmp(rows->units, "deg", strlen("deg")) != 0)
        snprintf(reason, sizeof reason, "its units are '%s'", rows->units);
    for (int64_t y = 0; reason[0] == '\0' && y < height; y++)
        if (!(fabs(rows->values[y]) <= 90.001))
            snprintf(reason, sizeof reason, "its value %g of row %lld is not in [-90, 90]",
                     rows->values[y], (long long)y);
    return reason[0] == '\0' || latitude_refuse(grid->path, rows->path, reason, error);
}

/* Set the latitudes of the rows, or NULL if the first file has no latitude. */
static bool latitudes_find(const struct dataset *dataset, const struct dimension **latitudes,
                           struct error *error)
{
    const struct arrays *self = dataset->self;
    const struct grid *grid = &self->grid;
    const char *x = self->variable[0].name;
    char other[HDF5_NAME];
    const struct dimension *rows = grid_dimension(grid, 0, grid->array[0].rows);
    const struct dimension *columns = grid_dimension(grid, 0, grid->array[0].rows + 1);
    if (rows != NULL && rows->path[0] != '\0' && is_latitude(rows->path, rows->attributes)) {
        *latitudes = rows;
        return latitudes_check(grid, rows, dataset->height, error);
    }
    if (columns != NULL && is_latitude(columns->path, columns->attributes))
        return latitude_refuse(grid->path, columns->path, "it is not that of the rows", error);
    struct hdf5_reader reader = {.kind = ERROR_DATA, .purpose = "arrays", .datasets = x};
    struct array_path source;
    bool good = array_path_open(&source, grid->path, &reader, error);
    if (good && other_latitude_find(&source, x, other))
        good = latitude_refuse(grid->path, other, "it is not that of the rows", error);
    hdf5_reader_close(&reader);
    array_path_close(&source);
    return good;
}

bool arrays_row_weights(const struct dataset *dataset, float **weights, struct error *error)
{
    const double degree = 3.14159265358979323846 / 180;
    const struct dimension *latitudes = NULL;
    const int64_t count = dataset->height;
    if (!latitudes_find(dataset, &latitudes, error))
        return false;
    OWNED double *cosines = allocate((size_t)count, sizeof *cosines);
    double sum = 0;
    *weights = allocate((size_t)count, sizeof **weights);
    for (int64_t y = 0; y < count; y++) {
        cosines[y] = latitudes != NULL ? fmax(0, cos(latitudes->values[y] * degree))
                                       : sin(180 * degree * ((double)y + 0.5) / (double)count);
        sum += cosines[y];
    }
    for (int64_t y = 0; y < count; y++)
        (*weights)[y] = (float)(cosines[y] * (double)count / sum);
    if (latitudes != NULL)
        log_info("train.row_weight: %lld rows with the latitudes '%s' from %g to %g",
                 (long long)latitudes->count, latitudes->name, latitudes->values[0],
                 latitudes->values[latitudes->count - 1]);
    else
        log_info("train.row_weight: the data have no coordinate of the latitude: %lld equally "
                 "spaced rows from pole to pole are assumed",
                 (long long)dataset->height);
    return true;
}
