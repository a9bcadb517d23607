// SPDX-License-Identifier: BSD-3-Clause
/* Functions for models of every kind: options that apply to their tensors, parameter counts, and
 * the registry. */
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/text.h"
#include "options/options.h"

/* Tensors begin at multiples of this number of elements, which aligns vector loads. */
enum { TENSOR_ALIGNMENT = 16 };

void model_close(struct model *model)
{
    if (model == NULL)
        return;
    for (int u = 0; model->units != NULL && u < model->unit_count; u++)
        free(model->units[u].tensors);
    free(model->units);
    if (model->type->close != NULL)
        model->type->close(model);
    free(model);
}

/* Set the error for an unknown model: it lists the names that begin with `name`, else it has the
 * nearest name. */
static void name_refuse(const char *name, struct error *error)
{
    char names[ERROR_TEXT_SIZE / 2] = "";
    for (const char *const *known = model_names(); *known != NULL; known++)
        if (name[0] != '\0' && strncmp(*known, name, strlen(name)) == 0) {
            const size_t used = strlen(names);
            snprintf(names + used, sizeof names - used, "%s%s", used > 0 ? ", " : "", *known);
        }
    const char *nearest = text_nearest(name, model_names());
    if (names[0] != '\0')
        error_set(error, ERROR_USAGE, "unknown model.name=%s; names that begin with it: %s", name,
                  names);
    else if (nearest != NULL)
        error_set(error, ERROR_USAGE, "unknown model.name=%s; did you mean %s?", name, nearest);
    else
        error_set(error, ERROR_USAGE,
                  "unknown model.name=%s; `vittrain --list-models` lists the names", name);
}

struct model *model_open(const struct options *options, struct device *device,
                         enum data_type compute, struct error *error)
{
    const char *name = options->model.name;
    const struct model_entry *entry = registry_find(name);
    if (entry == NULL) {
        name_refuse(name, error);
        return NULL;
    }
    struct model *model = entry->type->open(entry, options, device, compute, error);
    if (model == NULL)
        return NULL;
    model->entry = entry;
    if (options->model.head == HEAD_DENSE && model_output_count(model) == model->classes) {
        error_set(error, ERROR_USAGE, "model.head=dense: %s does not support it; leave it out",
                  name);
        model_close(model);
        return NULL;
    }
    if (model_apply_options(model, options, error))
        return model;
    model_close(model);
    return NULL;
}

/* An entry has three values, of which the last is repeated for further channels. */
static void values_choose(struct channel_values *values, const struct option_list *given,
                          const struct channel_values *measured, const double preset[3],
                          int64_t channels)
{
    *values = *measured;
    for (int c = 0; c < given->count; c++)
        values->value[c] = given->value[c];
    if (given->count > 0)
        values->count = given->count;
    if (values->count > 0)
        return;
    for (int64_t c = 0; c < channels; c++)
        values->value[values->count++] = preset[c < 3 ? c : 2];
}

bool model_normalisation(const struct model *model, const struct options *options,
                         struct channel_values *mean, struct channel_values *std,
                         struct error *error)
{
    values_choose(mean, &options->augment.mean, &model->statistics.mean, model->entry->mean,
                  model->channels);
    values_choose(std, &options->augment.std, &model->statistics.std, model->entry->std,
                  model->channels);
    if ((mean->count > 1 && mean->count != model->channels) ||
        (std->count > 1 && std->count != model->channels))
        return error_set(error, ERROR_USAGE,
                         "augment.mean and augment.std need one value, or one for each of the %lld "
                         "channels",
                         (long long)model->channels);
    for (int c = 0; c < std->count; c++)
        if (!(std->value[c] > 0))
            return error_set(error, ERROR_USAGE, "augment.std must be above 0");
    return true;
}

void model_override(int64_t *field, int64_t option)
{
    if (option > 0)
        *field = option;
}

/* True if the item of a list is the tensor's unit, its name, or a prefix of its name that
 * ends before a dot. */
