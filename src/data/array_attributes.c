// SPDX-License-Identifier: BSD-3-Clause
#include "data/array_attributes.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/option_types.h"
#include "core/allocate.h"
#include "core/text.h"
#include "data/array_formats.h"

/* True if an attribute describes the values. False if it describes how the file stores them, or
 * refers to other arrays. */
static bool describes_values(const char *name)
{
    static const char *const names[] = {
        "CLASS",       "NAME",          HDF5_SCALE_USES,    HDF5_SCALES,    ZARR_DIMENSIONS,
        "_FillValue",  "missing_value", "scale_factor",     "add_offset",   "_Unsigned",
        "valid_range", "valid_min",     "valid_max",        "dtype",        "coordinates",
        "bounds",      "grid_mapping",  "DIMENSION_LABELS", "_NCProperties"};
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++)
        if (strcmp(name, names[n]) == 0)
            return false;
    return strncmp(name, "_Netcdf4", strlen("_Netcdf4")) != 0;
}

/* Add an attribute whose values follow in `values`. */
static struct hdf5_attribute *attribute_add(struct array_attributes *to, const char *name,
                                            enum hdf5_value kind, int64_t count, FILE *values)
{
    to->attribute =
        allocate_resized(to->attribute, (size_t)(to->count + 1) * sizeof *to->attribute);
    struct hdf5_attribute *attribute = &to->attribute[to->count++];
    *attribute = (struct hdf5_attribute){.kind = kind, .count = count, .offset = ftello(values)};
    snprintf(attribute->name, HDF5_NAME, "%s", name);
    return attribute;
}

static void hdf5_attributes_copy(const struct hdf5_reader *reader, const char *array,
                                 bool (*is_selected)(const char *name), FILE *values,
                                 struct array_attributes *to)
{
    const struct hdf5_object *object = hdf5_path_find(reader, array);
    for (int64_t n = 0; object != NULL && n < object->attribute_count; n++) {
        const struct hdf5_attribute *from = &reader->file.attributes[object->first_attribute + n];
        const char *first = reader->file.values + from->offset, *text = first;
        const char *end = reader->file.values + reader->file.value_bytes;
        if (from->kind == HDF5_NO_VALUE || from->count < 1 || !is_selected(from->name))
            continue;
        int64_t texts = 0;
        for (; from->kind == HDF5_TEXT && texts < from->count && text < end; texts++) {
            const char *zero = memchr(text, '\0', (size_t)(end - text));
            if (zero == NULL)
                break;
            text = zero + 1;
        }
        if (from->kind == HDF5_TEXT && texts < from->count)
            continue;
        attribute_add(to, from->name, (enum hdf5_value)from->kind, from->count, values);
        fwrite(first, 1,
               from->kind == HDF5_TEXT ? (size_t)(text - first)
                                       : (size_t)from->count * sizeof(double),
               values);
    }
}

/* Write a JSON value as one or more values of an attribute. */
static void json_attribute_copy(const char *name, const json_t *value, FILE *values,
                                struct array_attributes *to)
{
    const bool is_list = json_is_array(value);
    const json_t *first = is_list ? json_array_get(value, 0) : value;
    const size_t count = is_list ? json_array_size(value) : 1;
    const bool is_text = json_is_string(first);
    if (!is_text && !json_is_number(first))
        return;
    for (size_t n = 0; is_list && n < count; n++)
        if (json_typeof(json_array_get(value, n)) != json_typeof(first))
            return;
    attribute_add(to, name, is_text ? HDF5_TEXT : HDF5_REAL, (int64_t)count, values);
    for (size_t n = 0; n < count; n++) {
        const json_t *item = is_list ? json_array_get(value, n) : value;
        const double number = json_number_value(item);
        if (is_text)
            fwrite(json_string_value(item), 1, strlen(json_string_value(item)) + 1, values);
        else
            fwrite(&number, sizeof number, 1, values);
    }
}

static void zarr_attributes_copy(const char *store, const char *array,
                                 bool (*is_selected)(const char *name), FILE *values,
                                 struct array_attributes *to)
{
    char folder[PATH_MAX];
    const char *name;
    json_t *value;
    if (snprintf(folder, sizeof folder, "%s/%s", store, array) >= (int)sizeof folder)
        return;
    json_t *object = array_zarr_attributes(folder);
    json_object_foreach(object, name, value)
    {
        if (is_selected(name))
            json_attribute_copy(name, value, values, to);
    }
    json_decref(object);
}

void array_attributes_select(const struct array_path *source, const char *array,
                             bool (*is_selected)(const char *name),
                             struct array_attributes *attributes)
{
    struct text_stream text;
    FILE *values = text_stream_open(&text);
    if (source->file != NULL)
        hdf5_attributes_copy(source->reader, array, is_selected, values, attributes);
    else if (source->is_folder)
        zarr_attributes_copy(source->path, array, is_selected, values, attributes);
    attributes->values = text_stream_close(&text);
}

void array_attributes_read(const struct array_path *source, const char *array,
                           struct array_attributes *attributes)
{
    array_attributes_select(source, array, describes_values, attributes);
}

const struct hdf5_attribute *array_attributes_find(const struct array_attributes *attributes,
                                                   const char *name)
{
    for (int64_t n = 0; n < attributes->count; n++)
        if (strcmp(attributes->attribute[n].name, name) == 0)
            return &attributes->attribute[n];
    return NULL;
}

const char *array_attributes_text(const struct array_attributes *attributes, const char *name)
{
    const struct hdf5_attribute *attribute = array_attributes_find(attributes, name);
    return attribute != NULL && attribute->kind == HDF5_TEXT
               ? attributes->values + attribute->offset
               : "";
}

void array_attributes_free(struct array_attributes *attributes)
{
    free(attributes->attribute);
    free(attributes->values);
    *attributes = (struct array_attributes){0};
}

/* ---- names of classes ---- */

static bool is_class_names(const char *name)
{
    return strcmp(name, "class_names") == 0;
}

static int name_compare(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

static bool names_check(const char *path, const char *array, const struct listing *names,
                        struct error *error)
{
    char **sorted = allocate(names->count, sizeof *sorted);
    bool good = true;
    for (size_t n = 0; n < names->count; n++)
        sorted[n] = names->names[n];
    qsort(sorted, names->count, sizeof *sorted, name_compare);
    for (size_t n = 1; good && n < names->count; n++)
        if (strcmp(sorted[n - 1], sorted[n]) == 0)
            good = error_set(error, ERROR_DATA,
                             "%s: two classes of '%s' have the name '%s': make the names in its "
                             "attribute class_names distinct",
                             path, array, sorted[n]);
    free(sorted);
    return good;
}

bool array_class_names(const struct array_path *source, const char *array, struct listing *names,
                       struct error *error)
{
    struct array_attributes attributes = {0};
    array_attributes_select(source, array, is_class_names, &attributes);
    const struct hdf5_attribute *attribute = attributes.attribute;
    const char *text = attributes.values + (attribute != NULL ? attribute->offset : 0);
    if (attribute != NULL && attribute->kind == HDF5_TEXT && attribute->count <= CLASSES_MOST)
        for (int64_t c = 0; c < attribute->count; c++, text += strlen(text) + 1)
            listing_add(names, text);
    array_attributes_free(&attributes);
    return names_check(source->path, array, names, error);
}
