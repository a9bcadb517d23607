// SPDX-License-Identifier: BSD-3-Clause
/* Synthetic images of any shape, the same on every rank and machine: half noise of the sample and
 * half a coarse pattern of its class, so that a model can learn. For regression: random numbers (20
 * by default) and a random target. With model.head=dense, a pixel has the class of the image where
 * its pattern is bright, else class 0. float32 values are computed from the same bytes. In memory
 * are the patterns, and data.distinct images. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/base.h"
#include "base/launcher.h"
#include "base/random.h"
#include "base/sensors.h"
#include "data/dataset.h"
#include "options/options.h"

enum { CELLS = 8, CELL_COUNT = CELLS * CELLS }; /* a pattern has CELLS x CELLS cells per channel */
enum { LAYER_SAMPLE = 0, LAYER_PATTERN = 1 };
enum { REGRESSION_CHANNELS = 20, TARGET_BITS = 24 };

struct synthetic {
    uint64_t seed;
    uint32_t first;    /* first record of the split; splits are disjoint */
    uint8_t *patterns; /* [classes, channels, CELLS, CELLS] */
    uint8_t *images;   /* [distinct, channels, height, width]; NULL: draw each record when read */
    int64_t distinct;  /* record i equals record i % distinct */
};

/* Fill bytes from blocks `block`, `block` + 1, ... of a stream. */
static void draw_bytes(uint64_t seed, uint32_t layer, uint32_t index, uint32_t block,
                       uint8_t *bytes, int64_t count)
{
    for (int64_t done = 0; done < count; block++) {
        struct random_block random =
            random_block_at(seed, RANDOM_SYNTHETIC, layer, 0, index, block);
        for (int i = 0; i < 16 && done < count; i++, done++)
            bytes[done] = (uint8_t)(random.word[i / 4] >> (8 * (i % 4)));
    }
}

static void synthetic_describe(const struct options *options, struct dataset *dataset)
{
    bool regression = options->data.task == TASK_REGRESSION;
    dataset->channels = options->model.channels > 0 ? options->model.channels
                        : regression                ? REGRESSION_CHANNELS
                                                    : 3;
    dataset->height = dataset->width = regression ? 1 : options->data.image;
    dataset->type = options->data.values == VALUES_FLOAT32 ? DATASET_FLOAT32 : DATASET_UINT8;
    dataset->classes = regression ? 1 : options->data.classes;
    dataset->target_is_class = !regression && options->model.head == HEAD_DENSE;
    if (regression || dataset->target_is_class)
        dataset->target = (struct target_shape){1, dataset->height, dataset->width};
}

/* Mix the class's pattern into one channel of noise. */
static void add_pattern(uint8_t *pixels, int64_t height, int64_t width, const uint8_t *pattern)
{
    for (int64_t y = 0; y < height; y++) {
        const uint8_t *cells = pattern + (y * CELLS / height) * CELLS;
        uint8_t *row = pixels + y * width;
        for (int64_t cell = 0; cell < CELLS; cell++) {
            int64_t end = (cell + 1) * width / CELLS;
            for (int64_t x = cell * width / CELLS; x < end; x++)
                row[x] = (uint8_t)((row[x] + cells[cell]) / 2);
        }
    }
}

/* Return the random number of a sample from which its label or target is drawn. */
static uint32_t sample_number(const struct dataset *dataset, uint32_t sample)
{
    const struct synthetic *self = dataset->self;
    return random_block_at(self->seed, RANDOM_SYNTHETIC, LAYER_SAMPLE, 0, sample, 0).word[0];
}

static int32_t label_draw(const struct dataset *dataset, uint32_t sample)
{
    return (int32_t)(((uint64_t)sample_number(dataset, sample) * (uint64_t)dataset->classes) >> 32);
}

static void target_draw(const struct dataset *dataset, uint32_t sample, int32_t label,
                        float *target)
{
    const struct synthetic *self = dataset->self;
    const uint8_t *pattern = self->patterns + label * dataset->channels * CELL_COUNT;
    const int64_t height = dataset->height, width = dataset->width;
    if (!dataset->target_is_class)
        *target =
            (float)(sample_number(dataset, sample) >> (32 - TARGET_BITS)) / (1 << TARGET_BITS);
    for (int64_t i = 0; dataset->target_is_class && i < height * width; i++) {
        const int64_t cell = i / width * CELLS / height * CELLS + i % width * CELLS / width;
        target[i] = pattern[cell] > UINT8_MAX / 2 ? (float)label : 0;
    }
}

