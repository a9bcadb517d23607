// SPDX-License-Identifier: BSD-3-Clause
/* From stored chunks to values: chunks in the files of a folder (zarr.c), the inverse of
 * each filter (decode.c), conversion of numbers (value.c), and the cache of decoded
 * chunks (array.c). */
#ifndef VITTRAIN_ARRAYS_DECODE_H
#define VITTRAIN_ARRAYS_DECODE_H

#include <stddef.h>

#include "arrays/array.h"

static inline uint64_t little_endian(const uint8_t *from, int bytes)
{
    uint64_t value = 0;
    while (bytes-- > 0)
        value = value << 8 | from[bytes];
    return value;
}

/* ---- Files of a folder. */

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

/* Find the chunk `index` of an array with files.folder, and open its file, which the caller closes.
 * Return NULL, or the reason of the failure, such as a listed file that no longer exists. */
const char *array_files_find(const struct array *array, struct shard_index *cache, int64_t index,
                             struct chunk_place *place);

/* ---- Filters. */

/* Memory of the decoders of one thread. */
struct filter_state;

struct filter_state *filter_state_new(void);
void filter_state_free(struct filter_state *state);

enum { FILTER_NAME = 32 };

/* Write the name of a filter: "deflate". Return true if this build supports it. */
bool filter_find(int64_t filter, char name[FILTER_NAME]);

/* Decode the `bytes` bytes of a stored chunk into `to`, which has room for array->chunk_bytes.
 * skipped: as in struct array_chunk. Return NULL, or the reason of the failure. */
const char *filters_undo(const struct array *array, struct filter_state *state, uint32_t skipped,
                         const uint8_t *from, size_t bytes, uint8_t *to);

/* ---- Numbers. */

/* Destination of values; one of the pointers is NULL. */
struct array_target {
    float *floats;
    double *doubles;
};

/* Convert `count` consecutive elements to the values first, first + stride, ... of the target. If
 * `from` is NULL, the elements are the fill value. */
void array_values_convert(const struct array *array, const uint8_t *from, int64_t count,
                          struct array_target to, int64_t first, int64_t stride);

/* Convert a matrix [rows, columns] to its transpose, whose rows are `stride` apart. */
void array_values_transpose(const struct array *array, const uint8_t *from, int64_t rows,
                            int64_t columns, float *to, int64_t stride);

/* ---- The cache (array.c): decoded chunks of arrays, shared by all threads that read them, and the
 * threads' buffers. A chunk is decoded by one thread; other threads that need it wait. If the
 * memory limit is reached, the chunk that was not used for the longest time is dropped. */

/* Return a new cache. limit: in bytes; chunks in use can exceed it. */
struct array_cache *array_cache_new(int64_t limit);

/* Call it after the arrays that use the cache are closed. */
void array_cache_free(struct array_cache *cache);

struct array_cache_counts {
    int64_t decoded; /* number of chunks that were decoded into the cache */
    int64_t peak;    /* largest number of bytes in the cache */
};
struct array_cache_counts array_cache_counts(struct array_cache *cache);

#endif
