/* What a model is to the step: a list of units, each of which can be run forward and backward when
 * its weights are whole. The model owns its activations; it knows nothing of ranks. */
#ifndef VITTRAIN_MODEL_MODEL_H
#define VITTRAIN_MODEL_MODEL_H

#include "core/arena.h"
#include "core/options.h"
#include "device/device.h"
#include "mesh/flat.h"
#include "mesh/unit.h"

struct model;

enum model_loss { LOSS_CROSS_ENTROPY, LOSS_SQUARED_ERROR };

/* What one batch's pass needs to know. */
struct model_pass {
    struct stream *stream;
    const struct flat_model *flat;
    int64_t batch; /* samples, may be 0 */
    bool training; /* dropout on, activations kept for backward */
    /* What this rank's batch weighs in the running statistics of norms: flat_running_weight, and of
     * norms that do not look at other ranks' samples that times this rank's share of all. */
    double running_weight;
    uint64_t seed;
    const struct step_params *place; /* device: keys dropout; not read unless training */
    const void *images;              /* [batch, channels, image, image] compute type */
    void *logits; /* [batch, classes] compute type: forward writes, backward reads the gradient
                     from it */
};

struct model_type {
    const char *name;
    /* Takes from the options what is this kind's affair, after tensors know whether they are
     * frozen. NULL: nothing. */
    bool (*configure)(struct model *model, const struct options *options, struct error *error);
    void (*activations)(struct model *model, struct arena *arena, int64_t batch, bool training);
    void (*forward)(struct model *model, const struct model_pass *pass, int unit);
    void (*backward)(struct model *model, const struct model_pass *pass, int unit);
    /* What a unit's last forward pass in training gave, in the compute type, and how many elements;
     * NULL where it is not kept. To find where values that are not finite began. */
    const void *(*output)(const struct model *model, int unit, int64_t *count);
    void (*close)(struct model *model);
};

struct model {
    const struct model_type *type;
    struct device *device;
    enum data_type compute;
    struct unit *units;
    int unit_count;
    int64_t image, channels, classes;
    enum model_loss loss;
    const float *mean, *std; /* [3], of the registry's entry */
    double flops_per_image;  /* products only, forward + backward; none counted twice */
    bool recompute;          /* a block keeps its output only, backward computes the rest anew */
    bool batch_norms;        /* there are norms over the samples of a piece of the batch */
    bool local_norms;        /* there are norms that see the samples of their own rank only */
};

/* A model by its registry name with the options' overrides of its shape; describes the units, takes
 * no memory. Unknown names: the error names the nearest. */
struct model *model_open(const struct options *options, struct device *device,
                         enum data_type compute, struct error *error);

/* Sets what the options of training say: decay, layer-wise rate, frozen units, recomputation. */
bool model_apply_options(struct model *model, const struct options *options, struct error *error);

void model_close(struct model *model);

/* Numbers that are learned; those of them that this run trains. */
int64_t unit_parameter_count(const struct unit *unit);
int64_t unit_trainable_count(const struct unit *unit);
int64_t model_parameter_count(const struct model *model);
int64_t model_trainable_count(const struct model *model);

/* The lowest unit with something to train: backward passes end there. */
int model_first_trainable(const struct model *model);

/* Describes one more tensor behind the last: a parameter that starts at zero, decays and is
 * trained, numbered *next_index. The unit has memory for it. */
struct unit_tensor *unit_add_tensor(struct unit *unit, uint32_t *next_index, const char *name,
                                    int dimensions, const int64_t *shape);

/* The table of units: name, tensors, parameters, MB. */
void model_print_summary(const struct model *model);

/* Is the model of this name a Vision Transformer? */
bool model_is_vit(const char *name);

/* Does train.checkpoint_activations=block exist for the model of this name? */
bool model_recomputes(const char *name);

/* The registry's names, NULL at the end. */
const char *const *model_names(void);

#endif