static bool name_matches(const char *item, size_t length, const struct unit *unit,
                         const struct unit_tensor *tensor)
{
    if (strlen(unit->name) == length && strncmp(unit->name, item, length) == 0)
        return true;
    return strncmp(tensor->name, item, length) == 0 &&
           (tensor->name[length] == '\0' || tensor->name[length] == '.');
}

/* Applies an option that lists units and prefixes of tensor names: freezes the tensors, or excludes
 * them from Muon. */
static bool list_apply(struct model *model, const char *option, const char *list, bool freezes,
                       struct error *error)
{
    while (*list != '\0') {
        list += strspn(list, ", ");
        size_t length = strcspn(list, ", ");
        bool found = length == 0;
        for (int u = 0; u < model->unit_count; u++) {
            struct unit *unit = &model->units[u];
            for (int t = 0; length > 0 && t < unit->tensor_count; t++)
                if (name_matches(list, length, unit, &unit->tensors[t])) {
                    *(freezes ? &unit->tensors[t].trainable : &unit->tensors[t].matrix) = false;
                    found = true;
                }
        }
        if (!found)
            return error_set(error, ERROR_USAGE,
                             "%s: the model has no unit or tensor \"%.*s\": units are %s, ..., %s",
                             option, (int)length, list, model->units[0].name,
                             model->units[model->unit_count - 1].name);
        list += length;
    }
    return true;
}

/* Weight and bias of a norm must both be frozen or both be trainable, since the device operations
 * compute both gradients or neither. Only norms have a weight of one dimension. */
static bool norms_check(const struct model *model, struct error *error)
{
    for (int u = 0; u < model->unit_count; u++)
        for (int t = 0; t + 1 < model->units[u].tensor_count; t++) {
            const struct unit_tensor *weight = &model->units[u].tensors[t], *bias = weight + 1;
            const char *ending = strrchr(weight->name, '.');
            if (weight->dimensions == 1 && ending != NULL && strcmp(ending, ".weight") == 0 &&
                weight->trainable != bias->trainable)
                return error_set(error, ERROR_USAGE,
                                 "optim.freeze: only one of %s and %s is frozen: freeze both with "
                                 "%.*s, or neither",
                                 weight->name, bias->name, (int)(ending - weight->name),
                                 weight->name);
        }
    return true;
}

/* True if Muon orthogonalizes the update of a tensor. A convolution's weight is a matrix with one
 * row per output. As in timm, these tensors are excluded: position embeddings and tokens [1, ...],
 * depthwise convolutions [n, 1, ...], matrices with a side below LEAST, and matrices whose sides
 * differ by a factor above ASPECT. */
static bool tensor_is_matrix(const struct unit_tensor *tensor)
{
    enum { LEAST = 4, ASPECT = 128 };
    if (tensor->kind != TENSOR_PARAMETER || tensor->dimensions < 2 || tensor->shape[0] == 1 ||
        tensor->shape[1] == 1)
        return false;
    int64_t rows = tensor->shape[0], columns = tensor->count / rows, least = smaller(rows, columns);
    return least >= LEAST && larger(rows, columns) <= ASPECT * least;
}

bool model_apply_options(struct model *model, const struct options *options, struct error *error)
{
    enum optimizer_scope scope = optimizer_facts(options->optim.name)->scope;
    model->recompute = options->train.checkpoint_activations == CHECKPOINT_ACTIVATIONS_BLOCK &&
                       model->type->recomputes;
    for (int u = 0; u < model->unit_count; u++) {
        struct unit *unit = &model->units[u];
        for (int t = 0; t < unit->tensor_count; t++) {
            struct unit_tensor *tensor = &unit->tensors[t];
            tensor->rate_scale =
                pow(options->optim.layer_decay, model->unit_count - 1 - tensor->depth);
            tensor->matrix = scope == SCOPE_MATRIX && tensor_is_matrix(tensor);
            if (!options->optim.no_decay && tensor->kind == TENSOR_PARAMETER)
                tensor->decay = true;
            bool decays = tensor->decay && options->optim.weight_decay != 0;
            tensor->adapts = scope == SCOPE_NORMS && tensor->kind == TENSOR_PARAMETER &&
                             (decays || options->optim.always_adapt);
        }
    }
    if (!list_apply(model, "optim.freeze", options->optim.freeze, true, error) ||
        !list_apply(model, "optim.muon_exclude", options->optim.muon_exclude, false, error) ||
        !norms_check(model, error))
        return false;
    if (model_parameter_count(model, true) == 0)
        return error_set(error, ERROR_USAGE,
                         "optim.freeze=%s leaves nothing to train: name fewer units",
                         options->optim.freeze);
    if (model->type->configure != NULL)
        model->type->configure(model, options);
    for (int u = model->unit_count - 1; u >= 0; u--)
        for (int t = 0; t < model->units[u].tensor_count; t++)
            if (model->units[u].tensors[t].trainable)
                model->first_trainable = u;
    return true;
}

