// SPDX-License-Identifier: BSD-3-Clause
/* Allocation of tables of bounded size. If memory is short, the job ends with ERROR_MEMORY. */
#ifndef VITTRAIN_BASE_ALLOCATE_H
#define VITTRAIN_BASE_ALLOCATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct error;

/* Return zeroed memory for `count` elements, which may be 0; freed by the caller. */
void *allocate(size_t count, size_t element_bytes);

/* Return a copy of a text, to be freed by the caller. */
char *allocate_copy(const char *text);

/* Return a text in the format of printf, to be freed by the caller. */
char *allocate_text(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A local pointer whose memory is freed at the end of its scope, where errno is kept:
 * OWNED char *path = allocate_text("%s/%s", folder, name); */
#define OWNED __attribute__((cleanup(owned_free)))
void owned_free(void *variable);

/* Resize memory that a function of this file returned, or NULL. New bytes are not set to zero.
 * Return the memory, which may have moved. */
void *allocate_resized(void *memory, size_t bytes);

/* Grow an array of `count` elements if it has no memory for one more. New memory is not set to
 * zero. Return the array, which may have moved. */
void *allocate_more(void *array, size_t *capacity, size_t count, size_t element_bytes);

/* A reusable buffer of bytes, allocated with malloc. Initialize with zeros. */
struct byte_buffer {
    uint8_t *data;
    size_t count, capacity;
};

/* Ensure this capacity; the contents are lost. Too little memory is an error. */
bool byte_buffer_reserve(struct byte_buffer *buffer, size_t capacity, struct error *error)
    __attribute__((warn_unused_result));

/* Append bytes and return their offset. */
size_t byte_buffer_append(struct byte_buffer *buffer, const void *bytes, size_t count);

#endif
