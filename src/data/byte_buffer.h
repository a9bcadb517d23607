// SPDX-License-Identifier: BSD-3-Clause
/* A reusable buffer of bytes. */
#ifndef VITTRAIN_DATA_BYTE_BUFFER_H
#define VITTRAIN_DATA_BYTE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

/* Allocated with malloc. Initialize with zeros. */
struct byte_buffer {
    uint8_t *data;
    size_t count, capacity;
};

/* Ensure this capacity; the contents are lost. */
MUST_CHECK bool byte_buffer_reserve(struct byte_buffer *buffer, size_t capacity,
                                    struct error *error);

#endif
