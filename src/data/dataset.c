// SPDX-License-Identifier: BSD-3-Clause
/* Opens a data set: its format, its split (data.val), and a fraction of it (debug.fraction). */
#include "data/dataset.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/base.h"
#include "base/file.h"
#include "base/log.h"
#include "comm/comm.h"
#include "data/split.h"
#include "options/options.h"

static const struct dataset_format *const formats[] = {
    &dataset_cifar10,    &dataset_image_folder, &dataset_synthetic,
    &dataset_webdataset, &dataset_arrays,
};

enum { FORMAT_COUNT = sizeof formats / sizeof formats[0] };

static const char *const split_name[] = {"training", "validation", "test", "predicted"};

static const struct dataset_format *format_find(const char *name, struct error *error)
{
    char known[256] = "";
    for (int i = 0; i < FORMAT_COUNT; i++) {
        if (strcmp(formats[i]->name, name) == 0)
            return formats[i];
        size_t length = strlen(known);
        snprintf(known + length, sizeof known - length, "%s%s", i > 0 ? ", " : "",
                 formats[i]->name);
    }
    const bool is_removed = strcmp(name, "cinic10") == 0;
    error_set(error, ERROR_USAGE, "data.format=%s: unknown format; %s%s", name,
              is_removed ? "use imagefolder with augment.mean and augment.std of "
                           "input/resnet152_cinic10.ini"
                         : "the formats are ",
              is_removed ? "" : known);
    return NULL;
}

/* If the error is set before the format is, no data set is open. */
static bool open_split(struct dataset *dataset, const struct options *options,
                       enum data_split split, struct error *error)
{
    const uint64_t seed = (uint64_t)options->run.seed;
    const int val = options->data.val;
    const bool divides = options_hold_out(options) && split != SPLIT_ALL;
    const char *root = options->data.root;
    if (split == SPLIT_VALIDATION && val == VALIDATION_NONE)
        return error_set(error, ERROR_USAGE,
                         "data.val=none leaves no validation split: set data.val=test, "
                         "data.val=reference or data.val=0.1");
    const struct dataset_format *format = format_find(options->data.format, error);
    if (format == NULL)
        return false;
    if (val == VALIDATION_VAL && !format->splits)
        return error_set(error, ERROR_USAGE,
                         "data.val=val: data.format=%s has no validation split of its own; use "
                         "data.val=test, data.val=reference or data.val=0.1",
                         format->name);
    if (val == VALIDATION_PERIODS && format->find_periods == NULL)
        return error_set(error, ERROR_USAGE,
                         "data.val=%s: samples of data.format=%s have no times; hold out a "
                         "fraction, as in data.val=0.1",
                         options->data.val_periods, format->name);
    dataset->format = format;
    dataset->held_out = divides && split == SPLIT_VALIDATION;
    if (!format->open(options, dataset->held_out ? SPLIT_TRAIN : split, dataset, error))
        return false;
    if (dataset->count > (int64_t)UINT32_MAX)
        return error_set(error, ERROR_DATA, "%lld records are more than the limit of 2^32",
                         (long long)dataset->count);
    if (val == VALIDATION_REFERENCE && split != SPLIT_ALL)
        split_reference(dataset, seed, split);
    const bool by_class = val == VALIDATION_FRACTION && options->data.val_from != VAL_FROM_END;
    const double fraction = options->data.val_fraction;
    if (divides && by_class && dataset->has_offsets && split == SPLIT_TRAIN)
        log_warn("data.val=%g holds out random samples of a time series, which share values with "
                 "training samples (@): data.val_from=end holds out the last ones",
                 fraction);
    if (divides && (split != SPLIT_TEST || dataset->held_out)) {
        if (by_class)
            split_stratified(dataset, fraction, dataset->held_out);
        else if (!split_by_time(dataset, options, dataset->held_out, error))
            return false;
    }
    if (dataset->count == 0)
        return error_set(
            error, ERROR_DATA,
            "the %s split of data.format=%s is empty: use more data or another data.val",
            split_name[split], format->name);
    const int64_t kept = (int64_t)((double)dataset->count * options->debug.fraction + 0.5);
    if (options->debug.fraction < 1)
        split_draw(dataset, seed, 1 + (uint32_t)split, larger(1, kept));
    if (!window_set(dataset, options, split, error))
        return false;
    if (dataset->classes > CLASSES_MOST)
        return error_set(error, ERROR_DATA, "data.root=%s: %lld classes, at most %d are supported",
                         root, (long long)dataset->classes, CLASSES_MOST);
    return split != SPLIT_TRAIN || dataset->classes != 1 || dataset->target.count > 0 ||
           error_set(error, ERROR_DATA, "data.root=%s: one class only: training needs two or more",
                     root);
}

