// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 3
// devices: gpu
/* Whole steps of small convolutional models (all types of nodes, a residual with a change of shape,
 * synchronised batch norm) on the device under test, compared to one rank on the CPU: loss, all
 * gradients, and weights and running statistics after one or two updates. The default device is
 * the emulated GPU; VITTRAIN_TEST_DEVICE=cuda selects a real one. With several ranks each has a
 * part of the batch, and batch norm's sums use the emulated collectives. */
#include "comm/comm.h"
#include "device_test.h"
#include "model_fixture.h"
#include "test.h"
#include "vit_fixture.h"

enum { BATCH = 6, IMAGE = 18, CLASSES = 5 };

static const char settings[] = "optim.name=sgd optim.momentum=0.9 optim.weight_decay=0.05 "
                               "optim.ema=0.5 train.clip_norm=1";

/* A model on one of the two devices, on one rank or on all. ResNets have a stem, the block that
 * halves the image, and the head. */
static void model_open_on(struct vit_fixture *fixture, const char *device, struct comm *ranks,
                          enum data_type compute, const char *name, bool dense)
{
    struct convnet_shape shape = *(const struct convnet_shape *)registry_find(name)->shape;
    shape.image = IMAGE;
    shape.classes = CLASSES;
    shape.dense = dense;
    shape.width = 8;
    memcpy(shape.blocks, (const int[]){0, 1, 0, 0}, sizeof shape.blocks);
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
        struct vit_fixture cpu, gpu;
        model_open_on(&cpu, "cpu", NULL, rows[i].compute, rows[i].name, rows[i].dense);
        model_open_on(&gpu, "cuda", world, rows[i].compute, rows[i].name, rows[i].dense);
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
