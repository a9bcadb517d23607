// SPDX-License-Identifier: BSD-3-Clause
/* Memory for tables whose size is bounded: if there is not enough, the job ends (ENSURE_MEMORY). */
#ifndef VITTRAIN_CORE_ALLOCATE_H
#define VITTRAIN_CORE_ALLOCATE_H

#include <stddef.h>

/* Return zeroed memory for `count` elements, which may be 0; freed by the caller. */
void *allocate(size_t count, size_t element_bytes);

/* Return a copy of a text, which the caller frees. */
char *allocate_copy(const char *text);

/* Resize memory of this function or of allocate. Return it; it may have moved. */
void *allocate_resized(void *memory, size_t bytes);

/* Ensure that an array has memory for element `count`. Return the array, which may have moved. */
void *allocate_more(void *array, size_t *capacity, size_t count, size_t element_bytes);

#endif
