/* Fills a ring of batches ahead of the step with threads: uint8 pixels, labels and pixel plans in
 * pinned memory. The step takes batches in order and gives them back. The threads call neither MPI
 * nor HDF5. */
#ifndef VITTRAIN_DATA_LOADER_H
#define VITTRAIN_DATA_LOADER_H

#include "data/augment.h"
#include "data/crop.h"
#include "data/dataset.h"
#include "data/sampler.h"
#include "device/device.h"

struct batch {
    int64_t count;    /* samples, may be 0 */
    int64_t position; /* in the global batch */
    int64_t global_count;
    uint8_t *pixels;          /* [count, channels, height, width] pinned, as crop delivers them */
    int32_t *labels;          /* [count] pinned */
    struct pixel_plan *plans; /* [count] pinned */
    struct mix_plan *mixes;   /* [(count + 1) / 2] pinned, where augment->mix is on */
    uint32_t *records;        /* [count]: record numbers */
    struct error error;       /* kind != ERROR_NONE: a record could not be read, its label is 0 */
};

struct loader;

/* The loader draws the sampler's orders. Between loader_start and loader_stop nobody else changes
 * the sampler. Where crop is active, the threads decode, cut and resize images. workers >= 1
 * threads, slots >= 2 batches. */
struct loader *loader_open(struct dataset *dataset, struct sampler *sampler,
                           const struct augment *augment, const struct crop *crop,
                           struct device *device, int workers, int slots, struct error *error);
void loader_close(struct loader *loader);

/* Memory of a loader without a policy: so many batches of at most `capacity` samples. A policy
 * takes a sample's bytes for each worker. */
size_t loader_bytes(int64_t sample_bytes, int64_t capacity, int slots);

/* Load `steps` steps from step `first_step` of an epoch on, through as many epochs as that takes:
 * the first batches of an epoch are loaded while the last ones of the epoch before are used. Slices
 * come in order: step by step, micro-batch by micro-batch. Batches loaded before are dropped. */
void loader_start(struct loader *loader, int64_t epoch, int64_t first_step, int64_t steps);

/* End the steps here: batches loaded ahead are dropped. Returns when no thread reads the data set
 * or the sampler any more. */
void loader_stop(struct loader *loader);

/* The next batch; waits when it is not ready and adds the wait to *waited (seconds). NULL after the
 * last step. Valid until loader_give_back, in the order taken. At most slots - 1 may be held at a
 * time. */
struct batch *loader_next(struct loader *loader, double *waited);
void loader_give_back(struct loader *loader, struct batch *batch);

#endif
