// SPDX-License-Identifier: BSD-3-Clause
#include "data/byte_buffer.h"

#include <stdlib.h>

bool byte_buffer_reserve(struct byte_buffer *buffer, size_t capacity, struct error *error)
{
    if (capacity <= buffer->capacity)
        return true;
    free(buffer->data);
    buffer->data = malloc(capacity);
    buffer->capacity = buffer->data != NULL ? capacity : 0;
    return buffer->data != NULL ||
           error_set(error, ERROR_MEMORY, "out of memory for %zu bytes", capacity);
}
