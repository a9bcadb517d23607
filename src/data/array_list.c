// SPDX-License-Identifier: BSD-3-Clause
#include "data/array_list.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/option_types.h"
#include "core/allocate.h"
#include "core/text.h"
#include "data/array_attributes.h"
#include "data/array_files.h"
#include "data/array_filter.h"
#include "data/array_formats.h"
#include "data/grid.h"
#include "data/listing.h"

enum { DEEPEST = 32 };

static const char *const shown[] = {"units",      "long_name",     "scale_factor", "add_offset",
                                    "_FillValue", "missing_value", "valid_range",  "valid_min",
                                    "valid_max",  "class_names"};

/* Names of other arrays, by the CF conventions. */
static const char *const references[] = {"coordinates", "bounds", "climatology", "grid_mapping"};

enum { MOST_NUMBERS = 4 };

/* Add an entry whose path is "folder/name". */
static struct array_entry *entry_add(struct array_list *list, const char *folder, const char *name)
{
    list->entry = allocate_more(list->entry, &list->capacity, list->count, sizeof *list->entry);
    struct array_entry *entry = &list->entry[list->count++];
    *entry = (struct array_entry){0};
    const size_t bytes = strlen(folder) + strlen(name) + 2;
    entry->path = allocate(bytes, 1);
    snprintf(entry->path, bytes, "%s/%s", folder, name);
    return entry;
}

/* ---- attributes ---- */

/* Write "; NAME=VALUE". */
static void attribute_write(FILE *to, const json_t *attributes, const char *name)
{
    const json_t *attribute = json_object_get(attributes, name);
    double values[MOST_NUMBERS];
    char text[80];
    const int count = array_attribute_numbers(attribute, values, MOST_NUMBERS);
    snprintf(text, sizeof text, "%s", array_attribute_text(attributes, name));
    text_remove_control(text);
    if (count == 0 && text[0] != '\0')
        fprintf(to, "; %s=%s%s", name, text, json_array_size(attribute) > 1 ? ", ..." : "");
    for (int i = 0; i < count; i++) {
        text_shortest_decimal(values[i], false, text, sizeof text);
        fprintf(to, "%s%s%s%s", i > 0 ? "," : "; ", i > 0 ? "" : name, i > 0 ? "" : "=", text);
    }
}

/* Set the members that depend on attributes. xarray writes Booleans as int8, and the names of
 * dimensions as an attribute; its coordinates have the name of their dimension. */
static void attributes_set(struct array_entry *entry, const struct array_path *source)
{
    struct text_stream text;
    json_t *attributes = array_attributes(source, entry->path);
    const json_t *dimension = json_object_get(attributes, ZARR_DIMENSIONS);
    if (json_array_size(dimension) == 1)
        dimension = json_array_get(dimension, 0);
    if (entry->kind != '\0' && strcmp(array_attribute_text(attributes, "dtype"), "bool") == 0)
        entry->kind = 'b';
    if (entry->kind != '\0' && (json_object_get(attributes, "scale_factor") != NULL ||
                                json_object_get(attributes, "add_offset") != NULL))
        entry->kind = 'f'; /* of the values, not of the stored integers */
    entry->is_coordinate =
        strcmp(array_attribute_text(attributes, "CLASS"), "DIMENSION_SCALE") == 0 ||
        (json_is_string(dimension) &&
         strcmp(json_string_value(dimension), text_base_name(entry->path)) == 0);
    text_stream_open(&text);
    for (size_t n = 0; n < sizeof shown / sizeof shown[0]; n++)
        attribute_write(text.stream, attributes, shown[n]);
    entry->attributes = text_stream_close(&text);
    text_stream_open(&text);
    for (size_t n = 0; n < sizeof references / sizeof references[0]; n++)
        fprintf(text.stream, "%s ", array_attribute_text(attributes, references[n]));
    entry->references = text_stream_close(&text);
    json_decref(attributes);
}

/* ---- HDF5 ---- */

