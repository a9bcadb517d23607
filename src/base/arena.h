// SPDX-License-Identifier: BSD-3-Clause
/* One allocation for the long-lived memory of a rank, and the size of what is outside it. The code
 * that lays it out runs twice: a measuring pass that hands out nothing, then a pass that hands out
 * the memory. The memory plan is therefore exact. */
#ifndef VITTRAIN_BASE_ARENA_H
#define VITTRAIN_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

enum memory_class {
    MEMORY_WEIGHTS, /* fp32 masters and the compute copy */
    MEMORY_GRADIENTS,
    MEMORY_OPTIMIZER, /* moments and EMA of the weights */
    MEMORY_GATHERED,  /* all-gathered weights and gradients of units in use */
    MEMORY_ACTIVATIONS,
    MEMORY_BUFFERS, /* batches on the device, workspaces, accumulators */
    MEMORY_CLASSES
};

extern const char *const memory_class_name[MEMORY_CLASSES];

enum { ARENA_ALIGNMENT = 256 };

struct arena {
    unsigned char *base; /* NULL while measuring */
    size_t size;         /* bytes at base */
    size_t used;
    size_t peak;                     /* maximum of `used`: the size of the allocation */
    size_t outside;                  /* bytes of this rank's memory outside the allocation */
    size_t by_class[MEMORY_CLASSES]; /* growth of `peak` and `outside`; the sum is arena_total */
    /* by_class for each row: one row for memory that units share, then one row per unit. Owned by
     * the caller; may be NULL. */
    size_t (*by_row)[MEMORY_CLASSES];
    int row; /* row of the memory taken now */
};

enum { ARENA_SHARED_ROW, ARENA_UNIT_ROWS };

/* Start a measuring pass. The caller may set `by_row` to zeroed rows afterwards. */
void arena_measure(struct arena *arena);

/* Start the second pass over memory owned by the caller (arena.peak bytes as measured). */
void arena_begin(struct arena *arena, void *base, size_t size);

/* Return the next `bytes` (rounded up to ARENA_ALIGNMENT), not initialized. NULL while measuring or
 * if bytes is 0. Aborts if the second pass takes more than was measured. */
void *arena_take(struct arena *arena, enum memory_class memory_class, size_t bytes);

/* Count bytes of this rank's memory that are not in the allocation. */
void arena_count_outside(struct arena *arena, enum memory_class memory_class, size_t bytes);

/* Return the bytes of the allocation plus this rank's memory outside it. */
static inline size_t arena_total(const struct arena *arena)
{
    return arena->peak + arena->outside;
}

static inline bool arena_is_measuring(const struct arena *arena)
{
    return arena->base == NULL;
}

/* Attribute memory taken from now on to a unit, or to all units (the initial state). */
static inline void arena_for_unit(struct arena *arena, int unit)
{
    arena->row = ARENA_UNIT_ROWS + unit;
}

static inline void arena_for_all(struct arena *arena)
{
    arena->row = ARENA_SHARED_ROW;
}

/* Get and restore the position, so that activations of training and evaluation share memory. `peak`
 * keeps its value. */
size_t arena_mark(const struct arena *arena);
void arena_rewind(struct arena *arena, size_t mark);

#endif
