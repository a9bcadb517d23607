// SPDX-License-Identifier: BSD-3-Clause
#include "core/hdf5_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

/* ---- the description that the child sends ---- */

_Noreturn void hdf5_child_run(void)
{
    char *path = NULL, *datasets = NULL;
    size_t size = 0, datasets_size = 0;
    if (!subprocess_limit())
        _exit(ERROR_MEMORY);
    while (getdelim(&path, &size, '\0', stdin) > 0 &&
           getdelim(&datasets, &datasets_size, '\0', stdin) > 0) {
        struct hdf5_description file;
        hdf5_describe(path, datasets, &file);
        fwrite(&file, sizeof file, 1, stdout);
        fwrite(file.objects, sizeof *file.objects, (size_t)file.object_count, stdout);
        fwrite(file.attributes, sizeof *file.attributes, (size_t)file.attribute_count, stdout);
        fwrite(file.values, 1, (size_t)file.value_bytes, stdout);
        fwrite(file.chunks, sizeof *file.chunks, (size_t)file.chunk_count, stdout);
        hdf5_description_free(&file);
        if (fflush(stdout) != 0)
            _exit(ERROR_FILE);
    }
    _exit(ERROR_NONE); /* HDF5's exit handlers may crash after a damaged file */
}

static bool description_receive(struct subprocess *child, struct hdf5_description *file)
{
    struct hdf5_description got;
    void *objects = NULL, *attributes = NULL, *values = NULL, *chunks = NULL;
    if (!subprocess_read(child, &got, sizeof got))
        return false;
    const bool good = subprocess_read_array(child, &objects, sizeof *got.objects, got.object_count,
                                            HDF5_MOST_OBJECTS) &&
                      subprocess_read_array(child, &attributes, sizeof *got.attributes,
                                            got.attribute_count, HDF5_MOST_ATTRIBUTES) &&
                      subprocess_read_array(child, &values, 1, got.value_bytes, HDF5_MOST_VALUES) &&
                      subprocess_read_array(child, &chunks, sizeof *got.chunks, got.chunk_count,
                                            HDF5_MOST_CHUNKS);
    *file = got;
    file->fault[sizeof file->fault - 1] = '\0';
    file->object_fault[sizeof file->object_fault - 1] = '\0';
    file->objects = objects;
    file->attributes = attributes;
    file->values = values;
    file->chunks = chunks;
    return good;
}

static bool attribute_is_valid(const struct hdf5_description *file,
                               struct hdf5_attribute *attribute)
{
    attribute->name[HDF5_NAME - 1] = '\0';
    if (attribute->offset < 0 || attribute->offset > file->value_bytes || attribute->count < 0)
        return false;
    const int64_t rest = file->value_bytes - attribute->offset;
    if (attribute->kind == HDF5_TEXT && attribute->count > 0)
        return memchr(file->values + attribute->offset, '\0', (size_t)rest) != NULL;
    return attribute->kind == HDF5_NO_VALUE || attribute->count <= rest / (int64_t)sizeof(double);
}

static bool object_is_valid(const struct hdf5_description *file, struct hdf5_object *object)
{
    object->name[sizeof object->name - 1] = object->type[sizeof object->type - 1] = '\0';
    object->fault[sizeof object->fault - 1] = '\0';
    const bool has_size = strlen(object->type) > 2 && strcmp(object->type, "|O") != 0;
    bool good = object->depth >= 0 && object->depth <= HDF5_MOST_OBJECTS &&
                (!has_size || atoll(object->type + 2) == object->element_bytes) &&
                object->dimensions >= 0 && object->dimensions <= HDF5_DIMENSIONS &&
                object->filter_count >= 0 && object->filter_count <= HDF5_FILTERS &&
                object->first_attribute >= 0 && object->attribute_count >= 0 &&
                object->attribute_count <= file->attribute_count &&
                object->first_attribute <= file->attribute_count - object->attribute_count &&
                object->first_chunk >= 0 && object->chunk_count >= 0 &&
                object->chunk_count <= file->chunk_count &&
                object->first_chunk <= file->chunk_count - object->chunk_count;
    for (int64_t d = 0; good && d < object->dimensions; d++)
        good = object->extent[d] >= 0;
    return good;
}

