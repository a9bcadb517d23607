// SPDX-License-Identifier: BSD-3-Clause
#include "data/arrays_targets.h"

#include "core/integer.h"
#include "core/log.h"

enum { TARGETS_USUAL = 64 };

bool arrays_targets_check(const struct arrays_view *view, int64_t samples, int64_t model_classes,
                          struct error *error)
{
    const struct variable *x = &view->x[0];
    for (int v = 0; v < view->y_count; v++) {
        const struct variable *y = &view->y[v];
        const int64_t x_extent[] = {samples, x->height, x->width}, outputs = y->channels;
        const int64_t y_extent[] = {samples, outputs};
        if (y->dimensions != 2 || model_classes == outputs)
            continue;
        if (array_is_mask(x->dimensions, x_extent, 2, y_extent))
            return error_set(
                error, ERROR_DATA,
                "data.x=%s [%lld, %lld, %lld] and data.y=%s [%lld, %lld] have the shapes of one "
                "image and its mask, and would be %lld samples with %lld targets: make them one "
                "sample with a first dimension of 1, in NumPy x[None] and y[None]; if they are "
                "samples, set model.classes=%lld",
                x->name, (long long)samples, (long long)x->height, (long long)x->width, y->name,
                (long long)samples, (long long)outputs, (long long)samples, (long long)outputs,
                (long long)outputs);
        if (outputs > TARGETS_USUAL && outputs <= IMAGE_CHANNELS)
            return error_set(
                error, ERROR_DATA,
                "data.y=%s [%lld, %lld] would be %lld targets of each sample: if it is a plane, "
                "give it the dimensions [samples, height, width]; if it is not, confirm with "
                "model.classes=%lld",
                y->name, (long long)samples, (long long)outputs, (long long)outputs,
                (long long)outputs);
    }
    return true;
}

void arrays_labels_warn(const char *name, const int32_t *label, int64_t count, int64_t classes)
{
    int64_t least = classes;
    for (int64_t i = 0; i < count; i++)
        least = smaller(least, label[i]);
    if (least > 0 && least < classes)
        log_warn("data.y=%s: the labels are %lld to %lld, so class 0 of the %lld classes has no "
                 "samples; do the labels count from 1? Then subtract 1 in the file",
                 name, (long long)least, (long long)classes - 1, (long long)classes);
}

void arrays_marks_note(const char *name, const float *marks, int64_t count, int64_t labels)
{
    for (int64_t i = 0; i < count; i++) {
        float sum = 0;
        for (int64_t c = 0; c < labels; c++)
            sum += marks[i * labels + c];
        if (sum != 1)
            return;
    }
    log_info("data.y=%s: each sample has exactly one of the %lld labels; for classes that exclude "
             "each other, single labels [samples] are usual: numpy.argmax(y, axis=1)",
             name, (long long)labels);
}
