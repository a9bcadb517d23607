// SPDX-License-Identifier: BSD-3-Clause
/* Values of the options that depend on the data and the model: numbers of classes and channels,
 * size of the images, and the recipe for images, that is, the options of `augment` and `eval` that
 * are auto. */
#ifndef VITTRAIN_TRAIN_RESOLVE_H
#define VITTRAIN_TRAIN_RESOLVE_H

#include "core/error.h"

struct dataset;
struct model_metadata;
struct options;

/* Set the automatic options. Options with a value keep it. `weights`: metadata of the initial
 * weights, whose preprocessing is preferred to that of the architecture; or NULL. Return false with
 * ERROR_USAGE if options are invalid or contradict the data. */
MUST_CHECK bool options_resolve(struct options *options, const struct dataset *dataset,
                                const struct model_metadata *weights, struct error *error);

/* Log the recipe of resolved options in one line. */
void recipe_log(const struct options *options);

#endif
