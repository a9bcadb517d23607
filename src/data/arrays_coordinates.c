// SPDX-License-Identifier: BSD-3-Clause
#include "data/arrays_coordinates.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/allocate.h"
#include "core/log.h"
#include "core/text.h"
#include "data/array_zarr.h"
#include "data/window.h"

/* Paths of the scales of the axes in a file; "": none. */
struct scales {
    char path[AXES][HDF5_NAME];
};

/* Set the paths from those of the scales of the dimensions of a variable. */
static void scale_set(struct scales *scales, const struct variable *x, int dimension,
                      const char *path)
{
    const int rows = x->dimensions == 4 && !x->channels_last ? 2 : 1;
    const int axis = dimension == 0          ? AXIS_SAMPLES
                     : dimension == rows     ? AXIS_ROWS
                     : dimension == rows + 1 ? AXIS_COLUMNS
                                             : AXIS_OUTPUTS;
    if (axis < AXIS_OUTPUTS)
        snprintf(scales->path[axis], HDF5_NAME, "%s", path);
}

static void hdf5_scales_find(const struct hdf5_reader *reader, const struct variable *x,
                             struct scales *scales)
{
    const struct hdf5_object *object = hdf5_path_find(reader, x->name);
    const struct hdf5_attribute *list =
        object != NULL ? hdf5_attribute_find(reader, object, HDF5_SCALES) : NULL;
    if (list == NULL || list->kind != HDF5_TEXT)
        return;
    const char *text = reader->file.values + list->offset;
    const char *end = reader->file.values + reader->file.value_bytes;
    for (int d = 0; d < list->count && text < end; d++, text += strlen(text) + 1) {
        const struct hdf5_object *scale = text[0] != '\0' ? hdf5_path_find(reader, text) : NULL;
        const struct hdf5_attribute *name =
            scale != NULL ? hdf5_attribute_find(reader, scale, "NAME") : NULL;
        if (memchr(text, '\0', (size_t)(end - text)) == NULL)
            return;
        if (scale != NULL && (name == NULL || name->kind != HDF5_TEXT ||
                              strncmp(reader->file.values + name->offset, HDF5_DIMENSION_ONLY,
                                      strlen(HDF5_DIMENSION_ONLY)) != 0))
            scale_set(scales, x, d, text);
    }
}

/* A coordinate has the name of the dimension and is in the group of the images. */
static void zarr_scales_find(const char *store, const struct variable *x, struct scales *scales)
{
    char folder[PATH_MAX];
    const json_t *name;
    size_t d;
    const char *base = text_base_name(x->name);
    if (snprintf(folder, sizeof folder, "%s/%s", store, x->name) >= (int)sizeof folder)
        return;
    json_t *attributes = array_zarr_attributes(folder);
    json_array_foreach(json_object_get(attributes, ZARR_DIMENSIONS), d, name)
    {
        char path[HDF5_NAME];
        const int length = json_is_string(name)
                               ? snprintf(path, sizeof path, "%.*s%s", (int)(base - x->name),
                                          x->name, json_string_value(name))
                               : HDF5_NAME;
        if (length < HDF5_NAME)
            scale_set(scales, x, (int)d, path);
    }
    json_decref(attributes);
}

static void scales_find(const struct array_path *source, const struct variable *x,
                        struct scales *scales)
{
    *scales = (struct scales){0};
    if (source->descriptor >= 0)
        hdf5_scales_find(source->reader, x, scales);
    else if (source->is_folder)
        zarr_scales_find(source->path, x, scales);
}

/* Append `count` coordinates after the end of an array, without the first `skipped` of these:
 * continue the last three values if they are equally spaced, else append NaN. */
static void values_continue(struct array *array, int64_t skipped, int64_t count,
                            struct coordinate *to)
{
    const int64_t extent = array->extent[0];
    const struct array_box box = {.begin = {extent - 3}, .count = {3}, .stride = {1}};
    struct error ignored = {0};
    double last[3] = {NAN, NAN, NAN};
    bool good = true;
    if (skipped == 0 && to->count >= 3) /* the last file of a series may be shorter */
        memcpy(last, to->values + to->count - 3, sizeof last);
    else
        good = extent >= 3 && array_read_doubles(array, &box, last, &ignored);
    const double step = last[2] - last[1];
    const bool is_even = good && fabs(step - (last[1] - last[0])) <= 1e-6 * fabs(step);
    for (int64_t i = 0; i < count; i++)
        to->values[to->count++] =
            is_even ? last[2] + (double)(skipped + i + 1) * step : (double)NAN;
}

