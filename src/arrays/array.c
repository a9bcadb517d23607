// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/array.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arrays/decode.h"
#include "base/allocate.h"
#include "base/base.h"
#include "base/file.h"

/* ---- opening ---- */

int64_t array_elements(const struct array *array)
{
    int64_t elements = 1;
    for (int d = 0; d < array->dimensions; d++)
        elements *= array->extent[d];
    return elements;
}

void array_begin(struct array *array, const char *path, const char *name, struct open_file *file,
                 const struct file_stamp *stamp)
{
    *array = (struct array){.path = path, .file = file};
    if (stamp != NULL)
        array->stamp = *stamp;
    snprintf(array->name, sizeof array->name, "%s", name);
}

bool array_refuse(const struct array *array, struct error *error, const char *format, ...)
{
    char reason[ERROR_TEXT_SIZE / 2];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return error_set(error, ERROR_DATA, "%s: cannot read '%s': %s", array->path, array->name,
                     reason);
}

bool array_type_set(struct array *array, const char *type)
{
    const bool little = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
    const char order = type[0], kind = order == '\0' ? '\0' : type[1];
    char *end = NULL;
    const int64_t bytes = kind == '\0' ? 0 : strtol(type + 2, &end, 10);
    array->is_bool = kind == 'b';
    array->kind = kind == 'b' ? 'u' : kind;
    array->element_bytes = bytes;
    array->swapped = order == (little ? '>' : '<');
    return (order == '<' || order == '>' || order == '|') && end != NULL && *end == '\0' &&
           (bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8) &&
           (kind == 'i' || kind == 'u' || (kind == 'b' && bytes == 1) ||
            (kind == 'f' && bytes > 1));
}

static int chunk_compare(const void *left, const void *right)
{
    const struct array_chunk *a = left, *b = right;
    return (a->index > b->index) - (a->index < b->index);
}

bool array_open(struct array *array, struct error *error)
{
    int64_t chunks = 1, elements = array->element_bytes;
    char filter[FILTER_NAME];
    bool good = true;
    array->is_plain = array->kind == 'f' && array->element_bytes == sizeof(float) &&
                      !array->swapped && !array->rule.active;
    array->chunk_bytes = array->element_bytes;
    for (int d = 0; good && d < array->dimensions; d++) {
        const int64_t extent = array->extent[d], chunk = array->chunk[d];
        if (extent == 0)
            return array_refuse(array, error, "it is empty");
        good = extent > 0 && chunk > 0 &&
               !__builtin_mul_overflow(array->chunk_bytes, chunk, &array->chunk_bytes) &&
               !__builtin_mul_overflow(elements, extent, &elements);
        array->grid[d] = good ? extent / chunk + (extent % chunk > 0) : 0;
        good = good && !__builtin_mul_overflow(chunks, array->grid[d], &chunks);
    }
    if (!good)
        return array_refuse(array, error, "its shape is invalid: the file is damaged");
    for (int n = 0; n < array->filter_count; n++)
        if (!filter_find(array->filter[n], filter))
            return array_refuse(array, error,
                                "its filter %s is not supported (zstd, lz4 and blosc need their "
                                "libraries when vittrain is configured): rewrite it with gzip "
                                "(`What is read` in docs/arrays.md)",
                                filter);
    if (array->files.folder != NULL && !array_files_list(array, error))
        return false;
    if (array->chunk_count > 0)
        qsort(array->chunks, (size_t)array->chunk_count, sizeof *array->chunks, chunk_compare);
    for (int64_t n = 0; array->files.folder == NULL && n < array->chunk_count; n++) {
        const struct array_chunk *chunk = &array->chunks[n];
        const int64_t bytes = array->filter_count > 0 ? chunk->bytes : array->chunk_bytes;
        if (chunk->offset < 0 || bytes > array->stamp.bytes ||
            chunk->offset > array->stamp.bytes - bytes)
            return array_refuse(
                array, error, "a chunk is outside the file: the file is truncated; copy it again");
    }
    return true;
}