static void hdf5_object_add(struct array_list *list, const struct array_path *source,
                            const char *path)
{
    struct hdf5_object object;
    if (!hdf5_object_find(source->reader, path, &object) || object.kind == HDF5_GROUP)
        return;
    struct array_entry *entry = entry_add(list, "", path);
    if (array_hdf5_readable(&object, entry->reason))
        entry->reason[0] = '\0';
    entry->has_shape =
        object.kind == HDF5_DATASET && object.layout != HDF5_VIRTUAL && object.fault[0] == '\0';
    if (!entry->has_shape)
        return;
    array_hdf5_type_name(&object, entry->type, sizeof entry->type);
    array_hdf5_filter_names(&object, entry->filters, sizeof entry->filters);
    entry->is_chunked = object.layout == HDF5_CHUNKED;
    entry->dimensions = object.dimensions;
    memcpy(entry->extent, object.extent, sizeof entry->extent);
    memcpy(entry->chunk, object.chunk, sizeof entry->chunk);
    list->has_empty |= object.dimensions > 0 && object.extent[0] == 0;
    if (entry->reason[0] == '\0')
        entry->kind = object.type[1];
    attributes_set(entry, source);
}

/* ---- folders ---- */

/* Set an entry from an array that was opened, or that was refused with this reason. */
static void entry_set(struct array_list *list, struct array_entry *entry, const struct array *array,
                      const char *reason)
{
    static const char prefix[] = "': ";
    size_t used = 0;
    /* The reason follows "FILE: cannot read 'NAME'". */
    const char *quoted = strstr(reason, "cannot read '");
    const char *rest = quoted != NULL ? strstr(quoted, prefix) : NULL;
    snprintf(entry->reason, sizeof entry->reason, "%s",
             rest != NULL ? rest + strlen(prefix) : reason);
    entry->has_shape = array->element_bytes > 0 && array->dimensions > 0;
    for (int d = 0; d < array->dimensions; d++)
        entry->has_shape &= array->extent[d] > 0 && array->chunk[d] > 0;
    list->has_empty |= array->is_empty;
    entry->is_chunked = array->files.folder != NULL;
    if (entry->reason[0] == '\0' && entry->is_chunked)
        array_missing_write(array, entry->missing, sizeof entry->missing);
    entry->dimensions = array->dimensions;
    memcpy(entry->extent, array->extent, sizeof entry->extent);
    memcpy(entry->chunk, array->chunk, sizeof entry->chunk);
    entry->kind = reason[0] == '\0' ? array->kind : '\0';
    snprintf(entry->type, sizeof entry->type, "%s%s%lld", array->swapped ? "big-endian " : "",
             array->kind == 'i'   ? "int"
             : array->kind == 'u' ? "uint"
                                  : "float",
             8 * (long long)array->element_bytes);
    if (array->is_bool) {
        entry->kind = entry->kind == '\0' ? '\0' : 'b';
        snprintf(entry->type, sizeof entry->type, "bool");
    }
    snprintf(entry->filters, sizeof entry->filters, "no filter");
    for (int n = 0; n < array->filter_count && used < sizeof entry->filters; n++)
        used += (size_t)snprintf(entry->filters + used, sizeof entry->filters - used, "%s%s",
                                 n > 0 ? ", " : "", array_filter_name(array->filter[n]));
}

static void zarr_array_add(struct array_list *list, const struct array_path *source,
                           const char *folder, const char *name)
{
    struct array_entry *entry = entry_add(list, folder, name);
    struct array array;
    struct error reason = {0};
    error_defer(array_zarr_open(source->path, entry->path, &array, &reason));
    entry_set(list, entry, &array, reason.text);
    array_close(&array);
    attributes_set(entry, source);
}

/* Add the arrays below the folder of a group. */
static bool zarr_group_add(struct array_list *list, const struct array_path *source,
                           const char *folder, int depth, struct error *error)
{
    const char *store = source->path;
    char path[PATH_MAX], member[PATH_MAX];
    struct listing folders = {0};
    snprintf(path, sizeof path, "%s%s", store, folder);
    bool good = listing_read(path, &folders, NULL, NULL, error);
    for (size_t n = 0; good && n < folders.count; n++) {
        const char *name = folders.names[n];
        if (snprintf(member, sizeof member, "%s%s/%s", store, folder, name) >= (int)sizeof member ||
            depth == DEEPEST)
            continue;
        if (array_zarr_is_array(member))
            zarr_array_add(list, source, folder, name);
        else if (array_zarr_is_store(member))
            good = zarr_group_add(list, source, member + strlen(store), depth + 1, error);
    }
    listing_free(&folders);
    return good;
}

