// SPDX-License-Identifier: BSD-3-Clause
#include "core/allocate.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"

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