void array_close(struct array *array)
{
    if (array->owns_file)
        open_file_close(array->file);
    free(array->files.folder);
    free(array->chunks);
    array->file = NULL;
    array->files.folder = NULL;
    array->chunks = NULL;
    array->chunk_count = 0;
}

/* ---- The cache of decoded chunks and the threads' buffers ---- */

/* Buffers of a thread while it reads. */
struct array_reader {
    struct array_reader *next;
    const struct array *array; /* that `shard` belongs to */
    struct byte_buffer stored, decoded;
    struct filter_state *filter_state;
    struct shard_index shard;
};

struct cached_chunk {
    const struct array *array;
    int64_t index; /* in the array's grid of chunks */
    uint8_t *data; /* [array->chunk_bytes] decoded elements */
    bool is_ready; /* false: the thread that got it from cache_take decodes it */
    int users;
    struct cached_chunk *newer, *older; /* in the order of their last use */
    struct cached_chunk *next;          /* in the same bucket */
};

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

struct array_cache *array_cache_new(int64_t limit)
{
    struct array_cache *cache = allocate(1, sizeof *cache);
    cache->limit = limit;
    cache->ring.older = cache->ring.newer = &cache->ring;
    pthread_mutex_init(&cache->mutex, NULL);
    pthread_cond_init(&cache->changed, NULL);
    return cache;
}

