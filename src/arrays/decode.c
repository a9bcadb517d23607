// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/decode.h"

#include "config.h"

#include <isa-l/igzip_lib.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef HAVE_LIBDEFLATE
#include <libdeflate.h>
#endif
#ifdef HAVE_ZSTD
#include <zstd.h>
#define WITH_ZSTD true
#else
#define WITH_ZSTD false
#endif
#ifdef HAVE_LZ4
#include <lz4.h>
#define WITH_LZ4 true
#else
#define WITH_LZ4 false
#endif
#ifdef HAVE_BLOSC
#include <blosc.h>
#define WITH_BLOSC true
#else
#define WITH_BLOSC false
#endif

#include "base/allocate.h"
#include "base/base.h"

static const char too_large[] = "it decodes to more bytes than its shape has";
static const char wrong_sum[] = "its checksum is wrong: the file is damaged";

struct filter_state {
    struct byte_buffer work[2]; /* results of filters */
    struct inflate_state inflate;
    struct libdeflate_decompressor *deflate; /* NULL: not used yet, likewise below */
    void *zstd;
};

struct filter_state *filter_state_new(void)
{
    return allocate(1, sizeof(struct filter_state));
}

void filter_state_free(struct filter_state *state)
{
    free(state->work[0].data);
    free(state->work[1].data);
#ifdef HAVE_LIBDEFLATE
    libdeflate_free_decompressor(state->deflate);
#endif
#ifdef HAVE_ZSTD
    ZSTD_freeDCtx(state->zstd);
#endif
    free(state);
}

bool filter_find(int64_t filter, char name[FILTER_NAME])
{
    static const struct {
        int64_t filter;
        const char *name;
        bool is_supported;
    } filters[] = {{ARRAY_CRC32C, "crc32c", true},
                   {ARRAY_LZ4_BLOCK, "lz4", WITH_LZ4},
                   {ARRAY_GZIP, "gzip", true},
                   {ARRAY_DEFLATE, "deflate", true},
                   {ARRAY_SHUFFLE, "shuffle", true},
                   {ARRAY_FLETCHER32, "fletcher32", true},
                   {ARRAY_BLOSC, "blosc", WITH_BLOSC},
                   {ARRAY_LZ4, "lz4", WITH_LZ4},
                   {ARRAY_ZSTD, "zstd", WITH_ZSTD},
                   {4, "szip", false},
                   {5, "nbit", false},
                   {6, "scaleoffset", false},
                   {305, "lzo", false},
                   {307, "bzip2", false},
                   {32000, "lzf", false},
                   {32008, "bitshuffle", false},
                   {32013, "zfp", false},
                   {32026, "blosc2", false}};
    for (size_t n = 0; n < sizeof filters / sizeof filters[0]; n++)
        if (filters[n].filter == filter) {
            snprintf(name, FILTER_NAME, "%s", filters[n].name);
            return filters[n].is_supported;
        }
    snprintf(name, FILTER_NAME, "number %lld", (long long)filter);
    return false;
}

/* ---- compression ---- */

#ifdef HAVE_LIBDEFLATE
/* Return false if the stream cannot be decoded; the result has no reason. */
static bool deflate_undo(struct filter_state *state, int64_t filter, const uint8_t *from,
                         size_t *bytes, uint8_t *to, size_t capacity)
{
    size_t used, count;
    if (state->deflate == NULL)
        state->deflate = libdeflate_alloc_decompressor();
    if (state->deflate == NULL ||
        (filter == ARRAY_GZIP ? libdeflate_gzip_decompress_ex : libdeflate_zlib_decompress_ex)(
            state->deflate, from, *bytes, to, capacity, &used, &count) != LIBDEFLATE_SUCCESS)
        return false;
    *bytes = count;
    return true;
}
#endif

static const char *inflate(struct inflate_state *state, uint32_t kind, const uint8_t *from,
                           size_t *bytes, uint8_t *to, size_t capacity)
{
    if (*bytes > UINT32_MAX || capacity > UINT32_MAX)
        return "it is larger than 4 GiB";
    isal_inflate_init(state);
    state->crc_flag = kind;
    state->next_in = (uint8_t *)(uintptr_t)from; /* isa-l does not write to it */
    state->avail_in = (uint32_t)*bytes;
    state->next_out = to;
    state->avail_out = (uint32_t)capacity;
    const int status = isal_inflate_stateless(state);
    *bytes = state->total_out;
    if (status == ISAL_DECOMP_OK && state->block_state == ISAL_BLOCK_FINISH)
        return NULL;
    return status == ISAL_OUT_OVERFLOW         ? too_large
           : status == ISAL_INCORRECT_CHECKSUM ? "the checksum of its deflate stream is wrong"
                                               : "its deflate stream is damaged or truncated";
}

