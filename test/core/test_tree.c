// SPDX-License-Identifier: BSD-3-Clause
/* Sums in the tree of grains: any division of the grains into ranges gives the bits of the
 * recursive sum. */
#include "core/tree.h"

#include "test.h"

enum { GRAINS = 70 };

static float leaf[GRAINS], slot_value[GRAINS];

static float recursive_sum(int64_t begin, int level, int64_t total)
{
    if (level == 0)
        return leaf[begin];
    int64_t right = begin + ((int64_t)1 << (level - 1));
    float left_sum = recursive_sum(begin, level - 1, total);
    return right < total ? left_sum + recursive_sum(right, level - 1, total) : left_sum;
}

static void slots_add(void *context, int into, int from)
{
    (void)context;
    slot_value[into] += slot_value[from];
}

/* Sums the subtrees of all ranges in a pool. */
static void sum_in_ranges(int64_t total, int ranks, const int64_t *ends, float *sum)
{
    struct tree_pool pool = {.total = total};
    int slot = 0;
    int64_t begin = 0;
    for (int r = 0; r < ranks; r++) {
        struct subtree parts[TREE_PARTS];
        int count = tree_cut(begin, ends[r], total, parts);
        for (int i = 0; i < count; i++, slot++) {
            int64_t next = i + 1 < count ? parts[i + 1].begin : ends[r];
            assert_int_equal(parts[i].begin, begin);
            slot_value[slot] = recursive_sum(begin, parts[i].level, total);
            begin = next;
            tree_pool_insert(&pool, parts[i], slot, slots_add, NULL);
        }
        begin = ends[r];
    }
    assert_int_equal(pool.count, 1);
    assert_int_equal(pool.waiting[0].tree.begin, 0);
    assert_int_equal(pool.waiting[0].tree.level, tree_root_level(total));
    *sum = slot_value[pool.waiting[0].slot];
}

TEST(every_division_gives_the_same_bits)
{
    for (int i = 0; i < GRAINS; i++)
        leaf[i] = 1 / (float)(3 * i + 1);
    for (int64_t total = 1; total <= GRAINS; total++) {
        float expected = recursive_sum(0, tree_root_level(total), total), sum;
        for (int ranks = 1; ranks <= 9; ranks++) {
            int64_t ends[9];
            for (int r = 0; r < ranks; r++)
                ends[r] = total * (r + 1) / ranks;
            sum_in_ranges(total, ranks, ends, &sum);
            assert_memory_equal(&sum, &expected, sizeof sum);
        }
    }
}

TEST(aligned_ranges_are_one_subtree)
{
    struct subtree parts[TREE_PARTS];
    for (int ranks = 1; ranks <= 8; ranks *= 2)
        for (int64_t r = 0; r < ranks; r++) {
            int64_t size = 32 / ranks;
            assert_int_equal(tree_cut(r * size, (r + 1) * size, 32, parts), 1);
            assert_int_equal(parts[0].begin, r * size);
        }
    assert_int_equal(tree_cut(0, 13, 13, parts), 1);
    assert_int_equal(parts[0].level, 4);
    assert_int_equal(tree_cut(5, 5, 13, parts), 0);
    /* 5, 6-7, 8-10 cut at a border inside 8-15: 8-9, 10 */
    assert_int_equal(tree_cut(5, 11, 16, parts), 4);
    assert_int_equal(parts[3].begin, 10);
    assert_int_equal(tree_cut(0, 0, 0, parts), 0);
}

TEST_MAIN()
