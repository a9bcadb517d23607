// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/decode.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/base.h"
#include "base/file.h"

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

/* Write the path of the file that holds a chunk. Return the number of the file in the grid of
 * files, and set `member` to the number of the chunk in the file. */
static int64_t file_of(const struct array *array, int64_t index, char *path, size_t size,
                       int64_t *member)
{
    const struct array_files *files = &array->files;
    int64_t at[ARRAY_DIMENSIONS], file = 0;
    for (int d = array->dimensions; d-- > 0; index /= array->grid[d])
        at[d] = index % array->grid[d];
    int used = snprintf(path, size, "%s/%s", files->folder, files->prefix);
    *member = 0;
    for (int d = 0; d < array->dimensions && used < (int)size; d++) {
        const int64_t shard = files->shard[d];
        file = file * files_along(array, d) + at[d] / shard;
        *member = *member * shard + at[d] % shard;
        if (d > 0)
            path[used++] = files->separator;
        used += snprintf(path + used, size - (size_t)used, "%lld", (long long)(at[d] / shard));
    }
    return file;
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
    char path[PATH_MAX + 256];
    int64_t member;
    *place = (struct chunk_place){.descriptor = -1};
    const int64_t file = file_of(array, index, path, sizeof path, &member);
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
