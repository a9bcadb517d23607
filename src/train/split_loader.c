// SPDX-License-Identifier: BSD-3-Clause
/* Opens a split of the data and the threads that load it. */
#include "train/split_loader.h"

#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/base.h"
#include "base/log.h"
#include "data/split.h"
#include "options/options.h"

enum { BATCHES_AHEAD = 4 };

struct image_source split_loader_source(const struct options *options,
                                        const struct dataset *dataset)
{
    struct image_source source = {
        .type = dataset->type,
        .channels = dataset->channels,
        .target = dataset->target,
        .rows = window_field(dataset).height,
        .kept_bytes = dataset->kept_bytes,
    };
    if (crop_is_active(options, dataset->encoded))
        return source;
    source.height = dataset->height;
    source.width = dataset->width;
    return source;
}

bool split_loader_open(struct split_loader *feed, const struct options *options,
                       enum data_split split, const char *const *files, int count,
                       struct comm *world, struct error *error)
{
    struct dataset *dataset = &feed->dataset;
    memset(feed, 0, sizeof *feed);
    error_defer(count > 0 ? file_list_open(dataset, options, files, count, world, error)
                          : dataset_open(dataset, options, split, world, error));
    if (!comm_agree(world, error))
        return false;
    const int64_t found[] = {dataset->sum, dataset->seen, dataset->count, dataset->classes};
    if (!comm_same(world, found, sizeof found))
        error_set(error, ERROR_DATA,
                  "%s%s: ranks find different data there: use the same data on all nodes",
                  count > 0 ? "" : "data.root=", count > 0 ? files[0] : options->data.root);
    feed->source = split_loader_source(options, dataset);
    return comm_agree(world, error);
}

void split_loader_use_row_weights(struct split_loader *feed, const float *weights)
{
    struct dataset *dataset = &feed->dataset;
    float *copy = NULL;
    if (weights != NULL) {
        const size_t rows = (size_t)window_field(dataset).height;
        copy = allocate(rows, sizeof *copy);
        memcpy(copy, weights, rows * sizeof *copy);
    }
    free(dataset->row_weights);
    dataset->row_weights = copy;
}

/* Samples of a grain, and those that are mixed with each other, stay on one rank. */
static int64_t sample_group(const struct options *options, int64_t global_batch)
{
    const int64_t grain = options_grain(options, global_batch);
    if (grain > 0)
        return grain; /* a multiple of MIX_GROUP */
    return mix_is_asked_for(options) ? MIX_GROUP : 1;
}

/* Collective. Opens the augmentation and starts the loader's threads. */
static bool loader_begin(struct split_loader *feed, const struct options *options,
                         struct comm *world, struct device *device, struct image_size image,
                         struct error *error)
{
    const bool training = feed->training;
    if (training && policy_is_asked_for(options) && feed->dataset.channels != 3)
        error_set(error, ERROR_USAGE,
                  "augment.rand_augment, brightness, contrast, saturation, hue, greyscale and "
                  "three_augment change red, green and blue, and the images have %lld channels: "
                  "leave them out",
                  (long long)feed->dataset.channels);
    else if (augment_open(&feed->augment, options, image.width, image.height, training, error) &&
             crop_open(&feed->crop, options, feed->dataset.encoded, image, training, error))
        feed->loader = loader_open(&feed->dataset, &feed->sampler, &feed->augment, &feed->crop,
                                   device, (int)options->data.workers, BATCHES_AHEAD, error);
    return comm_agree(world, error);
}

static int64_t chunk_of(const void *dataset, int64_t sample)
{
    const struct dataset *self = dataset;
    return self->format->chunk(self, dataset_record(self, sample));
}

void split_loader_use_blocks(struct sampler *sampler, const struct options *options,
                             const struct dataset *dataset)
{
    if (sampler->shuffle && options->data.shuffle == SHUFFLE_CHUNKS)
        sampler_use_blocks(sampler, chunk_of, dataset);
}