void dataset_begin_open(struct dataset *dataset, struct comm *comm)
{
    *dataset = (struct dataset){.comm = comm,
                                .rank = comm != NULL ? comm->rank : 0,
                                .ranks = comm != NULL ? comm->size : 1};
}

bool dataset_open(struct dataset *dataset, const struct options *options, enum data_split split,
                  struct comm *comm, struct error *error)
{
    dataset_begin_open(dataset, comm);
    error_defer(open_split(dataset, options, split, error));
    const bool good = dataset_agree(dataset, error);
    dataset->comm = NULL;
    dataset->rank = 0;
    dataset->ranks = 1;
    if (!good)
        dataset_close(dataset);
    return good;
}

bool dataset_agree(const struct dataset *dataset, struct error *error)
{
    return dataset->comm != NULL ? comm_agree(dataset->comm, error) : error->kind == ERROR_NONE;
}

bool dataset_describe(struct dataset *dataset, const struct options *options, struct error *error)
{
    const struct dataset_format *format = format_find(options->data.format, error);
    if (format == NULL || format->describe == NULL)
        return format != NULL && dataset_open(dataset, options, SPLIT_TRAIN, NULL, error);
    dataset_begin_open(dataset, NULL);
    format->describe(options, dataset);
    return true;
}

uint32_t dataset_record(const struct dataset *dataset, int64_t index)
{
    index /= larger(1, dataset->tiles);
    return dataset->subset != NULL ? dataset->subset[index] : (uint32_t)index;
}

void dataset_repeat(struct dataset *dataset, int64_t count)
{
    const int64_t tiles = larger(1, dataset->tiles), own = dataset->count / tiles;
    uint32_t *records = allocate((size_t)count, sizeof *records);
    for (int64_t i = 0; i < count; i++)
        records[i] = dataset_record(dataset, i % own * tiles);
    free(dataset->subset);
    dataset->subset = records;
    dataset->count = count * tiles;
}

bool dataset_read(const struct dataset *dataset, int64_t index, void *values, struct error *error)
{
    ENSURE(index >= 0 && index < dataset->count, "sample %lld of %lld", (long long)index,
           (long long)dataset->count);
    if (dataset->format->read_window == NULL)
        return dataset->format->read(dataset, dataset_record(dataset, index), values, error);
    const struct window_tile tile = window_tile_of(dataset, index);
    if (!dataset_read_window(dataset, index, tile.top, tile.left, values, error))
        return false;
    window_mask(dataset, tile, dataset_targets(dataset, values));
    return true;
}

bool dataset_read_window(const struct dataset *dataset, int64_t index, int64_t top, int64_t left,
                         void *values, struct error *error)
{
    return dataset->format->read_window(dataset, dataset_record(dataset, index), top, left, values,
                                        error);
}

int32_t dataset_label(const struct dataset *dataset, int64_t index)
{
    if (dataset->format->label == NULL)
        return 0;
    const int32_t label = dataset->format->label(dataset, dataset_record(dataset, index));
    ENSURE(label == 0 || (label > 0 && label < dataset->classes), "a label out of range");
    return label;
}

/* Return the origin for values with the mean of channel `m` and the standard deviation of channel
 * `s`, which is 1 if they are equal as float32. */
static double origin_of(bool is_wide, const struct channel_values *mean, int64_t m,
                        const struct channel_values *std, int64_t s)
{
    if (!is_wide || m >= mean->count || s >= std->count)
        return 0;
    const double value = mean->value[m], deviation = std->value[s];
    return deviation == 1 || statistics_mean_is_far(value, deviation) ? value : 0;
}

bool dataset_set_origins(struct dataset *dataset, const struct value_statistics *statistics,
                         struct error *error)
{
    for (int64_t c = 0; c < dataset->channels; c++)
        dataset->channel_origin[c] =
            origin_of(dataset->channel_is_wide[c], &statistics->mean, c, &statistics->std, c);
    for (int64_t t = 0; dataset->residual && t < dataset->target.count; t++) {
        const int64_t c = dataset->persistence[t];
        if (dataset->channel_origin[c] == 0)
            dataset->channel_origin[c] = origin_of(dataset->channel_is_wide[c], &statistics->mean,
                                                   c, &statistics->target_std, t);
    }
    for (int64_t t = 0; t < dataset->target.count; t++) {
        const int64_t same = dataset->persistence != NULL ? dataset->persistence[t] : -1;
        dataset->target_origin[t] =
            same >= 0 ? dataset->channel_origin[same]
                      : origin_of(dataset->unlabelled || dataset->target_is_wide[t],
                                  &statistics->target_mean, t, &statistics->target_std, t);
    }
    return dataset_copy_origins(dataset, dataset, error);
}

