// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/arrays.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/base.h"
#include "base/log.h"
#include "base/text.h"

enum { TARGETS_USUAL = 64 }; /* of a sample */

/* ---- names of classes ---- */

/* Read the texts of the attribute class_names, unless it has other values or too many. */
static struct listing names_read(const struct array_path *source, const char *array)
{
    json_t *attributes = array_attributes(source, array);
    const json_t *list = json_object_get(attributes, "class_names");
    const size_t count = json_is_string(list) ? 1 : json_array_size(list);
    struct listing names = {0};
    bool good = count <= CLASSES_MOST;
    for (size_t n = 0; good && n < count; n++) {
        const char *name = json_string_value(json_is_string(list) ? list : json_array_get(list, n));
        good = name != NULL;
        if (good)
            listing_add(&names, name);
    }
    if (!good)
        listing_free(&names);
    json_decref(attributes);
    return names;
}

bool arrays_class_names(struct dataset *dataset, const struct arrays_file *file,
                        struct error *error)
{
    const struct arrays *self = dataset->self;
    const char *y = self->y[0].name;
    struct listing names = names_read(&file->place, y);
    bool good = true;
    if (file == self->file && names.count > 0) {
        OWNED char **sorted = allocate(names.count, sizeof *sorted);
        memcpy(sorted, names.names, names.count * sizeof *sorted);
        qsort(sorted, names.count, sizeof *sorted, listing_compare);
        for (size_t n = 1; n < names.count; n++)
            if (strcmp(sorted[n - 1], sorted[n]) == 0)
                good = error_set(error, ERROR_DATA,
                                 "%s: two classes of '%s' have the name '%s': make the names in "
                                 "its attribute class_names distinct",
                                 file->path, y, sorted[n]);
        dataset->classes = (int64_t)names.count;
        dataset->class_name = names.names;
        return good;
    }
    for (size_t c = 0; good && c < names.count; c++)
        if ((int64_t)c >= dataset->classes || strcmp(dataset->class_name[c], names.names[c]) != 0)
            good = error_set(error, ERROR_DATA,
                             "%s: class %zu is '%s' in the attribute class_names, but the first "
                             "file %s has other names: make them the same",
                             file->path, c, names.names[c], self->file[0].path);
    listing_free(&names);
    return good;
}

/* ---- targets ---- */

static bool target_refuse(const struct dataset *dataset, int64_t record, double value,
                          const char *reason, struct error *error)
{
    char name[ERROR_TEXT_SIZE / 2];
    dataset->format->name_record(dataset, record, name, sizeof name);
    return error_set(error, ERROR_DATA, "%s: its value %g of data.y %s", name, value, reason);
}

/* Name the classes by their numbers, up to `count`, unless the file has names. */
static void classes_name(struct dataset *dataset, int64_t count)
{
    if (dataset->class_name != NULL)
        return;
    dataset->classes = count;
    dataset_number_classes(dataset, "");
}

/* Convert the values to labels. */
static bool labels_set(struct dataset *dataset, const char *y, bool training, struct error *error)
{
    struct arrays *self = dataset->self;
    int64_t classes = 0, least = CLASSES_MOST;
    self->label = allocate((size_t)dataset->count, sizeof *self->label);
    for (int64_t i = 0; i < dataset->count; i++) {
        const float label = self->target[i];
        if (!(label >= 0 && label < CLASSES_MOST && label == floorf(label)))
            return target_refuse(dataset, i, (double)label,
                                 "is no class (0, 1, ...): set data.task=regression to predict "
                                 "numbers",
                                 error);
        if (dataset->class_name != NULL && label >= (float)dataset->classes)
            return target_refuse(dataset, i, (double)label,
                                 "has no name in the attribute class_names", error);
        self->label[i] = (int32_t)label;
        classes = larger(classes, self->label[i] + 1);
        least = smaller(least, self->label[i]);
    }
    free(self->target);
    self->target = NULL;
    dataset->target = (struct target_shape){0};
    classes_name(dataset, classes);
    if (training && least > 0 && strcmp(dataset->class_name[0], "0") == 0)
        log_warn("data.y=%s: the labels are %lld to %lld, so class 0 of the %lld classes has no "
                 "samples; do the labels count from 1? Then subtract 1 in the file",
                 y, (long long)least, (long long)dataset->classes - 1, (long long)dataset->classes);
    return true;
}

