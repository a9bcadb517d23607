// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 3 4 6
// joined
/* Partial sums of gradients for all shard sizes and policies; with 6 ranks there are meshes of 2 x
 * 3 ranks. On each mesh, the gradient has the bits of one recursive sum over the grains of a global
 * batch. */
#include "mesh/flat.h"

#include "comm_fixture.h"
#include "flat_fixture.h"

enum { UNITS = 5, FROZEN_UNIT = 1, MOST = 13, PASSES = 3 };

#define PARAMETER(tensor_name, elements, place)                                                    \
    {                                                                                              \
        .name = tensor_name, .dimensions = 1, .shape = {elements}, .count = elements,              \
        .offset = place, .rate_scale = 1, .trainable = true                                        \
    }

static struct unit_tensor stem[] = {PARAMETER("stem.weight", 301, 0)};
static struct unit_tensor frozen[] = {PARAMETER("frozen.weight", 90, 0)};
static struct unit_tensor first[] = {PARAMETER("0.weight", 17, 0), PARAMETER("0.fixed", 20, 32),
                                     PARAMETER("0.mean", 10, 64)};
static struct unit_tensor second[] = {PARAMETER("1.weight", 960, 0)};
static struct unit_tensor head[] = {PARAMETER("head.weight", 5, 0), PARAMETER("head.bias", 1, 16)};
static struct unit units[UNITS] = {
    {.name = "stem", .tensors = stem, .tensor_count = 1, .count = 301},
    {.name = "frozen", .tensors = frozen, .tensor_count = 1, .count = 90},
    {.name = "0", .tensors = first, .tensor_count = 3, .count = 74},
    {.name = "1", .tensors = second, .tensor_count = 1, .count = 960},
    {.name = "head", .tensors = head, .tensor_count = 2, .count = 17},
};

static void device_begin(void)
{
    frozen[0].trainable = first[1].trainable = false;
    flat_device_open();
}

/* Return an element of the gradient of a grain: random sign, magnitudes of 2^-16 to 1. */
static float leaf(int unit, int64_t element, int64_t grain)
{
    uint64_t bits = (uint64_t)((unit * 1000 + element) * MOST + grain) * 0x9e3779b97f4a7c15;
    bits = (bits ^ bits >> 29) * 0xbf58476d1ce4e5b9;
    float magnitude = (float)(bits >> 40) * 0x1p-24f / (float)(1 << (bits >> 8 & 15));
    return bits & 1 ? -magnitude : magnitude;
}

/* Return the sum of grains begin..begin + size - 1; those from `total` on are absent. */
static float tree_sum(int unit, int64_t element, int64_t begin, int64_t size, int64_t total)
{
    if (size == 1)
        return leaf(unit, element, begin);
    float left = tree_sum(unit, element, begin, size / 2, total);
    if (begin + size / 2 >= total)
        return left;
    return left + tree_sum(unit, element, begin + size / 2, size / 2, total);
}

/* Write the partial sums of an open unit, as a backward pass in grains does. */
static void partials_write(const struct flat_fixture *fixture, int unit)
{
    const struct flat_partials *partials = &fixture->flat.partials;
    const struct flat_buffer *buffer = &fixture->flat.buffers[unit];
    for (int t = 0; t < units[unit].tensor_count; t++) {
        float *gradient = flat_gradient(&fixture->flat, unit, t);
        for (int i = 0; gradient != NULL && i < partials->count; i++)
            for (int64_t e = 0; e < units[unit].tensors[t].count; e++)
                gradient[partials->slot[i] * buffer->stride + e] =
                    tree_sum(unit, units[unit].tensors[t].offset + e, partials->tree[i].begin,
                             (int64_t)1 << partials->tree[i].level, partials->total);
    }
}

static void step_run(struct flat_fixture *fixture, int64_t total, int64_t passes)
{
    struct flat_model *flat = &fixture->flat;
    flat_begin_gradients(flat);
    for (int64_t pass = 0; pass < passes; pass++) {
        flat_begin_pass(flat, total, pass);
        for (int u = UNITS - 1; u >= 0; u--) {
            flat_gradient_open(flat, u, flat->partials.count > 0);
            queue_wait();
            partials_write(fixture, u);
            flat_gradient_close(flat, u, pass == passes - 1);
        }
    }
    flat_reduce_wait(flat);
    queue_wait();
}

/* Return the element of the global gradient. It is zero in frozen tensors, gaps and padding. */
static float expected(int unit, int64_t element, int64_t total)
{
    for (int t = 0; t < units[unit].tensor_count; t++) {
        const struct unit_tensor *tensor = &units[unit].tensors[t];
        if (tensor->trainable && element >= tensor->offset &&
            element < tensor->offset + tensor->count)
            return tree_sum(unit, element, 0, 16, total);
    }
    return 0;
}

static int64_t gradients_wrong(const struct flat_fixture *fixture, int64_t total)
{
    int64_t wrong = 0;
    for (int u = 0; u < UNITS; u++) {
        const struct flat_buffer *buffer = &fixture->flat.buffers[u];
        for (int64_t i = 0; i < buffer->shard_count; i++) {
            float value = expected(u, buffer->shard_begin + i, total);
            wrong += memcmp(&buffer->gradient[i], &value, sizeof value) != 0;
        }
    }
    return wrong;
}

/* Full and short batches; with 1 grain, most ranks have none. */
TEST(every_mesh_has_the_sum_of_the_tree)
{
    static const int64_t totals[] = {MOST, 1, 12, 8, 2, 3, 5, 6, 7, MOST};
    int64_t wrong = 0;
    for (int shard = 1; shard > 0; shard = next_shard(shard))
        for (int policy = KEEP_ALL; policy <= KEEP_NOTHING; policy++)
            for (int64_t passes = 1; passes <= PASSES; passes++) {
                struct flat_fixture fixture;
                flat_fixture_open(&fixture, units, UNITS, shard, (enum flat_policy)policy,
                                  TYPE_FP32, MOST, passes);
                for (size_t i = 0; i < sizeof totals / sizeof totals[0]; i++) {
                    step_run(&fixture, totals[i], passes);
                    wrong += gradients_wrong(&fixture, totals[i]);
                }
                flat_fixture_close(&fixture);
            }
    assert_int_equal(all_wrong(wrong), 0);
}

TEST(a_strategy_without_shards_has_no_shard_size)
{
    struct mesh mesh;
    const struct mesh_options options = {.strategy = STRATEGY_DDP, .shard = 2};
    assert_false(mesh_open(&mesh, world, &options, &error));
    assert_error(&error, ERROR_USAGE, "mesh.shard=2");
}

TEST_MAIN_WORLD(.setup = device_begin, .teardown = flat_device_close)
