// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 3
// devices: gpu
/* Whole steps of models on the device under test against one rank on the CPU: loss and all
 * gradients, and after one or two updates with dropout, drop path, clipping and moving average the
 * weights, running statistics and the loss of an evaluation. The default device is the emulated
 * GPU; VITTRAIN_TEST_DEVICE=cuda selects a real one. One test compares the CPU with emulated tiles.
 * Each of several ranks has a part of the batch, and batch norm's sums use the emulated
 * collectives. */
#include "comm/comm.h"
#include "device_test.h"
#include "model_fixture.h"
#include "train/optimizer.h"
#include "vit_fixture.h"

/* Not Adam: it turns gradients that are only rounding errors (the keys' bias has no gradient) into
 * full steps. */
static const char settings[] = "optim.name=sgd optim.momentum=0.9 optim.weight_decay=0.05 "
                               "optim.ema=0.5 train.clip_norm=1";

/* "cpu", "cuda", or a value of VITTRAIN_CPU. */
static void device_set(const char *device)
{
    const bool cuda = strcmp(device, "cuda") == 0, cpu = strcmp(device, "cpu") == 0;
    setenv("VITTRAIN_TEST_DEVICE", cuda ? device : "cpu", 1);
    device_test_set_kernels(cuda || cpu ? NULL : device);
}

/* Forward and backward of this rank's part of the batch; return the loss over all ranks. */
static double train(struct vit_fixture *fixture, int64_t step)
{
    struct comm *ranks = fixture->world;
    const int64_t part = fixture->batch / ranks->size;
    fixture->step = (uint32_t)step;
    vit_fixture_zero(fixture);
    vit_fixture_poison(fixture);
    vit_fixture_run(fixture, part * ranks->rank, part, 0.1, true);
    flat_norm(&fixture->flat);
    double loss = vit_fixture_loss(fixture);
    comm_all_reduce(ranks, &loss, 1, COMM_FP64, COMM_SUM);
    assert_true(isfinite(vit_fixture_norm(fixture)));
    return loss;
}

static void update(struct vit_fixture *fixture, int64_t step)
{
    struct optimizer optimizer;
    optimizer_open(&optimizer, &fixture->options);
    const struct step_params place = optimizer_params(&optimizer, 0.1, step);
    vit_fixture_set_place(fixture, &place);
    optimizer_step(&optimizer, &fixture->flat, fixture->place, NULL);
}

static double evaluate(struct vit_fixture *fixture)
{
    vit_fixture_set_training(fixture, false);
    vit_fixture_zero(fixture);
    vit_fixture_run(fixture, 0, fixture->batch, 0, false);
    return vit_fixture_loss(fixture);
}

static void compare_losses(double cpu, double gpu, double tolerance)
{
    if (!(fabs(cpu - gpu) <= tolerance * cpu))
        fail_msg("the loss is %.9g, on the CPU %.9g", gpu, cpu);
}

/* Compare tensors (vit_fixture_gradient, ...) of the same model. */
static void compare(struct vit_fixture *cpu, struct vit_fixture *gpu, const char *what,
                    float *(*get)(struct vit_fixture *, int, int), double tolerance)
{
    for (int u = 0; u < cpu->model->unit_count; u++)
        for (int t = 0; t < cpu->model->units[u].tensor_count; t++) {
            const struct unit_tensor *tensor = &cpu->model->units[u].tensors[t];
            char name[TENSOR_NAME + 32];
            OWNED float *a = get(cpu, u, t), *b = get(gpu, u, t);
            snprintf(name, sizeof name, "%s of %s", what, tensor->name);
            device_test_near_in_norm(name, TYPE_FP32, a, b, tensor->count, 10 * tolerance);
        }
}

/* Run steps of two models and close them. */
static void check(struct vit_fixture *cpu, struct vit_fixture *gpu, int64_t steps, double tolerance)
{
    for (int64_t step = 0; step < steps; step++) {
        compare_losses(train(cpu, step), train(gpu, step), tolerance);
        compare(cpu, gpu, "gradient", vit_fixture_gradient, tolerance);
        update(cpu, step);
        update(gpu, step);
    }
    compare(cpu, gpu, "weight", vit_fixture_weight, tolerance);
    compare(cpu, gpu, "average", vit_fixture_average, tolerance);
    compare_losses(evaluate(cpu), evaluate(gpu), 10 * tolerance);
    vit_fixture_close(gpu);
    vit_fixture_close(cpu);
}

