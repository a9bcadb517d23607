// SPDX-License-Identifier: BSD-3-Clause
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* vasprintf */
#endif
#include "base/allocate.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

void *allocate(size_t count, size_t element_bytes)
{
    void *memory = calloc(count > 0 ? count : 1, element_bytes);
    ENSURE_MEMORY(memory != NULL, "no memory for %zu elements of %zu bytes", count, element_bytes);
    return memory;
}

char *allocate_copy(const char *text)
{
    return memcpy(allocate(strlen(text) + 1, 1), text, strlen(text));
}

char *allocate_text(const char *format, ...)
{
    char *text;
    va_list arguments;
    va_start(arguments, format);
    ENSURE_MEMORY(vasprintf(&text, format, arguments) >= 0, "no memory for a text");
    va_end(arguments);
    return text;
}

void owned_free(void *variable)
{
    const int reason = errno;
    void *memory;
    memcpy(&memory, variable, sizeof memory);
    free(memory);
    errno = reason;
}

void *allocate_resized(void *memory, size_t bytes)
{
    memory = realloc(memory, bytes > 0 ? bytes : 1);
    ENSURE_MEMORY(memory != NULL, "no memory for %zu bytes", bytes);
    return memory;
}

void *allocate_more(void *array, size_t *capacity, size_t count, size_t element_bytes)
{
    if (count < *capacity)
        return array;
    *capacity = *capacity < 64 ? 64 : 2 * *capacity;
    array = reallocarray(array, *capacity, element_bytes);
    ENSURE_MEMORY(array != NULL, "no memory for %zu elements of %zu bytes", *capacity,
                  element_bytes);
    return array;
}

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

size_t byte_buffer_append(struct byte_buffer *buffer, const void *bytes, size_t count)
{
    const size_t offset = buffer->count;
    if (count > buffer->capacity - offset) {
        buffer->capacity = 2 * (offset + count);
        buffer->data = allocate_resized(buffer->data, buffer->capacity);
    }
    if (count > 0)
        memcpy(buffer->data + offset, bytes, count);
    buffer->count += count;
    return offset;
}
