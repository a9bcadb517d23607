// SPDX-License-Identifier: BSD-3-Clause
/* A model as the training step sees it: a list of units, each of which runs forward and backward
 * while its weights are gathered. The model owns its activations and does not know about ranks. */
#ifndef VITTRAIN_MODEL_MODEL_H
#define VITTRAIN_MODEL_MODEL_H

#include "base/arena.h"
#include "device/device.h"
#include "mesh/flat.h"
#include "mesh/unit.h"
#include "options/option_types.h"

struct options;

struct model;
struct model_entry;
struct grains;

enum model_loss { LOSS_CROSS_ENTROPY, LOSS_TARGETS };

/* Arguments of one forward or backward pass over a micro-batch. */
struct model_pass {
    struct stream *stream;
    const struct flat_model *flat;
    struct grains *grains; /* they add the sums of batch norm, or NULL */
    int64_t batch;         /* samples, may be 0 */
    bool training;         /* apply dropout, keep activations for backward */
    /* Weight of this rank's batch in the running statistics: flat_running_weight; for norms that
     * are not synchronised, multiplied by this rank's share of the samples. */
    double running_weight;
    uint64_t seed;
    const struct step_params *params; /* device memory: keys dropout; read only in training */
    const void *images;               /* [batch, channels, height, width], compute type */
    void *logits; /* [batch, classes, output], compute type: written by forward; holds their
                     gradient for backward */
};

/* The functions of one kind of model. Pointers may not be NULL unless noted. */
struct model_type {
    const char *name;
    bool recomputes; /* supports train.checkpoint_activations=block */
    /* Describes the units of a registered model, with the entry's default shape overridden by the
     * options. Allocates no device memory. device is NULL if the model is only described. Returns
     * NULL and sets the error if the shape is invalid. Ignores options of other kinds of models. */
    struct model *(*open)(const struct model_entry *entry, const struct options *options,
                          struct device *device, enum data_type compute, struct error *error);
    /* Reads the options that depend on which tensors are frozen. May be NULL. */
    void (*configure)(struct model *model, const struct options *options);
    /* Takes all activation memory from the arena, for batches of at most `batch` samples. Called
     * once to measure and once to allocate. */
    void (*activations)(struct model *model, struct arena *arena, int64_t batch, bool training);
    /* Queue the operations of one unit on pass->stream. */
    void (*forward)(struct model *model, const struct model_pass *pass, int unit);
    void (*backward)(struct model *model, const struct model_pass *pass, int unit);
    /* Returns a unit's output of the last forward pass in training (compute type, *count elements),
     * or NULL if it was not kept. Used to locate non-finite values. */
    const void *(*output)(const struct model *model, int unit, int64_t *count);
    /* Frees what the model owns besides its units. May be NULL. */
    void (*close)(struct model *model);
};

/* A name in the registry. */
struct model_entry {
    const char *name; /* value of model.name */
    const struct model_type *type;
    const void *shape; /* default shape; its type depends on type->open */
    /* Defaults for images, those of the weights in timm or torchvision: normalisation,
     * interpolation (FILTER_BILINEAR if 0), and the fraction of the resized image that an
     * evaluation takes (0: 0.875). */
    double mean[3], std[3];
    enum interpolation_choice interpolation;
    double crop_fraction;
};

struct model {
    const struct model_type *type;
    struct device *device;
    enum data_type compute;
    struct unit *units;
    int unit_count;
    int first_trainable; /* the lowest unit with a trainable tensor: backward passes end there */
    struct image_size image;
    struct image_size output; /* 1 x 1; with model.head=dense the size of the image */
    int64_t channels, classes;
    enum model_loss loss;
    const struct model_entry *entry;
    struct value_statistics statistics; /* of the training samples, or empty */
    double flops_per_image; /* of matrix products, forward and backward, without recomputation */
    bool recompute;         /* keep only the output of a block and recompute the rest in backward */
    bool pads;              /* its patch does not divide the height and width of the image */
    bool batch_norms;       /* has batch norms */
    bool local_norms;       /* has batch norms whose statistics are not synchronised over ranks */
};

/* Queue an operation in the model's compute type on the stream of a pass. `owner` has the member
 * `model`. */
#define MODEL_RUN(owner, pass, operation, ...)                                                     \
    OPERATION_RUN((owner)->model.device, (pass)->stream, operation,                                \
                  .type = (owner)->model.compute, __VA_ARGS__)

/* Open the registered model options->model.name and apply the options to it. Only describes the
 * units; allocates no device memory. Returns NULL and sets the error if the name is unknown or the
 * shape is invalid; the caller closes the model. */
struct model *model_open(const struct options *options, struct device *device,
                         enum data_type compute, struct error *error);

/* Set weight decay, layer-wise learning rates, frozen tensors and recomputation from the options.
 * model_open has done so already. */
MUST_CHECK bool model_apply_options(struct model *model, const struct options *options,
                                    struct error *error);

void model_close(struct model *model);

/* Set mean and standard deviation of pixels from 0 to 1, or of float32 values, by which images are
 * normalised: those of augment.mean and augment.std, else the statistics, else those of the entry.
 * Return false with ERROR_USAGE if the options do not fit the model. */
MUST_CHECK bool model_normalisation(const struct model *model, const struct options *options,
                                    struct channel_values *mean, struct channel_values *std,
                                    struct error *error);

/* Return the number of output values of a sample: those of all classes and pixels. */
int64_t model_output_count(const struct model *model);

/* Number of parameters, without running statistics; `trainable`: without frozen tensors. */
int64_t unit_parameter_count(const struct unit *unit, bool trainable);
int64_t model_parameter_count(const struct model *model, bool trainable);

/* Append a trainable parameter without weight decay to a unit. unit->tensors must have room for it.
 * Increments *next_index, the tensor's number in the model. */
struct unit_tensor *unit_add_tensor(struct unit *unit, uint32_t *next_index, const char *name,
                                    enum initial_rule rule, double scale, int dimensions,
                                    const int64_t *shape);

/* Take an activation of `elements` elements of `size` bytes from the arena. */
void *activation_take(struct arena *arena, int64_t elements, size_t size);

/* Replace a field of a shape by an option, if the option is set (value > 0). */
void model_override(int64_t *field, int64_t option);

/* The registry: names of models (model.name) and their default shapes. */

/* Return the entry of this name, or NULL. */
const struct model_entry *registry_find(const char *name);

/* The registered names, ended by NULL. */
const char *const *model_names(void);

/* True if the model of this name is a Vision Transformer. */
bool model_is_vit(const char *name);

/* True if the model of this name supports train.checkpoint_activations=block. */
bool model_recomputes(const char *name);

#endif