static bool is_npy(const char *name)
{
    return text_ends_with(name, ".npy");
}

static void npy_add(struct array_list *list, const char *path)
{
    char name[PATH_MAX];
    struct array array;
    struct error reason = {0};
    snprintf(name, sizeof name, "%s", text_base_name(path));
    if (is_npy(name))
        name[strlen(name) - strlen(".npy")] = '\0';
    struct array_entry *entry = entry_add(list, "", name);
    error_defer(array_npy_open(path, name, &array, &reason));
    entry_set(list, entry, &array, reason.text);
    array_close(&array);
}

static bool npy_folder_add(struct array_list *list, const char *folder, struct error *error)
{
    char path[PATH_MAX];
    struct listing files = {0};
    bool good = listing_read(folder, NULL, &files, is_npy, error);
    for (size_t n = 0; good && n < files.count; n++)
        if ((good = listing_join(path, sizeof path, folder, files.names[n], error)))
            npy_add(list, path);
    listing_free(&files);
    return good;
}

/* ---- the list ---- */

/* True if the array may be images, whose dimensions have an order. */
static bool has_order(const struct array_entry *entry)
{
    return entry->kind != '\0' && (entry->dimensions == 3 || entry->dimensions == 4);
}

/* Set the order of the dimensions of all arrays that may be images. */
static void orders_set(struct array_list *list, const struct array_path *source)
{
    struct error reason = {0};
    for (size_t n = 0; n < list->count; n++) {
        struct array_entry *entry = &list->entry[n];
        struct array array = {.dimensions = entry->dimensions};
        struct grid grid = {0};
        if (!has_order(entry))
            continue;
        memcpy(array.extent, entry->extent, sizeof array.extent);
        grid_add(&grid, source, entry->path + 1, &array);
        if (!grid_set_order(&grid, 0, entry->extent, DATA_ORDER_AUTO, &entry->channels_last,
                            &reason)) {
            entry->kind = '\0';
            snprintf(entry->reason, sizeof entry->reason, "it %.*s", (int)sizeof entry->reason - 4,
                     strstr(reason.text, "has the dimensions"));
        }
        error_clear(&reason);
        grid_close(&grid);
    }
}

/* Mark the arrays to which others of their group refer: coordinates, bounds and grid mappings. */
static void references_mark(struct array_list *list)
{
    for (size_t n = 0; n < list->count; n++) {
        const char *path = list->entry[n].path;
        if (list->entry[n].references == NULL)
            continue;
        const int group = (int)(text_base_name(path) - path);
        char *rest = NULL;
        for (char *name = strtok_r(list->entry[n].references, " ", &rest); name != NULL;
             name = strtok_r(NULL, " ", &rest))
            for (size_t m = 0; m < list->count; m++)
                list->entry[m].is_coordinate |=
                    strncmp(list->entry[m].path, path, (size_t)group) == 0 &&
                    strcmp(list->entry[m].path + group, name) == 0;
    }
}

bool array_list_read(const char *path, struct array_list *list, struct error *error)
{
    struct hdf5_reader reader = {.kind = ERROR_DATA, .purpose = "arrays"};
    struct array_path source;
    bool good = array_path_open(&source, path, &reader, error);
    list->container = source.is_npy ? ".npy file" : "HDF5";
    if (good && source.is_npy) {
        npy_add(list, path);
    } else if (good && source.is_folder) {
        const bool is_zarr = array_zarr_is_store(path);
        list->container = is_zarr ? "Zarr store" : "folder of .npy files";
        if (array_zarr_is_array(path))
            zarr_array_add(list, &source, "", "");
        else
            good = is_zarr ? zarr_group_add(list, &source, "", 0, error)
                           : npy_folder_add(list, path, error);
    } else if (good) {
        const char *name;
        json_t *object;
        json_object_foreach(reader.objects, name, object)
        {
            hdf5_object_add(list, &source, name);
        }
    }
    references_mark(list);
    if (good)
        orders_set(list, &source);
    hdf5_reader_close(&reader);
    array_path_close(&source);
    return good;
}

void array_list_free(struct array_list *list)
{
    for (size_t n = 0; n < list->count; n++) {
        free(list->entry[n].path);
        free(list->entry[n].attributes);
        free(list->entry[n].references);
    }
    free(list->entry);
}
