// SPDX-License-Identifier: BSD-3-Clause
/* The registry: names of models (model.name) and their default shapes. */
#ifndef VITTRAIN_MODEL_REGISTRY_H
#define VITTRAIN_MODEL_REGISTRY_H

#include "model/model.h"

/* Return the entry of this name, or NULL. */
const struct model_entry *registry_find(const char *name);

/* The registered names, ended by NULL. */
const char *const *model_names(void);

/* True if the model of this name is a Vision Transformer. */
bool model_is_vit(const char *name);

/* True if the model of this name supports train.checkpoint_activations=block. */
bool model_recomputes(const char *name);

#endif
