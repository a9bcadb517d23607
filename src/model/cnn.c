// SPDX-License-Identifier: BSD-3-Clause
/* Small models: the reference's CNN-A for CIFAR-10, its older form after LeNet-5 (LeCun et al.
 * 1998), and one linear layer for regression. Tensors are named as in the obvious torch module. */
#include "model/convnet.h"

static int convolution(struct convnet *convnet, const char *name, int input, int64_t channels,
                       int64_t kernel)
{
    return convnet_add(convnet, &(struct convnet_node){.kind = CONVNET_CONVOLUTION,
                                                       .name = name,
                                                       .input = input,
                                                       .channels = channels,
                                                       .kernel = kernel,
                                                       .stride = 1,
                                                       .bias = true,
                                                       .relu = true});
}

static int pool(struct convnet *convnet, int input)
{
    return convnet_add(
        convnet,
        &(struct convnet_node){.kind = CONVNET_MAX_POOL, .input = input, .kernel = 2, .stride = 2});
}

static int linear(struct convnet *convnet, const char *name, int input, int64_t out, bool relu)
{
    return convnet_add(
        convnet,
        &(struct convnet_node){
            .kind = CONVNET_LINEAR, .name = name, .input = input, .channels = out, .relu = relu});
}

static int flatten(struct convnet *convnet, int input)
{
    return convnet_add(convnet, &(struct convnet_node){.kind = CONVNET_FLATTEN, .input = input});
}

/* Two convolutions, each followed by a pool, then a flat row per sample. */
static int convolutions(struct convnet *convnet, int64_t first, int64_t second, int64_t kernel)
{
    convnet_unit(convnet, "stem");
    int node = pool(convnet, convolution(convnet, "conv1", 0, first, kernel));
    node = pool(convnet, convolution(convnet, "conv2", node, second, kernel));
    convnet_unit(convnet, "head");
    return flatten(convnet, node);
}

static void cnn_a_describe(struct convnet *convnet, const struct convnet_shape *shape)
{
    int node = convolutions(convnet, 4, 8, 3);
    node = linear(convnet, "fc1", node, 32, true);
    linear(convnet, "fc2", node, shape->classes, false);
}

static void cnn_a_lenet_describe(struct convnet *convnet, const struct convnet_shape *shape)
{
    int node = convolutions(convnet, 6, 16, 5);
    node = linear(convnet, "fc1", node, 120, true);
    node = linear(convnet, "fc2", node, 36, true);
    node = linear(convnet, "fc3", node, 72, true);
    linear(convnet, "fc4", node, shape->classes, false);
}

static void linear_describe(struct convnet *convnet, const struct convnet_shape *shape)
{
    convnet_unit(convnet, "head");
    linear(convnet, "", flatten(convnet, 0), shape->classes, false);
}

#define CIFAR_MODEL(name_, describe_)                                                              \
    {                                                                                              \
        .name = name_, .type = &convnet_type, .mean = {0.5, 0.5, 0.5}, .std = {0.5, 0.5, 0.5},     \
        .shape = &(const struct convnet_shape)                                                     \
        {                                                                                          \
            .describe = describe_, .image = 32, .channels = 3, .classes = 10                       \
        }                                                                                          \
    }

const struct model_entry cnn_models[] = {
    CIFAR_MODEL("cnn_a", cnn_a_describe),
    CIFAR_MODEL("cnn_a_lenet", cnn_a_lenet_describe),
    {.name = "linear",
     .type = &convnet_type,
     .shape = &(const struct convnet_shape){.describe = linear_describe,
                                            .image = 1,
                                            .channels = 20,
                                            .classes = 1,
                                            .loss = LOSS_SQUARED_ERROR},
     .mean = {0, 0, 0},
     .std = {1, 1, 1}},
    {.name = NULL},
};
