// SPDX-License-Identifier: BSD-3-Clause
#include "data/array_names.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/option_types.h"
#include "data/array_zarr.h"

static const char attribute_name[] = "class_names";

static bool hdf5_names_read(const struct hdf5_reader *reader, const char *array,
                            struct listing *names, struct error *error)
{
    const struct hdf5_object *object = hdf5_path_find(reader, array);
    const struct hdf5_attribute *attribute =
        object != NULL ? hdf5_attribute_find(reader, object, attribute_name) : NULL;
    if (attribute == NULL || attribute->kind != HDF5_TEXT || attribute->count > CLASSES_MOST)
        return true;
    const char *text = reader->file.values + attribute->offset;
    const char *end = reader->file.values + reader->file.value_bytes;
    for (int64_t c = 0; c < attribute->count; c++, text += strlen(text) + 1) {
        if (text >= end || memchr(text, '\0', (size_t)(end - text)) == NULL)
            return hdf5_refuse(reader, error, "its attribute 'class_names' is damaged");
        if (!listing_add(names, text, error))
            return false;
    }
    return true;
}

static bool zarr_names_read(const char *store, const char *array, struct listing *names,
                            struct error *error)
{
    char folder[PATH_MAX];
    const json_t *name;
    size_t n;
    bool good = true;
    if (snprintf(folder, sizeof folder, "%s/%s", store, array) >= (int)sizeof folder)
        return true;
    json_t *attributes = array_zarr_attributes(folder);
    json_array_foreach(json_object_get(attributes, attribute_name), n, name)
    {
        if (good && json_is_string(name))
            good = listing_add(names, json_string_value(name), error);
    }
    json_decref(attributes);
    return good;
}

static int name_compare(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

static bool names_check(const char *path, const char *array, const struct listing *names,
                        struct error *error)
{
    char **sorted = malloc((names->count + 1) * sizeof *sorted);
    bool good = true;
    if (sorted == NULL)
        return listing_no_memory(error);
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
    bool good = true;
    if (source->descriptor >= 0)
        good = hdf5_names_read(source->reader, array, names, error);
    else if (source->is_folder)
        good = zarr_names_read(source->path, array, names, error);
    return good && names_check(source->path, array, names, error);
}
