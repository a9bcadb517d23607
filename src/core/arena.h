/* All long-lived memory of a rank is one allocation. The code that lays it out runs twice: first to
 * measure (nothing is handed out), then to take; so what was printed before the first step is what
 * is used, and `plan` cannot drift from the truth. */
#ifndef VITTRAIN_CORE_ARENA_H
#define VITTRAIN_CORE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

enum memory_class {
    MEMORY_WEIGHTS, /* fp32 masters and the compute copy */
    MEMORY_GRADIENTS,
    MEMORY_OPTIMIZER, /* moments and the moving average of the weights */
    MEMORY_GATHERED,  /* whole units and whole gradients, while they are used */
    MEMORY_ACTIVATIONS,
    MEMORY_BUFFERS, /* batches on the device, workspaces, sums */
    MEMORY_CLASSES
};

extern const char *const memory_class_name[MEMORY_CLASSES];

enum { ARENA_ALIGNMENT = 256 };

struct arena {
    unsigned char *base; /* NULL while measuring */
    size_t size;         /* bytes behind base */
    size_t used;
    size_t peak;                     /* the highest `used` so far: what one allocation must hold */
    size_t by_class[MEMORY_CLASSES]; /* who made `peak` grow: adds up to `peak` */
    /* The same by rows, where somebody wants to know: the row of what units share, then one a unit.
     * Belongs to the caller, NULL: nobody does. */
    size_t (*by_row)[MEMORY_CLASSES];
    int row; /* whose what is taken now is */
};

enum { ARENA_SHARED_ROW, ARENA_UNIT_ROWS };

/* Starts a measuring pass: everything zero. Then `by_row` may be set, to zeros. */
void arena_measure(struct arena *arena);

/* Starts the taking pass over memory that the caller owns (arena.peak bytes as measured). */
void arena_begin(struct arena *arena, void *base, size_t size);

/* The next `bytes` (rounded up to ARENA_ALIGNMENT), not cleared. NULL while measuring or when bytes
 * is 0. Aborts when the taking pass asks for more than was measured. */
void *arena_take(struct arena *arena, enum memory_class memory_class, size_t bytes);

static inline bool arena_is_measuring(const struct arena *arena)
{
    return arena->base == NULL;
}

/* What is taken from now on is this unit's, or what units share (the start). */
static inline void arena_for_unit(struct arena *arena, int unit)
{
    arena->row = ARENA_UNIT_ROWS + unit;
}

static inline void arena_for_all(struct arena *arena)
{
    arena->row = ARENA_SHARED_ROW;
}

/* Where the arena stands, and back there: activations of evaluation and of training lie over each
 * other. `peak` keeps the most that was ever taken. */
size_t arena_mark(const struct arena *arena);
void arena_rewind(struct arena *arena, size_t mark);

#endif
