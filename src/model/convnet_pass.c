// SPDX-License-Identifier: BSD-3-Clause
/* Forward and backward pass of convolutional models, node by node. Each reader of a node's output
 * writes its gradient to a slot of its own; the node adds them up if it has two readers. */
#include "model/convnet.h"

#include "device/grains.h"

static const float norm_epsilon = 1e-5f; /* torch's */

static const void *parameter(const struct convnet_node *node, const struct model_pass *pass,
                             int which)
{
    return flat_weight(pass->flat, node->unit, node->parameters + which);
}

static float *parameter_gradient(const struct convnet_node *node, const struct model_pass *pass,
                                 int which)
{
    return flat_gradient(pass->flat, node->unit, node->parameters + which);
}

/* A node's output. */
static void *output_of(const struct convnet *convnet, const struct model_pass *pass, int number)
{
    const struct convnet_node *node = &convnet->nodes[number];
    if (number == 0 && convnet->nodes[1].reads_images)
        return (void *)pass->images;
    if (number == convnet->node_count - 1)
        return pass->logits;
    return pass->training ? node->y : convnet->outputs.memory[node->slot];
}

static void *gradient_memory(const struct convnet *convnet, const struct model_pass *pass, int slot)
{
    return slot < 0 ? pass->logits : convnet->gradients.memory[slot];
}

/* Adds the sums of all ranks. */
static void norm_add_sums(const struct model_pass *pass, double *sums, int64_t count)
{
    int64_t rows;

    if (pass->grains == NULL) {
        flat_add_sums(pass->flat, sums, count);
        return;
    }
    double *of_grains = grains_rows(pass->grains, count, &rows);
    flat_add_sums(pass->flat, of_grains, rows * count);
    OPERATION_RUN(pass->flat->device, pass->stream, tree_sums, rows, count, of_grains, sums);
}

static void node_forward(const struct convnet *convnet, const struct model_pass *pass, int number)
{
    const struct convnet_node *node = &convnet->nodes[number];
    const void *x = number == 0 ? pass->images : output_of(convnet, pass, node->input);
    const int64_t pixels = node->in_height * node->in_width, channels = node->channels;
    const int64_t rows = pass->batch * node->height * node->width;
    const bool follows = pass->training && !node->frozen; /* batch norm: update the statistics */
    void *y = output_of(convnet, pass, number);
    switch (node->kind) {
    case CONVNET_IMAGES:
        if (y != x)
            MODEL_RUN(convnet, pass, transpose, .batch = pass->batch, .rows = channels,
                      .columns = pixels, .x = x, .y = y);
        break;
    case CONVNET_CONVOLUTION:
        MODEL_RUN(convnet, pass, convolution_forward,
                  .shape = convnet_convolution_shape(node, pass->batch), .x = x,
                  .weight = parameter(node, pass, 0),
                  .bias = node->bias ? parameter(node, pass, 1) : NULL, .relu = node->relu, .y = y,
                  .workspace = convnet->workspace);
        break;
    case CONVNET_BATCH_NORM:
        if (follows)
            MODEL_RUN(convnet, pass, batch_norm_sums, .rows = rows, .channels = channels, .x = x,
                      .sums = node->sums);
        if (follows && convnet->sync)
            norm_add_sums(pass, node->sums, 2 * channels + 1);
        MODEL_RUN(convnet, pass, batch_norm_forward, .rows = rows, .channels = channels,
                  .epsilon = norm_epsilon, .x = x, .gamma = parameter(node, pass, 0),
                  .beta = parameter(node, pass, 1), .sums = follows ? node->sums : NULL,
                  .running_mean = flat_weight(pass->flat, node->unit, node->states),
                  .running_variance = flat_weight(pass->flat, node->unit, node->states + 1),
                  .residual = node->residual > 0 ? output_of(convnet, pass, node->residual) : NULL,
                  .relu = node->relu, .y = y,
                  .statistics = pass->training ? node->statistics : convnet->statistics);
        break;
    case CONVNET_MAX_POOL:
        MODEL_RUN(convnet, pass, max_pool_forward, .batch = pass->batch, .height = node->in_height,
                  .width = node->in_width, .channels = channels, .kernel = node->kernel,
                  .stride = node->stride, .padding = node->padding, .x = x, .y = y,
                  .index = pass->training ? node->index : NULL);
        break;
    case CONVNET_MEAN_POOL:
        MODEL_RUN(convnet, pass, pool_forward, .batch = pass->batch, .tokens = pixels,
                  .width = channels, .mean = true, .x = x, .y = y);
        break;
    case CONVNET_FLATTEN:
        MODEL_RUN(convnet, pass, transpose, .batch = pass->batch, .rows = pixels,
                  .columns = node->in, .x = x, .y = y);
        break;
    case CONVNET_LINEAR:
        MODEL_RUN(convnet, pass, linear_forward, .rows = pass->batch, .in = node->in,
                  .out = channels, .rows_per_sample = 1, .x = x, .weight = parameter(node, pass, 0),
                  .bias = parameter(node, pass, 1), .relu = node->relu, .y = y);
        break;
    case CONVNET_UPSAMPLE:
        MODEL_RUN(convnet, pass, upsample_forward, .batch = pass->batch, .channels = channels,
                  .height = node->in_height, .width = node->in_width, .out_height = node->height,
                  .out_width = node->width, .x = x, .y = y);
        break;
    }
}