/* Check numbers to predict; with data.task=classes, marks of several labels. */
static bool numbers_check(const struct dataset *dataset, const char *y, bool is_regression,
                          bool training, struct error *error)
{
    const float *values = ((const struct arrays *)dataset->self)->target;
    const int64_t outputs = dataset->target.count;
    float sum = 0;
    bool is_single = training && !is_regression; /* each sample has one label */
    for (int64_t i = 0; i < dataset->count * outputs; i++) {
        const float value = values[i];
        if (is_regression && isinf(value))
            return target_refuse(dataset, i / outputs, (double)value,
                                 "is infinite or too large: mark missing values with NaN", error);
        if (!is_regression && value != 0 && value != 1 && !isnan(value))
            return target_refuse(dataset, i / outputs, (double)value,
                                 "is not 0 or 1, as several labels of a sample must be: set "
                                 "data.task=regression to predict numbers",
                                 error);
        sum = i % outputs == 0 ? value : sum + value;
        is_single = is_single && ((i + 1) % outputs != 0 || sum == 1);
    }
    if (is_single)
        log_info("data.y=%s: each sample has exactly one of the %lld labels; for classes that "
                 "exclude each other, single labels [samples] are usual: numpy.argmax(y, axis=1)",
                 y, (long long)outputs);
    return true;
}

/* Return the variable of data.x from which data.residual=on takes the differences of `y`: the same
 * data set at the latest time that is not after the sample. Return NULL if data.x has none. */
static const struct variable *residual_input(const struct arrays *self, const struct variable *y)
{
    const struct variable *last = NULL;
    for (const struct variable *x = self->variable; x < self->y; x++)
        if (strcmp(x->name, y->name) == 0 && variable_steps(self, x) <= 0 &&
            (last == NULL || variable_steps(self, x) > variable_steps(self, last)))
            last = x;
    return last;
}

static bool residual_check(const struct dataset *dataset, struct error *error)
{
    const struct arrays *self = dataset->self;
    for (int v = 0; v < self->y_count; v++) {
        const struct variable *y = &self->y[v], *x = residual_input(self, y);
        char name[VARIABLE_TEXT];
        variable_write(y, name);
        const bool is_number = dataset->target.height * dataset->target.width == 1;
        const char *fault =
            is_number && !dataset->unlabelled ? "has numbers instead of planes; choose planes"
            : x == NULL ? "is not in data.x at the time of the sample or before; add it to data.x"
            : variable_steps(self, x) == variable_steps(self, y)
                ? "is also the last input; choose another time"
                : NULL;
        if (fault != NULL)
            return error_set(error, ERROR_USAGE,
                             "data.residual=on: data.y=%s %s, or leave data.residual out", name,
                             fault);
    }
    return true;
}

/* Name the outputs, and find the channels of the pixels that are the same variables. */
static void outputs_name(struct dataset *dataset)
{
    const struct arrays *self = dataset->self;
    const size_t count = (size_t)dataset->target.count;
    int64_t output = 0;
    dataset->target_name = allocate(count, sizeof *dataset->target_name);
    dataset->variable_bytes = allocate(count, sizeof *dataset->variable_bytes);
    dataset->persistence = allocate(count, sizeof *dataset->persistence);
    for (int v = 0; v < self->y_count; v++)
        for (int64_t c = 0; c < self->y[v].channels; c++, output++) {
            char name[ARRAY_NAME];
            int64_t channel = 0;
            variable_write_channel(self, self->x_count + v, c, name);
            dataset->target_name[output] = allocate_copy(name);
            dataset->variable_bytes[output] = (int64_t)strlen(self->y[v].name);
            dataset->persistence[output] = -1;
            const struct variable *input = residual_input(self, &self->y[v]);
            for (int x = 0; self->has_planes && x < self->x_count; x++) {
                if (&self->variable[x] == input && (dataset->residual || input->offset == 0))
                    dataset->persistence[output] = channel + c;
                channel += self->variable[x].channels;
            }
        }
}

