// SPDX-License-Identifier: BSD-3-Clause
#include "data/array_files.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/crc32c.h"
#include "core/durable.h"
#include "core/text_file.h"

enum { ENTRY = 16 }; /* offset and size of a chunk, 8 bytes each */

static uint64_t little_endian(const uint8_t *from, int bytes)
{
    uint64_t value = 0;
    while (bytes-- > 0)
        value = value << 8 | from[bytes];
    return value;
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
        file = file * ((array->grid[d] - 1) / shard + 1) + at[d] / shard;
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
    const int descriptor = text_file_descriptor(path, &place->bytes);
    if (descriptor < 0)
        return errno == ENOENT ? NULL : strerror(errno);
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