static void norm_backward(const struct convnet *convnet, const struct model_pass *pass, int number,
                          const void *x, const void *add, void *dy, void *dx)
{
    const struct convnet_node *node = &convnet->nodes[number];
    const int64_t rows = pass->batch * node->height * node->width;
    const bool computes = node->relu && node->residual == 0; /* recompute the relu's mask from x */
    const void *gamma = parameter(node, pass, 0);
    const void *beta = computes ? parameter(node, pass, 1) : NULL;
    MODEL_RUN(convnet, pass, batch_norm_backward_sums, .rows = rows, .channels = node->channels,
              .x = x, .y = node->relu && !computes ? output_of(convnet, pass, number) : NULL,
              .gamma = computes ? gamma : NULL, .beta = beta, .add = add,
              .statistics = node->statistics, .forward_sums = node->frozen ? NULL : node->sums,
              .running_weight = (float)pass->running_weight, .dy = dy, .sums = convnet->sums,
              .dgamma = parameter_gradient(node, pass, 0),
              .dbeta = parameter_gradient(node, pass, 1),
              .drunning_mean = flat_gradient(pass->flat, node->unit, node->states),
              .drunning_variance = flat_gradient(pass->flat, node->unit, node->states + 1),
              .overwrite = pass->flat->buffers[node->unit].overwrites);
    if (!node->frozen && convnet->sync)
        norm_add_sums(pass, convnet->sums, 2 * node->channels + 1);
    if (dx != NULL)
        MODEL_RUN(convnet, pass, batch_norm_backward, .rows = rows, .channels = node->channels,
                  .x = x, .gamma = gamma, .statistics = node->statistics,
                  .sums = node->frozen ? NULL : convnet->sums, .beta = beta, .dy = dy, .dx = dx);
}

