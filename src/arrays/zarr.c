// SPDX-License-Identifier: BSD-3-Clause
/* Zarr stores of versions 2 and 3 in folders: describes their arrays, and finds their chunks. */
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arrays/decode.h"
#include "arrays/path.h"
#include "base/allocate.h"
#include "base/base.h"
#include "base/file.h"
#include "base/text.h"

static const struct {
    const char *name;
    enum array_filter filter;
} codecs[] = {
    {"zlib", ARRAY_DEFLATE},  {"gzip", ARRAY_GZIP},   {"zstd", ARRAY_ZSTD},
    {"lz4", ARRAY_LZ4_BLOCK}, {"blosc", ARRAY_BLOSC}, {"shuffle", ARRAY_SHUFFLE},
    {"crc32c", ARRAY_CRC32C},
};

enum { CODECS = sizeof codecs / sizeof codecs[0], MOST_SHARD = 1 << 26 };

/* ---- JSON ---- */

/* Python's json also writes NaN, Infinity and -Infinity, which are not JSON. Return a copy of the
 * text, to be freed by the caller, in which they are quoted. */
static char *constants_quote(const char *text)
{
    static const char *const constants[] = {"NaN", "Infinity", "-Infinity"};
    struct text_stream copy;
    FILE *to = text_stream_open(&copy);
    for (bool quoted = false; *text != '\0';) {
        size_t length = quoted && text[0] == '\\' && text[1] != '\0' ? 2 : 1;
        const char *quote = "";
        quoted ^= *text == '"';
        for (int n = 0; !quoted && n < 3; n++)
            if (strncmp(text, constants[n], strlen(constants[n])) == 0) {
                length = strlen(constants[n]);
                quote = "\"";
            }
        fprintf(to, "%s%.*s%s", quote, (int)length, text, quote);
        text += length;
    }
    return text_stream_close(&copy);
}