/* Append `count` coordinates from index `first` on, and `beyond` after the end of the array. */
static bool values_append(const struct array_path *source, const char *path, int64_t first,
                          int64_t count, int64_t beyond, struct coordinate *to)
{
    struct array array;
    struct error ignored = {0};
    const struct array_box box = {.begin = {first}, .count = {count}, .stride = {1}};
    const size_t values = (size_t)(to->count + count + beyond + 1);
    bool good = array_path_array(source, path, &array, &ignored) && array.dimensions == 1 &&
                first >= 0 && (count == 0 || first + count <= array.extent[0]);
    double *larger = good ? realloc(to->values, values * sizeof *larger) : NULL;
    if (larger != NULL) {
        to->values = larger;
        good = count == 0 || array_read_doubles(&array, &box, larger + to->count, &ignored);
        to->count += count;
        if (beyond > 0)
            values_continue(&array, first + count - array.extent[0], beyond, to);
    }
    array_close(&array);
    return good && larger != NULL;
}

void arrays_sample_range_read(const struct array_path *source, const struct variable *x,
                              int64_t samples, struct sample_range *range)
{
    struct scales scales;
    struct array_attributes attributes = {0};
    struct coordinate ends = {.count = 0};
    scales_find(source, x, &scales);
    const char *path = scales.path[AXIS_SAMPLES];
    *range = (struct sample_range){.first = NAN};
    if (path[0] != '\0' && values_append(source, path, 0, 1, 0, &ends) &&
        values_append(source, path, samples - 1, 1, 0, &ends)) {
        array_attributes_read(source, path, &attributes);
        snprintf(range->name, sizeof range->name, "%s", text_base_name(path));
        snprintf(range->units, sizeof range->units, "%s",
                 array_attributes_text(&attributes, "units"));
        range->first = ends.values[0];
        range->last = ends.values[1];
    }
    array_attributes_free(&attributes);
    coordinate_free(&ends);
}

/* Set name and attributes from the first file. Return false if the units of another file differ
 * from those of the first. */
static bool attributes_set(const struct array_path *source, const char *path, struct coordinate *to)
{
    struct array_attributes attributes = {0};
    array_attributes_read(source, path, &attributes);
    if (to->name[0] == '\0') {
        snprintf(to->name, sizeof to->name, "%s", text_base_name(path));
        to->attributes = attributes;
        return true;
    }
    const bool same = strcmp(array_attributes_text(&attributes, "units"),
                             array_attributes_text(&to->attributes, "units")) == 0;
    array_attributes_free(&attributes);
    if (!same)
        log_warn("the output has no coordinate '%s': its units in %s differ from those in the "
                 "first file",
                 to->name, source->path);
    return same;
}

/* Read the coordinates of a file: those of its samples, and of the pixels if it is the first. */
static void file_read(const struct dataset *dataset, const struct arrays_part *part, bool is_first,
                      const struct variable *x, const struct array_path *source,
                      struct coordinate axes[AXES])
{
    const int64_t begin[AXES] = {part->sample};
    const struct image_size field = window_field(dataset);
    const int64_t count[AXES] = {part->count, field.height, field.width};
    struct scales scales;
    scales_find(source, x, &scales);
    for (int axis = 0; axis < (is_first ? AXES : AXIS_ROWS); axis++) {
        struct coordinate *to = &axes[axis];
        const char *path = scales.path[axis];
        if ((is_first || to->name[0] != '\0') &&
            (path[0] == '\0' || !attributes_set(source, path, to) ||
             !values_append(source, path, begin[axis], count[axis],
                            axis == AXIS_SAMPLES ? part->beyond : 0, to)))
            coordinate_free(to);
    }
}

/* Read the coordinates of a file, and the attributes of data.y unless y is NULL. */
static bool file_open_and_read(const struct dataset *dataset, const struct arrays_view *view,
                               int64_t file, struct coordinate axes[AXES],
                               struct array_attributes *y)
{
    const struct arrays_part part = arrays_part(dataset, file);
    struct hdf5_reader reader = {
        .kind = ERROR_DATA, .purpose = "arrays", .datasets = view->x[0].name};
    struct error ignored = {0};
    struct array_path source;
    const bool good = array_path_open(&source, part.path, &reader, &ignored);
    if (good)
        file_read(dataset, &part, file == 0, &view->x[0], &source, axes);
    for (int v = 0; good && y != NULL && v < view->y_count; v++)
        array_attributes_read(&source, view->y[v].name, &y[v]);
    hdf5_reader_close(&reader);
    array_path_close(&source);
    return good;
}

