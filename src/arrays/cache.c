// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/decode.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/allocate.h"
#include "base/base.h"

enum { BUCKETS = 1024 };

struct array_cache {
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* signalled when a chunk is decoded or removed */
    int64_t limit, bytes;
    struct array_cache_counts counts;
    struct cached_chunk ring; /* of all chunks: `older` is the newest one, `newer` the oldest */
    struct cached_chunk *bucket[BUCKETS];
    struct array_reader *readers; /* list of the readers that are not in use */
};

struct array_cache *array_cache_new(void)
{
    struct array_cache *cache = allocate(1, sizeof *cache);
    cache->limit = (int64_t)1 << 28;
    cache->ring.older = cache->ring.newer = &cache->ring;
    pthread_mutex_init(&cache->mutex, NULL);
    pthread_cond_init(&cache->changed, NULL);
    return cache;
}

static void reader_free(struct array_reader *reader)
{
    free(reader->stored.data);
    free(reader->work[0].data);
    free(reader->work[1].data);
    free(reader->decoded.data);
    free(reader->shard.entries.data);
    filter_state_free(reader->filter_state);
    free(reader);
}

void array_cache_free(struct array_cache *cache)
{
    if (cache == NULL)
        return;
    for (struct array_reader *next; cache->readers != NULL; cache->readers = next) {
        next = cache->readers->next;
        reader_free(cache->readers);
    }
    for (struct cached_chunk *chunk = cache->ring.older, *older; chunk != &cache->ring;
         chunk = older) {
        older = chunk->older;
        free(chunk->data);
        free(chunk);
    }
    pthread_cond_destroy(&cache->changed);
    pthread_mutex_destroy(&cache->mutex);
    free(cache);
}

void array_cache_limit(struct array_cache *cache, int64_t bytes)
{
    cache->limit = bytes;
}

struct array_cache_counts array_cache_counts(struct array_cache *cache)
{
    pthread_mutex_lock(&cache->mutex);
    const struct array_cache_counts counts = cache->counts;
    pthread_mutex_unlock(&cache->mutex);
    return counts;
}

/* ---- lists; the caller holds the mutex ---- */

static struct cached_chunk **bucket_of(struct array_cache *cache, const struct array *array,
                                       int64_t index)
{
    const uint64_t hash = ((uint64_t)(uintptr_t)array / sizeof *array + (uint64_t)index) *
                          UINT64_C(0x9e3779b97f4a7c15);
    return &cache->bucket[hash >> 32 & (BUCKETS - 1)];
}

static struct cached_chunk *chunk_find(struct array_cache *cache, const struct array *array,
                                       int64_t index)
{
    struct cached_chunk *chunk = *bucket_of(cache, array, index);
    while (chunk != NULL && (chunk->array != array || chunk->index != index))
        chunk = chunk->next;
    return chunk;
}

static void chunk_link(struct array_cache *cache, struct cached_chunk *chunk)
{
    chunk->newer = &cache->ring;
    chunk->older = cache->ring.older;
    chunk->older->newer = cache->ring.older = chunk;
}

static void chunk_unlink(struct cached_chunk *chunk)
{
    chunk->newer->older = chunk->older;
    chunk->older->newer = chunk->newer;
}

static void chunk_remove(struct array_cache *cache, struct cached_chunk *chunk)
{
    struct cached_chunk **link = bucket_of(cache, chunk->array, chunk->index);
    while (*link != chunk)
        link = &(*link)->next;
    *link = chunk->next;
    chunk_unlink(chunk);
    cache->bytes -= chunk->array->chunk_bytes;
}

/* ---- chunks ---- */

/* Remove the oldest chunks that are not in use until `bytes` more bytes are within the limit.
 * Return memory of a chunk of this size that was removed, or NULL. */
