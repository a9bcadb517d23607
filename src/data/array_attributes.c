// SPDX-License-Identifier: BSD-3-Clause
#include "data/array_attributes.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/option_types.h"
#include "core/allocate.h"
#include "data/array_formats.h"

json_t *array_attributes(const struct array_path *source, const char *array)
{
    char folder[PATH_MAX];
    if (source->file != NULL)
        return json_incref((json_t *)hdf5_attributes(source->reader, array));
    if (!source->is_folder ||
        snprintf(folder, sizeof folder, "%s/%s", source->path, array) >= (int)sizeof folder)
        return NULL;
    return array_zarr_attributes(folder);
}

bool array_attribute_describes(const char *name)
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

const char *array_attribute_text(const json_t *attributes, const char *name)
{
    const json_t *value = json_object_get(attributes, name);
    const char *text = json_string_value(json_is_array(value) ? json_array_get(value, 0) : value);
    return text != NULL ? text : "";
}

int array_attribute_numbers(const json_t *value, double *numbers, int most)
{
    const size_t size = json_is_array(value) ? json_array_size(value) : 1;
    int count = 0;
    for (size_t n = 0; n < size && count < most; n++)
        count +=
            hdf5_real(json_is_array(value) ? json_array_get(value, n) : value, numbers + count);
    return count;
}

/* ---- names of classes ---- */

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
    json_t *attributes = array_attributes(source, array);
    const json_t *list = json_object_get(attributes, "class_names"), *name;
    size_t n;
    bool are_texts = json_array_size(list) <= CLASSES_MOST;
    if (json_is_string(list))
        listing_add(names, json_string_value(list));
    json_array_foreach(list, n, name)
    {
        are_texts = are_texts && json_is_string(name);
    }
    json_array_foreach(are_texts ? list : NULL, n, name)
    {
        listing_add(names, json_string_value(name));
    }
    json_decref(attributes);
    return names_check(source->path, array, names, error);
}
