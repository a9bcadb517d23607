/* Residual networks (He et al. 2016): torchvision's, with the stride of a bottleneck in its 3x3
 * convolution, and the reference's CNN-B, a ResNet-18 whose stem leaves images of 32 pixels as
 * large as they are. A unit is the stem, a block, or the head. */
#include <stdio.h>

#include "model/convnet.h"

/* Where a family's models differ besides the numbers of blocks. */
struct resnet {
    struct convnet *convnet;
    const struct convnet_shape *shape;
    const char *shortcut; /* what the two nodes of a block's projection are called: "%s.%s.0" */
};

/* A convolution and its norm, without bias; names follow the unit's. */
static int convolution_and_norm(struct convnet *convnet, const char *convolution, const char *norm,
                                struct convnet_node node, int residual, bool relu)
{
    node.kind = CONVNET_CONVOLUTION;
    node.name = convolution;
    node.initial = CONVNET_KAIMING_FAN_OUT;
    int number = convnet_add(convnet, &node);
    return convnet_add(convnet, &(struct convnet_node){.kind = CONVNET_BATCH_NORM,
                                                       .name = norm,
                                                       .input = number,
                                                       .residual = residual,
                                                       .relu = relu});
}

/* Number `number` of a block's convolutions: conv1 and bn1, ... */
static int block_convolution(const struct resnet *resnet, const char *block, int number,
                             struct convnet_node node, int residual)
{
    char convolution[TENSOR_NAME], norm[TENSOR_NAME];
    snprintf(convolution, sizeof convolution, "%.40s.conv%d", block, number);
    snprintf(norm, sizeof norm, "%.40s.bn%d", block, number);
    node.padding = node.kernel / 2;
    return convolution_and_norm(resnet->convnet, convolution, norm, node, residual, true);
}

/* What is added to the block's branch: its input, by a convolution of 1x1 where the shape changes.
 */
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
    node = convnet_add(resnet->convnet,
                       &(struct convnet_node){.kind = CONVNET_MEAN_POOL, .input = node});
    convnet_add(resnet->convnet, &(struct convnet_node){.kind = CONVNET_LINEAR,
                                                        .name = "fc",
                                                        .input = node,
                                                        .channels = shape->classes});
}

void cnn_b_describe(struct convnet *convnet, const struct convnet_shape *shape)
{
    const struct resnet resnet = {convnet, shape, "shortcut"};
    convnet_unit(convnet, "stem");
    const struct convnet_node first = {
        .channels = shape->width, .kernel = 3, .stride = 1, .padding = 1};
    stages_and_head(&resnet, convolution_and_norm(convnet, "conv1", "bn1", first, 0, true));
}

void resnet_describe(struct convnet *convnet, const struct convnet_shape *shape)
{
    const struct resnet resnet = {convnet, shape, "downsample"};
    convnet_unit(convnet, "stem");
    const struct convnet_node first = {
        .channels = shape->width, .kernel = 7, .stride = 2, .padding = 3};
    int node = convolution_and_norm(convnet, "conv1", "bn1", first, 0, true);
    node = convnet_add(
        convnet,
        &(struct convnet_node){
            .kind = CONVNET_MAX_POOL, .input = node, .kernel = 3, .stride = 2, .padding = 1});
    stages_and_head(&resnet, node);
}
