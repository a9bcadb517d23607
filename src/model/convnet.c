// SPDX-License-Identifier: BSD-3-Clause
/* Convolutional models: the table of nodes, and the units and tensors derived from it. */
#include "model/convnet.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/allocate.h"
#include "base/base.h"
#include "options/options.h"

int64_t convnet_elements(const struct convnet_node *node)
{
    return node->height * node->width * node->channels;
}

struct convolution_shape convnet_convolution_shape(const struct convnet_node *node, int64_t batch)
{
    return (struct convolution_shape){.batch = batch,
                                      .height = node->in_height,
                                      .width = node->in_width,
                                      .in = node->in,
                                      .out = node->channels,
                                      .kernel = node->kernel,
                                      .stride = node->stride,
                                      .padding = node->padding,
                                      .images = node->reads_images};
}

void convnet_unit(struct convnet *convnet, const char *name)
{
    int unit = convnet->model.unit_count++;
    ENSURE(unit < CONVNET_NODES, "a model of more than %d units", CONVNET_NODES);
    snprintf(convnet->unit_name[unit], TENSOR_NAME, "%s", name);
}

/* Set height and width of a node's output. */
static void node_measure(struct convnet *convnet, struct convnet_node *node)
{
    switch (node->kind) {
    case CONVNET_CONVOLUTION:
    case CONVNET_MAX_POOL:
        node->height = convolved_size(node->in_height, node->kernel, node->stride, node->padding);
        node->width = convolved_size(node->in_width, node->kernel, node->stride, node->padding);
        break;
    case CONVNET_MEAN_POOL:
    case CONVNET_FLATTEN:
    case CONVNET_LINEAR:
        node->height = node->width = 1;
        break;
    case CONVNET_UPSAMPLE:
        node->height = convnet->model.image.height;
        node->width = convnet->model.image.width;
        break;
    case CONVNET_IMAGES:
    case CONVNET_BATCH_NORM:
        node->height = node->in_height;
        node->width = node->in_width;
        break;
    }
    int64_t reach = node->in_height + 2 * node->padding;
    if (node->height < 1 || node->width < 1 || reach < node->kernel)
        convnet->too_small = true;
}

static void node_count_reader(struct convnet *convnet, int number)
{
    struct convnet_node *read = &convnet->nodes[number];
    bool adds = read->kind == CONVNET_BATCH_NORM || read->kind == CONVNET_MAX_POOL;
    ENSURE(++read->readers <= (adds ? 2 : 1), "node %d is read too often", number);
}

int convnet_add(struct convnet *convnet, const struct convnet_node *described)
{
    int number = convnet->node_count++;
    ENSURE(number < CONVNET_NODES, "a model of more than %d nodes", CONVNET_NODES);
    struct convnet_node *node = &convnet->nodes[number];
    const struct convnet_node *input = &convnet->nodes[described->input];
    *node = *described;
    snprintf(node->prefix, sizeof node->prefix, "%s", node->name != NULL ? node->name : "");
    node->name = NULL;
    node->unit = number == 0 ? 0 : convnet->model.unit_count - 1;
    if (number > 0) {
        node->in = input->channels;
        node->in_height = input->height;
        node->in_width = input->width;
        node_count_reader(convnet, node->input);
    }
    if (node->residual > 0)
        node_count_reader(convnet, node->residual);
    if (node->kind == CONVNET_FLATTEN)
        node->channels = convnet_elements(input);
    else if (node->kind == CONVNET_BATCH_NORM || node->kind == CONVNET_MAX_POOL ||
             node->kind == CONVNET_MEAN_POOL || node->kind == CONVNET_UPSAMPLE)
        node->channels = node->in;
    node_measure(convnet, node);
    /* Max pool and flatten pass on values of a relu. A norm masks its own relu. */
    bool passes = node->kind == CONVNET_MAX_POOL || node->kind == CONVNET_FLATTEN;
    node->clipped = passes ? input->clipped : node->relu && node->kind != CONVNET_BATCH_NORM;
    ENSURE(!input->clipped || number == 0 || node->kind == CONVNET_CONVOLUTION ||
               node->kind == CONVNET_LINEAR || passes,
           "node %d reads the output of a relu and cannot mask its gradient", number);
    return number;
}

