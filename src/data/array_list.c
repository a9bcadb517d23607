// SPDX-License-Identifier: BSD-3-Clause
#include "data/array_list.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text.h"
#include "data/array_filter.h"
#include "data/array_npy.h"
#include "data/array_path.h"
#include "data/array_zarr.h"
#include "data/listing.h"

enum { DEEPEST = 32 };

static const char *const attribute_names[] = {
    "units",         "long_name",   "scale_factor", "add_offset", "_FillValue",
    "missing_value", "valid_range", "valid_min",    "valid_max",  "class_names"};

enum { ATTRIBUTES = sizeof attribute_names / sizeof attribute_names[0], MOST_NUMBERS = 4 };

/* Add an entry whose path is "folder/name". */
static struct array_entry *entry_add(struct array_list *list, const char *folder, const char *name,
                                     struct error *error)
{
    struct array_entry *entry;
    if (!listing_grow(&list->entry, &list->capacity, list->count, sizeof *list->entry, error))
        return NULL;
    entry = &list->entry[list->count++];
    *entry = (struct array_entry){0};
    const size_t bytes = strlen(folder) + strlen(name) + 2;
    entry->path = malloc(bytes);
    if (entry->path == NULL) {
        listing_no_memory(error);
        return NULL;
    }
    snprintf(entry->path, bytes, "%s/%s", folder, name);
    return entry;
}

/* Write "; NAME=TEXT"; `more`: the attribute has further texts. */
static void text_write(FILE *to, const char *name, const char *text, bool more)
{
    char shown[80];
    snprintf(shown, sizeof shown, "%s", text);
    text_remove_control(shown);
    fprintf(to, "; %s=%s%s", name, shown, more ? ", ..." : "");
}

static void numbers_write(FILE *to, const char *name, const double *values, int count)
{
    char text[80];
    for (int i = 0; i < count; i++) {
        text_shortest_decimal(values[i], false, text, sizeof text);
        if (i == 0)
            fprintf(to, "; %s=", name);
        fprintf(to, "%s%s", i > 0 ? "," : "", text);
    }
}

/* ---- HDF5 ---- */

static void hdf5_attributes_write(FILE *to, const struct hdf5_reader *reader,
                                  const struct hdf5_object *object)
{
    for (int n = 0; n < ATTRIBUTES; n++) {
        const char *name = attribute_names[n];
        const struct hdf5_attribute *attribute = hdf5_attribute_find(reader, object, name);
        double values[MOST_NUMBERS];
        if (attribute != NULL && attribute->kind == HDF5_TEXT)
            text_write(to, name, reader->file.values + attribute->offset, attribute->count > 1);
        numbers_write(to, name, values, hdf5_reals_get(reader, object, name, values, MOST_NUMBERS));
    }
}

static bool hdf5_attribute_is(const struct hdf5_reader *reader, const struct hdf5_object *object,
                              const char *name, const char *text)
{
    const struct hdf5_attribute *attribute = hdf5_attribute_find(reader, object, name);
    return attribute != NULL && attribute->kind == HDF5_TEXT &&
           strcmp(reader->file.values + attribute->offset, text) == 0;
}

static bool hdf5_dataset_add(struct array_list *list, const struct hdf5_reader *reader,
                             const struct hdf5_object *object, const char *folder,
                             struct error *error)
{
    struct array_entry *entry = entry_add(list, folder, object->name, error);
    size_t bytes;
    if (entry == NULL)
        return false;
    if (array_hdf5_readable(object, entry->reason))
        entry->reason[0] = '\0';
    entry->has_shape =
        object->kind == HDF5_DATASET && object->layout != HDF5_VIRTUAL && object->fault[0] == '\0';
    if (!entry->has_shape)
        return true;
    array_hdf5_type_name(object, entry->type, sizeof entry->type);
    array_hdf5_filter_names(object, entry->filters, sizeof entry->filters);
    entry->is_chunked = object->layout == HDF5_CHUNKED;
    entry->dimensions = (int)object->dimensions;
    memcpy(entry->extent, object->extent, sizeof entry->extent);
    memcpy(entry->chunk, object->chunk, sizeof entry->chunk);
    /* xarray writes Booleans as int8. */
    if (entry->reason[0] == '\0')
        entry->kind = hdf5_attribute_is(reader, object, "dtype", "bool") ? 'b' : object->type[1];
    entry->is_scale = hdf5_attribute_is(reader, object, "CLASS", "DIMENSION_SCALE");
    FILE *text = open_memstream(&entry->attributes, &bytes);
    if (text == NULL)
        return listing_no_memory(error);
    hdf5_attributes_write(text, reader, object);
    return fclose(text) == 0 || listing_no_memory(error);
}

static bool hdf5_members_add(struct array_list *list, const struct hdf5_reader *reader,
                             const struct hdf5_object *group, const char *folder, int depth,
                             struct error *error)
{
    char path[PATH_MAX];
    const struct hdf5_object *member = NULL;
    bool good = true;
    while (good && depth < DEEPEST && (member = hdf5_next(reader, group, member)) != NULL) {
        if (snprintf(path, sizeof path, "%s/%s", folder, member->name) >= (int)sizeof path)
            continue;
        good = member->kind == HDF5_GROUP
                   ? hdf5_members_add(list, reader, member, path, depth + 1, error)
                   : hdf5_dataset_add(list, reader, member, folder, error);
    }
    return good;
}