#ifdef HAVE_ZSTD
static const char *zstd_undo(struct filter_state *state, const uint8_t *from, size_t *bytes,
                             uint8_t *to, size_t capacity)
{
    if (state->zstd == NULL)
        state->zstd = ZSTD_createDCtx();
    if (state->zstd == NULL)
        return "no memory for libzstd";
    *bytes = ZSTD_decompressDCtx(state->zstd, to, capacity, from, *bytes);
    return ZSTD_isError(*bytes) ? "its zstd stream is damaged or has the wrong size" : NULL;
}
#endif

#ifdef HAVE_LZ4
static const char lz4_damaged[] = "its lz4 stream is damaged or has the wrong size";

static uint32_t big_endian(const uint8_t *from)
{
    return __builtin_bswap32((uint32_t)little_endian(from, 4));
}

/* HDF5's plug-in writes the decoded size in 8 bytes, the decoded size of a block in 4 bytes, and
 * the blocks. Each block begins with its stored size in 4 bytes; if that is the decoded size, the
 * block is not compressed. All numbers are big-endian. */
static const char *lz4_undo(const uint8_t *from, size_t *bytes, uint8_t *to, size_t capacity)
{
    enum { HEADER = 12, SIZE = 4 };
    const uint8_t *end = from + *bytes;
    if (*bytes < HEADER)
        return lz4_damaged;
    const uint64_t total = (uint64_t)big_endian(from) << 32 | big_endian(from + 4);
    const size_t block = big_endian(from + 8);
    if (total > capacity || (block == 0 && total > 0))
        return lz4_damaged;
    from += HEADER;
    for (size_t done = 0, count; done < total; done += count) {
        count = total - done < block ? (size_t)total - done : block;
        const size_t stored = end - from < SIZE ? SIZE_MAX : big_endian(from);
        if (stored > (size_t)(end - from) - SIZE || stored > INT_MAX || count > INT_MAX)
            return lz4_damaged;
        from += SIZE;
        if (stored == count)
            memcpy(to + done, from, count);
        else if (LZ4_decompress_safe((const char *)from, (char *)to + done, (int)stored,
                                     (int)count) != (int)count)
            return lz4_damaged;
        from += stored;
    }
    *bytes = (size_t)total;
    return NULL;
}

/* Zarr writes the decoded size in 4 bytes, little-endian, and one block. */
static const char *lz4_block_undo(const uint8_t *from, size_t *bytes, uint8_t *to, size_t capacity)
{
    enum { HEADER = 4 };
    if (*bytes < HEADER || *bytes > INT_MAX)
        return lz4_damaged;
    const size_t count = little_endian(from, HEADER);
    if (count > capacity || count > INT_MAX ||
        LZ4_decompress_safe((const char *)from + HEADER, (char *)to, (int)*bytes - HEADER,
                            (int)count) != (int)count)
        return lz4_damaged;
    *bytes = count;
    return NULL;
}
#endif

#ifdef HAVE_BLOSC
static const char *blosc_undo(const uint8_t *from, size_t *bytes, uint8_t *to, size_t capacity)
{
    size_t count = 0;
    if (blosc_cbuffer_validate(from, *bytes, &count) < 0)
        return "its blosc stream is damaged";
    if (count > capacity)
        return too_large;
    const int got = blosc_decompress_ctx(from, to, capacity, 1);
    if (got < 0 || (size_t)got != count)
        return "its blosc stream is damaged, or libblosc lacks its codec";
    *bytes = count;
    return NULL;
}
#endif

/* ---- shuffle and checksums ---- */

/* A constant number of bytes lets the compiler vectorise the loop. */
VECTORISED static inline void unshuffle(const uint8_t *from, size_t count, size_t element_bytes,
                                        uint8_t *to)
{
    for (size_t i = 0; i < count; i++)
        for (size_t byte = 0; byte < element_bytes; byte++)
            to[i * element_bytes + byte] = from[byte * count + i];
}

/* Invert shuffle, which stores byte 0 of all elements, then byte 1 of all, up to the last byte. */
VECTORISED static void unshuffle_bytes(const uint8_t *from, size_t bytes, size_t element_bytes,
                                       uint8_t *to)
{
    const size_t count = bytes / element_bytes, whole = count * element_bytes;
    if (element_bytes == 2)
        unshuffle(from, count, 2, to);
    else if (element_bytes == 4)
        unshuffle(from, count, 4, to);
    else if (element_bytes == 8)
        unshuffle(from, count, 8, to);
    else
        unshuffle(from, count, element_bytes, to);
    memcpy(to + whole, from + whole, bytes - whole);
}

