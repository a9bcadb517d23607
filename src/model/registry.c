/* Names of models and the shapes behind them. A new model is one line here (or one file beside
 * vit.c with its own table). Any field of the shape can be overridden by the options. */
#include <math.h>
#include <string.h>

#include "model/vit.h"

struct registry_entry {
    const char *name;
    struct vit_shape shape;
    float mean[3], std[3]; /* what the images are normalised with */
};

/* timm's plain ViTs: patch embedding as a convolution, biases everywhere, epsilon 1e-6. */
#define VIT_SHAPE(patch_, dim_, heads_)                                                            \
    {                                                                                              \
        .image = 224, .channels = 3, .patch = patch_, .dim = dim_, .depth = 12, .heads = heads_,   \
        .hidden = 4 * dim_, .classes = 1000, .qkv_bias = true, .class_token = true,                \
        .norm_epsilon = 1e-6f                                                                      \
    }
#define HALF                                                                                       \
    {                                                                                              \
        0.5f, 0.5f, 0.5f                                                                           \
    }

static const struct registry_entry registry[] = {
    {"vit_cifar",
     {.image = 32,
      .channels = 3,
      .patch = 4,
      .dim = 192,
      .depth = 6,
      .heads = 3,
      .hidden = 768,
      .classes = 10,
      .dropout = 0.1,
      .drop_path = 0.1,
      .class_token = true,
      .embed_norm = true,
      .norm_epsilon = 1e-5f,
      .reference = true},
     HALF,
     HALF},
    {"vit_tiny_patch16_224", VIT_SHAPE(16, 192, 3), HALF, HALF},
    {"vit_small_patch16_224", VIT_SHAPE(16, 384, 6), HALF, HALF},
    {"vit_small_patch32_224", VIT_SHAPE(32, 384, 6), HALF, HALF},
    {"vit_base_patch16_224", VIT_SHAPE(16, 768, 12), HALF, HALF},
    {"vit_base_patch32_224", VIT_SHAPE(32, 768, 12), HALF, HALF},
};

enum { REGISTRY_ENTRIES = sizeof registry / sizeof registry[0] };

const char *const *model_names(void)
{
    static const char *names[REGISTRY_ENTRIES + 1];
    for (int i = 0; i < REGISTRY_ENTRIES; i++)
        names[i] = registry[i].name;
    return names;
}

static const struct registry_entry *registry_find(const char *name, struct error *error)
{
    for (int i = 0; i < REGISTRY_ENTRIES; i++)
        if (strcmp(registry[i].name, name) == 0)
            return &registry[i];
    const char *nearest = options_nearest(name, model_names());
    error_set(error, ERROR_USAGE,
              "model.name=%s is no known model%s%s%s: `vittrain --help model` lists them", name,
              nearest != NULL ? "; did you mean " : "", nearest != NULL ? nearest : "",
              nearest != NULL ? "?" : "");
    return NULL;
}

static void override_integer(int64_t *field, int64_t value)
{
    if (value > 0)
        *field = value;
}

static void override_rate(double *field, double value)
{
    if (value >= 0)
        *field = value;
}

static void override_switch(bool *field, int value)
{
    if (value != SWITCH_AUTO)
        *field = value == SWITCH_ON;
}

static void shape_override(struct vit_shape *shape, const struct options *options)
{
    double ratio = (double)shape->hidden / (double)shape->dim;
    override_integer(&shape->image, options->model.image);
    override_integer(&shape->channels, options->model.channels);
    override_integer(&shape->patch, options->model.patch);
    override_integer(&shape->dim, options->model.dim);
    override_integer(&shape->depth, options->model.depth);
    override_integer(&shape->heads, options->model.heads);
    override_integer(&shape->classes, options->model.classes);
    if (options->model.mlp_ratio > 0)
        ratio = options->model.mlp_ratio;
    shape->hidden = llround(ratio * (double)shape->dim);
    override_rate(&shape->dropout, options->model.dropout);
    override_rate(&shape->drop_path, options->model.drop_path);
    override_switch(&shape->qkv_bias, options->model.qkv_bias);
    override_switch(&shape->class_token, options->model.class_token);
    override_switch(&shape->embed_norm, options->model.embed_norm);
    if (options->model.pool != POOL_AUTO)
        shape->pool_mean = options->model.pool == POOL_MEAN;
}

struct model *model_open(const struct options *options, struct device *device,
                         enum data_type compute, struct error *error)
{
    const struct registry_entry *entry = registry_find(options->model.name, error);
    if (entry == NULL)
        return NULL;
    struct vit_shape shape = entry->shape;
    shape_override(&shape, options);
    struct model *model = vit_open(&shape, device, compute, error);
    if (model == NULL)
        return NULL;
    model->mean = entry->mean;
    model->std = entry->std;
    if (!model_apply_options(model, options, error)) {
        model_close(model);
        return NULL;
    }
    return model;
}