/* Append a tensor NODE.name. Only tensors of several dimensions have weight decay. */
static struct unit_tensor *node_tensor(struct convnet *convnet, const struct convnet_node *node,
                                       const char *name, enum initial_rule rule, double scale,
                                       int dimensions, const int64_t *shape)
{
    char full[2 * TENSOR_NAME];
    snprintf(full, sizeof full, "%s%s%s", node->prefix, node->prefix[0] != '\0' ? "." : "", name);
    struct unit *unit = &convnet->model.units[node->unit];
    struct unit_tensor *tensor =
        unit_add_tensor(unit, &convnet->next_index, full, rule, scale, dimensions, shape);
    tensor->decay = dimensions > 1;
    return tensor;
}

/* Weight and bias of a convolution or linear layer. */
static void product_tensors(struct convnet *convnet, const struct convnet_node *node)
{
    static const enum initial_rule rules[] = {[CONVNET_UNIFORM] = INITIAL_UNIFORM,
                                              [CONVNET_KAIMING_FAN_OUT] = INITIAL_NORMAL,
                                              [CONVNET_DIRAC] = INITIAL_DIRAC,
                                              [CONVNET_COSINES] = INITIAL_COSINES};
    const bool linear = node->kind == CONVNET_LINEAR, uniform = node->initial == CONVNET_UNIFORM;
    const int64_t window = linear ? 1 : node->kernel * node->kernel;
    const int64_t shape[] = {node->channels, node->in, node->kernel, node->kernel};
    const double bound = 1 / sqrt((double)(node->in * window));
    const double scale = uniform ? bound : sqrt(2 / (double)(node->channels * window));
    node_tensor(convnet, node, "weight", rules[node->initial], scale, linear ? 2 : 4, shape);
    if (linear || node->bias)
        node_tensor(convnet, node, "bias", INITIAL_UNIFORM, bound, 1, &node->channels);
}

/* Weight and bias of a batch norm, or its running statistics. */
static void norm_tensors(struct convnet *convnet, const struct convnet_node *node,
                         enum tensor_kind kind)
{
    const bool runs = kind == TENSOR_STATE;
    node_tensor(convnet, node, runs ? "running_mean" : "weight", runs ? INITIAL_ZERO : INITIAL_ONE,
                0, 1, &node->channels)
        ->kind = kind;
    node_tensor(convnet, node, runs ? "running_var" : "bias", runs ? INITIAL_ONE : INITIAL_ZERO, 0,
                1, &node->channels)
        ->kind = kind;
}

/* All parameters of a unit, followed by its running statistics. */
static void unit_describe(struct convnet *convnet, int number)
{
    struct unit *unit = &convnet->model.units[number];
    unit->depth = number;
    snprintf(unit->name, sizeof unit->name, "%s", convnet->unit_name[number]);
    unit->tensors = allocate(4 * CONVNET_NODES, sizeof *unit->tensors);
    for (int n = 0; n < convnet->node_count; n++) {
        struct convnet_node *node = &convnet->nodes[n];
        if (node->unit != number)
            continue;
        node->parameters = unit->tensor_count;
        if (node->kind == CONVNET_CONVOLUTION || node->kind == CONVNET_LINEAR)
            product_tensors(convnet, node);
        else if (node->kind == CONVNET_BATCH_NORM)
            norm_tensors(convnet, node, TENSOR_PARAMETER);
    }
    for (int n = 0; n < convnet->node_count; n++) {
        struct convnet_node *node = &convnet->nodes[n];
        if (node->unit != number || node->kind != CONVNET_BATCH_NORM)
            continue;
        node->states = unit->tensor_count;
        norm_tensors(convnet, node, TENSOR_STATE);
    }
}

/* ---- activations. In training each node keeps its output for the backward pass. In evaluation
 * outputs share a few slots, and gradients always do: a slot is allocated when a node writes it and
 * released after its last reader. */

/* Allocate a slot of `size` elements per sample: the smallest free one that is large enough, else
 * the largest free one, which is enlarged. */
static int slot_take(struct convnet_slots *slots, int64_t size)
{
    int best = -1;
    for (int s = 0; s < slots->count; s++) {
        if (slots->busy[s])
            continue;
        bool fits = slots->size[s] >= size;
        if (best < 0 || (fits ? slots->size[best] < size || slots->size[s] < slots->size[best]
                              : slots->size[best] < slots->size[s]))
            best = s;
    }
    if (best < 0) {
        ENSURE(slots->count < CONVNET_SLOTS, "a model needs more than %d slots", CONVNET_SLOTS);
        best = slots->count++;
    }
    if (slots->size[best] < size)
        slots->size[best] = size;
    slots->busy[best] = true;
    return best;
}

