// SPDX-License-Identifier: BSD-3-Clause
// devices: gpu
/* Whole steps of vision transformers on the device under test against the CPU: loss, all gradients,
 * and the weights after two updates with dropout, drop path, clipping and moving average. The
 * default device is the emulated GPU; VITTRAIN_TEST_DEVICE=cuda selects a real one. One test
 * compares the CPU with emulated tiles. */
#include <unistd.h>

#include "device_test.h"
#include "test.h"
#include "vit_fixture.h"

enum { BATCH = 3, STEPS = 2 };

/* Not Adam: it turns gradients that are only rounding errors (the keys' bias has no gradient) into
 * full steps. */
static const char settings[] = "optim.name=sgd optim.momentum=0.9 optim.weight_decay=0.05 "
                               "optim.ema=0.5 train.clip_norm=1";

/* A model on a device: "cpu", "cuda", or a value of VITTRAIN_CPU. */
static void model_open_on(struct vit_fixture *fixture, const char *device,
                          const struct vit_shape *shape, enum data_type compute)
{
    const bool cuda = strcmp(device, "cuda") == 0, cpu = strcmp(device, "cpu") == 0;
    setenv("VITTRAIN_TEST_DEVICE", cuda ? device : "cpu", 1);
    device_test_set_kernels(cuda || cpu ? NULL : device);
    vit_fixture_open_random(fixture, shape, compute, BATCH, settings);
}

static void check_model(const struct vit_shape *shape, enum data_type compute, double tolerance,
                        const char *device)
{
    struct vit_fixture cpu, gpu;
    model_open_on(&cpu, "cpu", shape, compute);
    model_open_on(&gpu, device, shape, compute);
    for (int64_t step = 0; step < STEPS; step++) {
        cpu.step = gpu.step = (uint32_t)step;
        vit_fixture_poison(&cpu);
        vit_fixture_poison(&gpu);
        vit_fixture_train(&cpu, 0.1);
        vit_fixture_train(&gpu, 0.1);
        vit_fixture_compare_step(&cpu, &gpu, vit_fixture_loss(&cpu), vit_fixture_loss(&gpu), step,
                                 tolerance);
    }
    vit_fixture_compare_end(&cpu, &gpu, tolerance);
}

/* A rank without samples must contribute zeros to the sum over ranks. */
TEST(an_empty_batch_has_no_gradient)
{
    static const enum vit_fixture_kind kinds[] = {SHAPE_TOKEN, SHAPE_MAP, SHAPE_DENSE};
    for (int i = 0; i < 6; i++) {
        const struct vit_shape shape = vit_fixture_shape_of(kinds[i / 2], 2);
        struct vit_fixture fixture;
        model_open_on(&fixture, i % 2 == 0 ? "cpu" : "cuda", &shape, TYPE_FP32);
        vit_fixture_zero(&fixture);
        vit_fixture_poison(&fixture);
        vit_fixture_run(&fixture, 0, 0, 0.1, true);
        flat_norm(&fixture.flat);
        assert_true(vit_fixture_norm(&fixture) == 0 && vit_fixture_loss(&fixture) == 0);
        vit_fixture_close(&fixture);
    }
}

TEST(steps_in_fp32)
{
    for (int i = 0; i < SHAPE_KINDS; i++) {
        const struct vit_shape shape = vit_fixture_shape_of((enum vit_fixture_kind)i, 2);
        check_model(&shape, TYPE_FP32, 1e-5, "cuda");
    }
}

/* Without dropout, the gradients of the biases of proj and fc2 are sums of the residual's gradient;
 * drop path changes that of the second block only. */
TEST(steps_without_dropout)
{
    struct vit_shape token = vit_fixture_shape_of(SHAPE_TOKEN, 2),
                     map = vit_fixture_shape_of(SHAPE_MAP, 2);
    token.dropout = token.drop_path = map.dropout = 0;
    check_model(&token, TYPE_FP32, 1e-5, "cuda");
    check_model(&map, TYPE_FP32, 1e-5, "cuda");
    check_model(&token, TYPE_BF16, 1e-2, "cuda");
}

/* Heads of 64 are multiplied on tiles. */
TEST(steps_in_halves)
{
    const struct vit_shape reference = vit_fixture_shape_of(SHAPE_REFERENCE, 2);
    const struct vit_shape token = vit_fixture_shape_of(SHAPE_TOKEN, 2);
    struct vit_shape wide = reference;
    wide.dim = 128;
    wide.heads = 2;
    check_model(&reference, TYPE_BF16, 1e-2, "cuda");
    check_model(&token, TYPE_FP16, 2e-3, "cuda");
    check_model(&wide, TYPE_BF16, 1e-2, "amx-emulated");
}

int main(void)
{
    if (!device_test_of_gpu())
        return 0;
    return TESTS_RUN();
}
