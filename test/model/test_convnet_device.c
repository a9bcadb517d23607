// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 3
// devices: gpu
/* Whole steps of a small convolutional model (all types of nodes, a residual with a change of
 * shape, synchronised batch norm) on the device under test, compared to one rank on the CPU: loss,
 * all gradients, and weights and running statistics after one or two updates. The default device is
 * the emulated GPU; VITTRAIN_TEST_DEVICE=cuda selects a real one. With several ranks each has a
 * part of the batch, and batch norm's sums use the emulated collectives. */
#include "comm/comm.h"
#include "device_test.h"
#include "model_fixture.h"
#include "test.h"
#include "vit_fixture.h"

enum { BATCH = 6, IMAGE = 13, CLASSES = 5 };

static const char settings[] = "optim.name=sgd optim.momentum=0.9 optim.weight_decay=0.05 "
                               "optim.ema=0.5 train.clip_norm=1";

static int normed(struct convnet *convnet, const char *name, struct convnet_node convolution,
                  int residual, bool relu)
{
    convolution.kind = CONVNET_CONVOLUTION;
    convolution.name = name;
    convolution.initial = CONVNET_KAIMING_FAN_OUT;
    char norm[32];
    snprintf(norm, sizeof norm, "%s_norm", name);
    return CONVNET_ADD(convnet, .kind = CONVNET_BATCH_NORM, .name = norm,
                       .input = convnet_add(convnet, &convolution), .residual = residual,
                       .relu = relu);
}

/* A ResNet with one block between a stem and a head of the older type. */
static void describe(struct convnet *convnet, const struct convnet_shape *shape)
{
    convnet_unit(convnet, "stem");
    int stem = normed(convnet, "first",
                      (struct convnet_node){.channels = 8, .kernel = 3, .stride = 1, .padding = 1},
                      0, true);
    stem = CONVNET_ADD(convnet, .kind = CONVNET_MAX_POOL, .input = stem, .kernel = 3, .stride = 2,
                       .padding = 1);
    convnet_unit(convnet, "block");
    int branch = normed(
        convnet, "narrow",
        (struct convnet_node){.input = stem, .channels = 6, .kernel = 1, .stride = 1}, 0, true);
    int shortcut = normed(
        convnet, "shortcut",
        (struct convnet_node){.input = stem, .channels = 16, .kernel = 1, .stride = 2}, 0, false);
    branch = normed(convnet, "wide",
                    (struct convnet_node){
                        .input = branch, .channels = 16, .kernel = 3, .stride = 2, .padding = 1},
                    shortcut, true);
    convnet_unit(convnet, "head");
    int last = CONVNET_ADD(convnet, .kind = CONVNET_CONVOLUTION, .name = "last", .input = branch,
                           .channels = 12, .kernel = 3, .stride = 1, .bias = true, .relu = true);
    last = CONVNET_ADD(convnet, .kind = CONVNET_FLATTEN, .input = last);
    last = CONVNET_ADD(convnet, .kind = CONVNET_LINEAR, .name = "hidden", .input = last,
                       .channels = 20, .relu = true);
    CONVNET_ADD(convnet, .kind = CONVNET_LINEAR, .name = "classes", .input = last,
                .channels = shape->classes);
}

/* A stem and a head with outputs for each pixel. */
static void describe_dense(struct convnet *convnet, const struct convnet_shape *shape)
{
    convnet_unit(convnet, "stem");
    int last = normed(convnet, "first",
                      (struct convnet_node){.channels = 8, .kernel = 3, .stride = 4, .padding = 1},
                      0, true);
    convnet_unit(convnet, "head");
    last = CONVNET_ADD(convnet, .kind = CONVNET_CONVOLUTION, .name = "dense", .input = last,
                       .channels = shape->classes, .kernel = 1, .stride = 1, .bias = true);
    CONVNET_ADD(convnet, .kind = CONVNET_UPSAMPLE, .input = last);
}

/* The model on one of the two devices, on one rank or on all. */
static void model_open_on(struct vit_fixture *fixture, const char *device, struct comm *ranks,
                          enum data_type compute, bool dense)
{
    const struct convnet_shape shape = {.describe = dense ? describe_dense : describe,
                                        .image = IMAGE,
                                        .channels = 3,
                                        .classes = CLASSES,
                                        .loss = LOSS_CROSS_ENTROPY};
    setenv("VITTRAIN_TEST_DEVICE", device, 1);
    vit_fixture_open_convnet(fixture, ranks, &shape, compute, BATCH, settings);
    vit_fixture_set_random_batch(fixture);
}

/* Forward and backward of this rank's part of the batch; return the loss over all ranks. */
static double train(struct vit_fixture *fixture, int part, int parts)
{
    vit_fixture_zero(fixture);
    vit_fixture_poison(fixture);
    vit_fixture_run(fixture, BATCH / parts * part, BATCH / parts, 0.1, true);
    flat_norm(&fixture->flat);
    double loss = vit_fixture_loss(fixture);
    if (parts > 1)
        comm_all_reduce(world, &loss, 1, COMM_FP64, COMM_SUM);
    return loss;
}

/* 16-bit types run one step: in a second one, rounding would move values across a ReLU's threshold.
 */
TEST(steps_are_those_of_the_cpu)
{
    static const struct {
        enum data_type compute;
        bool dense;
        int64_t steps;
        double tolerance;
    } rows[] = {{TYPE_FP32, false, 2, 1e-5},
                {TYPE_FP32, true, 2, 1e-5},
                {TYPE_BF16, false, 1, 1e-2},
                {TYPE_FP16, false, 1, 2e-3}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct vit_fixture cpu, gpu;
        model_open_on(&cpu, "cpu", NULL, rows[i].compute, rows[i].dense);
        model_open_on(&gpu, "cuda", world, rows[i].compute, rows[i].dense);
        for (int64_t step = 0; step < rows[i].steps; step++) {
            double own = train(&cpu, 0, 1), other = train(&gpu, world->rank, world->size);
            vit_fixture_compare_step(&cpu, &gpu, own, other, step, rows[i].tolerance);
        }
        vit_fixture_compare_end(&cpu, &gpu, rows[i].tolerance);
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
