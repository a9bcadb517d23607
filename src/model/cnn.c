// SPDX-License-Identifier: BSD-3-Clause
/* Small models: the course project's CNN-A for CIFAR-10, its older form after LeNet-5 (LeCun et al.
 * 1998), CNN-C, a fast network for CIFAR-10 with the stages of airbench94 (Jordan 2024) but without
 * its whitening layer, and one linear layer for regression. Tensors are named as in the obvious
 * torch module. */
#include <stdio.h>

#include "model/convnet.h"

static int convolution_add(struct convnet *convnet, const char *name, int input, int64_t channels,
                           int64_t kernel)
{
    return CONVNET_ADD(convnet, .kind = CONVNET_CONVOLUTION, .name = name, .input = input,
                       .channels = channels, .kernel = kernel, .stride = 1, .bias = true,
                       .relu = true);
}

static int pool_add(struct convnet *convnet, int input)
{
    return CONVNET_ADD(convnet, .kind = CONVNET_MAX_POOL, .input = input, .kernel = 2, .stride = 2);
}

static int linear_add(struct convnet *convnet, const char *name, int input, int64_t out, bool relu)
{
    return CONVNET_ADD(convnet, .kind = CONVNET_LINEAR, .name = name, .input = input,
                       .channels = out, .relu = relu);
}

static int flatten_add(struct convnet *convnet, int input)
{
    return CONVNET_ADD(convnet, .kind = CONVNET_FLATTEN, .input = input);
}

/* Two convolutions, each followed by a pool, then a flat row per sample. */
static int convolutions_add(struct convnet *convnet, int64_t first, int64_t second, int64_t kernel)
{
    convnet_unit(convnet, "stem");
    int node = pool_add(convnet, convolution_add(convnet, "conv1", 0, first, kernel));
    node = pool_add(convnet, convolution_add(convnet, "conv2", node, second, kernel));
    convnet_unit(convnet, "head");
    return flatten_add(convnet, node);
}

static void cnn_a_describe(struct convnet *convnet, const struct convnet_shape *shape)
{
    int node = convolutions_add(convnet, 4, 8, 3);
    node = linear_add(convnet, "fc1", node, 32, true);
    linear_add(convnet, "fc2", node, shape->classes, false);
}

static void cnn_a_lenet_describe(struct convnet *convnet, const struct convnet_shape *shape)
{
    int node = convolutions_add(convnet, 6, 16, 5);
    node = linear_add(convnet, "fc1", node, 120, true);
    node = linear_add(convnet, "fc2", node, 36, true);
    node = linear_add(convnet, "fc3", node, 72, true);
    linear_add(convnet, "fc4", node, shape->classes, false);
}

/* Add a convolution, a max pool if `pools`, a batch norm and a ReLU. A 3 x 3 convolution is padded
 * and begins with Dirac filters; others are not padded and begin with cosine filters. */
static int block_add(struct convnet *convnet, const char *layer, int number, int input,
                     int64_t channels, int64_t kernel, bool pools)
{
    char convolution_name[TENSOR_NAME], norm[TENSOR_NAME];
    snprintf(convolution_name, sizeof convolution_name, "%.40sconv%d", layer, number);
    snprintf(norm, sizeof norm, "%.40sbn%d", layer, number);
    int node = CONVNET_ADD(convnet, .kind = CONVNET_CONVOLUTION, .name = convolution_name,
                           .input = input, .channels = channels, .kernel = kernel, .stride = 1,
                           .padding = kernel == 3 ? 1 : 0,
                           .initial = kernel == 3 ? CONVNET_DIRAC : CONVNET_COSINES);
    return CONVNET_ADD(convnet, .kind = CONVNET_BATCH_NORM, .name = norm,
                       .input = pools ? pool_add(convnet, node) : node, .relu = true);
}

static void cnn_c_describe(struct convnet *convnet, const struct convnet_shape *shape)
{
    const int64_t channels[] = {shape->width, 4 * shape->width, 4 * shape->width};
    convnet_unit(convnet, "stem");
    int node = block_add(convnet, "", 1, 0, 24, 2, false);
    for (int layer = 0; layer < 3; layer++) {
        char unit[TENSOR_NAME], prefix[TENSOR_NAME];
        snprintf(unit, sizeof unit, "layer%d", layer + 1);
        snprintf(prefix, sizeof prefix, "layer%d.", layer + 1);
        convnet_unit(convnet, unit);
        node = block_add(convnet, prefix, 1, node, channels[layer], 3, true);
        node = block_add(convnet, prefix, 2, node, channels[layer], 3, false);
    }
    convnet_unit(convnet, "head");
    node = CONVNET_ADD(convnet, .kind = CONVNET_MEAN_POOL, .input = node);
    linear_add(convnet, "fc", node, shape->classes, false);
}

static void linear_describe(struct convnet *convnet, const struct convnet_shape *shape)
{
    convnet_unit(convnet, "head");
    linear_add(convnet, "", flatten_add(convnet, 0), shape->classes, false);
}

/* width_: the default of model.width; 0: it is not an option */
#define CIFAR_MODEL(name_, describe_, width_)                                                      \
    {                                                                                              \
        .name = name_, .type = &convnet_type, .mean = {0.5, 0.5, 0.5}, .std = {0.5, 0.5, 0.5},     \
        .shape = &(const struct convnet_shape)                                                     \
        {                                                                                          \
            .describe = describe_, .image = 32, .channels = 3, .classes = 10, .width = width_      \
        }                                                                                          \
    }

const struct model_entry cnn_models[] = {
    CIFAR_MODEL("cnn_a", cnn_a_describe, 0),
    CIFAR_MODEL("cnn_a_lenet", cnn_a_lenet_describe, 0),
    CIFAR_MODEL("cnn_c", cnn_c_describe, 64),
    {.name = "linear",
     .type = &convnet_type,
     .shape = &(const struct convnet_shape){.describe = linear_describe,
                                            .image = 1,
                                            .channels = 20,
                                            .classes = 1,
                                            .loss = LOSS_TARGETS},
     .mean = {0, 0, 0},
     .std = {1, 1, 1}},
    {.name = NULL},
};
