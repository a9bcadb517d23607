// SPDX-License-Identifier: BSD-3-Clause
#include "data/array.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/durable.h"
#include "core/integer.h"
#include "data/array_files.h"
#include "data/array_filter.h"
#include "data/array_value.h"
#include "data/byte_buffer.h"

/* A reader keeps at most this many bytes of decoded chunks, but at least one chunk. */
static const int64_t most_kept_bytes = (int64_t)1 << 28;

struct kept_chunk {
    int64_t index; /* -1: none */
    struct byte_buffer buffer;
};

/* Buffers of one thread that reads, and the chunks that it decoded last. */
struct array_reader {
    struct array_reader *next;
    struct byte_buffer stored, work;
    struct filter_state *filter_state;
    struct shard_index shard;
    struct kept_chunk *kept;
    int64_t kept_count, oldest;
};

/* The part of a chunk that is in a box, as nested loops over its elements, innermost first. All
 * members are in elements. Dimensions that are contiguous in chunk and memory are one loop. */
struct piece {
    int loops;
    int64_t count[ARRAY_DIMENSIONS], from_stride[ARRAY_DIMENSIONS], to_stride[ARRAY_DIMENSIONS];
    int64_t from, to; /* of the first element in the chunk and in memory */
    int64_t span;     /* from the first element to the last one in the chunk, inclusive */
};

/* ---- opening ---- */

int64_t array_elements(const struct array *array)
{
    int64_t elements = 1;
    for (int d = 0; d < array->dimensions; d++)
        elements *= array->extent[d];
    return elements;
}

bool array_order_is_hwc(const int64_t *extent)
{
    return extent[3] < extent[1] && extent[3] < extent[2];
}

