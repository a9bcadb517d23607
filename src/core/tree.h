// SPDX-License-Identifier: BSD-3-Clause
/* One binary tree over numbered grains: the order in which the partial sums of a global batch are
 * added, whatever the layout. Grains 0..total - 1 are the leaves. A subtree of level n covers
 * grains begin..begin + 2^n - 1, where begin is a multiple of 2^n; grains from `total` on are
 * absent. Its sum is that of its left half plus that of its right half, or that of its left half
 * alone if the right half begins at `total` or later. */
#ifndef VITTRAIN_CORE_TREE_H
#define VITTRAIN_CORE_TREE_H

#include <stdint.h>

enum {
    TREE_LEVELS = 16,             /* 2^TREE_LEVELS is the limit of `total` */
    TREE_PARTS = 2 * TREE_LEVELS, /* limit of the subtrees in a range of grains */
};

struct subtree {
    int64_t begin;
    int level;
};

/* Return the level of the root. total > 0. */
int tree_root_level(int64_t total);

/* Cut grains begin..end - 1 into the fewest subtrees, in ascending order, and return their number:
 * 0 for an empty range. The range 0..total - 1 is one subtree. */
int tree_cut(int64_t begin, int64_t end, int64_t total, struct subtree parts[TREE_PARTS]);

/* Partial sums that wait for their sibling. Slot numbers name the memory of partial sums. */
struct tree_pool {
    int64_t total;
    int count;
    struct {
        struct subtree tree;
        int slot;
    } waiting[TREE_PARTS + 1];
};

/* Add the partial sum of `tree` in memory `slot`. For each sibling that is present, call
 * add(context, into, from): memory `into` += memory `from`, after which `from` is unused. `into` is
 * the left one. Subtrees must arrive in ascending order. The root is complete when one subtree of
 * the root's level is left. */
void tree_pool_insert(struct tree_pool *pool, struct subtree tree, int slot,
                      void (*add)(void *context, int into, int from), void *context);

#endif
