// SPDX-License-Identifier: BSD-3-Clause
/* Chunks of an array in the files of a folder. */
#ifndef VITTRAIN_DATA_ARRAY_FILES_H
#define VITTRAIN_DATA_ARRAY_FILES_H

#include "core/error.h"
#include "data/array.h"

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

/* Set files.count, and list the files that exist as `chunks`, in no particular order. */
MUST_CHECK bool array_files_list(struct array *array, struct error *error);

/* Write "1 of 4 chunks do not exist" for an array with files.folder, or "" if all exist. */
void array_missing_write(const struct array *array, char *text, size_t size);

/* Arrays whose files do not all exist. Initialize with zeros. */
struct array_missing {
    const struct array *first;
    int64_t count;
};

/* Add an array if files are missing. */
void array_missing_add(struct array_missing *missing, const struct array *array);

/* Log a warning if there are any, or set an error if they are refused. */
MUST_CHECK bool array_missing_report(const struct array_missing *missing, bool refused,
                                     struct error *error);

/* Find the chunk `index` of an array with files.folder, and open its file, which the caller closes.
 * Return NULL, or the reason of the failure, such as a listed file that no longer exists. */
const char *array_files_find(const struct array *array, struct shard_index *cache, int64_t index,
                             struct chunk_place *place);

#endif
