// SPDX-License-Identifier: BSD-3-Clause
/* train.checkpoint_activations=block: gradients are the same bit for bit, the outputs of all units
 * are valid after the backward pass, and the saved memory is exactly as planned. */
#include "test.h"
#include "vit_fixture.h"

enum { BATCH = 5, DEPTH = 4 };

static const char *const block_options[] = {"train.checkpoint_activations=block", NULL};

/* A step with accumulation: batches of different sizes reuse the shared activations. */
static void run_step(struct vit_fixture *fixture)
{
    vit_fixture_zero(fixture);
    vit_fixture_run(fixture, 0, 3, 0.1, true);
    vit_fixture_run(fixture, 3, 0, 0.1, true);
    vit_fixture_run(fixture, 3, 2, 0.1, true);
}

static void expect_same_gradients(struct vit_fixture *kept, struct vit_fixture *recomputed)
{
    int64_t count;
    float *expected = vit_fixture_gradients(kept, &count);
    float *found = vit_fixture_gradients(recomputed, &count);
    assert_memory_equal(expected, found, (size_t)count * sizeof *found);
    free(found);
    free(expected);
}

static void *unit_output(struct vit_fixture *fixture, int unit, size_t *bytes)
{
    int64_t count = 0;
    const void *output = fixture->model->type->output(fixture->model, unit, &count);
    *bytes = (size_t)count * type_size(fixture->model->compute);
    if (output == NULL)
        return NULL;
    void *copy = malloc(*bytes);
    assert_non_null(copy);
    fixture->device->backend->copy(fixture->stream, copy, output, *bytes);
    fixture->device->backend->stream_synchronize(fixture->stream);
    return copy;
}

/* The outputs that are searched for the origin of a NaN. */
static void expect_same_outputs(struct vit_fixture *kept, struct vit_fixture *recomputed)
{
    for (int u = 0; u < kept->model->unit_count; u++) {
        size_t expected_bytes, found_bytes;
        void *expected = unit_output(kept, u, &expected_bytes);
        void *found = unit_output(recomputed, u, &found_bytes);
        assert_int_equal(expected_bytes, found_bytes);
        assert_int_equal(expected == NULL, found == NULL);
        if (expected != NULL && memcmp(expected, found, found_bytes) != 0)
            fail_msg("the output of %s has other bits", kept->model->units[u].name);
        free(found);
        free(expected);
    }
}

static void check_same_bits(struct vit_shape shape, enum data_type compute)
{
    struct vit_fixture kept, recomputed;
    vit_fixture_open_random(&kept, &shape, compute, BATCH, NULL);
    vit_fixture_open_random(&recomputed, &shape, compute, BATCH, block_options);
    for (uint32_t step = 0; step < 2; step++) {
        kept.step = recomputed.step = step;
        run_step(&kept);
        run_step(&recomputed);
        assert_true(vit_fixture_loss(&kept) == vit_fixture_loss(&recomputed));
        expect_same_gradients(&kept, &recomputed);
        expect_same_outputs(&kept, &recomputed);
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

static size_t aligned(int64_t elements, size_t size)
{
    size_t bytes = (size_t)elements * size;
    return (bytes + ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
}

/* The activations of a block without its output: norm1, qkv, attention, middle, norm2, the hidden
 * layer before and after GELU, statistics of two norms and of the attention; the branches before
 * LayerScale. */
static size_t inner_bytes(const struct vit_shape *shape, int64_t tokens, int64_t kept, size_t size)
{
    int64_t rows = BATCH * tokens, kept_rows = BATCH * kept, dim = shape->dim;
    return aligned(rows * dim, size) + aligned(3 * rows * dim, size) +
           3 * aligned(kept_rows * dim, size) + 2 * aligned(kept_rows * shape->hidden, size) +
           (shape->layer_scale > 0 ? 2 : 0) * aligned(kept_rows * dim, size) +
           2 * aligned(rows, 4) + 2 * aligned(kept_rows, 4) + aligned(kept_rows * shape->heads, 4);
}

static size_t arena_bytes(const struct vit_shape *shape, enum data_type compute,
                          const char *const *options)
{
    struct vit_fixture fixture;
    vit_fixture_open(&fixture, shape, compute, BATCH, options);
    size_t bytes = fixture.arena.peak;
    assert_int_equal(fixture.arena.used, bytes);
    vit_fixture_close(&fixture);
    return bytes;
}

/* Tokens of a block, and of the last block. */
static void check_arena(const char *name, struct vit_shape shape, enum data_type compute,
                        int64_t tokens, int64_t last_kept)
{
    size_t size = type_size(compute);
    size_t kept = arena_bytes(&shape, compute, NULL);
    size_t recomputed = arena_bytes(&shape, compute, block_options);
    size_t saved = 0;
    if (shape.depth > 1)
        saved = (size_t)(shape.depth - 2) * inner_bytes(&shape, tokens, tokens, size) +
                inner_bytes(&shape, tokens, last_kept, size);
    print_message("# %s: arena of %zu bytes, with recomputation %zu, %zu less\n", name, kept,
                  recomputed, kept - recomputed);
    assert_int_equal(kept - recomputed, saved);
}

TEST(test_arena)
{
    check_arena("class token, fp32", vit_fixture_shape_of(SHAPE_TOKEN, DEPTH), TYPE_FP32, 10, 1);
    check_arena("class token, bf16", vit_fixture_shape_of(SHAPE_TOKEN, DEPTH), TYPE_BF16, 10, 1);
    check_arena("mean pooling, fp32", vit_fixture_shape_of(SHAPE_MEAN, DEPTH), TYPE_FP32, 9, 9);
    check_arena("LayerScale, bf16", vit_fixture_shape_of(SHAPE_PARTS, DEPTH), TYPE_BF16, 12, 1);
    check_arena("dense, fp32", vit_fixture_shape_of(SHAPE_DENSE, DEPTH), TYPE_FP32, 21, 21);
    check_arena("one block, fp32", vit_fixture_shape_of(SHAPE_TOKEN, 1), TYPE_FP32, 10, 1);
}

TEST_MAIN()