void array_begin(struct array *array, const char *path, const char *name, int descriptor,
                 const struct file_stamp *stamp)
{
    *array = (struct array){.path = path, .descriptor = descriptor};
    if (stamp != NULL)
        array->stamp = *stamp;
    snprintf(array->name, sizeof array->name, "%s", name);
    pthread_mutex_init(&array->mutex, NULL);
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

/* Set grid and chunk_bytes. Return false if a product overflows or a chunk has no elements. */
static bool sizes_set(struct array *array)
{
    int64_t chunks = 1, elements = array->element_bytes;
    array->chunk_bytes = array->element_bytes;
    for (int d = 0; d < array->dimensions; d++) {
        if (array->extent[d] < 0 || array->chunk[d] < 1 ||
            __builtin_mul_overflow(array->chunk_bytes, array->chunk[d], &array->chunk_bytes) ||
            __builtin_mul_overflow(elements, array->extent[d], &elements))
            return false;
        array->grid[d] =
            array->extent[d] / array->chunk[d] + (array->extent[d] % array->chunk[d] > 0);
        if (__builtin_mul_overflow(chunks, array->grid[d], &chunks))
            return false;
    }
    return true;
}

bool array_open(struct array *array, struct error *error)
{
    array->is_plain = array->kind == 'f' && array->element_bytes == sizeof(float) &&
                      !array->swapped && !array->rule.active;
    if (!sizes_set(array))
        return array_refuse(array, error, "its shape is invalid: the file is damaged");
    for (int n = 0; n < array->filter_count; n++) {
        const char *library = filter_library_missing(array->filter[n]);
        if (library != NULL)
            return array_refuse(array, error,
                                "its filter needs the library %s, which this build of vittrain "
                                "lacks: install it and run configure and make",
                                library);
    }
    if (array->chunk_count > 0)
        qsort(array->chunks, (size_t)array->chunk_count, sizeof *array->chunks, chunk_compare);
    for (int64_t n = 0; n < array->chunk_count; n++) {
        const struct array_chunk *chunk = &array->chunks[n];
        const int64_t bytes = array->filter_count > 0 ? chunk->bytes : array->chunk_bytes;
        if (chunk->offset < 0 || bytes > array->stamp.bytes ||
            chunk->offset > array->stamp.bytes - bytes)
            return array_refuse(
                array, error, "a chunk is outside the file: the file is truncated; copy it again");
    }
    return true;
}

static void reader_free(struct array_reader *reader)
{
    for (int64_t n = 0; n < reader->kept_count; n++)
        free(reader->kept[n].buffer.data);
    free(reader->kept);
    free(reader->stored.data);
    free(reader->work.data);
    free(reader->shard.entries.data);
    filter_state_free(reader->filter_state);
    free(reader);
}

void array_close(struct array *array)
{
    for (struct array_reader *next; array->readers != NULL; array->readers = next) {
        next = array->readers->next;
        reader_free(array->readers);
    }
    pthread_mutex_destroy(&array->mutex);
    if (array->owns_descriptor && array->descriptor >= 0)
        close(array->descriptor);
    array->descriptor = -1;
    free(array->files.folder);
    free(array->chunks);
    free(array->data);
    array->files.folder = NULL;
    array->chunks = NULL;
    array->data = NULL;
    array->chunk_count = 0;
}

/* ---- readers ---- */

static struct kept_chunk *kept_find(struct array_reader *reader, int64_t index)
{
    for (int64_t n = 0; n < reader->kept_count; n++)
        if (reader->kept[n].index == index)
            return &reader->kept[n];
    return NULL;
}

/* Return a new reader that keeps `chunks` chunks, the number in a box, within the limit. */
static struct array_reader *reader_new(const struct array *array, int64_t chunks)
{
    struct array_reader *reader = calloc(1, sizeof *reader);
    ENSURE_MEMORY(reader != NULL, "no memory to read an array");
    reader->kept_count =
        smaller(larger(chunks, 1), larger(most_kept_bytes / array->chunk_bytes, 1));
    reader->kept = calloc((size_t)reader->kept_count, sizeof *reader->kept);
    reader->filter_state = filter_state_new();
    reader->shard.file = -1;
    ENSURE_MEMORY(reader->kept != NULL && reader->filter_state != NULL,
                  "no memory to read an array");
    for (int64_t n = 0; n < reader->kept_count; n++)
        reader->kept[n].index = -1;
    return reader;
}

/* Return a reader that is not in use, if possible one that has kept the chunk `index`. */
static struct array_reader *reader_take(struct array *array, int64_t index, int64_t chunks)
{
    pthread_mutex_lock(&array->mutex);
    struct array_reader **link = &array->readers;
    while (*link != NULL && kept_find(*link, index) == NULL)
        link = &(*link)->next;
    if (*link == NULL)
        link = &array->readers;
    struct array_reader *reader = *link;
    if (reader != NULL)
        *link = reader->next;
    pthread_mutex_unlock(&array->mutex);
    return reader != NULL ? reader : reader_new(array, chunks);
}

static void reader_give(struct array *array, struct array_reader *reader)
{
    pthread_mutex_lock(&array->mutex);
    reader->next = array->readers;
    array->readers = reader;
    pthread_mutex_unlock(&array->mutex);
}

/* ---- chunks ---- */

static const struct array_chunk *chunk_find(const struct array *array, int64_t index)
{
    const struct array_chunk wanted = {.index = index};
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
    if (array->files.folder == NULL && !file_stamp_holds(array->descriptor, &array->stamp))
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
    const struct array_chunk *chunk = chunk_find(array, index);
    *place = (struct chunk_place){.descriptor = -1};
    if (chunk != NULL)
        *place = (struct chunk_place){.descriptor = array->descriptor,
                                      .offset = chunk->offset,
                                      .bytes = chunk->bytes,
                                      .skipped = chunk->skipped};
    return true;
}

static void place_close(const struct array *array, const struct chunk_place *place)
{
    if (array->files.folder != NULL && place->descriptor >= 0)
        close(place->descriptor);
}

/* Decode reader->stored into kept->buffer. */
static const char *filters_undo(const struct array *array, struct array_reader *reader,
                                const struct chunk_place *place, struct kept_chunk *kept)
{
    const uint8_t *from = reader->stored.data;
    size_t bytes = (size_t)place->bytes;
    const char *fault = NULL;
    for (int n = array->filter_count; fault == NULL && n-- > 0;) {
        if (place->skipped >> n & 1)
            continue;
        struct byte_buffer *to = from == kept->buffer.data ? &reader->work : &kept->buffer;
        fault = filter_undo(reader->filter_state, array->filter[n], (size_t)array->element_bytes,
                            from, &bytes, to->data, to->capacity);
        from = filter_is_checksum(array->filter[n]) ? from : to->data;
    }
    if (fault == NULL && bytes != (size_t)array->chunk_bytes)
        fault = "it has the wrong size: the file is damaged";
    if (fault != NULL)
        return fault;
    if (from == reader->work.data) {
        const struct byte_buffer work = reader->work;
        reader->work = kept->buffer;
        kept->buffer = work;
    } else if (from == reader->stored.data) {
        memcpy(kept->buffer.data, from, bytes);
    }
    return NULL;
}

/* Return the decoded elements of a chunk, or NULL. */
static const uint8_t *chunk_decode(const struct array *array, struct array_reader *reader,
                                   int64_t index, const struct chunk_place *place,
                                   struct error *error)
{
    struct kept_chunk *kept = &reader->kept[reader->oldest];
    reader->oldest = (reader->oldest + 1) % reader->kept_count;
    kept->index = -1;
    /* Between filters, checksums and incompressible data can make the chunk larger. */
    const size_t bytes = (size_t)(array->chunk_bytes + array->chunk_bytes / 64) + 64;
    if (!byte_buffer_reserve(&reader->stored, (size_t)place->bytes, error) ||
        !byte_buffer_reserve(&reader->work, bytes, error) ||
        !byte_buffer_reserve(&kept->buffer, bytes, error) ||
        !bytes_read(array, index, place, 0, reader->stored.data, place->bytes, error))
        return NULL;
    const char *fault = filters_undo(array, reader, place, kept);
    if (fault != NULL) {
        chunk_refuse(array, index, fault, error);
        return NULL;
    }
    kept->index = index;
    return kept->buffer.data;
}

/* ---- boxes ---- */

/* Describe the part of a chunk that is in the box. `at`: coordinates of the chunk in the grid. */
static void piece_make(const struct array *array, const struct array_box *box, const int64_t *at,
                       struct piece *piece)
{
    int64_t stride = 1;
    *piece = (struct piece){.loops = 0, .span = 1};
    for (int d = array->dimensions; d-- > 0; stride *= array->chunk[d]) {
        const int64_t origin = at[d] * array->chunk[d];
        const int64_t first = larger(box->begin[d], origin);
        const int64_t end = smaller(box->begin[d] + box->count[d], origin + array->chunk[d]);
        const int inner = piece->loops - 1;
        piece->from += (first - origin) * stride;
        piece->to += (first - box->begin[d]) * box->stride[d];
        piece->span += (end - first - 1) * stride;
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
    for (int loop = 0; loop < piece->loops;) {
        array_values_convert(array, from == NULL ? NULL : from + source * array->element_bytes,
                             piece->count[0], to, target, piece->to_stride[0]);
        for (loop = 1; loop < piece->loops; loop++) {
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

/* Read a piece of a chunk that exists, and convert it if necessary. */
static bool stored_read(const struct array *array, struct array_reader *reader, int64_t index,
                        const struct chunk_place *place, const struct piece *piece,
                        struct array_target to, struct error *error)
{
    const int64_t first = piece->from * array->element_bytes;
    const int64_t bytes = piece->span * array->element_bytes;
    if (array->filter_count > 0) {
        const uint8_t *elements = chunk_decode(array, reader, index, place, error);
        if (elements != NULL)
            piece_convert(array, piece, elements + first, to);
        return elements != NULL;
    }
    if (array->is_plain && to.floats != NULL && piece->loops == 1 && piece->to_stride[0] == 1)
        return bytes_read(array, index, place, first, to.floats + piece->to, bytes, error);
    if (!byte_buffer_reserve(&reader->stored, (size_t)bytes, error) ||
        !bytes_read(array, index, place, first, reader->stored.data, bytes, error))
        return false;
    piece_convert(array, piece, reader->stored.data, to);
    return true;
}

/* Read the piece of one chunk. */
static bool piece_read(const struct array *array, struct array_reader *reader, int64_t index,
                       const struct piece *piece, struct array_target to, struct error *error)
{
    const int64_t first = piece->from * array->element_bytes;
    const struct kept_chunk *kept = kept_find(reader, index);
    struct chunk_place place;
    if (array->data != NULL || kept != NULL) {
        piece_convert(array, piece, (kept != NULL ? kept->buffer.data : array->data) + first, to);
        return true;
    }
    if (!place_find(array, reader, index, &place, error))
        return false;
    bool good = true;
    if (place.descriptor < 0)
        piece_convert(array, piece, NULL, to);
    else
        good = stored_read(array, reader, index, &place, piece, to, error);
    place_close(array, &place);
    return good;
}

static bool box_read(struct array *array, const struct array_box *box, struct array_target to,
                     struct error *error)
{
    int64_t first[ARRAY_DIMENSIONS], at[ARRAY_DIMENSIONS], end[ARRAY_DIMENSIONS];
    int64_t chunks = 1, index = 0;
    for (int d = 0; d < array->dimensions; d++) {
        ENSURE(box->begin[d] >= 0 && box->count[d] > 0 &&
                   box->begin[d] <= array->extent[d] - box->count[d],
               "a box outside of '%s'", array->name);
        first[d] = at[d] = box->begin[d] / array->chunk[d];
        end[d] = (box->begin[d] + box->count[d] - 1) / array->chunk[d] + 1;
        chunks *= end[d] - first[d];
        index = index * array->grid[d] + at[d];
    }
    struct array_reader *reader = reader_take(array, index, chunks);
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
    reader_give(array, reader);
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