static uint8_t *room_make(struct array_cache *cache, int64_t bytes)
{
    uint8_t *data = NULL;
    for (struct cached_chunk *chunk = cache->ring.newer, *newer;
         chunk != &cache->ring && cache->bytes + bytes > cache->limit; chunk = newer) {
        newer = chunk->newer;
        if (chunk->users > 0)
            continue;
        chunk_remove(cache, chunk);
        if (data == NULL && chunk->array->chunk_bytes == bytes)
            data = chunk->data;
        else
            free(chunk->data);
        free(chunk);
    }
    return data;
}

static struct cached_chunk *chunk_new(struct array_cache *cache, const struct array *array,
                                      int64_t index, struct error *error)
{
    uint8_t *data = room_make(cache, array->chunk_bytes);
    struct cached_chunk *chunk = malloc(sizeof *chunk);
    if (data == NULL)
        data = malloc((size_t)array->chunk_bytes);
    if (chunk == NULL || data == NULL) {
        free(chunk);
        free(data);
        error_set(error, ERROR_MEMORY, "no memory for a chunk of %lld bytes",
                  (long long)array->chunk_bytes);
        return NULL;
    }
    struct cached_chunk **bucket = bucket_of(cache, array, index);
    *chunk = (struct cached_chunk){.array = array, .index = index, .data = data, .next = *bucket};
    *bucket = chunk;
    chunk_link(cache, chunk);
    cache->bytes += array->chunk_bytes;
    cache->counts.peak = larger(cache->counts.peak, cache->bytes);
    return chunk;
}

struct cached_chunk *array_cache_take(struct array_cache *cache, const struct array *array,
                                      int64_t index, struct error *error)
{
    pthread_mutex_lock(&cache->mutex);
    struct cached_chunk *chunk;
    while ((chunk = chunk_find(cache, array, index)) != NULL && !chunk->is_ready)
        pthread_cond_wait(&cache->changed, &cache->mutex);
    if (chunk == NULL) {
        chunk = chunk_new(cache, array, index, error);
    } else {
        chunk_unlink(chunk);
        chunk_link(cache, chunk);
    }
    if (chunk != NULL)
        chunk->users++;
    pthread_mutex_unlock(&cache->mutex);
    return chunk;
}

void array_cache_give(struct array_cache *cache, struct cached_chunk *chunk, bool good)
{
    pthread_mutex_lock(&cache->mutex);
    const bool is_new = !chunk->is_ready;
    chunk->users--;
    if (is_new)
        chunk->is_ready = good;
    cache->counts.decoded += is_new && good;
    if (!good || (chunk->users == 0 && cache->bytes > cache->limit)) {
        chunk_remove(cache, chunk);
        free(chunk->data);
        free(chunk);
    }
    if (is_new)
        pthread_cond_broadcast(&cache->changed);
    pthread_mutex_unlock(&cache->mutex);
}

/* ---- readers ---- */

/* Remove a reader from the list. NULL: the list is empty. */
static struct array_reader *reader_find(struct array_cache *cache, const struct array *array)
{
    pthread_mutex_lock(&cache->mutex);
    struct array_reader **link = &cache->readers;
    while (*link != NULL && (*link)->array != array)
        link = &(*link)->next;
    if (*link == NULL)
        link = &cache->readers;
    struct array_reader *reader = *link;
    if (reader != NULL)
        *link = reader->next;
    pthread_mutex_unlock(&cache->mutex);
    return reader;
}

struct array_reader *array_reader_take(struct array_cache *cache, const struct array *array)
{
    struct array_reader *reader = cache != NULL ? reader_find(cache, array) : NULL;
    if (reader == NULL) {
        reader = allocate(1, sizeof *reader);
        reader->filter_state = filter_state_new();
    }
    if (reader->array != array)
        reader->shard.file = -1;
    reader->array = array;
    return reader;
}

void array_reader_give(struct array_cache *cache, struct array_reader *reader)
{
    if (cache == NULL) {
        reader_free(reader);
        return;
    }
    pthread_mutex_lock(&cache->mutex);
    reader->next = cache->readers;
    cache->readers = reader;
    pthread_mutex_unlock(&cache->mutex);
}
