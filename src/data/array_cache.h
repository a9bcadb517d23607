// SPDX-License-Identifier: BSD-3-Clause
/* Decoded chunks of arrays, shared by all threads that read them, and the threads' buffers. A chunk
 * is decoded by one thread; other threads that need it wait. If the memory limit is reached, the
 * chunk that was not used for the longest time is dropped. */
#ifndef VITTRAIN_DATA_ARRAY_CACHE_H
#define VITTRAIN_DATA_ARRAY_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"
#include "data/array.h"
#include "data/array_decode.h"

/* Buffers of a thread while it reads. */
struct array_reader {
    struct array_reader *next;
    const struct array *array; /* that `shard` belongs to */
    struct byte_buffer stored, work[2], decoded;
    struct filter_state *filter_state;
    struct shard_index shard;
};

struct cached_chunk {
    const struct array *array;
    int64_t index; /* in the array's grid of chunks */
    uint8_t *data; /* [array->chunk_bytes] decoded elements */
    bool is_ready; /* false: the thread that got it from array_cache_take decodes it */
    int users;
    struct cached_chunk *newer, *older; /* in the order of their last use */
    struct cached_chunk *next;          /* in the same bucket */
};

/* Return a new cache with a limit of 256 MiB. */
struct array_cache *array_cache_new(void);

/* Call it after the arrays that use the cache are closed. */
void array_cache_free(struct array_cache *cache);

/* Set the limit in bytes. Chunks in use can exceed it. */
void array_cache_limit(struct array_cache *cache, int64_t bytes);

/* Return a chunk, to be given back by array_cache_give. If `is_ready` is false, the caller must
 * decode it. NULL: out of memory. */
struct cached_chunk *array_cache_take(struct array_cache *cache, const struct array *array,
                                      int64_t index, struct error *error);

/* good: the chunk is decoded; else it is removed from the cache. */
void array_cache_give(struct array_cache *cache, struct cached_chunk *chunk, bool good);

struct array_cache_counts {
    int64_t decoded; /* number of chunks that were decoded into the cache */
    int64_t peak;    /* largest number of bytes in the cache */
};
struct array_cache_counts array_cache_counts(struct array_cache *cache);

/* Return a reader that is not in use, if possible one that last read this array. cache: NULL for an
 * array without a cache. */
struct array_reader *array_reader_take(struct array_cache *cache, const struct array *array);
void array_reader_give(struct array_cache *cache, struct array_reader *reader);

#endif
