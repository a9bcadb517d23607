// SPDX-License-Identifier: BSD-3-Clause
#include "data/array_filter.h"

#include <isa-l/igzip_lib.h>
#include <stdlib.h>
#include <string.h>

struct inflate_state *filter_inflate_new(void)
{
    return malloc(sizeof(struct inflate_state));
}

const char *filter_inflate(struct inflate_state *state, const uint8_t *from, size_t bytes,
                           uint8_t *to, size_t *count)
{
    if (bytes > UINT32_MAX || *count > UINT32_MAX)
        return "it is larger than 4 GiB";
    isal_inflate_init(state);
    state->crc_flag = ISAL_ZLIB;
    state->next_in = (uint8_t *)(uintptr_t)from; /* isa-l does not write to it */
    state->avail_in = (uint32_t)bytes;
    state->next_out = to;
    state->avail_out = (uint32_t)*count;
    const int status = isal_inflate_stateless(state);
    *count = state->total_out;
    switch (status) {
    case ISAL_DECOMP_OK:
        return state->block_state == ISAL_BLOCK_FINISH ? NULL : "its deflate stream has no end";
    case ISAL_END_INPUT:
        return "its deflate stream has no end";
    case ISAL_OUT_OVERFLOW:
        return "it is larger than its shape";
    case ISAL_INCORRECT_CHECKSUM:
        return "the checksum of its deflate stream is wrong";
    default:
        return "its deflate stream is damaged";
    }
}

/* A constant number of bytes lets the compiler unroll the inner loop. */
static inline void unshuffle(const uint8_t *from, size_t count, size_t element_bytes, uint8_t *to)
{
    for (size_t i = 0; i < count; i++)
        for (size_t byte = 0; byte < element_bytes; byte++)
            to[i * element_bytes + byte] = from[byte * count + i];
}

void filter_unshuffle(const uint8_t *from, size_t bytes, size_t element_bytes, uint8_t *to)
{
    const size_t count = bytes / element_bytes, whole = count * element_bytes;
    if (element_bytes == 2)
        unshuffle(from, count, 2, to);
    else if (element_bytes == 4)
        unshuffle(from, count, 4, to);
    else
        unshuffle(from, count, element_bytes, to);
    memcpy(to + whole, from + whole, bytes - whole);
}

static uint32_t fletcher32(const uint8_t *data, size_t bytes)
{
    enum { WORDS = 360 }; /* the largest number whose sums do not overflow */
    uint32_t low = 0, high = 0;
    for (size_t words = bytes / 2; words > 0;) {
        size_t block = words < WORDS ? words : WORDS;
        for (words -= block; block > 0; block--, data += 2) {
            low += (uint32_t)data[0] << 8 | data[1];
            high += low;
        }
        low = (low & 0xffff) + (low >> 16);
        high = (high & 0xffff) + (high >> 16);
    }
    if (bytes % 2 != 0) {
        low += (uint32_t)*data << 8;
        high += low;
        low = (low & 0xffff) + (low >> 16);
        high = (high & 0xffff) + (high >> 16);
    }
    low = (low & 0xffff) + (low >> 16);
    high = (high & 0xffff) + (high >> 16);
    return high << 16 | low;
}

bool filter_fletcher32_matches(const uint8_t *data, size_t bytes)
{
    if (bytes < 4)
        return false;
    const uint8_t *end = data + bytes - 4;
    const uint32_t stored =
        end[0] | (uint32_t)end[1] << 8 | (uint32_t)end[2] << 16 | (uint32_t)end[3] << 24;
    const uint32_t sum = fletcher32(data, bytes - 4);
    /* HDF5 before 1.6.3 swapped the bytes of each half on little-endian machines. */
    return stored == sum || stored == ((sum & 0x00ff00ff) << 8 | (sum >> 8 & 0x00ff00ff));
}