struct unit_tensor *unit_add_tensor(struct unit *unit, uint32_t *next_index, const char *name,
                                    enum initial_rule rule, double scale, int dimensions,
                                    const int64_t *shape)
{
    struct unit_tensor *tensor = &unit->tensors[unit->tensor_count++];
    *tensor = (struct unit_tensor){.dimensions = dimensions,
                                   .count = 1,
                                   .kind = TENSOR_PARAMETER,
                                   .depth = unit->depth,
                                   .rate_scale = 1,
                                   .trainable = true,
                                   .initial = rule,
                                   .initial_scale = scale,
                                   .index = (*next_index)++};
    int length = snprintf(tensor->name, sizeof tensor->name, "%s", name);
    ENSURE(length < TENSOR_NAME, "tensor name too long: %s", name);
    for (int d = 0; d < dimensions; d++) {
        tensor->shape[d] = shape[d];
        tensor->count *= shape[d];
    }
    tensor->offset = (unit->count + TENSOR_ALIGNMENT - 1) / TENSOR_ALIGNMENT * TENSOR_ALIGNMENT;
    unit->count = tensor->offset + tensor->count;
    return tensor;
}

int64_t model_output_count(const struct model *model)
{
    return model->classes * model->output.height * model->output.width;
}

int64_t unit_parameter_count(const struct unit *unit, bool trainable)
{
    int64_t count = 0;
    for (int t = 0; t < unit->tensor_count; t++)
        if (unit->tensors[t].kind == TENSOR_PARAMETER && (unit->tensors[t].trainable || !trainable))
            count += unit->tensors[t].count;
    return count;
}

int64_t model_parameter_count(const struct model *model, bool trainable)
{
    int64_t count = 0;
    for (int u = 0; u < model->unit_count; u++)
        count += unit_parameter_count(&model->units[u], trainable);
    return count;
}

void *activation_take(struct arena *arena, int64_t elements, size_t size)
{
    return arena_take(arena, MEMORY_ACTIVATIONS, (size_t)elements * size);
}

/* The registry is a list of tables, one for each file of models. A table ends with an entry without
 * a name. */

extern const struct model_entry vit_models[], cnn_models[], resnet_models[];
static const struct model_entry *const tables[] = {vit_models, cnn_models, resnet_models};

enum { TABLES = sizeof tables / sizeof tables[0], MODELS_MOST = 128 };

const struct model_entry *registry_find(const char *name)
{
    for (int t = 0; t < TABLES; t++)
        for (const struct model_entry *entry = tables[t]; entry->name != NULL; entry++)
            if (strcmp(entry->name, name) == 0)
                return entry;
    return NULL;
}

const char *const *model_names(void)
{
    static const char *names[MODELS_MOST + 1];
    int count = 0;
    for (int t = 0; t < TABLES; t++)
        for (const struct model_entry *entry = tables[t]; entry->name != NULL; entry++) {
            ENSURE(count < MODELS_MOST, "more than %d models", MODELS_MOST);
            names[count++] = entry->name;
        }
    return names;
}

bool model_is_vit(const char *name)
{
    const struct model_entry *entry = registry_find(name);
    return entry != NULL && strcmp(entry->type->name, "vit") == 0;
}

bool model_recomputes(const char *name)
{
    const struct model_entry *entry = registry_find(name);
    return entry != NULL && entry->type->recomputes;
}
