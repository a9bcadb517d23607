// SPDX-License-Identifier: BSD-3-Clause
/* The header is not trusted. Its length is checked first, then the JSON, each tensor, and that the
 * tensors fill the file. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/safetensors.h"
#include "core/file.h"

/* The format allows 100 MB, but parsed JSON takes up to 82 times the memory of its text. */
enum { HEADER_LIMIT = 10 * 1000 * 1000 };

static const struct {
    const char *name;
    int64_t bytes;
} dtypes[] = {{"F32", 4}, {"F16", 2}, {"BF16", 2},        {"F64", 8},        {"BOOL", 1},
              {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1},     {"F8_E5M2", 1},    {"F8_E8M0", 1},
              {"I16", 2}, {"U16", 2}, {"I32", 4},         {"U32", 4},        {"I64", 8},
              {"U64", 8}, {"C64", 8}, {"F8_E4M3FNUZ", 1}, {"F8_E5M2FNUZ", 1}};

bool safetensors_is_weight(const struct safetensors_entry *entry, enum safetensors_type *type)
{
    for (int known = SAFETENSORS_F32; known <= SAFETENSORS_F64; known++)
        if (strcmp(entry->dtype, dtypes[known].name) == 0) {
            *type = (enum safetensors_type)known;
            return true;
        }
    return false;
}

static bool tensor_refuse(struct error *error, const char *path, const char *name, const char *what)
{
    return error_set(error, ERROR_CHECKPOINT,
                     "%s is not a valid safetensors file: tensor '%.64s' %s; get the file again",
                     path, name, what);
}

/* Parse the description of a tensor. `data_bytes` follow the header. */
static bool entry_parse(const char *path, const char *name, const json_t *json, int64_t data_bytes,
                        struct safetensors_entry *entry, struct error *error)
{
    const char *dtype = json_string_value(json_object_get(json, "dtype"));
    const json_t *shape = json_object_get(json, "shape");
    const json_t *offsets = json_object_get(json, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    const size_t dimensions = json_array_size(shape);
    bool good = json_is_array(shape) && dimensions <= SAFETENSORS_DIMENSIONS;
    *entry = (struct safetensors_entry){.name = name, .dtype = dtype, .count = 1};
    for (size_t n = 0; dtype != NULL && n < sizeof dtypes / sizeof *dtypes; n++)
        if (strcmp(dtype, dtypes[n].name) == 0)
            entry->element = dtypes[n].bytes;
    if (entry->element == 0)
        return tensor_refuse(error, path, name, "has a missing or unknown dtype");
    for (size_t d = 0; good && d < dimensions; d++) {
        const json_t *extent = json_array_get(shape, d);
        entry->shape[d] = json_integer_value(extent);
        good = json_is_integer(extent) && entry->shape[d] >= 0 &&
               !__builtin_mul_overflow(entry->count, entry->shape[d], &entry->count);
    }
    if (!good)
        return tensor_refuse(error, path, name, "has a missing, negative or too large shape");
    entry->dimensions = (int)dimensions;
    entry->begin = json_integer_value(begin);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        entry->begin < 0 || json_integer_value(end) < entry->begin)
        return tensor_refuse(error, path, name, "has missing, negative or reversed data_offsets");
    if (json_integer_value(end) > data_bytes)
        return tensor_refuse(error, path, name, "is beyond the end of the file");
    const int64_t bytes = json_integer_value(end) - entry->begin;
    if (bytes % entry->element != 0 || bytes / entry->element != entry->count)
        return tensor_refuse(error, path, name,
                             "has data_offsets that do not agree with its dtype and shape");
    return true;
}

static int by_begin(const void *a, const void *b)
{
    const struct safetensors_entry *left = a, *right = b;
    if (left->begin != right->begin)
        return left->begin < right->begin ? -1 : 1;
    return (left->count > 0) - (right->count > 0); /* empty tensors first */
}

