// SPDX-License-Identifier: BSD-3-Clause
/* `bench device convolutions:MODEL:BATCH:PIXELS`: the forward pass and both gradients of each
 * distinct convolution of a model, in turn with oneDNN's. */
#include <stdio.h>
#include <string.h>

#include "core/integer.h"
#include "model/convnet.h"
#include "model/registry.h"
#include "tools/bench/bench_device.h"
#include "train/peak.h"

enum { SIZES = 6 };

struct layer {
    const char *name;
    bool reads_images;   /* models do not compute the gradient of images */
    int64_t size[SIZES]; /* batch, height and width, in, out, kernel, stride */
};

/* Write the convolutions of distinct sizes; returns their number. Those whose padding is not half
 * of the kernel (CNN-A) are left out. */
static int layers_find(const struct convnet *convnet, int64_t batch, struct layer *layers)
{
    int count = 0;

    for (int i = 0; i < convnet->node_count; i++) {
        const struct convnet_node *node = &convnet->nodes[i];
        const struct layer layer = {
            node->prefix,
            node->input == 0,
            {batch, node->in_height, node->in, node->channels, node->kernel, node->stride}};
        bool known = node->kind != CONVNET_CONVOLUTION || node->padding != node->kernel / 2;
        for (int k = 0; k < count; k++)
            known = known || memcmp(layers[k].size, layer.size, sizeof layer.size) == 0;
        if (!known)
            layers[count++] = layer;
    }
    return count;
}

/* ---- trials of one gradient, and trials of oneDNN */

static void input_run(struct machine_bench *self, const int64_t *size)
{
    trial_convolution_gradients(self, size, true, false);
}

static void weight_run(struct machine_bench *self, const int64_t *size)
{
    trial_convolution_gradients(self, size, false, true);
}

static struct convolution onednn_convolution(const struct machine_bench *self, const int64_t *size,
                                             enum convolution_pass pass)
{
    const bool bf16 = self->type == TYPE_BF16 && product_multiplies_bf16();

    return (struct convolution){
        .pass = pass, .type = bf16 ? TYPE_BF16 : TYPE_FP32, .shape = trial_convolution_shape(size)};
}

static const struct convolution_plan *onednn_plan(struct machine_bench *self, const int64_t *size,
                                                  enum convolution_pass pass)
{
    const struct convolution convolution = onednn_convolution(self, size, pass);

    return convolution_plan(((struct device_bench *)self)->convolutions, &convolution);
}

static void onednn_forward(struct machine_bench *self, const int64_t *size)
{
    convolution_run_forward(onednn_plan(self, size, CONVOLUTION_FORWARD), self->x, self->weight,
                            NULL, self->y, self->convolution);
}

static void onednn_input(struct machine_bench *self, const int64_t *size)
{
    convolution_run_input(onednn_plan(self, size, CONVOLUTION_INPUT), self->other, self->weight,
                          self->y, self->convolution);
}

static void onednn_weight(struct machine_bench *self, const int64_t *size)
{
    convolution_run_weight(onednn_plan(self, size, CONVOLUTION_WEIGHT), self->x, self->y,
                           self->gradient, self->convolution);
}

static const struct pass {
    const char *name;
    machine_trial *run, *onednn;
} passes[] = {{"forward", trial_convolution_forward, onednn_forward},
              {"input gradient", input_run, onednn_input},
              {"weight gradient", weight_run, onednn_weight}};
enum { PASSES = sizeof passes / sizeof passes[0] };

/* ---- measurement */

static void layer_measure(struct device_bench *self, const char *model, const struct layer *layer,
                          struct error *error)
{
    const int64_t *size = layer->size;
    char work[128];

    for (int pass = 0; pass < PASSES; pass++) {
        if (passes[pass].run == input_run && layer->reads_images)
            continue;
        snprintf(work, sizeof work, "%s %s %lldx%lldx%lldx%lld to %lld kernel %lld stride %lld",
                 layer->name, passes[pass].name, (long long)size[0], (long long)size[1],
                 (long long)size[1], (long long)size[2], (long long)size[3], (long long)size[4],
                 (long long)size[5]);
        device_operation_measure(self, model, work, passes[pass].run, passes[pass].onednn, size,
                                 error);
    }
}

/* Raise *floats to the size of the largest tensor of a layer, and *workspace (bytes) to what its
 * passes need. */
static void layer_needs(struct device_bench *self, const int64_t *size, int64_t *floats,
                        size_t *workspace)
{
    const struct convolution_shape shape = trial_convolution_shape(size);
    const int64_t pixels = convolved_size(size[1], shape.kernel, shape.stride, shape.padding);
    const size_t own = trial_convolution_workspace(&self->machine, self->machine.type, size);

    *floats = larger(
        *floats, shape.batch * larger(size[1] * size[1] * shape.in, pixels * pixels * shape.out));
    *floats = larger(*floats, shape.in * shape.out * shape.kernel * shape.kernel);
    *workspace = own > *workspace ? own : *workspace;
    for (int pass = 0; pass < PASSES; pass++) {
        const struct convolution convolution =
            onednn_convolution(&self->machine, size, (enum convolution_pass)pass);
        const size_t bytes = convolution_plan_workspace(self->convolutions, &convolution);
        *workspace = bytes > *workspace ? bytes : *workspace;
    }
}

static void layers_measure(struct device_bench *self, const char *model, const struct layer *layers,
                           int count, struct error *error)
{
    int64_t floats = 0;
    size_t workspace = 1; /* a pool of 0 bytes does not exist */

    for (int i = 0; i < count; i++)
        layer_needs(self, layers[i].size, &floats, &workspace);
    /* Tensors begin at an offset of one page in their pools. */
    if (!trial_tensors_open(&self->machine, (size_t)floats * sizeof(float) + TRIAL_BYTES, workspace,
                            error))
        return;
    self->peak = peak_find(self->machine.device, self->machine.type, "");
    for (int i = 0; i < count; i++)
        layer_measure(self, model, &layers[i], error);
}

/* Describe the model for images of this size; NULL and an error if it has none of the layers. */
static struct model *layers_open(const struct device_bench *self, const char *name,
                                 const struct device_images *images, struct layer *layers,
                                 int *count, struct error *error)
{
    const struct model_entry *entry = registry_find(name);
    struct model *model = NULL;
    *count = 0;

    if (self->cpu && entry != NULL && entry->type == &convnet_type && images->batch > 0) {
        struct convnet_shape shape = *(const struct convnet_shape *)entry->shape;
        shape.image = images->pixels;
        model = convnet_open(name, &shape, NULL, self->machine.type, error);
        if (model == NULL)
            return NULL;
        *count = layers_find((const struct convnet *)model, images->batch, layers);
    }
    if (*count > 0)
        return model;
    error_set(error, ERROR_USAGE,
              "bench device: convolutions:MODEL:BATCH:PIXELS needs a CPU, a ResNet or cnn_b, and a "
              "batch of at least 1");
    if (model != NULL)
        model_close(model);
    return NULL;
}

void device_convolutions_measure(struct device_bench *self, const char *name,
                                 const struct device_images *images, struct error *error)
{
    struct layer layers[CONVNET_NODES];
    int count;
    struct model *model = layers_open(self, name, images, layers, &count, error);

    if (model == NULL)
        return;
    self->convolutions = convolution_cache_open(self->machine.limits.threads);
    layers_measure(self, name, layers, count, error);
    convolution_cache_close(self->convolutions);
    model_close(model);
}
