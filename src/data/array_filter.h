// SPDX-License-Identifier: BSD-3-Clause
/* Decoding of chunks: the inverse of each filter. */
#ifndef VITTRAIN_DATA_ARRAY_FILTER_H
#define VITTRAIN_DATA_ARRAY_FILTER_H

#include <stddef.h>

#include "data/array.h"

/* Memory of the decoders of one thread. */
struct filter_state;

/* Return a new state, or NULL. */
struct filter_state *filter_state_new(void);
void filter_state_free(struct filter_state *state);

/* Return the name of the library that this filter needs if the program was built without it, else
 * NULL. */
const char *filter_library_missing(enum array_filter filter);

/* Return the name of a filter: "deflate". */
const char *array_filter_name(enum array_filter filter);

/* True if the filter only appends a checksum, so that filter_undo leaves the data in `from`. */
bool filter_is_checksum(enum array_filter filter);

/* Invert a filter: decode `from` into at most `capacity` bytes and set *bytes to their number.
 * Return NULL, or the reason of the failure. */
const char *filter_undo(struct filter_state *state, enum array_filter filter, size_t element_bytes,
                        const uint8_t *from, size_t *bytes, uint8_t *to, size_t capacity);

#endif
