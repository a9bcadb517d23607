// SPDX-License-Identifier: BSD-3-Clause
/* Threads that load batches ahead of the training step: pixels, labels and pixel plans in pinned
 * memory. The step takes batches in order and returns them. The threads call neither MPI nor
 * HDF5. */
#ifndef VITTRAIN_DATA_LOADER_H
#define VITTRAIN_DATA_LOADER_H

#include "data/crop.h"
#include "data/dataset.h"
#include "data/sampler.h"
#include "device/device.h"
#include "image/augment.h"

struct batch {
    int64_t count;    /* samples, may be 0 */
    int64_t position; /* of the first sample in the global batch */
    int64_t global_count;
    uint8_t *pixels; /* [count] records: pixels [channels, height, width] of the data set's
                      * type, after cropping, and targets; pinned */
    int64_t record_bytes, target_offset; /* of a record in pixels, and of the targets in it */
    int32_t *labels;                     /* [count] pinned; with dataset->row_weights: the row of
                                          * the field that is a sample's first row */
    struct pixel_plan *plans;            /* [count] pinned */
    struct mix_plan *mixes;              /* [(count + 1) / 2] pinned, if mix_is_on */
    uint32_t *records;                   /* [count]: record numbers */
    struct error error;                  /* if set, a record could not be read */
};

/* Return the targets of a sample, not normalised. data.transform is applied to them until
 * evaluations undo it. NaN is missing. */
static inline const float *batch_targets(const struct batch *batch, int64_t sample)
{
    return (const float *)(const void *)(batch->pixels + sample * batch->record_bytes +
                                         batch->target_offset);
}

/* Plane of a sample's pixels that is the variable of an output at the time of the sample, or NULL.
 */
static inline const float *batch_persistence(const struct batch *batch,
                                             const struct dataset *dataset, int64_t sample,
                                             int64_t output)
{
    const int64_t plane = dataset->target.height * dataset->target.width;
    const int64_t channel = dataset->persistence != NULL ? dataset->persistence[output] : -1;
    if (channel < 0 || plane == 1 || dataset->type != DATASET_FLOAT32)
        return NULL;
    return (const float *)(const void *)(batch->pixels + sample * batch->record_bytes) +
           channel * plane;
}

struct loader;

/* Start the threads. The loader draws the sampler's orders; between loader_start and loader_stop
 * nothing else may change the sampler. If crop is active, the threads decode, crop and resize
 * images. workers >= 1, slots >= 2. */
struct loader *loader_open(struct dataset *dataset, struct sampler *sampler,
                           const struct augment *augment, const struct crop *crop,
                           struct device *device, int workers, int slots, struct error *error);
void loader_close(struct loader *loader);

/* Memory of a loader in bytes, without the scratch of a policy (one sample per worker). */
size_t loader_bytes(int64_t sample_bytes, int64_t capacity, int slots);

/* Load `steps` steps from step `first_step` of an epoch, across epochs if necessary: the first
 * batches of an epoch are loaded while the last ones of the previous epoch are used. Slices come in
 * order of steps and micro-batches. Batches loaded before are discarded. */
void loader_start(struct loader *loader, int64_t epoch, int64_t first_step, int64_t steps);

/* Stop loading and discard batches that were loaded ahead. When it returns, no thread reads the
 * data set or the sampler. */
void loader_stop(struct loader *loader);

/* Return the next batch; add the time spent waiting for it to *waited (seconds). NULL after the
 * last step. The batch is valid until loader_give_back, which must be called in the same order. At
 * most slots - 1 batches may be held. */
struct batch *loader_next(struct loader *loader, double *waited);
void loader_give_back(struct loader *loader, struct batch *batch);

#endif