/* Check that each entry begins where the previous one ends; entries are sorted. */
static bool check_filling(const struct safetensors_header *header, int64_t data_bytes,
                          const char *path, struct error *error)
{
    int64_t next = 0;
    for (int64_t n = 0; n < header->count; n++) {
        const struct safetensors_entry *entry = &header->entry[n];
        if (entry->begin < next)
            return tensor_refuse(error, path, entry->name, "overlaps another tensor");
        if (entry->begin > next)
            return tensor_refuse(error, path, entry->name, "has a gap before it");
        next = entry->begin + entry->count * entry->element;
    }
    if (next != data_bytes)
        return error_set(
            error, ERROR_CHECKPOINT,
            "%s is not a valid safetensors file: %lld bytes follow its last tensor; get "
            "the file again",
            path, (long long)(data_bytes - next));
    return true;
}

static bool entries_parse(struct safetensors_header *header, int64_t data_bytes, const char *path,
                          struct error *error)
{
    const char *name;
    json_t *value;
    header->entry = allocate(json_object_size(header->json), sizeof *header->entry);
    json_object_foreach(header->json, name, value)
    {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        if (!entry_parse(path, name, value, data_bytes, &header->entry[header->count], error))
            return false;
        header->count++;
    }
    qsort(header->entry, (size_t)header->count, sizeof *header->entry, by_begin);
    return check_filling(header, data_bytes, path, error);
}

bool safetensors_header_parse(const char *text, size_t length, int64_t data_bytes, const char *path,
                              struct safetensors_header *header, struct error *error)
{
    json_error_t reason;
    *header = (struct safetensors_header){.data_offset = 8 + (int64_t)length};
    header->json = json_loadb(text, length, JSON_REJECT_DUPLICATES, &reason);
    if (header->json == NULL)
        return error_set(error, ERROR_CHECKPOINT,
                         "%s is not a valid safetensors file: its header is not JSON (%s, byte %d)",
                         path, reason.text, reason.position);
    if (!json_is_object(header->json))
        return error_set(error, ERROR_CHECKPOINT,
                         "%s is not a valid safetensors file: its header is not a JSON object",
                         path);
    return entries_parse(header, data_bytes, path, error);
}

/* Read the header of a file of `bytes` bytes. */
static bool header_read(int descriptor, const char *path, int64_t bytes,
                        struct safetensors_header *header, struct error *error)
{
    unsigned char prefix[8];
    uint64_t length = 0;
    if (bytes < 8)
        return error_set(error, ERROR_CHECKPOINT,
                         "%s is not a safetensors file: it is shorter than 8 bytes", path);
    if (!durable_read(descriptor, path, prefix, sizeof prefix, 0, error))
        return false;
    for (int byte = 7; byte >= 0; byte--)
        length = length << 8 | prefix[byte];
    if (length > HEADER_LIMIT || (int64_t)length > bytes - 8)
        return error_set(
            error, ERROR_CHECKPOINT,
            "%s is not a valid safetensors file: it states that its header has %llu bytes, "
            "the file has %lld and this program reads at most %d",
            path, (unsigned long long)length, (long long)bytes, HEADER_LIMIT);
    char *text = allocate(length, 1);
    const bool good =
        durable_read(descriptor, path, text, length, 8, error) &&
        safetensors_header_parse(text, length, bytes - 8 - (int64_t)length, path, header, error);
    free(text);
    return good;
}

int safetensors_header_open(const char *path, struct safetensors_header *header,
                            struct error *error)
{
    /* O_NONBLOCK: opening a FIFO must not block. */
    const int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat file;
    *header = (struct safetensors_header){.count = 0};
    if (descriptor < 0 || fstat(descriptor, &file) != 0)
        durable_unreadable(error, ERROR_CHECKPOINT, path, errno);
    else if (!S_ISREG(file.st_mode))
        error_set(error, ERROR_CHECKPOINT, "cannot read %s: it is not a regular file", path);
    else
        error_defer(header_read(descriptor, path, file.st_size, header, error));
    return descriptor;
}

void safetensors_header_free(struct safetensors_header *header)
{
    json_decref(header->json);
    free(header->entry);
    *header = (struct safetensors_header){.count = 0};
}

const struct safetensors_entry *safetensors_find(const struct safetensors_header *header,
                                                 const char *name)
{
    for (int64_t n = 0; n < header->count; n++)
        if (strcmp(header->entry[n].name, name) == 0)
            return &header->entry[n];
    return NULL;
}
