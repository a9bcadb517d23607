// SPDX-License-Identifier: BSD-3-Clause
/* The arena is an offset that grows, with statistics by memory class. */
#include "base/arena.h"

#include <stdint.h>
#include <string.h>

#include "base/error.h"

const char *const memory_class_name[MEMORY_CLASSES] = {
    "weights", "gradients", "optimizer", "gathered", "activations", "buffers",
};

void arena_measure(struct arena *arena)
{
    memset(arena, 0, sizeof *arena);
}

void arena_begin(struct arena *arena, void *base, size_t size)
{
    ENSURE(base != NULL || size == 0, "an arena of %zu bytes without memory", size);
    arena_measure(arena);
    arena->base = base;
    arena->size = size;
}

/* Attribute bytes to a class and to the current row. */
static void arena_attribute(struct arena *arena, enum memory_class memory_class, size_t bytes)
{
    arena->by_class[memory_class] += bytes;
    if (arena->by_row != NULL)
        arena->by_row[arena->row][memory_class] += bytes;
}

void arena_count_outside(struct arena *arena, enum memory_class memory_class, size_t bytes)
{
    arena->outside += bytes;
    arena_attribute(arena, memory_class, bytes);
}

void *arena_take(struct arena *arena, enum memory_class memory_class, size_t bytes)
{
    if (bytes == 0)
        return NULL;
    ENSURE(bytes <= SIZE_MAX - ARENA_ALIGNMENT - arena->used, "arena: %zu bytes overflow", bytes);
    const size_t rounded = (bytes + ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
    const size_t begin = arena->used;
    ENSURE(arena_is_measuring(arena) || rounded <= arena->size - begin,
           "arena: %zu bytes for %s after %zu of %zu: more than was measured", bytes,
           memory_class_name[memory_class], begin, arena->size);
    arena->used += rounded;
    if (arena->used > arena->peak) {
        arena_attribute(arena, memory_class, arena->used - arena->peak);
        arena->peak = arena->used;
    }
    return arena_is_measuring(arena) ? NULL : arena->base + begin;
}

size_t arena_mark(const struct arena *arena)
{
    return arena->used;
}

void arena_rewind(struct arena *arena, size_t mark)
{
    ENSURE(mark <= arena->used, "arena: rewind to %zu, but only %zu are used", mark, arena->used);
    arena->used = mark;
}