static void pixels_draw(const struct dataset *dataset, uint32_t sample, int32_t label,
                        uint8_t *pixels)
{
    const struct synthetic *self = dataset->self;
    int64_t plane = dataset->height * dataset->width;
    draw_bytes(self->seed, LAYER_SAMPLE, sample, 1, pixels, dataset->channels * plane);
    if (dataset->target.count > 0 && !dataset->target_is_class)
        return;
    const uint8_t *pattern = self->patterns + label * dataset->channels * CELL_COUNT;
    for (int64_t channel = 0; channel < dataset->channels; channel++)
        add_pattern(pixels + channel * plane, dataset->height, dataset->width,
                    pattern + channel * CELL_COUNT);
}

/* Bytes of a record before values_spread. */
static size_t levels_bytes(const struct dataset *dataset)
{
    return (size_t)(dataset->channels * dataset->height * dataset->width);
}

/* Convert the levels at the end of `values` to float32 in place: each channel has its own offset
 * and scale, and one value of 256 is missing. */
static void values_spread(const struct dataset *dataset, uint32_t sample, float *values)
{
    const int64_t plane = dataset->height * dataset->width;
    const uint8_t *levels =
        (const uint8_t *)(values + dataset->channels * plane) - levels_bytes(dataset);
    for (int64_t i = 0; i < dataset->channels * plane; i++) {
        const int channel = (int)(i / plane);
        const uint32_t mixed = ((uint32_t)i * 2654435761u) ^ (sample * 40503u << 16);
        const float value =
            ldexpf((float)levels[i] / 128 - 1, channel % 11 - 5) + (float)(channel % 3 * 10);
        values[i] = mixed >> 24 == 0 ? NAN : value;
    }
}

static uint32_t sample_of(const struct synthetic *self, int64_t record)
{
    return self->first + (uint32_t)(record % self->distinct);
}

static bool synthetic_open(const struct options *options, enum data_split split,
                           struct dataset *dataset, struct error *error)
{
    int64_t training = options->data.samples;
    int64_t test = round_up_division(training, TRAINING_PER_TEST);
    bool all = options->data.val == VALIDATION_REFERENCE;
    struct synthetic *self = dataset->self = allocate(1, sizeof *self);
    synthetic_describe(options, dataset);
    dataset->count = all ? training + test : split == SPLIT_TRAIN ? training : test;
    int64_t pattern = dataset->channels * CELL_COUNT;
    self->patterns = allocate((size_t)dataset->classes, (size_t)pattern);
    dataset_number_classes(dataset, "class ");
    self->seed = (uint64_t)options->run.seed;
    self->first = all || split == SPLIT_TRAIN ? 0 : (uint32_t)training;
    for (int64_t i = 0; i < dataset->classes; i++)
        draw_bytes(self->seed, LAYER_PATTERN, (uint32_t)i, 0, self->patterns + i * pattern,
                   pattern);
    self->distinct = dataset->count;
    if (options->data.distinct == 0)
        return true;
    self->distinct = smaller(options->data.distinct, dataset->count);
    const size_t bytes = levels_bytes(dataset);
    const size_t available = memory_available("") / (size_t)larger(launcher_local_size(), 1);
    if (available > 0 && (size_t)self->distinct > available / bytes)
        return error_set(error, ERROR_MEMORY,
                         "no memory for %lld images of %zu bytes (%zu MiB are available to a "
                         "rank): lower data.distinct",
                         (long long)self->distinct, bytes, available >> 20);
    self->images = allocate((size_t)self->distinct, bytes);
    for (int64_t i = 0; i < self->distinct; i++) {
        const uint32_t sample = sample_of(self, i);
        pixels_draw(dataset, sample, label_draw(dataset, sample), self->images + (size_t)i * bytes);
    }
    return true;
}

static int32_t synthetic_label(const struct dataset *dataset, int64_t record)
{
    return label_draw(dataset, sample_of(dataset->self, record));
}

static bool synthetic_read(const struct dataset *dataset, int64_t record, void *values,
                           struct error *error)
{
    (void)error;
    const struct synthetic *self = dataset->self;
    const uint32_t sample = sample_of(self, record);
    const int32_t label = label_draw(dataset, sample);
    const size_t bytes = levels_bytes(dataset);
    uint8_t *levels = (uint8_t *)values + bytes * dataset_value_size(dataset->type) - bytes;
    if (self->images != NULL)
        memcpy(levels, self->images + (sample - self->first) * bytes, bytes);
    else
        pixels_draw(dataset, sample, label, levels);
    if (dataset->type == DATASET_FLOAT32)
        values_spread(dataset, sample, values);
    if (dataset->target.count > 0)
        target_draw(dataset, sample, label, dataset_targets(dataset, values));
    return true;
}

static void synthetic_close(struct dataset *dataset)
{
    struct synthetic *self = dataset->self;
    free(self->patterns);
    free(self->images);
    free(self);
}

const struct dataset_format dataset_synthetic = {
    .name = "synthetic",
    .open = synthetic_open,
    .describe = synthetic_describe,
    .read = synthetic_read,
    .label = synthetic_label,
    .close = synthetic_close,
};
