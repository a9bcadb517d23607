// SPDX-License-Identifier: BSD-3-Clause
#include "core/hdf5_reader.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/crc32c.h"
#include "core/file.h"

static const int64_t table_most_bytes = (int64_t)1 << 30;

bool hdf5_refuse(const struct hdf5_reader *reader, struct error *error, const char *format, ...)
{
    char reason[ERROR_TEXT_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return error_set(error, reader->kind, "%s cannot be used as %s: %s", reader->path,
                     reader->purpose, reason);
}

/* ---- files ---- */

static void file_close(struct hdf5_reader *reader)
{
    json_decref(reader->description);
    free(reader->text);
    reader->description = reader->objects = NULL;
    reader->text = NULL;
    if (reader->is_open)
        close(reader->descriptor);
    reader->is_open = false;
}

void hdf5_reader_close(struct hdf5_reader *reader)
{
    file_close(reader);
    hdf5_child_end(&reader->child);
}

bool hdf5_reader_describe(struct hdf5_reader *reader, const char *path,
                          const struct file_stamp *stamp, struct error *error)
{
    file_close(reader);
    reader->path = path;
    reader->stamp = *stamp;
    reader->bytes_read = 0;
    if (stamp->bytes == 0)
        return error_set(error, reader->kind, "%s is empty", path);
    reader->text = reader->received != NULL ? reader->received : hdf5_child_describe(reader, error);
    reader->received = NULL;
    if (reader->text == NULL)
        return false;
    reader->description = json_loads(reader->text, 0, NULL);
    reader->objects = json_object_get(reader->description, "objects");
    const json_t *fault = json_object_get(reader->description, "fault");
    if (json_is_string(fault))
        return hdf5_refuse(reader, error, "%s", json_string_value(fault));
    return json_is_object(reader->objects) ||
           hdf5_refuse(reader, error, "its structure is invalid: the file is damaged");
}

bool hdf5_reader_open(struct hdf5_reader *reader, const char *path, struct error *error)
{
    struct file_stamp stamp;
    int64_t bytes;
    const int descriptor = text_file_descriptor(path, &bytes);
    if (descriptor < 0 || !file_stamp_read(descriptor, &stamp))
        return durable_unreadable(error, reader->kind, path, errno);
    const bool good = hdf5_reader_describe(reader, path, &stamp, error);
    reader->descriptor = descriptor;
    reader->is_open = true;
    return good;
}

/* ---- objects ---- */

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

/* Read a list of at most `most` integers that are not negative, or none. */
static bool integers_read(const json_t *object, const char *key, int most, int64_t *values,
                          int *count)
{
    const json_t *list = json_object_get(object, key);
    bool good = json_array_size(list) <= (size_t)most;
    for (*count = 0; good && *count < (int)json_array_size(list); ++*count) {
        values[*count] = json_integer_value(json_array_get(list, (size_t)*count));
        good = values[*count] >= 0;
    }
    return good;
}

static const json_t *object_get(const struct hdf5_reader *reader, const char *path)
{
    return json_object_get(reader->objects, path + strspn(path, "/"));
}

bool hdf5_object_find(const struct hdf5_reader *reader, const char *path,
                      struct hdf5_object *object)
{
    const json_t *from = object_get(reader, path);
    int chunk_dimensions;
    *object = (struct hdf5_object){
        .kind = (enum hdf5_kind)json_integer_value(json_object_get(from, "kind")),
        .fault = text_of(from, "fault"),
        .target = text_of(from, "target"),
        .attributes = json_object_get(from, "attributes"),
        .type = text_of(from, "type"),
        .layout = (enum hdf5_layout)json_integer_value(json_object_get(from, "layout")),
        .offset = json_integer_value(json_object_get(from, "offset")),
        .chunks = text_of(from, "chunks"),
        .data = text_of(from, "data")};
    const bool is_dataset = object->kind == HDF5_DATASET;
    hdf5_real(json_object_get(from, "fill"), &object->fill);
    if (!integers_read(from, "extent", HDF5_DIMENSIONS, object->extent, &object->dimensions) ||
        !integers_read(from, "chunk", HDF5_DIMENSIONS, object->chunk, &chunk_dimensions) ||
        !integers_read(from, "filters", HDF5_FILTERS, object->filter, &object->filter_count) ||
        (object->layout == HDF5_CHUNKED && chunk_dimensions != object->dimensions) ||
        (is_dataset && strlen(object->type) < 2))
        object->fault = "its description is invalid: the file is damaged";
    else if (is_dataset)
        object->element_bytes = strtoll(object->type + 2, NULL, 10);
    return from != NULL;
}

const json_t *hdf5_attributes(const struct hdf5_reader *reader, const char *path)
{
    return json_object_get(object_get(reader, path), "attributes");
}

int64_t hdf5_elements(const struct hdf5_object *dataset)
{
    int64_t elements = 1;
    for (int d = 0; d < dataset->dimensions; d++)
        if (__builtin_mul_overflow(elements, dataset->extent[d], &elements))
            return -1;
    return elements;
}

/* ---- attributes ---- */

bool hdf5_real(const json_t *value, double *real)
{
    static const char *const names[] = {"NaN", "Infinity", "-Infinity"};
    const char *text = json_string_value(value);
    for (int n = 0; text != NULL && n < 3; n++)
        if (strcmp(text, names[n]) == 0) {
            *real = strtod(text, NULL);
            return true;
        }
    if (json_is_number(value))
        *real = json_number_value(value);
    return json_is_number(value);
}

bool hdf5_number_read(const struct hdf5_reader *reader, const struct hdf5_number *number, void *to,
                      struct error *error)
{
    const json_t *value = json_object_get(hdf5_attributes(reader, ""), number->name);
    const int64_t integer = json_integer_value(value);
    const bool is_real = number->kind == HDF5_REAL;
    double real = (double)integer;
    if (is_real ? json_is_integer(value) || !hdf5_real(value, &real)
                : !json_is_integer(value) || (number->kind == HDF5_UNSIGNED && integer < 0))
        return hdf5_refuse(reader, error, "its attribute '%s' is missing or not a number",
                           number->name);
    memcpy((char *)to + number->offset, is_real ? (const void *)&real : &integer, sizeof integer);
    return number->least == number->most || (real >= number->least && real <= number->most) ||
           hdf5_refuse(reader, error,
                       "its attribute %s=%.16g is not in the range of %.16g to %.16g", number->name,
                       real, number->least, number->most);
}

bool hdf5_text_read(const struct hdf5_reader *reader, const char *name, char *text, size_t size,
                    struct error *error)
{
    const char *value = json_string_value(json_object_get(hdf5_attributes(reader, ""), name));
    if (value == NULL)
        return hdf5_refuse(reader, error, "its attribute '%s' is missing or not a text", name);
    snprintf(text, size, "%s", value);
    return true;
}

/* ---- data sets ---- */

bool hdf5_dataset_find(const struct hdf5_reader *reader, const char *path, const char *type,
                       struct hdf5_object *dataset, struct error *error)
{
    static const char text[] = "|S";
    int64_t bytes;
    const char *reason = NULL;
    if (!hdf5_object_find(reader, path, dataset))
        reason = "is missing";
    else if (dataset->fault[0] != '\0')
        reason = "cannot be read by HDF5";
    else if (dataset->kind != HDF5_DATASET)
        reason = "is a group, a link or of another kind";
    else if (dataset->layout != HDF5_CONTIGUOUS)
        reason = "is chunked, virtual or in another file";
    else if (strcmp(type, text) == 0 ? strncmp(dataset->type, text, sizeof text - 1) != 0
                                     : strcmp(dataset->type, type) != 0)
        reason = "has the wrong type";
    else if (dataset->offset < 0 || dataset->element_bytes < 1 || hdf5_elements(dataset) < 1 ||
             __builtin_mul_overflow(hdf5_elements(dataset), dataset->element_bytes, &bytes) ||
             dataset->offset > reader->stamp.bytes || bytes > reader->stamp.bytes - dataset->offset)
        reason = "is empty or outside the file";
    return reason == NULL || hdf5_refuse(reader, error, "its data set '%s' %s", path, reason);
}

void *hdf5_dataset_read(struct hdf5_reader *reader, const char *path, const char *type,
                        struct hdf5_object *dataset, struct error *error)
{
    if (!hdf5_dataset_find(reader, path, type, dataset, error))
        return NULL;
    const int64_t bytes = hdf5_elements(dataset) * dataset->element_bytes;
    const json_t *crc = json_object_get(dataset->attributes, "crc32c");
    /* If many links refer to one data set, the sum of all reads must not exceed the file's size. */
    if (bytes > table_most_bytes || bytes > reader->stamp.bytes - reader->bytes_read) {
        hdf5_refuse(reader, error, "its table '%s' is too large: the file is damaged", path);
        return NULL;
    }
    reader->bytes_read += bytes;
    char *data = malloc((size_t)bytes + 1);
    if (data == NULL)
        error_set(error, ERROR_MEMORY, "%s: no memory for its table '%s' of %.1f MB", reader->path,
                  path, (double)bytes / 1e6);
    else if (durable_pread(reader->descriptor, data, (size_t)bytes, dataset->offset) !=
             (size_t)bytes)
        hdf5_refuse(reader, error, "cannot read its table '%s': %s", path,
                    errno == 0 ? "it is truncated" : strerror(errno));
    else if (json_is_integer(crc) &&
             crc32c_update(0, data, (size_t)bytes) != (uint32_t)json_integer_value(crc))
        hdf5_refuse(reader, error, "the checksum of its table '%s' is wrong: the file is damaged",
                    path);
    else {
        data[bytes] = '\0';
        return data;
    }
    free(data);
    return NULL;
}
