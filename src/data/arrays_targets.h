// SPDX-License-Identifier: BSD-3-Clause
/* Checks of training targets that have a valid shape but often another meaning than the user's. */
#ifndef VITTRAIN_DATA_ARRAYS_TARGETS_H
#define VITTRAIN_DATA_ARRAYS_TARGETS_H

#include "data/arrays.h"

/* Check the shapes of data.y. One image [H, W, C] with its mask [H, W], which would be H samples
 * with W targets, and more than 64 targets of a sample are errors unless model.classes is their
 * number. */
MUST_CHECK bool arrays_targets_check(const struct arrays_view *view, int64_t samples,
                                     int64_t model_classes, struct error *error);

/* Warn if no label is 0. label: [count] */
void arrays_labels_warn(const char *name, const int32_t *label, int64_t count, int64_t classes);

/* Log a note if exactly one label of each sample is set. marks: [count, labels] */
void arrays_marks_note(const char *name, const float *marks, int64_t count, int64_t labels);

#endif