/* Drop one reader's reference to a node's output. */
static void output_release(struct convnet *convnet, int *readers, int number)
{
    if (--readers[number] == 0)
        convnet->outputs.busy[convnet->nodes[number].slot] = false;
}

static void outputs_plan(struct convnet *convnet)
{
    int readers[CONVNET_NODES];
    for (int n = 0; n < convnet->node_count; n++) {
        struct convnet_node *node = &convnet->nodes[n];
        readers[n] = node->readers;
        if (n == convnet->node_count - 1) /* the logits */
            break;
        if (node->kind == CONVNET_BATCH_NORM) { /* in place: the only reader of its convolution */
            node->slot = convnet->nodes[node->input].slot;
        } else {
            node->slot = slot_take(&convnet->outputs, convnet_elements(node));
            if (n > 0)
                output_release(convnet, readers, node->input);
        }
        if (node->residual > 0)
            output_release(convnet, readers, node->residual);
    }
}

/* Append a slot to those of the node's output gradient. */
static void gradient_add(struct convnet *convnet, int number, int slot)
{
    struct convnet_node *node = &convnet->nodes[number];
    node->gradient[node->gradient_count++] = slot;
}

static void gradients_plan(struct convnet *convnet)
{
    struct convnet_slots *slots = &convnet->gradients;
    gradient_add(convnet, convnet->node_count - 1, -1);
    for (int n = convnet->node_count - 1; n > 0; n--) {
        struct convnet_node *node = &convnet->nodes[n];
        int own = node->gradient[0];
        bool norm = node->kind == CONVNET_BATCH_NORM;
        bool in_place = norm && node->residual == 0;
        if (norm && node->residual > 0) /* after masking, also the residual's gradient */
            gradient_add(convnet, node->residual, own);
        node->input_gradient = -1;
        if (node->input > 0) { /* images need no gradient */
            int64_t size = convnet_elements(&convnet->nodes[node->input]);
            node->input_gradient = in_place ? own : slot_take(slots, size);
            gradient_add(convnet, node->input, node->input_gradient);
        }
        if (own >= 0 && !norm)
            slots->busy[own] = false;
        if (node->gradient_count > 1)
            slots->busy[node->gradient[1]] = false;
    }
}

/* If the first node is a convolution that reads the images channels first, node 0 has no output. */
static void first_convolution_plan(struct convnet *convnet)
{
    const struct device_backend *backend = convnet->model.device->backend;
    struct convnet_node *first = &convnet->nodes[1];
    const struct convolution_shape shape = convnet_convolution_shape(first, 1);
    first->reads_images = first->kind == CONVNET_CONVOLUTION &&
                          backend->convolution_reads_images != NULL &&
                          backend->convolution_reads_images(convnet->model.compute, &shape);
}

static void convnet_activations(struct model *model, struct arena *arena, int64_t batch,
                                bool training)
{
    struct convnet *convnet = (struct convnet *)model;
    struct convnet_slots *slots = training ? &convnet->gradients : &convnet->outputs;
    int64_t channels = 0; /* most of any norm */
    size_t workspace = 0;
    first_convolution_plan(convnet);
    for (int n = 0; n < convnet->node_count; n++) {
        const struct convnet_node *node = &convnet->nodes[n];
        if (node->kind == CONVNET_BATCH_NORM)
            channels = larger(channels, node->channels);
        if (node->kind != CONVNET_CONVOLUTION)
            continue;
        const struct convolution_shape shape = convnet_convolution_shape(node, batch);
        size_t bytes =
            model->device->backend->convolution_workspace(model->device, model->compute, &shape);
        if (bytes > workspace)
            workspace = bytes;
    }
    for (int n = 0; training && n < convnet->node_count - 1; n++) {
        struct convnet_node *node = &convnet->nodes[n];
        const bool unused = n == 0 && convnet->nodes[1].reads_images;
        const int64_t elements = unused ? 0 : batch * convnet_elements(node);
        arena_for_unit(arena, node->unit);
        node->y = activation_take(arena, elements, type_size(model->compute));
        if (node->kind == CONVNET_MAX_POOL)
            node->index = activation_take(arena, elements, sizeof *node->index);
        if (node->kind != CONVNET_BATCH_NORM)
            continue;
        node->statistics = activation_take(arena, 3 * node->channels, sizeof *node->statistics);
        node->sums = activation_take(arena, 2 * node->channels + 1, sizeof *node->sums);
    }
    arena_for_all(arena);
    for (int s = 0; s < slots->count; s++)
        slots->memory[s] =
            activation_take(arena, batch * slots->size[s], type_size(model->compute));
    convnet->statistics = activation_take(arena, training ? 0 : 3 * channels, sizeof(float));
    convnet->sums = activation_take(arena, training ? 2 * channels + 1 : 0, sizeof(double));
    convnet->workspace = activation_take(arena, (int64_t)workspace, 1);
}

