// SPDX-License-Identifier: BSD-3-Clause
/* Activations of convolutional models. In training each node keeps its output for the backward
 * pass. In evaluation outputs share a few slots, and gradients always do: a slot is allocated when
 * a node writes it and released after its last reader. */
#include "model/convnet.h"

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

void convnet_plan_slots(struct convnet *convnet)
{
    outputs_plan(convnet);
    gradients_plan(convnet);
}

static void node_allocate(struct convnet *convnet, struct convnet_node *node, struct arena *arena,
                          int64_t batch)
{
    size_t size = type_size(convnet->model.compute);
    node->y = activation_take(arena, batch * convnet_elements(node), size);
    if (node->kind == CONVNET_MAX_POOL)
        node->index = activation_take(arena, batch * convnet_elements(node), sizeof *node->index);
    if (node->kind != CONVNET_BATCH_NORM)
        return;
    node->statistics = activation_take(arena, 3 * node->channels, sizeof *node->statistics);
    node->sums = activation_take(arena, 2 * node->channels + 1, sizeof *node->sums);
}

void convnet_activations(struct model *model, struct arena *arena, int64_t batch, bool training)
{
    struct convnet *convnet = (struct convnet *)model;
    struct convnet_slots *slots = training ? &convnet->gradients : &convnet->outputs;
    int64_t channels = 0; /* most of any norm */
    size_t workspace = 0;
    for (int n = 0; n < convnet->node_count; n++) {
        const struct convnet_node *node = &convnet->nodes[n];
        if (node->kind == CONVNET_BATCH_NORM && node->channels > channels)
            channels = node->channels;
        if (node->kind != CONVNET_CONVOLUTION)
            continue;
        const struct convolution_shape shape = convnet_convolution_shape(node, batch);
        size_t bytes =
            model->device->backend->convolution_workspace(model->device, model->compute, &shape);
        if (bytes > workspace)
            workspace = bytes;
    }
    for (int n = 0; training && n < convnet->node_count - 1; n++) {
        arena_for_unit(arena, convnet->nodes[n].unit);
        node_allocate(convnet, &convnet->nodes[n], arena, batch);
    }
    arena_for_all(arena);
    for (int s = 0; s < slots->count; s++)
        slots->memory[s] =
            activation_take(arena, batch * slots->size[s], type_size(model->compute));
    convnet->statistics = activation_take(arena, training ? 0 : 3 * channels, sizeof(float));
    convnet->sums = activation_take(arena, training ? 2 * channels + 1 : 0, sizeof(double));
    convnet->workspace = activation_take(arena, (int64_t)workspace, 1);
}
