// SPDX-License-Identifier: BSD-3-Clause
#include "base/sum_tree.h"

#include "base/error.h"

int tree_root_level(int64_t total)
{
    int level = 0;
    while ((int64_t)1 << level < total)
        level++;
    return level;
}

int tree_cut(int64_t begin, int64_t end, int64_t total, struct subtree parts[TREE_PARTS])
{
    int count = 0, root = total > 0 ? tree_root_level(total) : 0;
    ENSURE(begin >= 0 && end <= total && root <= TREE_LEVELS, "no grains %lld to %lld of %lld",
           (long long)begin, (long long)end, (long long)total);
    while (begin < end) {
        int level = 0;
        while (level < root) {
            int64_t size = (int64_t)2 << level;
            if (begin % size != 0 || (begin + size > end && end < total))
                break;
            level++;
        }
        parts[count++] = (struct subtree){begin, level};
        begin += (int64_t)1 << level;
    }
    return count;
}

void tree_pool_insert(struct tree_pool *pool, struct subtree tree, int slot,
                      void (*add)(void *context, int into, int from), void *context)
{
    int root = tree_root_level(pool->total);
    while (tree.level < root) {
        int64_t size = (int64_t)1 << tree.level;
        if (tree.begin % (2 * size) == 0) {
            if (tree.begin + size < pool->total)
                break; /* the right sibling is still to come */
        } else {
            int last = pool->count - 1;
            if (last < 0 || pool->waiting[last].tree.begin != tree.begin - size ||
                pool->waiting[last].tree.level != tree.level)
                break;
            if (add != NULL)
                add(context, pool->waiting[last].slot, slot);
            tree.begin -= size;
            slot = pool->waiting[last].slot;
            pool->count = last;
        }
        tree.level++;
    }
    ENSURE(pool->count <= TREE_PARTS, "too many partial sums wait in a tree");
    pool->waiting[pool->count].tree = tree;
    pool->waiting[pool->count++].slot = slot;
}