static void reader_free(struct array_reader *reader)
{
    free(reader->stored.data);
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

struct array_cache_counts array_cache_counts(struct array_cache *cache)
{
    pthread_mutex_lock(&cache->mutex);
    const struct array_cache_counts counts = cache->counts;
    pthread_mutex_unlock(&cache->mutex);
    return counts;
}

/* Lists; the caller holds the mutex. */

static struct cached_chunk **bucket_of(struct array_cache *cache, const struct array *array,
                                       int64_t index)
{
    const uint64_t hash = ((uint64_t)(uintptr_t)array / sizeof *array + (uint64_t)index) *
                          UINT64_C(0x9e3779b97f4a7c15);
    return &cache->bucket[hash >> 32 & (BUCKETS - 1)];
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

/* Return a chunk, to be given back by cache_give. If `is_ready` is false, the caller must decode
 * it. NULL: out of memory. */
static struct cached_chunk *cache_take(struct array_cache *cache, const struct array *array,
                                       int64_t index, struct error *error)
{
    struct cached_chunk **bucket = bucket_of(cache, array, index), *chunk;
    pthread_mutex_lock(&cache->mutex);
    for (;;) {
        chunk = *bucket;
        while (chunk != NULL && (chunk->array != array || chunk->index != index))
            chunk = chunk->next;
        if (chunk == NULL || chunk->is_ready)
            break;
        pthread_cond_wait(&cache->changed, &cache->mutex);
    }
    if (chunk != NULL) {
        chunk_unlink(chunk);
    } else {
        uint8_t *data = room_make(cache, array->chunk_bytes);
        chunk = malloc(sizeof *chunk);
        if (data == NULL)
            data = malloc((size_t)array->chunk_bytes);
        if (chunk == NULL || data == NULL) {
            free(chunk);
            free(data);
            error_set(error, ERROR_MEMORY, "no memory for a chunk of %lld bytes",
                      (long long)array->chunk_bytes);
            pthread_mutex_unlock(&cache->mutex);
            return NULL;
        }
        *chunk =
            (struct cached_chunk){.array = array, .index = index, .data = data, .next = *bucket};
        *bucket = chunk;
        cache->bytes += array->chunk_bytes;
        cache->counts.peak = larger(cache->counts.peak, cache->bytes);
    }
    chunk_link(cache, chunk);
    chunk->users++;
    pthread_mutex_unlock(&cache->mutex);
    return chunk;
}

/* good: the chunk is decoded; else it is removed from the cache. */
static void cache_give(struct array_cache *cache, struct cached_chunk *chunk, bool good)
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

/* Return a reader that is not in use, if possible the last one of this array, which has an index of
 * a shard in memory. cache: NULL for an array without a cache. */
static struct array_reader *reader_take(struct array_cache *cache, const struct array *array)
{
    struct array_reader *reader = NULL;
    if (cache != NULL) {
        pthread_mutex_lock(&cache->mutex);
        struct array_reader **link = &cache->readers;
        while (*link != NULL && (*link)->array != array)
            link = &(*link)->next;
        if (*link == NULL)
            link = &cache->readers;
        reader = *link;
        if (reader != NULL)
            *link = reader->next;
        pthread_mutex_unlock(&cache->mutex);
    }
    if (reader == NULL) {
        reader = allocate(1, sizeof *reader);
        reader->filter_state = filter_state_new();
    }
    if (reader->array != array)
        reader->shard.file = -1;
    reader->array = array;
    return reader;
}

static void reader_give(struct array_cache *cache, struct array_reader *reader)
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

/* ---- chunks ---- */

const struct array_chunk *array_chunk_find(const struct array *array, int64_t index)
{
    const struct array_chunk wanted = {.index = index};
    if (array->chunk_count == 0)
        return NULL;
    if (index < array->chunk_count && array->chunks[index].index == index)
        return &array->chunks[index];
    return bsearch(&wanted, array->chunks, (size_t)array->chunk_count, sizeof wanted,
                   chunk_compare);
}

static bool chunk_refuse(const struct array *array, int64_t index, const char *reason,
                         struct error *error)
{
    char place[ARRAY_DIMENSIONS * 24] = "";
    int64_t at[ARRAY_DIMENSIONS];
    size_t used = 0;
    for (int d = array->dimensions; d-- > 0; index /= array->grid[d])
        at[d] = index % array->grid[d] * array->chunk[d];
    for (int d = 0; d < array->dimensions && used < sizeof place; d++)
        used += (size_t)snprintf(place + used, sizeof place - used, "%s%lld", d > 0 ? ", " : "",
                                 (long long)at[d]);
    return error_set(error, ERROR_DATA,
                     "%s: cannot read the chunk at [%s] of '%s': %s; copy or write the file again",
                     array->path, place, array->name, reason);
}

static bool bytes_read(const struct array *array, int64_t index, const struct chunk_place *place,
                       int64_t offset, void *to, int64_t bytes, struct error *error)
{
    const size_t count =
        durable_pread(place->descriptor, to, (size_t)bytes, place->offset + offset);
    const int reason = errno;
    if (array->files.folder == NULL &&
        !open_file_holds(array->file, place->descriptor, &array->stamp))
        return error_set(error, ERROR_DATA,
                         "%s was changed after it was opened: start again when it is complete",
                         array->path);
    return count == (size_t)bytes ||
           chunk_refuse(array, index, reason == 0 ? "the file is truncated" : strerror(reason),
                        error);
}

/* Find where a chunk is stored. The descriptor is -1 if the chunk does not exist. Call place_close
 * after success. */
static bool place_find(const struct array *array, struct array_reader *reader, int64_t index,
                       struct chunk_place *place, struct error *error)
{
    if (array->files.folder != NULL) {
        const char *fault = array_files_find(array, &reader->shard, index, place);
        return fault == NULL || chunk_refuse(array, index, fault, error);
    }
    const struct array_chunk *chunk = array_chunk_find(array, index);
    *place = (struct chunk_place){.descriptor = -1};
    if (chunk != NULL)
        *place = (struct chunk_place){.descriptor = open_file_take(array->file),
                                      .offset = chunk->offset,
                                      .bytes = chunk->bytes,
                                      .skipped = chunk->skipped};
    return chunk == NULL || place->descriptor >= 0 ||
           durable_unreadable(error, ERROR_DATA, array->path, errno);
}

static void place_close(const struct array *array, const struct chunk_place *place)
{
    if (place->descriptor >= 0 && array->files.folder != NULL)
        close(place->descriptor);
    else if (place->descriptor >= 0)
        open_file_give(array->file);
}

/* Read and decode a chunk that exists into `to`. */
static bool chunk_decode(const struct array *array, struct array_reader *reader, int64_t index,
                         const struct chunk_place *place, uint8_t *to, struct error *error)
{
    if (!byte_buffer_reserve(&reader->stored, (size_t)place->bytes, error) ||
        !bytes_read(array, index, place, 0, reader->stored.data, place->bytes, error))
        return false;
    const char *fault = filters_undo(array, reader->filter_state, place->skipped,
                                     reader->stored.data, (size_t)place->bytes, to);
    return fault == NULL || chunk_refuse(array, index, fault, error);
}

/* ---- boxes ---- */

/* The part of a chunk that is in a box, as nested loops over its elements, innermost first. All
 * members are in elements. Dimensions that are contiguous in chunk and memory are one loop. */
struct piece {
    int loops;
    int64_t count[ARRAY_DIMENSIONS], from_stride[ARRAY_DIMENSIONS], to_stride[ARRAY_DIMENSIONS];
    int64_t from, to; /* of the first element in the chunk and in memory */
    int64_t span;     /* from the first element to the last one in the chunk, inclusive */
    bool is_whole;    /* all elements of the chunk that the array has */
};

/* Describe the part of a chunk that is in the box. `at`: coordinates of the chunk in the grid. */
static void piece_make(const struct array *array, const struct array_box *box, const int64_t *at,
                       struct piece *piece)
{
    int64_t stride = 1;
    *piece = (struct piece){.span = 1, .is_whole = true};
    for (int d = array->dimensions; d-- > 0; stride *= array->chunk[d]) {
        const int64_t origin = at[d] * array->chunk[d];
        const int64_t first = larger(box->begin[d], origin);
        const int64_t end = smaller(box->begin[d] + box->count[d], origin + array->chunk[d]);
        const int inner = piece->loops - 1;
        piece->from += (first - origin) * stride;
        piece->to += (first - box->begin[d]) * box->stride[d];
        piece->span += (end - first - 1) * stride;
        piece->is_whole &=
            first == origin && end == smaller(origin + array->chunk[d], array->extent[d]);
        if (piece->loops > 0 && end - first == 1)
            continue;
        if (piece->loops > 0 && stride == piece->from_stride[inner] * piece->count[inner] &&
            box->stride[d] == piece->to_stride[inner] * piece->count[inner]) {
            piece->count[inner] *= end - first;
        } else {
            piece->count[piece->loops] = end - first;
            piece->from_stride[piece->loops] = stride;
            piece->to_stride[piece->loops++] = box->stride[d];
        }
    }
    if (piece->loops == 0) {
        piece->count[0] = piece->from_stride[0] = piece->to_stride[0] = 1;
        piece->loops = 1;
    }
}

/* Convert the elements of a piece. `from`: the first element of the piece, or NULL for the fill
 * value. */
static void piece_convert(const struct array *array, const struct piece *piece, const uint8_t *from,
                          struct array_target to)
{
    int64_t at[ARRAY_DIMENSIONS] = {0};
    int64_t source = 0, target = piece->to;
    /* The two innermost loops transpose a matrix, as with channels last. */
    const bool transposes = to.floats != NULL && piece->loops > 1 && piece->to_stride[0] > 1 &&
                            piece->to_stride[1] == 1 && piece->from_stride[1] == piece->count[0];
    for (int loop = 0; loop < piece->loops;) {
        const uint8_t *begin = from == NULL ? NULL : from + source * array->element_bytes;
        if (transposes)
            array_values_transpose(array, begin, piece->count[1], piece->count[0],
                                   to.floats + target, piece->to_stride[0]);
        else
            array_values_convert(array, begin, piece->count[0], to, target, piece->to_stride[0]);
        for (loop = transposes ? 2 : 1; loop < piece->loops; loop++) {
            source += piece->from_stride[loop];
            target += piece->to_stride[loop];
            if (++at[loop] < piece->count[loop])
                break;
            source -= at[loop] * piece->from_stride[loop];
            target -= at[loop] * piece->to_stride[loop];
            at[loop] = 0;
        }
    }
}

/* Read a piece of a chunk, and convert it if necessary. A chunk that other reads need, too, is
 * decoded into the cache. */
static bool piece_read(const struct array *array, struct array_reader *reader, int64_t index,
                       const struct piece *piece, struct array_target to, struct error *error)
{
    const bool filtered = array->filter_count > 0;
    const bool shared = array->cache != NULL && filtered && !piece->is_whole;
    const int64_t begin = piece->from * array->element_bytes;
    const int64_t span = piece->span * array->element_bytes;
    const int64_t bytes = filtered ? array->chunk_bytes : span;
    /* The elements have the same layout in the chunk and in memory. */
    const bool direct = !shared && bytes == span && array->is_plain && to.floats != NULL &&
                        piece->loops == 1 && piece->to_stride[0] == 1;
    struct cached_chunk *chunk = NULL;
    if (shared && (chunk = cache_take(array->cache, array->original, index, error)) == NULL)
        return false;
    if (!shared && !direct && !byte_buffer_reserve(&reader->decoded, (size_t)bytes, error))
        return false;
    uint8_t *data = shared   ? chunk->data
                    : direct ? (uint8_t *)(to.floats + piece->to)
                             : reader->decoded.data;
    bool good = true, exists = true;
    if (!shared || !chunk->is_ready) {
        struct chunk_place place;
        good = place_find(array, reader, index, &place, error);
        exists = good && place.descriptor >= 0;
        if (exists) {
            good = filtered ? chunk_decode(array, reader, index, &place, data, error)
                            : bytes_read(array, index, &place, begin, data, bytes, error);
            place_close(array, &place);
        }
    }
    if (good && !(direct && exists))
        piece_convert(array, piece, exists ? data + (filtered ? begin : 0) : NULL, to);
    if (shared)
        cache_give(array->cache, chunk, good && exists);
    return good;
}

static bool box_read(struct array *array, const struct array_box *box, struct array_target to,
                     struct error *error)
{
    int64_t first[ARRAY_DIMENSIONS], at[ARRAY_DIMENSIONS], end[ARRAY_DIMENSIONS];
    int64_t index;
    for (int d = 0; d < array->dimensions; d++) {
        ENSURE(box->begin[d] >= 0 && box->count[d] > 0 &&
                   box->begin[d] <= array->extent[d] - box->count[d],
               "a box outside of '%s'", array->name);
        first[d] = at[d] = box->begin[d] / array->chunk[d];
        end[d] = (box->begin[d] + box->count[d] - 1) / array->chunk[d] + 1;
    }
    struct array_reader *reader = reader_take(array->cache, array);
    bool good = true;
    for (int d = 0; good && d >= 0;) {
        struct piece piece;
        index = 0;
        for (d = 0; d < array->dimensions; d++)
            index = index * array->grid[d] + at[d];
        piece_make(array, box, at, &piece);
        good = piece_read(array, reader, index, &piece, to, error);
        for (d = array->dimensions - 1; d >= 0 && ++at[d] == end[d]; d--)
            at[d] = first[d];
    }
    reader_give(array->cache, reader);
    return good;
}

bool array_read(struct array *array, const struct array_box *box, float *to, struct error *error)
{
    return box_read(array, box, (struct array_target){.floats = to}, error);
}

bool array_read_doubles(struct array *array, const struct array_box *box, double *to,
                        struct error *error)
{
    return box_read(array, box, (struct array_target){.doubles = to}, error);
}