/* All types of nodes, a residual with a change of shape, synchronised batch norm. 16-bit types run
 * one step: in a second one, rounding would move values across a ReLU's threshold. */
TEST(convolutional_models)
{
    static const struct {
        const char *name;
        bool dense;
        enum data_type compute;
        int64_t steps;
        double tolerance;
    } rows[] = {{"resnet50", false, TYPE_FP32, 2, 1e-5},
                {"resnet18", true, TYPE_FP32, 2, 1e-5},
                {"cnn_a_lenet", false, TYPE_FP32, 2, 1e-5},
                {"resnet50", false, TYPE_BF16, 1, 1e-2},
                {"resnet18", false, TYPE_FP16, 1, 2e-3}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct vit_fixture fixtures[2];
        struct convnet_shape shape = vit_fixture_small_convnet(rows[i].name);
        shape.dense = rows[i].dense;
        for (int gpu = 0; gpu < 2; gpu++) {
            device_set(gpu ? "cuda" : "cpu");
            vit_fixture_open_convnet(&fixtures[gpu], gpu ? world : NULL, &shape, rows[i].compute, 6,
                                     settings);
        }
        check(&fixtures[0], &fixtures[1], rows[i].steps, rows[i].tolerance);
    }
}

static void check_vit(const struct vit_shape *shape, enum data_type compute, double tolerance,
                      const char *device)
{
    struct vit_fixture cpu, gpu;
    if (world->size > 1)
        SKIP_BECAUSE("only for one rank");
    device_set("cpu");
    vit_fixture_open(&cpu, shape, compute, 3, settings);
    device_set(device);
    vit_fixture_open(&gpu, shape, compute, 3, settings);
    check(&cpu, &gpu, 2, tolerance);
}

TEST(vits_in_fp32)
{
    for (int i = 0; i < SHAPE_KINDS; i++) {
        const struct vit_shape shape = vit_fixture_shape_of((enum vit_fixture_kind)i, 2);
        check_vit(&shape, TYPE_FP32, 1e-5, "cuda");
    }
}

/* Without dropout, the gradients of the biases of proj and fc2 are sums of the residual's gradient;
 * drop path changes that of the second block only. */
TEST(vits_without_dropout)
{
    struct vit_shape token = vit_fixture_shape_of(SHAPE_TOKEN, 2),
                     map = vit_fixture_shape_of(SHAPE_MAP, 2);
    token.dropout = token.drop_path = map.dropout = 0;
    check_vit(&token, TYPE_FP32, 1e-5, "cuda");
    check_vit(&map, TYPE_FP32, 1e-5, "cuda");
    check_vit(&token, TYPE_BF16, 1e-2, "cuda");
}

/* Heads of 64 are multiplied on tiles. */
TEST(vits_in_halves)
{
    const struct vit_shape reference = vit_fixture_shape_of(SHAPE_REFERENCE, 2);
    const struct vit_shape token = vit_fixture_shape_of(SHAPE_TOKEN, 2);
    struct vit_shape wide = reference;
    wide.dim = 128;
    wide.heads = 2;
    check_vit(&reference, TYPE_BF16, 1e-2, "cuda");
    check_vit(&token, TYPE_FP16, 2e-3, "cuda");
    check_vit(&wide, TYPE_BF16, 1e-2, "amx-emulated");
}

/* A rank without samples must contribute zeros to the sum over ranks. */
TEST(an_empty_batch_has_no_gradient)
{
    static const enum vit_fixture_kind kinds[] = {SHAPE_TOKEN, SHAPE_MAP, SHAPE_DENSE};
    for (int i = 0; i < 6; i++) {
        const struct vit_shape shape = vit_fixture_shape_of(kinds[i / 2], 2);
        struct vit_fixture fixture;
        device_set(i % 2 == 0 ? "cpu" : "cuda");
        vit_fixture_open(&fixture, &shape, TYPE_FP32, 3, settings);
        vit_fixture_zero(&fixture);
        vit_fixture_poison(&fixture);
        vit_fixture_run(&fixture, 0, 0, 0.1, true);
        flat_norm(&fixture.flat);
        assert_true(vit_fixture_norm(&fixture) == 0 && vit_fixture_loss(&fixture) == 0);
        vit_fixture_close(&fixture);
    }
}

int main(int argc, char **argv)
{
    if (!device_test_of_gpu())
        return 0;
    fixture_world_open(&argc, &argv);
    int failed = TESTS_RUN();
    comm_world_close(world);
    return failed;
}
