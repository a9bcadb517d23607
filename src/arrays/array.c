// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/array.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arrays/decode.h"
#include "base/base.h"
#include "base/file.h"

/* The part of a chunk that is in a box, as nested loops over its elements, innermost first. All
 * members are in elements. Dimensions that are contiguous in chunk and memory are one loop. */
struct piece {
    int loops;
    int64_t count[ARRAY_DIMENSIONS], from_stride[ARRAY_DIMENSIONS], to_stride[ARRAY_DIMENSIONS];
    int64_t from, to; /* of the first element in the chunk and in memory */
    int64_t span;     /* from the first element to the last one in the chunk, inclusive */
    bool is_whole;    /* all elements of the chunk that the array has */
};

/* ---- opening ---- */

int64_t array_elements(const struct array *array)
{
    int64_t elements = 1;
    for (int d = 0; d < array->dimensions; d++)
        elements *= array->extent[d];
    return elements;
}

bool array_is_wide(const struct array *array)
{
    return array->element_bytes == 8 || (array->kind != 'f' && array->element_bytes == 4) ||
           (array->rule.active && (array->rule.scale != 1 || array->rule.offset != 0));
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

bool array_refuse_empty(struct array *array, struct error *error)
{
    array->is_empty = true;
    return array_refuse(array, error, "it is empty");
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
    array->file = NULL;
    free(array->files.folder);
    if (!array->is_shared) {
        free(array->chunks);
        free(array->data);
    }
    array->files.folder = NULL;
    array->chunks = NULL;
    array->data = NULL;
    array->chunk_count = 0;
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

/* Decode reader->stored into `to`, which has room for the decoded chunk. */
static const char *filters_undo(const struct array *array, struct array_reader *reader,
                                const struct chunk_place *place, uint8_t *to)
{
    const uint32_t applied = ~place->skipped & ((UINT32_C(1) << array->filter_count) - 1);
    const uint8_t *from = reader->stored.data;
    size_t bytes = (size_t)place->bytes;
    for (int n = array->filter_count; n-- > 0;) {
        if (!(applied >> n & 1))
            continue;
        const bool is_last = (applied & ((UINT32_C(1) << n) - 1)) == 0;
        struct byte_buffer *work = &reader->work[from == reader->work[0].data];
        uint8_t *target = is_last ? to : work->data;
        const size_t capacity = is_last ? (size_t)array->chunk_bytes : work->capacity;
        const char *fault =
            filter_undo(reader->filter_state, array->filter[n], (size_t)array->element_bytes, from,
                        &bytes, target, capacity);
        if (fault != NULL)
            return fault;
        from = filter_is_checksum(array->filter[n]) ? from : target;
    }
    if (bytes != (size_t)array->chunk_bytes)
        return "it has the wrong size: the file is damaged";
    if (from != to)
        memcpy(to, from, bytes);
    return NULL;
}

/* Read and decode a chunk that exists into `to`. */
static bool chunk_decode(const struct array *array, struct array_reader *reader, int64_t index,
                         const struct chunk_place *place, uint8_t *to, struct error *error)
{
    /* Between filters, checksums and incompressible data can make the chunk larger. */
    const size_t bytes = (size_t)(array->chunk_bytes + array->chunk_bytes / 64) + 64;
    bool good = byte_buffer_reserve(&reader->stored, (size_t)place->bytes, error);
    for (int n = 0; good && n < 2 && n < array->filter_count - 1; n++)
        good = byte_buffer_reserve(&reader->work[n], bytes, error);
    if (!good || !bytes_read(array, index, place, 0, reader->stored.data, place->bytes, error))
        return false;
    const char *fault = filters_undo(array, reader, place, to);
    return fault == NULL || chunk_refuse(array, index, fault, error);
}

/* ---- boxes ---- */

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

/* True if the two innermost loops transpose a matrix, as with channels last. */
static bool piece_transposes(const struct piece *piece, struct array_target to)
{
    return to.floats != NULL && piece->loops > 1 && piece->to_stride[0] > 1 &&
           piece->to_stride[1] == 1 && piece->from_stride[1] == piece->count[0];
}

/* Convert the elements of a piece. `from`: the first element of the piece, or NULL for the fill
 * value. */
static void piece_convert(const struct array *array, const struct piece *piece, const uint8_t *from,
                          struct array_target to)
{
    int64_t at[ARRAY_DIMENSIONS] = {0};
    int64_t source = 0, target = piece->to;
    const bool transposes = piece_transposes(piece, to);
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

/* True if the elements have the same layout in the chunk and in memory. */
static bool piece_is_plain(const struct array *array, const struct piece *piece,
                           struct array_target to)
{
    return array->is_plain && to.floats != NULL && piece->loops == 1 && piece->to_stride[0] == 1;
}

/* Read a piece of a chunk that exists and is not kept, and convert it if necessary. */
static bool stored_read(const struct array *array, struct array_reader *reader, int64_t index,
                        const struct chunk_place *place, const struct piece *piece,
                        struct array_target to, struct error *error)
{
    const bool plain = piece_is_plain(array, piece, to), filtered = array->filter_count > 0;
    const int64_t first = filtered ? 0 : piece->from * array->element_bytes;
    const int64_t bytes = filtered ? array->chunk_bytes : piece->span * array->element_bytes;
    const bool direct = plain && bytes == piece->span * array->element_bytes;
    if (!direct && !byte_buffer_reserve(&reader->decoded, (size_t)bytes, error))
        return false;
    uint8_t *data = direct ? (uint8_t *)(to.floats + piece->to) : reader->decoded.data;
    if (filtered ? !chunk_decode(array, reader, index, place, data, error)
                 : !bytes_read(array, index, place, first, data, bytes, error))
        return false;
    if (!direct)
        piece_convert(array, piece, data, to);
    return true;
}

/* Read a piece of a chunk that is not kept. */
static bool piece_read(const struct array *array, struct array_reader *reader, int64_t index,
                       const struct piece *piece, struct array_target to, struct error *error)
{
    struct chunk_place place;
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

/* Read a piece of a chunk that other reads need, too. */
static bool shared_read(const struct array *array, struct array_reader *reader, int64_t index,
                        const struct piece *piece, struct array_target to, struct error *error)
{
    struct chunk_place place;
    struct cached_chunk *chunk = array_cache_take(array->cache, array->original, index, error);
    bool exists = true, good = chunk != NULL;
    if (good && !chunk->is_ready) {
        good = place_find(array, reader, index, &place, error);
        exists = good && place.descriptor >= 0;
        good = good && (!exists || chunk_decode(array, reader, index, &place, chunk->data, error));
        if (exists)
            place_close(array, &place);
    }
    if (good)
        piece_convert(array, piece,
                      exists ? chunk->data + piece->from * array->element_bytes : NULL, to);
    if (chunk != NULL)
        array_cache_give(array->cache, chunk, good && exists);
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
    struct array_reader *reader = array_reader_take(array->cache, array);
    bool good = true;
    for (int d = 0; good && d >= 0;) {
        struct piece piece;
        index = 0;
        for (d = 0; d < array->dimensions; d++)
            index = index * array->grid[d] + at[d];
        piece_make(array, box, at, &piece);
        if (array->data != NULL)
            piece_convert(array, &piece, array->data + piece.from * array->element_bytes, to);
        else
            good = (array->cache != NULL && array->filter_count > 0 && !piece.is_whole
                        ? shared_read
                        : piece_read)(array, reader, index, &piece, to, error);
        for (d = array->dimensions - 1; d >= 0 && ++at[d] == end[d]; d--)
            at[d] = first[d];
    }
    array_reader_give(array->cache, reader);
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
