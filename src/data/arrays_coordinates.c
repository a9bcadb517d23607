// SPDX-License-Identifier: BSD-3-Clause
#include "data/arrays_coordinates.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/text.h"
#include "data/array_zarr.h"

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
                                             : AXES;
    if (axis < AXES)
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

/* Find the scales of the variable's dimensions. */
static void scales_find(const struct arrays_part *part, const struct variable *x,
                        struct scales *scales)
{
    struct hdf5_reader reader = {.kind = ERROR_DATA, .purpose = "arrays", .datasets = x->name};
    struct error ignored = {0};
    struct array_path source;
    *scales = (struct scales){0};
    if (array_path_open(&source, part->path, &reader, &ignored)) {
        if (source.descriptor >= 0)
            hdf5_scales_find(&reader, x, scales);
        else if (source.is_folder)
            zarr_scales_find(part->path, x, scales);
    }
    hdf5_reader_close(&reader);
    array_path_close(&source);
}

/* Read `count` coordinates from index `first` on to the end of those of earlier files. */
static bool values_append(const struct array_path *source, const char *path, int64_t first,
                          int64_t count, struct coordinate *to)
{
    struct array array;
    struct error ignored = {0};
    const struct array_box box = {.begin = {first}, .count = {count}, .stride = {1}};
    bool good = array_path_array(source, path, &array, &ignored) && array.dimensions == 1 &&
                first >= 0 && first + count <= array.extent[0];
    double *larger =
        good ? realloc(to->values, (size_t)(to->count + count) * sizeof *larger) : NULL;
    if (larger != NULL) {
        to->values = larger;
        good = array_read_doubles(&array, &box, larger + to->count, &ignored);
        to->count += count;
    }
    array_close(&array);
    return good && larger != NULL;
}

void coordinate_free(struct coordinate *coordinate)
{
    free(coordinate->values);
    array_attributes_free(&coordinate->attributes);
    *coordinate = (struct coordinate){0};
}

/* Compare the units with those of the first file. */
static bool units_agree(const struct array_path *source, const char *path,
                        const struct coordinate *first)
{
    struct array_attributes attributes = {0};
    array_attributes_read(source, path, &attributes);
    const bool same = strcmp(array_attributes_text(&attributes, "units"),
                             array_attributes_text(&first->attributes, "units")) == 0;
    array_attributes_free(&attributes);
    if (!same)
        log_warn("the output has no coordinate '%s': its units in %s differ from those in the "
                 "first file",
                 first->name, source->path);
    return same;
}

/* Read the coordinates of a file: those of its samples, and of the pixels if it is the first. */
static void file_read(const struct dataset *dataset, const struct arrays_part *part, bool is_first,
                      const struct scales *scales, const struct array_path *source,
                      struct coordinate axes[AXES])
{
    const int64_t begin[AXES] = {part->sample};
    const int64_t count[AXES] = {part->count, dataset->height, dataset->width};
    for (int axis = 0; axis < (is_first ? AXES : AXIS_ROWS); axis++) {
        struct coordinate *to = &axes[axis];
        const char *path = scales->path[axis];
        if (!is_first && to->count == 0)
            continue;
        if (path[0] == '\0' || (!is_first && !units_agree(source, path, to)) ||
            !values_append(source, path, begin[axis], count[axis], to)) {
            coordinate_free(to);
            continue;
        }
        if (is_first) {
            snprintf(to->name, sizeof to->name, "%s", text_base_name(path));
            array_attributes_read(source, path, &to->attributes);
        }
    }
}

void arrays_coordinates_read(const struct dataset *dataset, struct coordinate axes[AXES])
{
    struct arrays_view view;
    for (int64_t f = 0; arrays_view(dataset, &view) && f < view.file_count; f++) {
        const struct arrays_part part = arrays_part(dataset, f);
        struct scales scales;
        char names[AXES * (HDF5_NAME + 1)];
        struct hdf5_reader reader = {.kind = ERROR_DATA, .purpose = "arrays", .datasets = names};
        struct error ignored = {0};
        struct array_path source;
        scales_find(&part, &view.x[0], &scales);
        snprintf(names, sizeof names, "%s,%s,%s", scales.path[AXIS_SAMPLES], scales.path[AXIS_ROWS],
                 scales.path[AXIS_COLUMNS]);
        if (array_path_open(&source, part.path, &reader, &ignored))
            file_read(dataset, &part, f == 0, &scales, &source, axes);
        hdf5_reader_close(&reader);
        array_path_close(&source);
    }
}

void arrays_coordinates_free(struct coordinate axes[AXES])
{
    for (int axis = 0; axis < AXES; axis++)
        coordinate_free(&axes[axis]);
}