void arrays_coordinates_read(const struct dataset *dataset, struct coordinate axes[AXES],
                             struct array_attributes *y)
{
    struct arrays_view view;
    struct coordinate *samples = &axes[AXIS_SAMPLES];
    for (int64_t f = 0; arrays_view(dataset, &view) && f < view.file_count; f++)
        if (!file_open_and_read(dataset, &view, f, axes, f == 0 ? y : NULL))
            coordinate_free(samples);
    /* In place, because records are in ascending order. */
    const int64_t records = window_records(dataset);
    for (int64_t n = 0; samples->count > 0 && n < records; n++)
        samples->values[n] = samples->values[dataset_record(dataset, dataset->count / records * n)];
    samples->count = samples->count > 0 ? records : 0;
}

/* ---- latitudes ---- */

static bool describes_latitude(const char *name)
{
    return strcmp(name, "units") == 0 || strcmp(name, "standard_name") == 0 ||
           strcmp(name, "coordinates") == 0;
}

/* True if units, standard name (CF conventions) or name are those of a latitude. */
static bool is_latitude(const char *path, const struct array_attributes *attributes)
{
    const char *name = text_base_name(path);
    const char *units = array_attributes_text(attributes, "units");
    const bool is_north = strncmp(units, "degree", strlen("degree")) == 0 &&
                          (text_ends_with(units, "_north") || text_ends_with(units, "_N") ||
                           text_ends_with(units, "eN") || text_ends_with(units, "sN"));
    return is_north || strcmp(name, "lat") == 0 || strcmp(name, "latitude") == 0 ||
           strcmp(array_attributes_text(attributes, "standard_name"), "latitude") == 0;
}

/* True if the file has this array and it is a latitude. */
static bool has_latitude(const struct array_path *source, const char *path)
{
    struct array_attributes attributes = {0};
    if (path[0] == '\0' || !array_path_has(source, path))
        return false;
    array_attributes_select(source, path, describes_latitude, &attributes);
    const bool found = is_latitude(path, &attributes);
    array_attributes_free(&attributes);
    return found;
}

/* Find a latitude that is no coordinate of the rows: one of the columns, or one of those that the
 * attribute `coordinates` lists, or `lat` or `latitude` in the group of the images. */
static bool other_latitude_find(const struct array_path *source, const struct variable *x,
                                const struct scales *scales, char path[HDF5_NAME])
{
    struct array_attributes attributes = {0};
    char names[HDF5_NAME], *rest = names, *name;
    bool found = has_latitude(source, scales->path[AXIS_COLUMNS]);
    snprintf(path, HDF5_NAME, "%s", scales->path[AXIS_COLUMNS]);
    array_attributes_select(source, x->name, describes_latitude, &attributes);
    snprintf(names, sizeof names, "lat latitude %s",
             array_attributes_text(&attributes, "coordinates"));
    while (!found && (name = strtok_r(rest, " ", &rest)) != NULL) {
        const int group = (int)(text_base_name(x->name) - x->name);
        found = snprintf(path, HDF5_NAME, "%.*s%s", group, x->name, name) < HDF5_NAME &&
                has_latitude(source, path);
    }
    array_attributes_free(&attributes);
    return found;
}

static bool latitude_refuse(const struct array_path *source, const char *path, const char *reason,
                            struct error *error)
{
    return error_set(error, ERROR_DATA,
                     "%s: train.row_weight=latitude cannot use the latitude '%s': %s; make it a "
                     "coordinate [rows] of data.x in degrees, or set train.row_weight=none",
                     source->path, path, reason);
}

/* Read the values of the coordinate of the rows. */
static bool latitude_values_read(const struct array_path *source, const char *path, int64_t count,
                                 struct coordinate *rows, struct error *error)
{
    struct array array;
    const struct array_box box = {.count = {count}, .stride = {1}};
    const char *units = array_attributes_text(&rows->attributes, "units");
    char reason[ARRAY_NAME];
    bool good = array_path_array(source, path, &array, error);
    if (good && (array.dimensions != 1 || array.extent[0] != count)) {
        snprintf(reason, sizeof reason, "it has %lld values, and the images have %lld rows",
                 (long long)array_elements(&array), (long long)count);
        good = latitude_refuse(source, path, reason, error);
    } else if (good && units[0] != '\0' && strncmp(units, "deg", strlen("deg")) != 0) {
        snprintf(reason, sizeof reason, "its units are '%.100s'", units);
        good = latitude_refuse(source, path, reason, error);
    }
    rows->values = allocate((size_t)count, sizeof *rows->values);
    good = good && array_read_doubles(&array, &box, rows->values, error);
    array_close(&array);
    for (; good && rows->count < count; rows->count++)
        if (!(fabs(rows->values[rows->count]) <= 90.001)) {
            snprintf(reason, sizeof reason, "its value %g of row %lld is not in [-90, 90]",
                     rows->values[rows->count], (long long)rows->count);
            good = latitude_refuse(source, path, reason, error);
        }
    return good;
}

