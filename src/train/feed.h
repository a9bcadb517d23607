/* A split of the data on its way to the device: data set, sampler, augmentation and loader, opened
 * together as the options say. */
#ifndef VITTRAIN_TRAIN_FEED_H
#define VITTRAIN_TRAIN_FEED_H

#include "comm/comm.h"
#include "data/policy.h"
#include "train/input.h"

struct options;

struct data_feed {
    struct dataset dataset;
    struct sampler sampler;
    struct augment augment;
    struct policy policy;
    struct crop crop;
    struct loader *loader; /* after feed_start */
    struct image_source source;
    bool training;
};

/* The size of images on their way to the device: the data set's, or, where the host cuts and
 * resizes them, the model's. */
struct image_source feed_source(const struct options *options, const struct dataset *dataset);

/* Collective: every rank opens the data set; one message if any cannot, or if they found different
 * data. */
MUST_CHECK bool feed_open(struct data_feed *feed, const struct options *options,
                          enum data_split split, struct comm *world, struct error *error);

/* Collective. Cuts the epoch into global batches of this many samples and starts the loader's
 * threads. Training: shuffled, augmented, accumulated as the options say; else in file order, each
 * sample once. image: the model's image size. */
MUST_CHECK bool feed_start(struct data_feed *feed, const struct options *options,
                           struct comm *world, struct device *device, int64_t global_batch,
                           int64_t image, bool training, struct error *error);
void feed_close(struct data_feed *feed);

/* Samples of all ranks in a step, on so many ranks. */
int64_t feed_global_batch(const struct options *options, int64_t ranks);

/* The most of a global batch that one pass of a rank gets. */
int64_t feed_pass_samples(const struct options *options, int64_t global_batch, int64_t ranks);

/* Host memory of the feeds of a run whose passes have so many samples: batches that are loaded
 * ahead, in training for all splits that it reads. */
size_t feed_bytes(const struct options *options, const struct image_source *source, int64_t batch,
                  bool training);

#endif
