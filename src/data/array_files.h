// SPDX-License-Identifier: BSD-3-Clause
/* Chunks of an array in the files of a folder. */
#ifndef VITTRAIN_DATA_ARRAY_FILES_H
#define VITTRAIN_DATA_ARRAY_FILES_H

#include "data/array.h"
#include "data/byte_buffer.h"

/* Position of a stored chunk. */
struct chunk_place {
    int descriptor; /* -1: the chunk does not exist */
    int64_t offset, bytes;
    uint32_t skipped; /* as in struct array_chunk */
};

/* The index of the shard that was read last. Initialize `file` with -1, the rest with zeros. */
struct shard_index {
    int64_t file;
    struct byte_buffer entries;
};

/* Find the chunk `index` of an array with files.folder, and open its file, which the caller closes.
 * Return NULL, or the reason of the failure. */
const char *array_files_find(const struct array *array, struct shard_index *cache, int64_t index,
                             struct chunk_place *place);

#endif
