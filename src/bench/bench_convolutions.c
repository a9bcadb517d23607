/* `bench device convolutions:MODEL:BATCH:PIXELS`: the forward pass and both gradients of each
 * distinct convolution of a model, in turn with oneDNN's. */
#include <stdio.h>
#include <string.h>

#include "bench/bench_device.h"
#include "core/integer.h"
#include "train/peak.h"

/* down: height and width of the model's images, divided by those of the layer's input. */
struct layer {
    const char *name;
    int64_t down, in, out, kernel, stride;
};

static const struct layer cnn_b[] = {
    {"stem", 1, 3, 64, 3, 1},
    {"layer1", 1, 64, 64, 3, 1},
    {"layer2 first", 1, 64, 128, 3, 2},
    {"layer2 shortcut", 1, 64, 128, 1, 2},
    {"layer2", 2, 128, 128, 3, 1},
    {"layer3 first", 2, 128, 256, 3, 2},
    {"layer3 shortcut", 2, 128, 256, 1, 2},
    {"layer3", 4, 256, 256, 3, 1},
    {"layer4 first", 4, 256, 512, 3, 2},
    {"layer4 shortcut", 4, 256, 512, 1, 2},
    {"layer4", 8, 512, 512, 3, 1},
};

static const struct layer resnet18[] = {
    {"stem", 1, 3, 64, 7, 2},
    {"layer1", 4, 64, 64, 3, 1},
    {"layer2 first", 4, 64, 128, 3, 2},
    {"layer2 shortcut", 4, 64, 128, 1, 2},
    {"layer2", 8, 128, 128, 3, 1},
    {"layer3 first", 8, 128, 256, 3, 2},
    {"layer3 shortcut", 8, 128, 256, 1, 2},
    {"layer3", 16, 256, 256, 3, 1},
    {"layer4 first", 16, 256, 512, 3, 2},
    {"layer4 shortcut", 16, 256, 512, 1, 2},
    {"layer4", 32, 512, 512, 3, 1},
};

static const struct layer resnet50[] = {
    {"stem", 1, 3, 64, 7, 2},
    {"layer1 first", 4, 64, 64, 1, 1},
    {"layer1 middle", 4, 64, 64, 3, 1},
    {"layer1 last", 4, 64, 256, 1, 1},
    {"layer1 narrow", 4, 256, 64, 1, 1},
    {"layer2 first", 4, 256, 128, 1, 1},
    {"layer2 stride", 4, 128, 128, 3, 2},
    {"layer2 shortcut", 4, 256, 512, 1, 2},
    {"layer2 last", 8, 128, 512, 1, 1},
    {"layer2 narrow", 8, 512, 128, 1, 1},
    {"layer2 middle", 8, 128, 128, 3, 1},
    {"layer3 first", 8, 512, 256, 1, 1},
    {"layer3 stride", 8, 256, 256, 3, 2},
    {"layer3 shortcut", 8, 512, 1024, 1, 2},
    {"layer3 last", 16, 256, 1024, 1, 1},
    {"layer3 narrow", 16, 1024, 256, 1, 1},
    {"layer3 middle", 16, 256, 256, 3, 1},
    {"layer4 first", 16, 1024, 512, 1, 1},
    {"layer4 stride", 16, 512, 512, 3, 2},
    {"layer4 shortcut", 16, 1024, 2048, 1, 2},
    {"layer4 last", 32, 512, 2048, 1, 1},
    {"layer4 narrow", 32, 2048, 512, 1, 1},
    {"layer4 middle", 32, 512, 512, 3, 1},
};

#define LAYERS(table) table, sizeof table / sizeof table[0]
static const struct layered_model {
    const char *name;
    const struct layer *layers;
    size_t count;
} models[] = {
    {"cnn_b", LAYERS(cnn_b)},
    {"resnet18", LAYERS(resnet18)},
    {"resnet50", LAYERS(resnet50)},
};
enum { MODELS = sizeof models / sizeof models[0], SIZES = 6 };

static const struct layered_model *model_find(const char *name)
{
    for (int i = 0; i < MODELS; i++)
        if (strcmp(models[i].name, name) == 0)
            return &models[i];
    return NULL;
}

static void sizes_of(const struct layer *layer, const struct device_images *images, int64_t *size)
{
    size[0] = images->batch;
    size[1] = images->pixels / layer->down;
    size[2] = layer->in;
    size[3] = layer->out;
    size[4] = layer->kernel;
    size[5] = layer->stride;
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
                          const int64_t *size, struct error *error)
{
    char work[128];

    for (int pass = 0; pass < PASSES; pass++) {
        if (passes[pass].run == input_run && layer->in == 3)
            continue; /* models do not compute the gradient of images */
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

static void layers_measure(struct device_bench *self, const struct layered_model *model,
                           const struct device_images *images, struct error *error)
{
    int64_t size[SIZES], floats = 0;
    size_t workspace = 1;

    for (size_t i = 0; i < model->count; i++) {
        sizes_of(&model->layers[i], images, size);
        layer_needs(self, size, &floats, &workspace);
    }
    /* Tensors begin at an offset of one page in their pools. */
    if (!trial_tensors_open(&self->machine, (size_t)floats * sizeof(float) + TRIAL_BYTES, workspace,
                            error))
        return;
    self->peak = peak_find(self->machine.device, self->machine.type, "");
    for (size_t i = 0; i < model->count; i++) {
        sizes_of(&model->layers[i], images, size);
        layer_measure(self, model->name, &model->layers[i], size, error);
    }
}

void device_convolutions_measure(struct device_bench *self, const char *name,
                                 const struct device_images *images, struct error *error)
{
    const struct layered_model *model = model_find(name);

    if (!self->cpu || model == NULL || images->batch < 1 || images->pixels < 32) {
        error_set(error, ERROR_USAGE,
                  "bench device: convolutions:MODEL:BATCH:PIXELS needs a CPU, one of the models "
                  "cnn_b, resnet18 and resnet50, a batch of at least 1 and at least 32 pixels");
        return;
    }
    self->convolutions = convolution_cache_open(self->machine.limits.threads);
    layers_measure(self, model, images, error);
    convolution_cache_close(self->convolutions);
}