/* Read the latitudes of the rows of a file; rows->count is 0 if it has none. */
static bool latitudes_read(const struct dataset *dataset, const struct variable *x, int64_t file,
                           struct coordinate *rows, struct error *error)
{
    const struct arrays_part part = arrays_part(dataset, file);
    struct hdf5_reader reader = {.kind = ERROR_DATA, .purpose = "arrays", .datasets = x->name};
    struct array_path source;
    struct scales scales;
    char other[HDF5_NAME];
    bool good = array_path_open(&source, part.path, &reader, error);
    if (good) {
        scales_find(&source, x, &scales);
        const char *path = scales.path[AXIS_ROWS];
        if (has_latitude(&source, path))
            good = attributes_set(&source, path, rows) &&
                   latitude_values_read(&source, path, dataset->height, rows, error);
        else if (other_latitude_find(&source, x, &scales, other))
            good = latitude_refuse(&source, other, "it is not that of the rows", error);
    }
    hdf5_reader_close(&reader);
    array_path_close(&source);
    return good;
}

/* Compare the latitudes of a file with those of the first one. */
static bool latitudes_compare(const struct dataset *dataset, int64_t file,
                              const struct coordinate *first, const struct coordinate *rows,
                              struct error *error)
{
    bool same = rows->count == first->count;
    for (int64_t y = 0; same && y < rows->count; y++)
        same = fabs(rows->values[y] - first->values[y]) <= 1e-3;
    return same || error_set(error, ERROR_DATA,
                             "%s: its latitudes differ from those of %s, and "
                             "train.row_weight=latitude weights rows of all files alike: use files "
                             "of the same rows, or set train.row_weight=none",
                             arrays_part(dataset, file).path, arrays_part(dataset, 0).path);
}

/* Return the weights of the rows. rows->count 0: the latitudes are not known. */
static float *weights_of(const struct coordinate *rows, int64_t count)
{
    const double degree = 3.14159265358979323846 / 180;
    double sum = 0, *cosines = allocate((size_t)count, sizeof *cosines);
    float *weights = allocate((size_t)count, sizeof *weights);
    for (int64_t y = 0; y < count; y++) {
        cosines[y] = rows->count > 0 ? fmax(0, cos(rows->values[y] * degree))
                                     : sin(180 * degree * ((double)y + 0.5) / (double)count);
        sum += cosines[y];
    }
    for (int64_t y = 0; y < count; y++)
        weights[y] = (float)(cosines[y] * (double)count / sum);
    free(cosines);
    return weights;
}

bool arrays_row_weights(const struct dataset *dataset, float **weights, struct error *error)
{
    struct coordinate first = {.count = 0};
    struct arrays_view view;
    bool good =
        arrays_view(dataset, &view) && latitudes_read(dataset, &view.x[0], 0, &first, error);
    for (int64_t f = 1; good && f < view.file_count; f++) {
        struct coordinate rows = {.count = 0};
        good = latitudes_read(dataset, &view.x[0], f, &rows, error) &&
               latitudes_compare(dataset, f, &first, &rows, error);
        coordinate_free(&rows);
    }
    if (good)
        *weights = weights_of(&first, dataset->height);
    if (good && first.count > 0)
        log_info("train.row_weight: %lld rows with the latitudes '%s' from %g to %g",
                 (long long)first.count, first.name, first.values[0],
                 first.values[first.count - 1]);
    else if (good)
        log_info("train.row_weight: the data have no coordinate of the latitude: %lld equally "
                 "spaced rows from pole to pole are assumed",
                 (long long)dataset->height);
    coordinate_free(&first);
    return good;
}

void coordinate_free(struct coordinate *coordinate)
{
    free(coordinate->values);
    array_attributes_free(&coordinate->attributes);
    *coordinate = (struct coordinate){0};
}