/* ---- folders ---- */

static void json_attributes_write(FILE *to, const json_t *attributes)
{
    for (int n = 0; n < ATTRIBUTES; n++) {
        const char *name = attribute_names[n];
        const json_t *value = json_object_get(attributes, name);
        const json_t *first = json_is_array(value) ? json_array_get(value, 0) : value;
        double values[MOST_NUMBERS];
        int count = 0;
        if (json_is_string(first) && strcmp(name, "_FillValue") != 0) /* base64 */
            text_write(to, name, json_string_value(first), json_array_size(value) > 1);
        for (; count < MOST_NUMBERS && json_is_number(first); count++) {
            values[count] = json_number_value(first);
            first = json_is_array(value) ? json_array_get(value, (size_t)count + 1) : NULL;
        }
        numbers_write(to, name, values, count);
    }
}

/* Set an entry from an array that was opened, or that was refused with this reason. */
static void entry_set(struct array_entry *entry, const struct array *array, const char *reason)
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
    entry->is_chunked = array->files.folder != NULL;
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

/* True if a coordinate of this name belongs to the dimension of this name. */
static bool is_scale_of(const json_t *attributes, const char *name)
{
    const json_t *dimensions = json_object_get(attributes, ZARR_DIMENSIONS);
    const char *dimension = json_string_value(json_array_get(dimensions, 0));
    return json_array_size(dimensions) == 1 && dimension != NULL && strcmp(dimension, name) == 0;
}

static bool zarr_array_add(struct array_list *list, const char *store, const char *folder,
                           const char *name, struct error *error)
{
    struct array_entry *entry = entry_add(list, folder, name, error);
    struct array array;
    struct error reason = {0};
    char path[PATH_MAX];
    size_t bytes;
    if (entry == NULL)
        return false;
    error_defer(array_zarr_open(store, entry->path, &array, &reason));
    entry_set(entry, &array, reason.text);
    array_close(&array);
    snprintf(path, sizeof path, "%s%s", store, entry->path);
    json_t *attributes = array_zarr_attributes(path);
    entry->is_scale = is_scale_of(attributes, name);
    if (entry->kind != '\0' && strcmp(json_is_string(json_object_get(attributes, "dtype"))
                                          ? json_string_value(json_object_get(attributes, "dtype"))
                                          : "",
                                      "bool") == 0)
        entry->kind = 'b';
    FILE *text = open_memstream(&entry->attributes, &bytes);
    if (text != NULL)
        json_attributes_write(text, attributes);
    json_decref(attributes);
    return (text != NULL && fclose(text) == 0) || listing_no_memory(error);
}

/* Add the arrays below the folder of a group. */
static bool zarr_group_add(struct array_list *list, const char *store, const char *folder,
                           int depth, struct error *error)
{
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
            good = zarr_array_add(list, store, folder, name, error);
        else if (array_zarr_is_store(member))
            good = zarr_group_add(list, store, member + strlen(store), depth + 1, error);
    }
    listing_free(&folders);
    return good;
}

static bool is_npy(const char *name)
{
    return text_ends_with(name, ".npy");
}

static bool npy_add(struct array_list *list, const char *path, struct error *error)
{
    char name[PATH_MAX];
    struct array array;
    struct error reason = {0};
    snprintf(name, sizeof name, "%s", text_base_name(path));
    if (is_npy(name))
        name[strlen(name) - strlen(".npy")] = '\0';
    struct array_entry *entry = entry_add(list, "", name, error);
    if (entry == NULL)
        return false;
    error_defer(array_npy_open(path, name, &array, &reason));
    entry_set(entry, &array, reason.text);
    array_close(&array);
    return true;
}

static bool npy_folder_add(struct array_list *list, const char *folder, struct error *error)
{
    char path[PATH_MAX];
    struct listing files = {0};
    bool good = listing_read(folder, NULL, &files, is_npy, error);
    for (size_t n = 0; good && n < files.count; n++)
        good = listing_join(path, sizeof path, folder, files.names[n], error) &&
               npy_add(list, path, error);
    listing_free(&files);
    return good;
}

/* ---- the list ---- */

bool array_list_read(const char *path, struct array_list *list, struct error *error)
{
    struct hdf5_reader reader = {.kind = ERROR_DATA, .purpose = "arrays"};
    struct array_path source;
    bool good = array_path_open(&source, path, &reader, error);
    list->container = source.is_npy ? ".npy file" : "HDF5";
    if (good && source.is_npy) {
        good = npy_add(list, path, error);
    } else if (good && source.is_folder) {
        const bool is_zarr = array_zarr_is_store(path);
        list->container = is_zarr ? "Zarr store" : "folder of .npy files";
        good = array_zarr_is_array(path) ? zarr_array_add(list, path, "", "", error)
               : is_zarr                 ? zarr_group_add(list, path, "", 0, error)
                                         : npy_folder_add(list, path, error);
    } else if (good) {
        good = hdf5_members_add(list, &reader, reader.file.objects, "", 0, error);
    }
    hdf5_reader_close(&reader);
    array_path_close(&source);
    return good;
}

void array_list_free(struct array_list *list)
{
    for (size_t n = 0; n < list->count; n++) {
        free(list->entry[n].path);
        free(list->entry[n].attributes);
    }
    free(list->entry);
}
