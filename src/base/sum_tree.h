// SPDX-License-Identifier: BSD-3-Clause
/* A binary tree over the grains of a global batch. It fixes the order in which partial sums are
 * added, whatever the layout. A grain is a fixed number of consecutive samples (docs/exact.md).
 * Grains 0..total - 1 are the leaves. A subtree of level n covers grains begin..begin + 2^n - 1,
 * where begin is a multiple of 2^n; grains from `total` on are absent. The sum of a subtree is the
 * sum of its left half plus the sum of its right half. If the right half begins at `total` or
 * later, it is the sum of the left half. */
#ifndef VITTRAIN_BASE_SUM_TREE_H
#define VITTRAIN_BASE_SUM_TREE_H

#include <stdint.h>

enum {
    TREE_LEVELS = 16,             /* `total` is at most 2^TREE_LEVELS */
    TREE_PARTS = 2 * TREE_LEVELS, /* maximum number of subtrees of a range */
};

struct subtree {
    int64_t begin;
    int level;
};

/* Return the level of the root. total > 0. */
int tree_root_level(int64_t total);

/* Cut grains begin..end - 1 into the fewest subtrees, in ascending order. Return their number, 0
 * for an empty range. The range 0..total - 1 is one subtree. */
int tree_cut(int64_t begin, int64_t end, int64_t total, struct subtree parts[TREE_PARTS]);

/* To add leaves in the order of the tree, keep a stack of sums. Write leaf i to entry
 * tree_stack_top(i), then add the top entry to the one below, tree_stack_adds(i, count) times.
 * Before leaf i, the stack has one subtree for each one bit of i. Leaf i completes one subtree for
 * each trailing one bit of i; the last leaf completes all. */
static inline int tree_stack_top(int64_t leaf)
{
    return __builtin_popcountll((uint64_t)leaf);
}

static inline int tree_stack_adds(int64_t leaf, int64_t count)
{
    return leaf == count - 1 ? tree_stack_top(leaf) : __builtin_ctzll(~(uint64_t)leaf);
}

/* Partial sums that wait for their sibling. `slot` is the caller's number for the memory of a
 * partial sum. Initialize with {.total = total}. */
struct tree_pool {
    int64_t total;
    int count;
    struct {
        struct subtree tree;
        int slot;
    } waiting[TREE_PARTS + 1];
};

/* Insert the partial sum of `tree`, which is stored in `slot`. Insert subtrees in ascending order.
 * Whenever both halves of a subtree are present, call add(context, into, from). It must add slot
 * `from`, the right half, to slot `into`; `from` is unused afterwards. NULL: only count. After the
 * last grain, one subtree of the root's level is left. */
void tree_pool_insert(struct tree_pool *pool, struct subtree tree, int slot,
                      void (*add)(void *context, int into, int from), void *context);

#endif