/* Read a JSON object from a file. Return NULL if the file does not exist, or after an error. */
static json_t *object_load(const char *folder, const char *name, struct error *error)
{
    OWNED char *path = allocate_text("%s/%s", folder, name);
    json_error_t reason;
    OWNED char *text = text_file_read(path, NULL);
    if (text == NULL) {
        if (errno != ENOENT && errno != ENOTDIR)
            durable_unreadable(error, ERROR_DATA, path, errno);
        return NULL;
    }
    OWNED char *quoted = constants_quote(text);
    /* Decode integers as reals: jansson's integers cannot hold large uint64. */
    json_t *object = json_loads(quoted, JSON_DECODE_INT_AS_REAL, &reason);
    if (object == NULL || !json_is_object(object)) {
        error_set(error, ERROR_DATA, "%s is damaged: %s; copy it again", path,
                  object == NULL ? reason.text : "it is not a JSON object");
        json_decref(object);
        return NULL;
    }
    return object;
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

/* Read an array of `count` integers of at least `least`. Return false if it is anything else. */
static bool integers_read(const json_t *list, int count, double least, int64_t *values)
{
    if (!json_is_array(list) || json_array_size(list) != (size_t)count)
        return false;
    for (int n = 0; n < count; n++) {
        const json_t *item = json_array_get(list, (size_t)n);
        const double value = json_number_value(item);
        if (!json_is_number(item) || !(value >= least && value <= 0x1p53 && value == floor(value)))
            return false;
        values[n] = (int64_t)value;
    }
    return true;
}

/* ---- metadata of both versions ---- */

static bool damaged(const struct array *array, const char *key, struct error *error)
{
    return array_refuse(array, error, "its metadata have no valid %s: copy them again", key);
}

static bool type_refuse(const struct array *array, const char *type, struct error *error)
{
    return array_refuse(array, error,
                        "its type '%s' is not an integer or a floating-point number of 1, 2, 4 or "
                        "8 bytes",
                        type);
}

static bool shape_set(struct array *array, const json_t *shape, const json_t *chunk,
                      struct error *error)
{
    if (json_array_size(shape) > ARRAY_DIMENSIONS)
        return array_refuse(array, error, "it has more than %d dimensions", ARRAY_DIMENSIONS);
    array->dimensions = (int)json_array_size(shape);
    for (int d = 0; d < array->dimensions; d++)
        array->files.shard[d] = 1;
    if (!integers_read(shape, array->dimensions, 0, array->extent))
        return damaged(array, "shape", error);
    array->has_shape = integers_read(chunk, array->dimensions, 1, array->chunk);
    return array->has_shape || damaged(array, "shape of chunks", error);
}

/* Set the fill value from a number, a Boolean, a text such as "NaN", or the bits of a number such
 * as "0x7fc00000". */
static bool fill_set(struct array *array, const json_t *fill, struct error *error)
{
    const char *text = json_string_value(fill);
    char *end = NULL;
    if (json_is_number(fill) || json_is_boolean(fill) || fill == NULL || json_is_null(fill)) {
        array->fill = json_is_true(fill) ? 1 : json_number_value(fill);
        return true;
    }
    if (text != NULL && strncmp(text, "0x", 2) == 0) {
        const uint64_t bits = strtoull(text, &end, 16);
        uint8_t bytes[8];
        struct array big_endian = *array;
        big_endian.swapped = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
        big_endian.rule.active = big_endian.is_plain = false;
        for (int64_t b = 0; b < array->element_bytes; b++)
            bytes[b] = (uint8_t)(bits >> 8 * (array->element_bytes - 1 - b));
        array_values_convert(&big_endian, bytes, 1, (struct array_target){.doubles = &array->fill},
                             0, 1);
    } else if (text != NULL) {
        array->fill = strtod(text, &end); /* also "NaN" and "-Infinity" */
    }
    return (end != NULL && end != text && *end == '\0') || damaged(array, "fill_value", error);
}

/* Set the names of the files of chunks: "c/0/1" by default, or "0.1" as in version 2. */
static void keys_set(struct array *array, bool is_default, char separator)
{
    array->files.separator = separator;
    if (is_default)
        strcpy(array->files.prefix, array->dimensions == 0 ? "c" : separator == '/' ? "c/" : "c.");
    else
        strcpy(array->files.prefix, array->dimensions == 0 ? "0" : "");
}

static bool codec_add(struct array *array, const char *name, const json_t *configuration,
                      struct error *error)
{
    static const char prefix[] = "numcodecs.";
    const char *known = strncmp(name, prefix, strlen(prefix)) == 0 ? name + strlen(prefix) : name;
    const json_t *size = json_object_get(configuration, "elementsize");
    int n = 0;
    while (n < CODECS && strcmp(codecs[n].name, known) != 0)
        n++;
    if (n == CODECS)
        return array_refuse(array, error,
                            "its codec '%s' is not supported: write it with gzip, zstd, lz4 or "
                            "blosc",
                            name);
    if (array->filter_count == ARRAY_FILTERS)
        return array_refuse(array, error, "it has more than %d codecs", ARRAY_FILTERS);
    if (codecs[n].filter == ARRAY_SHUFFLE &&
        json_number_value(size) != (double)array->element_bytes)
        return array_refuse(array, error,
                            "its codec shuffle and its type differ in element size: "
                            "write it without shuffle");
    array->filter[array->filter_count++] = codecs[n].filter;
    return true;
}

/* ---- version 2 ---- */

static bool version2_read(struct array *array, const json_t *object, struct error *error)
{
    const json_t *filters = json_object_get(object, "filters");
    const json_t *compressor = json_object_get(object, "compressor");
    const json_t *filter;
    const char *separator = text_of(object, "dimension_separator");
    size_t n;
    if (!array_type_set(array, text_of(object, "dtype")))
        return type_refuse(array, text_of(object, "dtype"), error);
    if (strcmp(text_of(object, "order"), "C") != 0)
        return array_refuse(array, error,
                            "its chunks are in Fortran order: write it with "
                            "order='C'");
    if (!shape_set(array, json_object_get(object, "shape"), json_object_get(object, "chunks"),
                   error) ||
        !fill_set(array, json_object_get(object, "fill_value"), error))
        return false;
    keys_set(array, false, *separator == '/' ? '/' : '.');
    json_array_foreach(filters, n, filter)
    {
        if (!codec_add(array, text_of(filter, "id"), filter, error))
            return false;
    }
    return !json_is_object(compressor) ||
           codec_add(array, text_of(compressor, "id"), compressor, error);
}

/* ---- version 3 ---- */

/* Return the name of an extension and set its configuration. `item` is an object or just a name. */
static const char *extension(const json_t *item, const json_t **configuration)
{
    *configuration = json_object_get(item, "configuration");
    return json_is_string(item) ? json_string_value(item) : text_of(item, "name");
}

/* Set the type, "int16", "float32" or "bool", and the filters from the list of codecs, which must
 * begin with "bytes": the byte order of the numbers. */
static bool codecs_read(struct array *array, const char *type, const json_t *list,
                        struct error *error)
{
    char text[16] = "";
    const json_t *configuration, *codec;
    size_t n;
    const char *first = extension(json_array_get(list, 0), &configuration);
    const bool big = strcmp(text_of(configuration, "endian"), "big") == 0;
    const size_t letters = strcspn(type, "0123456789");
    const long bits = strtol(type + letters, NULL, 10);
    const bool known = strncmp(type, "int", letters) == 0 || strncmp(type, "uint", letters) == 0 ||
                       strncmp(type, "float", letters) == 0;
    if (strcmp(first, "bytes") != 0)
        return array_refuse(array, error,
                            "its codec '%s' is not supported before or instead of 'bytes': write "
                            "it without this codec",
                            first);
    if (strcmp(type, "bool") == 0)
        snprintf(text, sizeof text, "|b1");
    else if (known && letters >= 3 && bits % 8 == 0)
        snprintf(text, sizeof text, "%c%c%ld", big ? '>' : '<', type[0], bits / 8 % 100);
    if (!array_type_set(array, text))
        return type_refuse(array, type, error);
    json_array_foreach(list, n, codec)
    {
        const char *name = extension(codec, &configuration);
        if (n > 0 && !codec_add(array, name, configuration, error))
            return false;
    }
    return true;
}

/* The index of a shard must have little-endian numbers, with or without a checksum. */
static bool shards_read(struct array *array, const json_t *configuration, struct error *error)
{
    int64_t chunk[ARRAY_DIMENSIONS], members = 1;
    const json_t *index, *other, *index_codecs = json_object_get(configuration, "index_codecs");
    if (!integers_read(json_object_get(configuration, "chunk_shape"), array->dimensions, 1, chunk))
        return damaged(array, "shape of chunks", error);
    for (int d = 0; d < array->dimensions; d++) {
        array->files.shard[d] = array->chunk[d] / chunk[d];
        if (array->chunk[d] % chunk[d] != 0 || array->files.shard[d] > MOST_SHARD / members)
            return damaged(array, "shape of chunks", error);
        members *= array->files.shard[d];
        array->chunk[d] = chunk[d];
    }
    const char *bytes = extension(json_array_get(index_codecs, 0), &index);
    const char *sum = extension(json_array_get(index_codecs, 1), &other);
    array->files.sharded = true;
    array->files.index_is_first = strcmp(text_of(configuration, "index_location"), "start") == 0;
    array->files.index_has_sum = strcmp(sum, "crc32c") == 0;
    return (strcmp(bytes, "bytes") == 0 && strcmp(text_of(index, "endian"), "little") == 0 &&
            json_array_size(index_codecs) == (array->files.index_has_sum ? 2 : 1)) ||
           array_refuse(array, error,
                        "the index_codecs of its shards are not supported: write it with bytes "
                        "(little-endian) and crc32c");
}

static bool version3_read(struct array *array, const json_t *object, struct error *error)
{
    const json_t *configuration, *chunks, *key;
    const json_t *list = json_object_get(object, "codecs");
    const char *grid = extension(json_object_get(object, "chunk_grid"), &chunks);
    const char *keys = extension(json_object_get(object, "chunk_key_encoding"), &key);
    const char *separator = text_of(key, "separator");
    const bool is_default = strcmp(keys, "default") == 0;
    if (strcmp(grid, "regular") != 0)
        return array_refuse(array, error,
                            "its chunk_grid '%s' is not supported: write it with 'regular'", grid);
    if (json_array_size(json_object_get(object, "storage_transformers")) > 0)
        return array_refuse(array, error, "its storage_transformers are not supported");
    if (!is_default && strcmp(keys, "v2") != 0)
        return array_refuse(array, error, "its chunk_key_encoding '%s' is not supported", keys);
    if (!shape_set(array, json_object_get(object, "shape"), json_object_get(chunks, "chunk_shape"),
                   error))
        return false;
    keys_set(array, is_default, *separator != '\0' ? *separator : is_default ? '/' : '.');
    const char *first = extension(json_array_get(list, 0), &configuration);
    if (json_array_size(list) == 1 && strcmp(first, "sharding_indexed") == 0) {
        if (!shards_read(array, configuration, error))
            return false;
        list = json_object_get(configuration, "codecs");
    }
    return codecs_read(array, text_of(object, "data_type"), list, error) &&
           fill_set(array, json_object_get(object, "fill_value"), error);
}

/* ---- stores ---- */

static bool has_file(const char *folder, const char *name)
{
    OWNED char *path = allocate_text("%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

bool array_zarr_is_store(const char *folder)
{
    return has_file(folder, "zarr.json") || has_file(folder, ".zgroup") ||
           has_file(folder, ".zarray");
}

static bool is_array(const json_t *version3)
{
    return strcmp(text_of(version3, "node_type"), "array") == 0;
}

bool array_zarr_is_array(const char *folder)
{
    struct error ignored = {0};
    json_t *version3 = object_load(folder, "zarr.json", &ignored);
    const bool found = version3 != NULL ? is_array(version3) : has_file(folder, ".zarray");
    json_decref(version3);
    return found;
}

json_t *array_zarr_attributes(const char *folder)
{
    struct error ignored = {0};
    json_t *version3 = object_load(folder, "zarr.json", &ignored);
    if (version3 == NULL)
        return object_load(folder, ".zattrs", &ignored);
    json_t *attributes = json_incref(json_object_get(version3, "attributes"));
    json_t *dimensions = json_object_get(version3, "dimension_names");
    if (json_is_array(dimensions) && attributes == NULL)
        attributes = json_object();
    if (json_is_array(dimensions))
        json_object_set(attributes, ZARR_DIMENSIONS, dimensions);
    json_decref(version3);
    return attributes;
}

bool array_zarr_open(const char *path, const char *name, struct array *array, struct error *error)
{
    array_begin(array, path, name, NULL, NULL);
    array->files.folder = allocate_text("%s/%s", path, name);
    array->is_chunked = true;
    const char *folder = array->files.folder;
    json_t *version3 = object_load(folder, "zarr.json", error);
    json_t *version2 = version3 == NULL ? object_load(folder, ".zarray", error) : NULL;
    json_t *version2_attributes = version2 != NULL ? object_load(folder, ".zattrs", error) : NULL;
    json_t *attributes = version2_attributes;
    bool good = error->text[0] == '\0';
    if (good && version3 != NULL && is_array(version3)) {
        good = version3_read(array, version3, error);
        attributes = json_object_get(version3, "attributes");
    } else if (good && version2 != NULL) {
        good = version2_read(array, version2, error);
        /* xarray marks its arrays with this attribute. It stores _FillValue as fill_value. */
        if (json_object_get(attributes, ZARR_DIMENSIONS) != NULL &&
            json_object_get(attributes, "_FillValue") == NULL)
            json_object_set(attributes, "_FillValue", json_object_get(version2, "fill_value"));
    } else if (good) {
        good = error_set(error, ERROR_DATA, "%s has no array '%s': %s", path, name,
                         array_zarr_is_store(folder)
                             ? "it is a group; name an array in it"
                             : "there is neither zarr.json nor .zarray in this folder");
    }
    good = good && array_rule_set(array, attributes, error);
    json_decref(version3);
    json_decref(version2);
    json_decref(version2_attributes);
    return good && array_open(array, error) &&
           (array->chunk_count > 0 ||
            array_refuse(array, error, "none of its chunk files exists: copy the store again"));
}

/* ---- files of chunks ---- */

enum { ENTRY = 16 /* offset and size of a chunk, 8 bytes each */, NAME = 512 /* of a file */ };

/* Return the number of files along a dimension. */
static int64_t files_along(const struct array *array, int d)
{
    return (array->grid[d] - 1) / array->files.shard[d] + 1;
}

/* Return the number of a file in the grid of files, from its name below the folder; -1 if the name
 * is not that of a file of chunks. */
static int64_t file_parse(const struct array *array, const char *name)
{
    const struct array_files *files = &array->files;
    const size_t prefix = strlen(files->prefix);
    int64_t file = 0;
    if (strncmp(name, files->prefix, prefix) != 0)
        return -1;
    name += prefix;
    for (int d = 0; d < array->dimensions; d++) {
        if (d > 0 && *name++ != files->separator)
            return -1;
        const size_t digits = strspn(name, "0123456789");
        const int64_t at = digits < 19 ? strtoll(name, NULL, 10) : INT64_MAX;
        if (digits == 0 || (digits > 1 && *name == '0') || at >= files_along(array, d))
            return -1;
        file = file * files_along(array, d) + at;
        name += digits;
    }
    return *name == '\0' ? file : -1;
}

/* List the files in the subfolder `below`, and in the subfolders of it. Return false with errno if
 * a folder cannot be read. */
static bool folder_list(struct array *array, const char *below, int depth, size_t *capacity)
{
    OWNED char *path = allocate_text("%s/%s", array->files.folder, below);
    char name[NAME];
    const char *entry;
    DIR *entries = NULL;
    for (errno = 0; (entry = folder_next(&entries, path)) != NULL; errno = 0) {
        if (snprintf(name, sizeof name, "%s%s", below, entry) >= (int)sizeof name - 1)
            continue;
        const int64_t file = file_parse(array, name);
        if (file >= 0) {
            array->chunks = allocate_more(array->chunks, capacity, (size_t)array->chunk_count,
                                          sizeof *array->chunks);
            array->chunks[array->chunk_count++] = (struct array_chunk){.index = file};
        } else if (array->files.separator == '/' && depth < array->dimensions &&
                   !folder_list(array, strcat(name, "/"), depth + 1, capacity)) {
            const int reason = errno;
            closedir(entries);
            errno = reason;
            return false;
        }
    }
    return errno == 0 || errno == ENOTDIR || errno == ENOENT;
}

bool array_files_list(struct array *array, struct error *error)
{
    size_t capacity = 0;
    array->files.count = 1;
    for (int d = 0; d < array->dimensions; d++)
        array->files.count *= files_along(array, d);
    return folder_list(array, "", 0, &capacity) ||
           durable_unreadable(error, ERROR_DATA, array->files.folder, errno);
}

void array_missing_write(const struct array *array, char *text, size_t size)
{
    const int64_t missing = array->files.count - array->chunk_count;
    snprintf(text, missing > 0 ? size : 1, "%lld of %lld %s do not exist", (long long)missing,
             (long long)array->files.count, array->files.sharded ? "shards" : "chunks");
}

/* Read the index of a shard, unless `cache` already has it. */
static const char *shard_load(const struct array *array, int64_t file, int descriptor,
                              int64_t file_bytes, struct shard_index *cache)
{
    const struct array_files *files = &array->files;
    struct error error = {0};
    int64_t bytes = ENTRY;
    for (int d = 0; d < array->dimensions; d++)
        bytes *= files->shard[d];
    const int64_t whole = bytes + (files->index_has_sum ? (int64_t)sizeof(uint32_t) : 0);
    if (cache->file == file)
        return NULL;
    cache->file = -1;
    if (whole > file_bytes)
        return "its shard is truncated";
    if (!byte_buffer_reserve(&cache->entries, (size_t)whole, &error))
        return "no memory for the index of a shard";
    uint8_t *entries = cache->entries.data;
    if (durable_pread(descriptor, entries, (size_t)whole,
                      files->index_is_first ? 0 : file_bytes - whole) < (size_t)whole)
        return errno == 0 ? "its shard is truncated" : strerror(errno);
    if (files->index_has_sum && crc32c_update(0, entries, (size_t)bytes) !=
                                    little_endian(entries + bytes, sizeof(uint32_t)))
        return "the checksum of its shard's index is wrong";
    cache->file = file;
    return NULL;
}

const char *array_files_find(const struct array *array, struct shard_index *cache, int64_t index,
                             struct chunk_place *place)
{
    const struct array_files *files = &array->files;
    char path[PATH_MAX + 256];
    int64_t at[ARRAY_DIMENSIONS], file = 0, member = 0; /* in the grid of files, and in the file */
    *place = (struct chunk_place){.descriptor = -1};
    for (int d = array->dimensions; d-- > 0; index /= array->grid[d])
        at[d] = index % array->grid[d];
    int used = snprintf(path, sizeof path, "%s/%s", files->folder, files->prefix);
    for (int d = 0; d < array->dimensions && used < (int)sizeof path; d++) {
        const int64_t shard = files->shard[d];
        file = file * files_along(array, d) + at[d] / shard;
        member = member * shard + at[d] % shard;
        if (d > 0)
            path[used++] = files->separator;
        used +=
            snprintf(path + used, sizeof path - (size_t)used, "%lld", (long long)(at[d] / shard));
    }
    if (array_chunk_find(array, file) == NULL)
        return NULL;
    const int descriptor = text_file_descriptor(path, &place->bytes);
    if (descriptor < 0)
        return errno == ENOENT || errno == ENOTDIR ? "its file existed at the start and is gone"
                                                   : strerror(errno);
    const char *fault = NULL;
    if (array->files.sharded) {
        const int64_t file_bytes = place->bytes;
        fault = shard_load(array, file, descriptor, file_bytes, cache);
        const uint8_t *entry = cache->entries.data + member * ENTRY;
        const uint64_t offset = fault == NULL ? little_endian(entry, 8) : UINT64_MAX;
        const uint64_t bytes = fault == NULL ? little_endian(entry + 8, 8) : UINT64_MAX;
        if (offset == UINT64_MAX && bytes == UINT64_MAX) { /* the chunk does not exist */
            close(descriptor);
            return fault;
        }
        if (bytes > (uint64_t)file_bytes || offset > (uint64_t)file_bytes - bytes)
            fault = "it is outside its shard: the file is damaged";
        place->offset = (int64_t)offset;
        place->bytes = (int64_t)bytes;
    }
    if (fault == NULL && array->filter_count == 0 && place->bytes != array->chunk_bytes)
        fault = "it has the wrong size: the file is damaged";
    if (fault != NULL)
        close(descriptor);
    else
        place->descriptor = descriptor;
    return fault;
}
