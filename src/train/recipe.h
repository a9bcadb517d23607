// SPDX-License-Identifier: BSD-3-Clause
/* The recipe for images: values of the options of `augment` and `eval` that are auto, chosen by the
 * model and the data. */
#ifndef VITTRAIN_TRAIN_RECIPE_H
#define VITTRAIN_TRAIN_RECIPE_H

#include "core/error.h"

struct dataset;
struct model_metadata;
struct options;

/* Choose augment.recipe and set the automatic options of `augment` and `eval` to its values.
 * Options with a value keep it. `weights`: metadata of the initial weights, whose preprocessing is
 * preferred to that of the architecture; or NULL. Returns false with ERROR_USAGE if the model's
 * options are invalid. */
MUST_CHECK bool recipe_resolve(struct options *options, const struct dataset *dataset,
                               const struct model_metadata *weights, struct error *error);

/* Log the recipe of resolved options in one line. */
void recipe_log(const struct options *options);

#endif
