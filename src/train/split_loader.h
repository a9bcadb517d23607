// SPDX-License-Identifier: BSD-3-Clause
/* Delivers a split of the data: data set, sampler, augmentation and loader as the options
 * specify. */
#ifndef VITTRAIN_TRAIN_SPLIT_LOADER_H
#define VITTRAIN_TRAIN_SPLIT_LOADER_H

#include "comm/comm.h"
#include "image/augment.h"
#include "train/batch_upload.h"

struct options;

struct split_loader {
    struct dataset dataset;
    struct sampler sampler;
    struct augment augment;
    struct crop crop;
    struct loader *loader; /* after split_loader_start */
    struct image_source source;
    bool training;
};

/* Returns the size of the uploaded images: that of the data set, or 0 x 0 if the host crops and
 * resizes them to the model's size. */
struct image_source split_loader_source(const struct options *options,
                                        const struct dataset *dataset);

/* Collective. Opens the data set, or, if count > 0, files, folders and lists of images
 * (data/dataset.h) instead. Fails on all ranks if one rank cannot open it or if ranks have
 * different data. */
MUST_CHECK bool split_loader_open(struct split_loader *feed, const struct options *options,
                                  enum data_split split, const char *const *files, int count,
                                  struct comm *world, struct error *error);

/* Use these weights of rows, those of the training samples (dataset.h); NULL: none. */
void split_loader_use_row_weights(struct split_loader *feed, const float *weights);

/* Let a sampler that shuffles do so by blocks if the options specify it. */
void split_loader_use_blocks(struct sampler *sampler, const struct options *options,
                             const struct dataset *dataset);

/* Collective. Divides the epoch into global batches and starts the loader's threads. Samples are
 * shuffled and augmented as the options specify. accumulate: micro-batches of a global batch.
 * image: the model's image size. */
MUST_CHECK bool split_loader_start(struct split_loader *feed, const struct options *options,
                                   struct comm *world, struct device *device, int64_t global_batch,
                                   int64_t accumulate, struct image_size image,
                                   struct error *error);

/* Collective. Starts the loader for evaluations: passes of up to `batch` samples in file order,
 * each sample once. With train.exact=layout, a pass has whole grains, counted from the beginning of
 * the split, and `batch` must be at least one grain. */
MUST_CHECK bool split_loader_start_evaluation(struct split_loader *feed,
                                              const struct options *options, struct comm *world,
                                              struct device *device, int64_t batch,
                                              struct image_size image, struct error *error);
void split_loader_close(struct split_loader *feed);

/* Returns the samples of a step on `ranks` ranks. */
int64_t split_loader_global_batch(const struct options *options, int64_t ranks);

/* Returns the largest number of samples in one pass of a rank, at least one grain with
 * train.exact=layout. */
int64_t split_loader_pass_samples(const struct options *options, int64_t global_batch,
                                  int64_t ranks, int64_t accumulate);

/* Returns the bytes of the images of data.distinct in training, for all splits of the run. */
size_t split_loader_kept_bytes(const struct options *options, const struct dataset *dataset);

/* Returns the host memory of batches that are loaded ahead, in bytes: for passes of `batch`
 * samples, in training for all splits of the run. */
size_t split_loader_bytes(const struct options *options, const struct image_source *source,
                          int64_t batch, bool training);

#endif