static void node_backward(const struct convnet *convnet, const struct model_pass *pass, int number)
{
    const struct convnet_node *node = &convnet->nodes[number];
    const struct convnet_node *input = &convnet->nodes[node->input];
    const void *x = output_of(convnet, pass, node->input);
    const int64_t pixels = node->in_height * node->in_width;
    const bool overwrite = pass->flat->buffers[node->unit].overwrites;
    void *dy = gradient_memory(convnet, pass, node->gradient[0]);
    /* The gradient from a second reader of the output, or NULL. */
    const void *add =
        node->gradient_count > 1 ? gradient_memory(convnet, pass, node->gradient[1]) : NULL;
    /* The gradient of the input, or NULL if no lower unit is trained. */
    const bool needed = node->input > 0 && input->unit >= convnet->model.first_trainable;
    void *dx = needed ? gradient_memory(convnet, pass, node->input_gradient) : NULL;
    switch (node->kind) {
    case CONVNET_IMAGES:
        break;
    case CONVNET_CONVOLUTION:
        MODEL_RUN(convnet, pass, convolution_backward,
                  .shape = convnet_convolution_shape(node, pass->batch), .x = x,
                  .weight = parameter(node, pass, 0), .dy = dy, .x_relu = input->clipped, .dx = dx,
                  .dweight = parameter_gradient(node, pass, 0),
                  .dbias = node->bias ? parameter_gradient(node, pass, 1) : NULL,
                  .overwrite = overwrite, .workspace = convnet->workspace);
        break;
    case CONVNET_BATCH_NORM:
        norm_backward(convnet, pass, number, x, add, dy, dx);
        break;
    case CONVNET_MAX_POOL:
        if (dx != NULL)
            MODEL_RUN(convnet, pass, max_pool_backward, .batch = pass->batch,
                      .height = node->in_height, .width = node->in_width,
                      .channels = node->channels, .kernel = node->kernel, .stride = node->stride,
                      .padding = node->padding, .dy = dy, .add = add, .index = node->index,
                      .dx = dx);
        break;
    case CONVNET_MEAN_POOL:
        if (dx != NULL)
            MODEL_RUN(convnet, pass, pool_backward, .batch = pass->batch, .tokens = pixels,
                      .width = node->channels, .mean = true, .dy = dy, .dx = dx);
        break;
    case CONVNET_FLATTEN:
        if (dx != NULL)
            MODEL_RUN(convnet, pass, transpose, .batch = pass->batch, .rows = node->in,
                      .columns = pixels, .x = dy, .y = dx);
        break;
    case CONVNET_LINEAR:
        MODEL_RUN(convnet, pass, linear_backward, .rows = pass->batch, .in = node->in,
                  .out = node->channels, .rows_per_sample = 1, .x = x,
                  .weight = parameter(node, pass, 0), .dy = dy, .x_relu = input->clipped, .dx = dx,
                  .dweight = parameter_gradient(node, pass, 0),
                  .dbias = parameter_gradient(node, pass, 1), .overwrite = overwrite);
        break;
    case CONVNET_UPSAMPLE:
        if (dx != NULL)
            MODEL_RUN(convnet, pass, upsample_backward, .batch = pass->batch,
                      .channels = node->channels, .height = node->in_height,
                      .width = node->in_width, .out_height = node->height, .out_width = node->width,
                      .dy = dy, .dx = dx);
        break;
    }
}

void convnet_forward(struct model *model, const struct model_pass *pass, int unit)
{
    struct convnet *convnet = (struct convnet *)model;
    convnet->batch = pass->batch;
    for (int n = 0; n < convnet->node_count; n++)
        if (convnet->nodes[n].unit == unit)
            node_forward(convnet, pass, n);
}

void convnet_backward(struct model *model, const struct model_pass *pass, int unit)
{
    const struct convnet *convnet = (const struct convnet *)model;
    for (int n = convnet->node_count - 1; n > 0; n--)
        if (convnet->nodes[n].unit == unit)
            node_backward(convnet, pass, n);
}

const void *convnet_output(const struct model *model, int unit, int64_t *count)
{
    const struct convnet *convnet = (const struct convnet *)model;
    int last = convnet->node_count - 1;
    while (last > 0 && convnet->nodes[last].unit != unit)
        last--;
    if (last == convnet->node_count - 1)
        return NULL;
    *count = convnet->batch * convnet_elements(&convnet->nodes[last]);
    return convnet->nodes[last].y;
}
