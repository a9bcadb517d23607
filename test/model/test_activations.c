// SPDX-License-Identifier: BSD-3-Clause
/* train.checkpoint_activations=block: gradients are the same bit for bit, and the saved memory is
 * exactly as planned. */
#include "test.h"
#include "vit_fixture.h"

enum { BATCH = 5, DEPTH = 4 };

static const char block_options[] = "train.checkpoint_activations=block";

/* A step with accumulation: batches of different sizes reuse the shared activations. */
static void run_step(struct vit_fixture *fixture)
{
    vit_fixture_zero(fixture);
    vit_fixture_run(fixture, 0, 3, 0.1, true);
    vit_fixture_run(fixture, 3, 0, 0.1, true);
    vit_fixture_run(fixture, 3, 2, 0.1, true);
}

static void check_same_bits(struct vit_shape shape, enum data_type compute)
{
    struct vit_fixture kept, recomputed;
    vit_fixture_open(&kept, &shape, compute, BATCH, "");
    vit_fixture_open(&recomputed, &shape, compute, BATCH, block_options);
    for (uint32_t step = 0; step < 2; step++) {
        kept.step = recomputed.step = step;
        run_step(&kept);
        run_step(&recomputed);
        assert_true(vit_fixture_loss(&kept) == vit_fixture_loss(&recomputed));
        int64_t count;
        OWNED float *expected = vit_fixture_gradients(&kept, &count);
        OWNED float *found = vit_fixture_gradients(&recomputed, &count);
        assert_memory_equal(expected, found, (size_t)count * sizeof *found);
    }
    vit_fixture_close(&recomputed);
    vit_fixture_close(&kept);
}

TEST(test_same_bits)
{
    for (enum data_type type = TYPE_FP32; type <= TYPE_BF16; type++) {
        for (int i = 0; i < SHAPE_KINDS; i++)
            check_same_bits(vit_fixture_shape_of((enum vit_fixture_kind)i, DEPTH), type);
        check_same_bits(vit_fixture_shape_of(SHAPE_TOKEN, 1), type);
    }
}

/* Return the bytes of all activations; set *output to those of a block's output. */
static size_t activation_bytes(struct vit_shape shape, enum data_type compute, const char *options,
                               size_t *output)
{
    struct vit_fixture fixture;
    vit_fixture_open(&fixture, &shape, compute, BATCH, options);
    const struct vit *vit = (const struct vit *)fixture.model;
    const size_t bytes = fixture.arena.peak - fixture.activations_mark;
    assert_int_equal(fixture.arena.used, fixture.arena.peak);
    *output = (size_t)(BATCH * vit->tokens * shape.dim) * type_size(compute);
    *output = (*output + ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
    vit_fixture_close(&fixture);
    return bytes;
}

/* One more block costs its output; without recomputation it costs all of its activations, of which
 * those between its parts alone are nine times as large. */
TEST(test_arena)
{
    for (int i = 0; i < SHAPE_KINDS; i++) {
        const enum data_type type = i % 2 == 0 ? TYPE_FP32 : TYPE_BF16;
        const struct vit_shape few = vit_fixture_shape_of((enum vit_fixture_kind)i, DEPTH);
        const struct vit_shape more = vit_fixture_shape_of((enum vit_fixture_kind)i, DEPTH + 1);
        size_t output;
        assert_int_equal(activation_bytes(more, type, block_options, &output),
                         activation_bytes(few, type, block_options, &output) + output);
        assert_true(activation_bytes(more, type, "", &output) >
                    activation_bytes(few, type, "", &output) + 9 * output);
    }
}

TEST_MAIN()
