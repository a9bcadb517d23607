// SPDX-License-Identifier: BSD-3-Clause
/* Decoders of the filters of chunks. */
#ifndef VITTRAIN_DATA_ARRAY_FILTER_H
#define VITTRAIN_DATA_ARRAY_FILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct inflate_state;

/* Return a new state of deflate's decoder for one thread, or NULL; freed with free. */
struct inflate_state *filter_inflate_new(void);

/* Decompress a zlib stream into at most *count bytes and set *count to their number. Return NULL,
 * or what is wrong. */
const char *filter_inflate(struct inflate_state *state, const uint8_t *from, size_t bytes,
                           uint8_t *to, size_t *count);

/* Invert HDF5's shuffle, which stores byte 0 of all elements first, then byte 1, and so on. */
void filter_unshuffle(const uint8_t *from, size_t bytes, size_t element_bytes, uint8_t *to);

/* True if the data are followed by their Fletcher-32 checksum as HDF5 computes it. `bytes`: with
 * the checksum. */
bool filter_fletcher32_matches(const uint8_t *data, size_t bytes);

#endif
