// SPDX-License-Identifier: BSD-3-Clause
/* What a model learns from the targets of data.format=arrays. */
#ifndef VITTRAIN_DATA_ARRAYS_TARGETS_H
#define VITTRAIN_DATA_ARRAYS_TARGETS_H

#include "config/options.h"
#include "data/arrays.h"

/* Set classes, names of the outputs and the checksum. *values: [count, target.count], or NULL if
 * the targets are planes. Single labels are moved to *label, [count]. training: shapes and values
 * that often have another meaning than the user's are errors or warnings. */
MUST_CHECK bool arrays_targets_use(struct dataset *dataset, const struct options *options,
                                   const struct arrays_view *view, bool training, float **values,
                                   int32_t **label, struct error *error);

#endif