/* Balance the classes of the samples, and log the sizes of the smallest and the largest. */
static void classes_balance(struct sampler *sampler, const struct dataset *dataset)
{
    uint32_t *by_class = allocate((size_t)dataset->count, sizeof *by_class);
    size_t *begin = allocate((size_t)dataset->classes + 2, sizeof *begin);
    size_t classes = 0, least = SIZE_MAX, most = 0;
    split_by_class(dataset, by_class, begin);
    for (int64_t c = 0; c < dataset->classes; c++) {
        const size_t size = begin[c + 1] - begin[c];
        classes += size > 0;
        least = size > 0 && size < least ? size : least;
        most = size > most ? size : most;
    }
    log_info(
        "data.balance: %zu classes of %zu to %zu samples; each sample of the smallest class is "
        "drawn %.3g times per epoch",
        classes, least, most, (double)dataset->count / (double)classes / (double)least);
    sampler_use_classes(sampler, by_class, begin, dataset->classes);
}

bool split_loader_start(struct split_loader *feed, const struct options *options,
                        struct comm *world, struct device *device, int64_t global_batch,
                        int64_t accumulate, struct image_size image, struct error *error)
{
    bool overfit = options->debug.overfit > 0;
    sampler_open(&feed->sampler, (uint64_t)options->run.seed, feed->dataset.count, global_batch,
                 accumulate, options->data.shuffle && !overfit, options->data.drop_last,
                 world->rank, world->size);
    feed->sampler.limit = overfit ? options->debug.overfit : options->debug.batches;
    split_loader_use_blocks(&feed->sampler, options, &feed->dataset);
    if (options->data.balance)
        classes_balance(&feed->sampler, &feed->dataset);
    feed->sampler.group = sample_group(options, global_batch);
    feed->sampler.repeat = options->augment.repeat;
    feed->training = true;
    return loader_begin(feed, options, world, device, image, error);
}

bool split_loader_start_evaluation(struct split_loader *feed, const struct options *options,
                                   struct comm *world, struct device *device, int64_t batch,
                                   struct image_size image, struct error *error)
{
    const int64_t global_batch = split_loader_global_batch(options, world->size);
    const int64_t grain = options_grain(options, global_batch);
    int64_t count = feed->dataset.count, limit = options->debug.batches;
    if (grain > 0) {
        batch -= batch % grain;
        if (limit > 0)
            count = smaller(count, smaller(limit, count) * global_batch);
        limit = 0;
    }
    sampler_open(&feed->sampler, 0, count, batch * world->size, 1, false, false, world->rank,
                 world->size);
    feed->sampler.limit = limit;
    feed->sampler.group = larger(1, grain);
    feed->training = false;
    return loader_begin(feed, options, world, device, image, error);
}

int64_t split_loader_global_batch(const struct options *options, int64_t ranks)
{
    return options->train.global_batch > 0 ? options->train.global_batch
                                           : options->train.batch * ranks;
}

int64_t split_loader_pass_samples(const struct options *options, int64_t global_batch,
                                  int64_t ranks, int64_t accumulate)
{
    const int64_t bound =
        sampler_slice_bound(global_batch, ranks, accumulate, sample_group(options, global_batch));
    return larger(bound, options_grain(options, global_batch));
}

/* Number of splits that a training opens. */
static int split_loader_count(const struct options *options)
{
    return 1 + (options->data.val != VALIDATION_NONE) +
           (options->train.test && options->data.val != VALIDATION_TEST);
}

size_t split_loader_kept_bytes(const struct options *options, const struct dataset *dataset)
{
    const int64_t distinct = options->data.distinct, samples = options->data.samples;
    const int64_t images = smaller(distinct, samples) +
                           (split_loader_count(options) - 1) *
                               smaller(distinct, round_up_division(samples, TRAINING_PER_TEST));
    return (size_t)(images * dataset->channels * dataset->height * dataset->width);
}

size_t split_loader_bytes(const struct options *options, const struct image_source *source,
                          int64_t batch, bool training)
{
    int feeds = training ? split_loader_count(options) : 1;
    size_t sample = image_source_bytes(source);
    size_t planes = training && policy_is_asked_for(options) ? (size_t)options->data.workers : 0;
    return (size_t)feeds * loader_bytes((int64_t)sample, batch, BATCHES_AHEAD) + planes * sample +
           (size_t)source->kept_bytes;
}

void split_loader_close(struct split_loader *feed)
{
    loader_close(feed->loader);
    sampler_close(&feed->sampler);
    if (feed->dataset.format != NULL)
        dataset_close(&feed->dataset);
    memset(feed, 0, sizeof *feed);
}