/* ---- the type */

/* FLOPs of convolutions and linear layers, forward and twice as many backward; no gradient of the
 * images is computed. */
static double flops_per_image(const struct convnet *convnet)
{
    double flops = 0;
    for (int n = 1; n < convnet->node_count; n++) {
        const struct convnet_node *node = &convnet->nodes[n];
        double window = node->kind == CONVNET_LINEAR        ? 1
                        : node->kind == CONVNET_CONVOLUTION ? (double)(node->kernel * node->kernel)
                                                            : 0;
        double product = 2 * window * (double)node->in * (double)convnet_elements(node);
        flops += (node->input == 0 ? 2 : 3) * product;
    }
    return flops;
}

static void convnet_configure(struct model *model, const struct options *options)
{
    struct convnet *convnet = (struct convnet *)model;
    convnet->sync = options->model.sync_bn != SWITCH_OFF;
    for (int n = 0; n < convnet->node_count; n++) {
        struct convnet_node *node = &convnet->nodes[n];
        if (node->kind != CONVNET_BATCH_NORM)
            continue;
        model->batch_norms = true;
        model->local_norms = !convnet->sync;
        /* The two running statistics of a norm are frozen together. */
        struct unit_tensor *states = &model->units[node->unit].tensors[node->states];
        node->frozen = !states[0].trainable || !states[1].trainable;
        states[0].trainable = states[1].trainable = !node->frozen;
    }
}

static struct model *convnet_open_entry(const struct model_entry *entry,
                                        const struct options *options, struct device *device,
                                        enum data_type compute, struct error *error)
{
    struct convnet_shape shape = *(const struct convnet_shape *)entry->shape;
    model_override(&shape.width, options->model.width);
    model_override(&shape.image, options->model.image);
    model_override(&shape.image_width, options->model.image_width);
    model_override(&shape.channels, options->model.channels);
    model_override(&shape.classes, options->model.classes);
    shape.dense = options->model.head == HEAD_DENSE;
    return convnet_open(entry->name, &shape, device, compute, error);
}

const struct model_type convnet_type = {.name = "convnet",
                                        .open = convnet_open_entry,
                                        .configure = convnet_configure,
                                        .activations = convnet_activations,
                                        .forward = convnet_forward,
                                        .backward = convnet_backward,
                                        .output = convnet_output};

struct model *convnet_open(const char *name, const struct convnet_shape *shape,
                           struct device *device, enum data_type compute, struct error *error)
{
    struct convnet *convnet = allocate(1, sizeof *convnet);
    const struct image_size image = {shape->image,
                                     shape->image_width > 0 ? shape->image_width : shape->image};
    convnet->model = (struct model){.type = &convnet_type,
                                    .device = device,
                                    .compute = compute,
                                    .image = image,
                                    .channels = shape->channels,
                                    .classes = shape->classes,
                                    .loss = shape->loss};
    CONVNET_ADD(convnet, .kind = CONVNET_IMAGES, .channels = shape->channels,
                .in_height = image.height, .in_width = image.width);
    shape->describe(convnet, shape);
    if (convnet->too_small) {
        error_set(error, ERROR_USAGE,
                  "images of %lld x %lld pixels are too small for %s, which has nothing left of "
                  "them before its last layer: raise model.image or model.image_width, or use "
                  "model.name=resnet18",
                  (long long)image.height, (long long)image.width, name);
        model_close(&convnet->model);
        return NULL;
    }
    const struct convnet_node *last = &convnet->nodes[convnet->node_count - 1];
    convnet->model.output = (struct image_size){last->height, last->width};
    convnet->model.flops_per_image = flops_per_image(convnet);
    convnet->model.units = allocate((size_t)convnet->model.unit_count, sizeof(struct unit));
    for (int u = 0; u < convnet->model.unit_count; u++)
        unit_describe(convnet, u);
    outputs_plan(convnet);
    gradients_plan(convnet);
    return &convnet->model;
}