static bool description_is_valid(struct hdf5_description *file)
{
    bool good = file->object_count > 0 && file->objects[0].kind == HDF5_GROUP;
    for (int64_t n = 0; good && n < file->attribute_count; n++)
        good = attribute_is_valid(file, &file->attributes[n]);
    for (int64_t n = 0; good && n < file->object_count; n++)
        good = object_is_valid(file, &file->objects[n]);
    return good;
}

/* ---- files ---- */

static void file_close(struct hdf5_reader *reader)
{
    hdf5_description_free(&reader->file);
    if (reader->is_open)
        close(reader->descriptor);
    reader->is_open = false;
}

void hdf5_reader_close(struct hdf5_reader *reader)
{
    struct error ignored = {.kind = ERROR_NONE};
    file_close(reader);
    if (reader->has_child)
        error_defer(subprocess_end(&reader->child, true, "", reader->kind, &ignored));
    reader->has_child = false;
}

/* Open the file for reading data. */
static bool file_open(struct hdf5_reader *reader, struct error *error)
{
    struct stat file;
    /* O_NONBLOCK: opening a FIFO must not block. */
    reader->descriptor = open(reader->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    reader->is_open = reader->descriptor >= 0;
    if (!reader->is_open || fstat(reader->descriptor, &file) != 0 ||
        !file_stamp_read(reader->descriptor, &reader->stamp))
        return durable_unreadable(error, reader->kind, reader->path, errno);
    reader->bytes = (int64_t)file.st_size;
    reader->bytes_read = 0;
    if (!S_ISREG(file.st_mode))
        return error_set(error, reader->kind, "cannot read %s: it is not a regular file",
                         reader->path);
    return file.st_size > 0 || error_set(error, reader->kind, "%s is empty", reader->path);
}

static bool child_describe(struct hdf5_reader *reader, const char *datasets, struct error *error)
{
    const char *const words[] = {HDF5_CHILD, NULL};
    if (!reader->has_child && !subprocess_start(&reader->child, words, error))
        return false;
    reader->has_child = true;
    if (subprocess_send(&reader->child, reader->path, strlen(reader->path) + 1) &&
        subprocess_send(&reader->child, datasets, strlen(datasets) + 1) &&
        description_receive(&reader->child, &reader->file))
        return true;
    reader->has_child = false;
    return subprocess_end(&reader->child, false, reader->path, reader->kind, error);
}

/* Describe the file, with the child if there is a program for it. */
static bool file_describe(struct hdf5_reader *reader, struct error *error)
{
    const char *datasets = reader->datasets != NULL ? reader->datasets : "";
    if (subprocess_has_program())
        return child_describe(reader, datasets, error);
    hdf5_describe(reader->path, datasets, &reader->file);
    return true;
}

bool hdf5_reader_open(struct hdf5_reader *reader, const char *path, struct error *error)
{
    file_close(reader);
    reader->path = path;
    const bool good =
        file_open(reader, error) && (reader->receives || file_describe(reader, error));
    if (reader->exchange != NULL ? !reader->exchange(reader->context, &reader->file, error) : !good)
        return false;
    if (reader->file.fault[0] != '\0')
        return hdf5_refuse(reader, error, "%s", reader->file.fault);
    if (!reader->allows_faults && reader->file.object_fault[0] != '\0')
        return hdf5_refuse(reader, error, "%s", reader->file.object_fault);
    return description_is_valid(&reader->file) ||
           hdf5_refuse(reader, error, "its structure is invalid: the file is damaged");
}

/* ---- objects and attributes ---- */

const struct hdf5_object *hdf5_next(const struct hdf5_reader *reader,
                                    const struct hdf5_object *group,
                                    const struct hdf5_object *member)
{
    const struct hdf5_object *end = reader->file.objects + reader->file.object_count;
    const struct hdf5_object *next = (member != NULL ? member : group) + 1;
    while (next < end && next->depth > group->depth + 1)
        next++;
    return next < end && next->depth > group->depth ? next : NULL;
}

const struct hdf5_object *hdf5_find(const struct hdf5_reader *reader,
                                    const struct hdf5_object *group, const char *name)
{
    const struct hdf5_object *member = NULL;
    do
        member = hdf5_next(reader, group, member);
    while (member != NULL && strcmp(member->name, name) != 0);
    return member;
}

const struct hdf5_object *hdf5_path_find(const struct hdf5_reader *reader, const char *path)
{
    const struct hdf5_object *found = reader->file.objects;
    for (path += strspn(path, "/"); found != NULL && *path != '\0'; path += strspn(path, "/")) {
        char name[HDF5_NAME];
        const size_t length = strcspn(path, "/");
        if (length >= sizeof name)
            return NULL;
        snprintf(name, sizeof name, "%.*s", (int)length, path);
        found = hdf5_find(reader, found, name);
        path += length;
    }
    return found;
}

const struct hdf5_attribute *hdf5_attribute_find(const struct hdf5_reader *reader,
                                                 const struct hdf5_object *object, const char *name)
{
    const struct hdf5_attribute *attribute = reader->file.attributes + object->first_attribute;
    for (int64_t n = 0; n < object->attribute_count; n++)
        if (strcmp(attribute[n].name, name) == 0)
            return attribute[n].count > 0 ? &attribute[n] : NULL;
    return NULL;
}

bool hdf5_number_get(const struct hdf5_reader *reader, const struct hdf5_object *object,
                     const char *name, enum hdf5_value kind, void *value)
{
    const struct hdf5_attribute *attribute = hdf5_attribute_find(reader, object, name);
    int64_t integer;
    if (attribute == NULL || attribute->count != 1 || attribute->kind == HDF5_TEXT ||
        attribute->kind == HDF5_NO_VALUE || (attribute->kind == HDF5_REAL) != (kind == HDF5_REAL))
        return false;
    memcpy(&integer, reader->file.values + attribute->offset, sizeof integer);
    memcpy(value, &integer, sizeof integer);
    return attribute->kind == kind || integer >= 0;
}

int hdf5_attribute_reals(const struct hdf5_attribute *attribute, const char *from, double *values,
                         int most)
{
    int count = 0;
    if (attribute == NULL || attribute->kind == HDF5_TEXT || attribute->kind == HDF5_NO_VALUE)
        return 0;
    for (; count < most && count < attribute->count; count++) {
        int64_t integer;
        memcpy(&integer, from + attribute->offset + 8 * count, sizeof integer);
        memcpy(&values[count], &integer, sizeof integer);
        if (attribute->kind == HDF5_INTEGER)
            values[count] = (double)integer;
        else if (attribute->kind == HDF5_UNSIGNED)
            values[count] = (double)(uint64_t)integer;
    }
    return count;
}

bool hdf5_number_read(const struct hdf5_reader *reader, const struct hdf5_object *object,
                      const struct hdf5_number *number, void *to, struct error *error)
{
    int64_t integer;
    double real;
    char text[32];
    if (!hdf5_number_get(reader, object, number->name, number->kind, &integer))
        return hdf5_refuse(reader, error, "its attribute '%s' is missing or not a number",
                           number->name);
    memcpy((char *)to + number->offset, &integer, sizeof integer);
    memcpy(&real, &integer, sizeof real);
    snprintf(text, sizeof text, "%lld", (long long)integer);
    if (number->kind == HDF5_REAL)
        snprintf(text, sizeof text, "%g", real);
    else
        real = (double)integer;
    return number->least == number->most || (real >= number->least && real <= number->most) ||
           hdf5_refuse(reader, error, "its attribute %s=%s is not in the range of %.16g to %.16g",
                       number->name, text, number->least, number->most);
}

bool hdf5_text_read(const struct hdf5_reader *reader, const struct hdf5_object *object,
                    const char *name, char *text, size_t size, struct error *error)
{
    const struct hdf5_attribute *attribute = hdf5_attribute_find(reader, object, name);
    if (attribute == NULL || attribute->kind != HDF5_TEXT)
        return hdf5_refuse(reader, error, "its attribute '%s' is missing or not a text", name);
    snprintf(text, size, "%s", reader->file.values + attribute->offset);
    return true;
}

/* ---- data sets ---- */

int64_t hdf5_elements(const struct hdf5_object *dataset)
{
    int64_t elements = 1;
    for (int64_t d = 0; d < dataset->dimensions; d++)
        if (__builtin_mul_overflow(elements, dataset->extent[d], &elements))
            return -1;
    return elements;
}

const struct hdf5_object *hdf5_dataset_find(const struct hdf5_reader *reader,
                                            const struct hdf5_object *group, const char *name,
                                            const char *type, struct error *error)
{
    static const char text[] = "|S";
    const struct hdf5_object *found = hdf5_find(reader, group, name);
    const char *slash = group->depth > 0 ? "/" : "";
    int64_t bytes;
    const char *reason = NULL;
    if (found == NULL)
        reason = "is missing";
    else if (found->kind != HDF5_DATASET)
        reason = "is a group, a link or of another kind";
    else if (found->layout != HDF5_CONTIGUOUS)
        reason = "is chunked, virtual or in another file";
    else if (strncmp(found->type, type, strcmp(type, text) == 0 ? sizeof text - 1 : HDF5_NAME) != 0)
        reason = "has the wrong type";
    else if (found->offset < 0 || found->element_bytes < 1 || hdf5_elements(found) < 1 ||
             __builtin_mul_overflow(hdf5_elements(found), found->element_bytes, &bytes) ||
             found->offset > reader->bytes || bytes > reader->bytes - found->offset)
        reason = "is empty or outside the file";
    if (reason == NULL)
        return found;
    hdf5_refuse(reader, error, "its data set '%s%s%s' %s", group->name, slash, name, reason);
    return NULL;
}

void *hdf5_dataset_read(struct hdf5_reader *reader, const struct hdf5_object *dataset,
                        struct error *error)
{
    const int64_t bytes = hdf5_elements(dataset) * dataset->element_bytes;
    int64_t crc;
    /* If many links refer to one data set, the sum of all reads must not exceed the file's size. */
    if (bytes > table_most_bytes || bytes > reader->bytes - reader->bytes_read) {
        hdf5_refuse(reader, error, "its table '%s' is too large: the file is damaged",
                    dataset->name);
        return NULL;
    }
    reader->bytes_read += bytes;
    char *data = malloc((size_t)bytes + 1);
    if (data == NULL)
        error_set(error, ERROR_MEMORY, "%s: no memory for its table '%s' of %.1f MB", reader->path,
                  dataset->name, (double)bytes / 1e6);
    else if (durable_pread(reader->descriptor, data, (size_t)bytes, dataset->offset) !=
             (size_t)bytes)
        hdf5_refuse(reader, error, "cannot read its table '%s': %s", dataset->name,
                    errno == 0 ? "it is truncated" : strerror(errno));
    else if (hdf5_number_get(reader, dataset, "crc32c", HDF5_UNSIGNED, &crc) &&
             crc32c_update(0, data, (size_t)bytes) != (uint32_t)crc)
        hdf5_refuse(reader, error, "the checksum of its table '%s' is wrong: the file is damaged",
                    dataset->name);
    else {
        data[bytes] = '\0';
        return data;
    }
    free(data);
    return NULL;
}