/* Refuse one image [H, W, C] with its mask [H, W], which would be H samples with W targets, and too
 * many targets of a sample, unless model.classes is their number. */
static bool shapes_check(const struct arrays *self, int64_t model_classes, struct error *error)
{
    const struct variable *x = &self->variable[0];
    const int64_t samples = self->series.file[0].samples;
    for (int v = 0; v < self->y_count; v++) {
        const struct variable *y = &self->y[v];
        const int64_t outputs = y->channels;
        if (self->has_planes || variable_find_role(y, ROLE_CHANNEL) < 0 || model_classes == outputs)
            continue;
        if (variable_find_role(x, ROLE_CHANNEL) == GRID_NONE && x->height == outputs &&
            x->width < samples && x->width < outputs)
            return error_set(error, ERROR_DATA,
                             "data.x=%s and data.y=%s have the shapes of one image and its mask, "
                             "and would be %lld samples with %lld targets: give both a first "
                             "dimension of 1, or set model.classes=%lld if they are samples",
                             x->name, y->name, (long long)samples, (long long)outputs,
                             (long long)outputs);
        if (outputs > TARGETS_USUAL && outputs <= IMAGE_CHANNELS)
            return error_set(error, ERROR_DATA,
                             "data.y=%s [%lld, %lld] would be %lld targets of each sample: make a "
                             "plane [samples, height, width], or confirm with model.classes=%lld",
                             y->name, (long long)samples, (long long)outputs, (long long)outputs,
                             (long long)outputs);
    }
    return true;
}

bool arrays_targets_use(struct dataset *dataset, const struct options *options, bool training,
                        struct error *error)
{
    struct arrays *self = dataset->self;
    const int64_t outputs = dataset->target.count;
    const bool is_regression = options->data.task == TASK_REGRESSION;
    const char *y = self->y[0].name;
    const int64_t shape[] = {dataset->count, dataset->channels,      dataset->height,
                             dataset->width, dataset->target.height, outputs};
    if (training && !shapes_check(self, options->model.classes, error))
        return false;
    dataset->sum = crc32c_update(0, shape, sizeof shape);
    if (self->target != NULL)
        dataset->sum = crc32c_update(dataset->sum, self->target,
                                     (size_t)(dataset->count * outputs) * sizeof *self->target);
    dataset->sum =
        crc32c_update(dataset->sum, self->series.sample,
                      (size_t)(dataset->count * self->series.offset_count) * sizeof(uint32_t));
    dataset->residual = options->data.residual;
    if (dataset->residual && !residual_check(dataset, error))
        return false;
    if (dataset->unlabelled)
        return true;
    if (!is_regression && !self->has_planes && outputs == 1)
        return labels_set(dataset, y, training, error);
    if (outputs > IMAGE_CHANNELS)
        return error_set(error, ERROR_DATA, "data.y=%s has %lld outputs, and the most is %d",
                         options->data.y, (long long)outputs, IMAGE_CHANNELS);
    if (!self->has_planes && !numbers_check(dataset, y, is_regression, training, error))
        return false;
    if (!is_regression && self->has_planes) { /* classes of pixels */
        if (outputs != 1)
            return error_set(error, ERROR_DATA,
                             "data.y=%s has %lld planes: with data.task=classes it must have one, "
                             "of class numbers; set data.task=regression to predict numbers",
                             options->data.y, (long long)outputs);
        if (dataset->class_name == NULL && options->model.classes == 0)
            return error_set(error, ERROR_USAGE,
                             "data.y=%s has no attribute class_names: set model.classes to the "
                             "number of classes of its pixels",
                             options->data.y);
        dataset->target_is_class = true;
        classes_name(dataset, options->model.classes);
        return true;
    }
    if (dataset->class_name != NULL && dataset->classes != outputs)
        return error_set(error, ERROR_DATA,
                         "data.y=%s has %lld labels of a sample and %lld names in the attribute "
                         "class_names: make them the same number",
                         options->data.y, (long long)outputs, (long long)dataset->classes);
    dataset->classes = outputs;
    dataset->target_normalised = is_regression;
    outputs_name(dataset);
    return true;
}
