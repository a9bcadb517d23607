// SPDX-License-Identifier: BSD-3-Clause
/* Residual networks (He et al. 2016): torchvision's, with the stride of a bottleneck in its 3x3
 * convolution, and the course project's CNN-B, a ResNet-18 for 32 x 32 images whose stem does not
 * downsample. A unit is the stem, a block, or the head. */
#include <stdio.h>

#include "model/convnet.h"

struct resnet {
    struct convnet *convnet;
    const struct convnet_shape *shape;
    const char *shortcut; /* name of a block's projection: BLOCK.shortcut.0 and .1 */
};

/* A convolution without bias and its batch norm. */
static int convolution_and_norm(struct convnet *convnet, const char *convolution, const char *norm,
                                struct convnet_node node, int residual, bool relu)
{
    node.kind = CONVNET_CONVOLUTION;
    node.name = convolution;
    node.initial = CONVNET_KAIMING_FAN_OUT;
    int number = convnet_add(convnet, &node);
    return CONVNET_ADD(convnet, .kind = CONVNET_BATCH_NORM, .name = norm, .input = number,
                       .residual = residual, .relu = relu);
}

/* Convolution number `number` of a block: conv1 and bn1, ... */
static int block_convolution(const struct resnet *resnet, const char *block, int number,
                             struct convnet_node node, int residual)
{
    char convolution[TENSOR_NAME], norm[TENSOR_NAME];
    snprintf(convolution, sizeof convolution, "%.40s.conv%d", block, number);
    snprintf(norm, sizeof norm, "%.40s.bn%d", block, number);
    node.padding = node.kernel / 2;
    return convolution_and_norm(resnet->convnet, convolution, norm, node, residual, true);
}

/* The residual of a block: its input, or a 1x1 convolution of it if the shape changes. */
static int block_shortcut(const struct resnet *resnet, const char *block, int input,
                          int64_t channels, int64_t stride)
{
    char convolution[TENSOR_NAME], norm[TENSOR_NAME];
    if (stride == 1 && resnet->convnet->nodes[input].channels == channels)
        return input;
    snprintf(convolution, sizeof convolution, "%.40s.%s.0", block, resnet->shortcut);
    snprintf(norm, sizeof norm, "%.40s.%s.1", block, resnet->shortcut);
    return convolution_and_norm(
        resnet->convnet, convolution, norm,
        (struct convnet_node){.input = input, .channels = channels, .kernel = 1, .stride = stride},
        0, false);
}

static int block_add(const struct resnet *resnet, int input, int stage, int number)
{
    char block[TENSOR_NAME];
    int64_t width = resnet->shape->width << stage;
    int64_t channels = resnet->shape->bottleneck ? 4 * width : width;
    int64_t stride = stage > 0 && number == 0 ? 2 : 1;
    snprintf(block, sizeof block, "layer%d.%d", stage + 1, number);
    convnet_unit(resnet->convnet, block);
    struct convnet_node wide = {.input = input, .channels = width, .kernel = 3, .stride = stride};
    struct convnet_node last = {.channels = channels, .kernel = 3, .stride = 1};
    int next = 1;
    if (resnet->shape->bottleneck) {
        struct convnet_node narrow = {.input = input, .channels = width, .kernel = 1, .stride = 1};
        wide.input = block_convolution(resnet, block, next++, narrow, 0);
        last.kernel = 1;
    }
    last.input = block_convolution(resnet, block, next++, wide, 0);
    int shortcut = block_shortcut(resnet, block, input, channels, stride);
    return block_convolution(resnet, block, next, last, shortcut);
}

static void stages_and_head(const struct resnet *resnet, int node)
{
    const struct convnet_shape *shape = resnet->shape;
    for (int stage = 0; stage < 4; stage++)
        for (int number = 0; number < shape->blocks[stage]; number++)
            node = block_add(resnet, node, stage, number);
    convnet_unit(resnet->convnet, "head");
    if (shape->dense) {
        node = CONVNET_ADD(resnet->convnet, .kind = CONVNET_CONVOLUTION, .name = "dense",
                           .input = node, .channels = shape->classes, .kernel = 1, .stride = 1,
                           .bias = true);
        CONVNET_ADD(resnet->convnet, .kind = CONVNET_UPSAMPLE, .input = node);
        return;
    }
    node = CONVNET_ADD(resnet->convnet, .kind = CONVNET_MEAN_POOL, .input = node);
    CONVNET_ADD(resnet->convnet, .kind = CONVNET_LINEAR, .name = "fc", .input = node,
                .channels = shape->classes);
}

static void cnn_b_describe(struct convnet *convnet, const struct convnet_shape *shape)
{
    const struct resnet resnet = {convnet, shape, "shortcut"};
    convnet_unit(convnet, "stem");
    const struct convnet_node first = {
        .channels = shape->width, .kernel = 3, .stride = 1, .padding = 1};
    stages_and_head(&resnet, convolution_and_norm(convnet, "conv1", "bn1", first, 0, true));
}

static void resnet_describe(struct convnet *convnet, const struct convnet_shape *shape)
{
    const struct resnet resnet = {convnet, shape, "downsample"};
    convnet_unit(convnet, "stem");
    const struct convnet_node first = {
        .channels = shape->width, .kernel = 7, .stride = 2, .padding = 3};
    int node = convolution_and_norm(convnet, "conv1", "bn1", first, 0, true);
    node = CONVNET_ADD(convnet, .kind = CONVNET_MAX_POOL, .input = node, .kernel = 3, .stride = 2,
                       .padding = 1);
    stages_and_head(&resnet, node);
}

#define RESNET(name_, bottleneck_, ...)                                                            \
    {                                                                                              \
        .name = name_, .type = &convnet_type, .mean = {0.485, 0.456, 0.406},                       \
        .std = {0.229, 0.224, 0.225}, .shape = &(const struct convnet_shape)                       \
        {                                                                                          \
            .describe = resnet_describe, .image = 224, .channels = 3, .classes = 1000,             \
            .width = 64, .bottleneck = bottleneck_, .blocks = {                                    \
                __VA_ARGS__                                                                        \
            }                                                                                      \
        }                                                                                          \
    }

const struct model_entry resnet_models[] = {
    {.name = "cnn_b",
     .type = &convnet_type,
     .shape = &(const struct convnet_shape){.describe = cnn_b_describe,
                                            .image = 32,
                                            .channels = 3,
                                            .classes = 10,
                                            .width = 64,
                                            .blocks = {2, 2, 2, 2}},
     .mean = {0.5, 0.5, 0.5},
     .std = {0.5, 0.5, 0.5}},
    RESNET("resnet18", false, 2, 2, 2, 2),
    RESNET("resnet34", false, 3, 4, 6, 3),
    RESNET("resnet50", true, 3, 4, 6, 3),
    RESNET("resnet101", true, 3, 4, 23, 3),
    RESNET("resnet152", true, 3, 8, 36, 3),
    {.name = NULL},
};