bool dataset_copy_origins(struct dataset *dataset, const struct dataset *from, struct error *error)
{
    memmove(dataset->channel_origin, from->channel_origin, sizeof dataset->channel_origin);
    memmove(dataset->target_origin, from->target_origin, sizeof dataset->target_origin);
    return dataset->format->use_origins == NULL || dataset->format->use_origins(dataset, error);
}

bool dataset_has_origins(const struct dataset *dataset)
{
    bool found = false;
    for (int c = 0; c < IMAGE_CHANNELS; c++)
        found = found || dataset->channel_origin[c] != 0 || dataset->target_origin[c] != 0;
    return found;
}

void dataset_number_classes(struct dataset *dataset, const char *prefix)
{
    char name[32];
    dataset->class_name = allocate((size_t)dataset->classes, sizeof *dataset->class_name);
    for (int64_t i = 0; i < dataset->classes; i++) {
        snprintf(name, sizeof name, "%s%lld", prefix, (long long)i);
        dataset->class_name[i] = allocate_copy(name);
    }
}

void dataset_name(const struct dataset *dataset, int64_t index, char *text, size_t size)
{
    const uint32_t record = dataset_record(dataset, index);
    if (dataset->format->name_record != NULL)
        dataset->format->name_record(dataset, record, text, size);
    else
        snprintf(text, size, "record %lu", (unsigned long)record);
}

bool dataset_name_error(const struct dataset *dataset, int64_t index, const struct error *reason,
                        struct error *error)
{
    char name[ERROR_TEXT_SIZE / 2];
    dataset_name(dataset, index, name, sizeof name);
    return error_set(error, reason->kind, "%s: %.*s", name, ERROR_TEXT_SIZE / 2 - 3, reason->text);
}

void dataset_close(struct dataset *dataset)
{
    if (dataset->format != NULL)
        dataset->format->close(dataset);
    if (dataset->class_name != NULL)
        for (int64_t i = 0; i < dataset->classes; i++)
            free(dataset->class_name[i]);
    free(dataset->class_name);
    for (int64_t i = 0; dataset->target_name != NULL && i < dataset->target.count; i++)
        free(dataset->target_name[i]);
    free(dataset->target_name);
    free(dataset->variable_bytes);
    free(dataset->persistence);
    free(dataset->row_weights);
    free(dataset->subset);
    *dataset = (struct dataset){0};
}

const char *dataset_sample_directory(void)
{
    static char path[4096];
    (void)folder_installed("data/cifar-10-sample", path, sizeof path);
    return path;
}

/* ---- Transforms of values. */

static float power_of_10(float value)
{
    return powf(10, value);
}

static float square(float value)
{
    return value < 0 ? 0 : value * value;
}

static const struct {
    const char *name;
    float (*apply)(float), (*undo)(float);
} transforms[] = {[TRANSFORM_LOG1P] = {"log1p", log1pf, expm1f},
                  [TRANSFORM_LOG10] = {"log10", log10f, power_of_10},
                  [TRANSFORM_SQRT] = {"sqrt", sqrtf, square}};

enum value_transform value_transform_find(const char *name, size_t length)
{
    int t = TRANSFORM_SQRT;
    while (t > TRANSFORM_NONE &&
           (strlen(transforms[t].name) != length || strncmp(transforms[t].name, name, length) != 0))
        t--;
    return (enum value_transform)t;
}

void value_transform_apply(enum value_transform transform, float *values, int64_t count)
{
    for (int64_t i = 0; transform != TRANSFORM_NONE && i < count; i++)
        if (!isinf(values[i])) {
            const float value = transforms[transform].apply(values[i]);
            values[i] = isfinite(value) ? value : NAN;
        }
}

void value_transform_undo(enum value_transform transform, float *values, int64_t count)
{
    for (int64_t i = 0; transform != TRANSFORM_NONE && i < count; i++)
        values[i] = transforms[transform].undo(values[i]);
}
