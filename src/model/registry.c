/* Names of models and the shapes behind them. A new model is one line here (or one file beside
 * vit.c with its own table). Any field of the shape can be overridden by the options. */
#include <math.h>
#include <string.h>

#include "model/convnet.h"
#include "model/vit.h"

struct registry_entry {
    const char *name;
    struct vit_shape vit;         /* image 0: it is none */
    struct convnet_shape convnet; /* describe NULL: it is none */
    float mean[3], std[3];        /* what the images are normalised with */
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

#define IMAGENET_MEAN                                                                              \
    {                                                                                              \
        0.485f, 0.456f, 0.406f                                                                     \
    }
#define IMAGENET_STD                                                                               \
    {                                                                                              \
        0.229f, 0.224f, 0.225f                                                                     \
    }

#define VIT(name_, patch_, dim_, heads_)                                                           \
    {                                                                                              \
        .name = name_, .vit = VIT_SHAPE(patch_, dim_, heads_), .mean = HALF, .std = HALF           \
    }
/* For CIFAR-10, as the reference has them. */
#define CNN(name_, ...)                                                                            \
    {                                                                                              \
        .name = name_, .mean = HALF, .std = HALF, .convnet = {                                     \
            .image = 32,                                                                           \
            .channels = 3,                                                                         \
            .classes = 10,                                                                         \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
/* torchvision's. */
#define RESNET(name_, bottleneck_, ...)                                                            \
    {                                                                                              \
        .name = name_, .mean = IMAGENET_MEAN, .std = IMAGENET_STD, .convnet = {                    \
            .describe = resnet_describe,                                                           \
            .image = 224,                                                                          \
            .channels = 3,                                                                         \
            .classes = 1000,                                                                       \
            .width = 64,                                                                           \
            .bottleneck = bottleneck_,                                                             \
            .blocks = {__VA_ARGS__}                                                                \
        }                                                                                          \
    }

static const struct registry_entry registry[] = {
    {"vit_cifar",
     .vit = {.image = 32,
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
     .mean = HALF, .std = HALF},
    VIT("vit_tiny_patch16_224", 16, 192, 3),
    VIT("vit_small_patch16_224", 16, 384, 6),
    VIT("vit_small_patch32_224", 32, 384, 6),
    VIT("vit_base_patch16_224", 16, 768, 12),
    VIT("vit_base_patch32_224", 32, 768, 12),
    CNN("cnn_a", .describe = cnn_a_describe),
    CNN("cnn_a_lenet", .describe = cnn_a_lenet_describe),
    CNN("cnn_b", .describe = cnn_b_describe, .width = 64, .blocks = {2, 2, 2, 2}),
    RESNET("resnet18", false, 2, 2, 2, 2),
    RESNET("resnet34", false, 3, 4, 6, 3),
    RESNET("resnet50", true, 3, 4, 6, 3),
    RESNET("resnet101", true, 3, 4, 23, 3),
    RESNET("resnet152", true, 3, 8, 36, 3),
    {"linear",
     .convnet = {.describe = linear_describe,
                 .image = 1,
                 .channels = 20,
                 .classes = 1,
                 .loss = LOSS_SQUARED_ERROR},
     .mean = {0, 0, 0}, .std = {1, 1, 1}},
};

enum { REGISTRY_ENTRIES = sizeof registry / sizeof registry[0] };

const char *const *model_names(void)
{
    static const char *names[REGISTRY_ENTRIES + 1];
    for (int i = 0; i < REGISTRY_ENTRIES; i++)
        names[i] = registry[i].name;
    return names;
}

bool model_is_vit(const char *name)
{
    for (int i = 0; i < REGISTRY_ENTRIES; i++)
        if (strcmp(registry[i].name, name) == 0)
            return registry[i].vit.image > 0;
    return false;
}

bool model_recomputes(const char *name)
{
    return model_is_vit(name);
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

/* An option that only ViTs have, and whether it was given. */
struct vit_option {
    const char *name;
    bool given;
};

static bool not_for(const struct options *options, const char *key, const char *kind,
                    struct error *error)
{
    return error_set(error, ERROR_USAGE, "%s is for %s, and model.name=%s is none: leave it out",
                     key, kind, options->model.name);
}

static bool check_no_vit_options(const struct options *options, struct error *error)
{
    const struct vit_option given[] = {
        {"model.patch", options->model.patch > 0},
        {"model.dim", options->model.dim > 0},
        {"model.depth", options->model.depth > 0},
        {"model.heads", options->model.heads > 0},
        {"model.mlp_ratio", options->model.mlp_ratio > 0},
        {"model.dropout", options->model.dropout >= 0},
        {"model.drop_path", options->model.drop_path >= 0},
        {"model.qkv_bias", options->model.qkv_bias != SWITCH_AUTO},
        {"model.class_token", options->model.class_token != SWITCH_AUTO},
        {"model.embed_norm", options->model.embed_norm != SWITCH_AUTO},
        {"model.pool", options->model.pool != POOL_AUTO},
    };
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++)
        if (given[i].given)
            return not_for(options, given[i].name, "ViTs", error);
    return true;
}

static struct model *entry_open(const struct registry_entry *entry, const struct options *options,
                                struct device *device, enum data_type compute, struct error *error)
{
    struct vit_shape vit = entry->vit;
    struct convnet_shape convnet = entry->convnet;
    if (convnet.width == 0 && options->model.width > 0) {
        not_for(options, "model.width", "ResNets", error);
        return NULL;
    }
    if (vit.image > 0) {
        shape_override(&vit, options);
        return vit_open(&vit, device, compute, error);
    }
    if (!check_no_vit_options(options, error))
        return NULL;
    override_integer(&convnet.width, options->model.width);
    override_integer(&convnet.image, options->model.image);
    override_integer(&convnet.channels, options->model.channels);
    override_integer(&convnet.classes, options->model.classes);
    return convnet_open(entry->name, &convnet, device, compute, error);
}

struct model *model_open(const struct options *options, struct device *device,
                         enum data_type compute, struct error *error)
{
    const struct registry_entry *entry = registry_find(options->model.name, error);
    struct model *model = entry != NULL ? entry_open(entry, options, device, compute, error) : NULL;
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