/* Return a number from 1 to 65535 that is congruent to the sum modulo 65535; 0 for 0. */
static uint32_t fold(uint64_t sum)
{
    return sum == 0 ? 0 : (uint32_t)((sum - 1) % 65535) + 1;
}

static uint32_t fletcher32(const uint8_t *data, size_t bytes)
{
    enum { BLOCK = 1 << 20 }; /* sums of so many bytes do not overflow */
    uint64_t low = 0, high = 0;
    for (size_t i = 0; i < bytes; i += 2) {
        low += (uint64_t)data[i] << 8 | (i + 1 < bytes ? data[i + 1] : 0);
        high += low;
        if (i % BLOCK == 0) {
            low = fold(low);
            high = fold(high);
        }
    }
    return fold(high) << 16 | fold(low);
}

/* Invert a filter: decode `from` into at most `capacity` bytes and set *bytes to their number. */
static const char *filter_undo(struct filter_state *state, int64_t filter, size_t element_bytes,
                               const uint8_t *from, size_t *bytes, uint8_t *to, size_t capacity)
{
    enum { SUM = sizeof(uint32_t) };
    uint32_t stored, sum, swapped;
#ifdef HAVE_LIBDEFLATE
    if ((filter == ARRAY_DEFLATE || filter == ARRAY_GZIP) &&
        deflate_undo(state, filter, from, bytes, to, capacity))
        return NULL;
#endif
    switch (filter) {
    case ARRAY_DEFLATE:
        return inflate(&state->inflate, ISAL_ZLIB, from, bytes, to, capacity);
    case ARRAY_GZIP:
        return inflate(&state->inflate, ISAL_GZIP, from, bytes, to, capacity);
    case ARRAY_SHUFFLE:
        if (*bytes > capacity)
            return too_large;
        unshuffle_bytes(from, *bytes, element_bytes, to);
        return NULL;
    case ARRAY_FLETCHER32:
    case ARRAY_CRC32C:
        if (*bytes < SUM)
            return wrong_sum;
        *bytes -= SUM;
        stored = (uint32_t)little_endian(from + *bytes, SUM);
        sum = filter == ARRAY_CRC32C ? crc32c_update(0, from, *bytes) : fletcher32(from, *bytes);
        /* HDF5 before 1.6.3 swapped the bytes of each half on little-endian machines. */
        swapped = (sum & 0x00ff00ff) << 8 | (sum >> 8 & 0x00ff00ff);
        return stored == sum || (filter == ARRAY_FLETCHER32 && stored == swapped) ? NULL
                                                                                  : wrong_sum;
#ifdef HAVE_ZSTD
    case ARRAY_ZSTD:
        return zstd_undo(state, from, bytes, to, capacity);
#endif
#ifdef HAVE_LZ4
    case ARRAY_LZ4:
        return lz4_undo(from, bytes, to, capacity);
    case ARRAY_LZ4_BLOCK:
        return lz4_block_undo(from, bytes, to, capacity);
#endif
#ifdef HAVE_BLOSC
    case ARRAY_BLOSC:
        return blosc_undo(from, bytes, to, capacity);
#endif
    default:
        return "its filter is not supported";
    }
}

const char *filters_undo(const struct array *array, struct filter_state *state, uint32_t skipped,
                         const uint8_t *from, size_t bytes, uint8_t *to)
{
    const uint32_t applied = ~skipped & ((UINT32_C(1) << array->filter_count) - 1);
    /* Between filters, checksums and incompressible data can make the chunk larger. */
    const size_t size = (size_t)array->chunk_bytes, most = size + size / 64 + 64;
    struct error error = {0};
    for (int n = array->filter_count; n-- > 0;) {
        const int64_t filter = array->filter[n];
        const bool is_last = (applied & ((UINT32_C(1) << n) - 1)) == 0;
        struct byte_buffer *work = &state->work[from == state->work[0].data];
        if (!(applied >> n & 1))
            continue;
        if (!is_last && !byte_buffer_reserve(work, most, &error))
            return "no memory for a chunk";
        uint8_t *target = is_last ? to : work->data;
        const char *fault = filter_undo(state, filter, (size_t)array->element_bytes, from, &bytes,
                                        target, is_last ? size : most);
        if (fault != NULL)
            return fault;
        if (filter != ARRAY_FLETCHER32 && filter != ARRAY_CRC32C) /* these leave the data */
            from = target;
    }
    if (bytes != size)
        return "it has the wrong size: the file is damaged";
    if (from != to)
        memcpy(to, from, bytes);
    return NULL;
}
