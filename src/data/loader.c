// SPDX-License-Identifier: BSD-3-Clause
/* A ring of batches between worker threads and the training step. Workers claim a few samples of
 * the next incomplete batch at a time, so all workers fill a large batch together and batches
 * complete in order. One mutex guards the shared state; pixels are written outside of it by the
 * worker that claimed them. */
#include "data/loader.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/thread.h"

/* Samples per claim: large compared with the cost of the mutex, small compared with a batch; even,
 * so that pairs stay together. */
enum { CLAIM = 8, EPOCH_BITS = 24 };

struct slot {
    struct batch batch;
    uint32_t epoch;
    int64_t begin;        /* first sample in the epoch's order */
    int64_t unfinished;   /* samples still to be written */
    int64_t error_sample; /* the first sample that could not be read */
};

/* State of one worker thread. */
struct worker {
    struct loader *loader;
    pthread_t thread;
    struct crop_scratch scratch;
};

struct loader {
    struct dataset *dataset;
    struct sampler *sampler;
    const struct augment *augment;
    const struct crop *crop;
    int64_t sample_bytes; /* bytes of a record after cropping */
    struct device *device;
    void *pinned;
    struct slot *slots;
    int64_t slot_count, capacity; /* slots; samples a batch */
    struct worker *workers;
    int worker_count; /* running threads */

    pthread_mutex_t mutex;
    pthread_cond_t work;  /* signalled when work may be available, or at the end */
    pthread_cond_t ready; /* signalled when a batch is complete or no worker busy */
    bool closing;
    int busy;              /* workers that hold a claim, and may read the sampler's order */
    int64_t epoch_batches; /* micro-batches of an epoch */
    int64_t drawn;         /* the epoch whose order is drawn; -1: none */
    /* Micro-batches are numbered through all epochs from 0, the first of epoch 0. */
    int64_t end;        /* of the range of loader_start */
    int64_t filling;    /* the micro-batch whose samples are being claimed */
    int64_t claimed;    /* claimed samples of it */
    int64_t taken;      /* the next micro-batch of loader_next */
    int64_t given_back; /* slots of micro-batches before this one are free */
};

/* Work of one worker: some samples of a batch. */
struct claim {
    struct slot *slot;
    int64_t first, count;
};

static struct slot *slot_of(struct loader *loader, int64_t micro_batch)
{
    return &loader->slots[micro_batch % loader->slot_count];
}

/* Prepare the slot of micro-batch `filling`. */
static void slot_begin(struct loader *loader)
{
    int64_t accumulate = loader->sampler->accumulate;
    int64_t place = loader->filling % loader->epoch_batches;
    struct sampler_slice slice =
        sampler_slice_at(loader->sampler, place / accumulate, place % accumulate);
    struct slot *slot = slot_of(loader, loader->filling);
    ENSURE(slice.count <= loader->capacity, "a batch of %lld samples, room for %lld",
           (long long)slice.count, (long long)loader->capacity);
    slot->epoch = (uint32_t)(loader->filling / loader->epoch_batches);
    slot->begin = slice.begin;
    slot->unfinished = slice.count;
    slot->error_sample = -1;
    slot->batch.count = slice.count;
    slot->batch.position = slice.position;
    slot->batch.global_count = slice.global_count;
    error_clear(&slot->batch.error);
}

/* A worker is no longer busy: loader_stop, or another worker that draws an order, may wait for
 * that. The caller holds the mutex. */
static void worker_end(struct loader *loader)
{
    loader->busy--;
    if (loader->busy > 0)
        return;
    pthread_cond_broadcast(&loader->ready);
    pthread_cond_broadcast(&loader->work);
}

/* Claim the next work, if there is any. The caller holds the mutex; it is released while the order
 * of a new epoch is drawn, which begins when no worker uses the previous one. Empty batches are
 * skipped, since they are already complete. */
static bool claim_next(struct loader *loader, struct claim *claim)
{
    while (loader->filling < loader->end &&
           loader->filling < loader->given_back + loader->slot_count) {
        const int64_t epoch = loader->filling / loader->epoch_batches;
        if (epoch != loader->drawn && loader->busy > 0)
            return false;
        if (epoch != loader->drawn) {
            loader->busy++;
            pthread_mutex_unlock(&loader->mutex);
            sampler_draw(loader->sampler, (uint32_t)epoch);
            pthread_mutex_lock(&loader->mutex);
            loader->drawn = epoch;
            worker_end(loader);
            continue;
        }
        if (loader->claimed == 0)
            slot_begin(loader);
        struct slot *slot = slot_of(loader, loader->filling);
        *claim = (struct claim){slot, loader->claimed,
                                smaller(slot->batch.count - loader->claimed, CLAIM)};
        loader->claimed += claim->count;
        if (loader->claimed == slot->batch.count) {
            loader->filling++;
            loader->claimed = 0;
        }
        if (claim->count > 0)
            return true;
        pthread_cond_broadcast(&loader->ready);
    }
    return false;
}

/* Make the claimed samples. The caller holds the mutex; it is released meanwhile. A batch with an
 * error still passes through the model, since other ranks wait for this one; so its labels and
 * plans must be valid. */
static void claim_fill(struct worker *worker, const struct claim *claim)
{
    struct loader *loader = worker->loader;
    struct slot *slot = claim->slot;
    struct batch *batch = &slot->batch;
    const struct dataset *dataset = loader->dataset;
    const struct crop *crop = loader->crop;
    const int64_t height = crop->active ? crop->image.height : dataset->height;
    const int64_t width = crop->active ? crop->image.width : dataset->width;
    struct error error = {0};
    int64_t failed = -1; /* the first claimed sample that could not be read */
    pthread_mutex_unlock(&loader->mutex);
    for (int64_t i = claim->first; i < claim->first + claim->count; i++) {
        const int64_t sample = loader->sampler->samples[slot->begin + i];
        /* The keys of random numbers differ for each copy of a sample (augment.repeat). */
        const int64_t copy = sampler_copy_at(loader->sampler, slot->begin + i);
        const uint32_t epoch = slot->epoch + ((uint32_t)copy << EPOCH_BITS);
        batch->records[i] = dataset_record(dataset, sample);
        augment_plan(loader->augment, epoch, batch->records[i], &batch->plans[i]);
        if (mix_is_on(loader->augment) && i % MIX_GROUP == 0)
            mix_plan(loader->augment, slot->epoch, (uint32_t)(slot->begin + i),
                     &batch->mixes[i / MIX_GROUP]);
        uint8_t *pixels = batch->pixels + i * loader->sample_bytes;
        struct error reason = {0};
        bool good = crop->active ? crop_sample(crop, dataset, epoch, sample, &worker->scratch,
                                               pixels, &reason)
                                 : dataset_read(dataset, sample, pixels, &reason);
        batch->labels[i] = dataset->row_weights != NULL
                               ? (int32_t)crop_first_row(crop, dataset, epoch, sample)
                               : dataset_label(dataset, sample);
        if (good && policy_is_on(loader->augment)) {
            struct byte_buffer *scratch = &worker->scratch.record;
            good = byte_buffer_reserve(scratch, (size_t)loader->sample_bytes, &reason);
            if (good)
                policy_apply(loader->augment, epoch, batch->records[i], height, width, pixels,
                             scratch->data);
        }
        if (!good && failed < 0) {
            failed = i;
            error = reason;
        }
    }
    pthread_mutex_lock(&loader->mutex);
    if (failed >= 0 && (slot->error_sample < 0 || failed < slot->error_sample)) {
        slot->error_sample = failed;
        slot->batch.error = error;
    }
    slot->unfinished -= claim->count;
    if (slot->unfinished == 0)
        pthread_cond_broadcast(&loader->ready);
}

static void *worker_run(void *argument)
{
    struct worker *worker = argument;
    struct loader *loader = worker->loader;
    struct claim claim;
    pthread_mutex_lock(&loader->mutex);
    while (!loader->closing) {
        if (!claim_next(loader, &claim)) {
            pthread_cond_wait(&loader->work, &loader->mutex);
            continue;
        }
        loader->busy++;
        claim_fill(worker, &claim);
        worker_end(loader);
    }
    pthread_mutex_unlock(&loader->mutex);
    return NULL;
}

/* Offsets in the memory of a slot, which begins with the pixels; each is on a cache line. */
struct slot_layout {
    int64_t labels, plans, mixes, records, bytes;
};

static struct slot_layout slot_lay_out(int64_t sample_bytes, int64_t capacity)
{
    enum { LINE = 64 };
    struct slot_layout layout;
    const int64_t pairs = capacity / MIX_GROUP + 1;
    layout.labels = round_up(capacity * sample_bytes, LINE);
    layout.plans = layout.labels + round_up(capacity * (int64_t)sizeof(int32_t), LINE);
    layout.mixes = layout.plans + round_up(capacity * (int64_t)sizeof(struct pixel_plan), LINE);
    layout.records = layout.mixes + round_up(pairs * (int64_t)sizeof(struct mix_plan), LINE);
    layout.bytes = layout.records + round_up(capacity * (int64_t)sizeof(uint32_t), LINE);
    return layout;
}

size_t loader_bytes(int64_t sample_bytes, int64_t capacity, int slots)
{
    return (size_t)(slots * slot_lay_out(sample_bytes, capacity).bytes);
}

struct loader *loader_open(struct dataset *dataset, struct sampler *sampler,
                           const struct augment *augment, const struct crop *crop,
                           struct device *device, int workers, int slots, struct error *error)
{
    ENSURE(workers >= 1 && slots >= 2, "a loader of %d threads and %d batches", workers, slots);
    ENSURE(crop->active || !dataset->encoded, "image files need a size that they become");
    struct loader *loader = allocate(1, sizeof *loader);
    const int64_t pixels =
        crop->active ? crop->image.height * crop->image.width : dataset->height * dataset->width;
    int64_t largest = sampler_largest_slice(sampler);
    *loader = (struct loader){.dataset = dataset,
                              .sampler = sampler,
                              .augment = augment,
                              .crop = crop,
                              .sample_bytes = (int64_t)(dataset_plane_bytes(dataset, pixels) +
                                                        target_bytes(&dataset->target)),
                              .device = device,
                              .slot_count = slots,
                              .capacity = largest > 0 ? largest : 1,
                              .workers = allocate((size_t)workers, sizeof *loader->workers)};
    pthread_mutex_init(&loader->mutex, NULL);
    pthread_cond_init(&loader->work, NULL);
    pthread_cond_init(&loader->ready, NULL);
    const struct slot_layout layout = slot_lay_out(loader->sample_bytes, loader->capacity);
    loader->slots = allocate((size_t)slots, sizeof *loader->slots);
    loader->pinned =
        device->backend->allocate_pinned(device, (size_t)(slots * layout.bytes), error);
    unsigned char *place = loader->pinned;
    for (int i = 0; place != NULL && i < slots; i++, place += layout.bytes)
        loader->slots[i].batch = (struct batch){
            .pixels = place,
            .record_bytes = loader->sample_bytes,
            .target_offset = loader->sample_bytes - (int64_t)target_bytes(&dataset->target),
            .labels = (int32_t *)(void *)(place + layout.labels),
            .plans = (struct pixel_plan *)(void *)(place + layout.plans),
            .mixes = (struct mix_plan *)(void *)(place + layout.mixes),
            .records = (uint32_t *)(void *)(place + layout.records)};
    int failure = 0;
    while (place != NULL && loader->worker_count < workers && failure == 0) {
        struct worker *worker = &loader->workers[loader->worker_count];
        worker->loader = loader;
        failure = thread_start(&worker->thread, "loader", worker_run, worker);
        loader->worker_count += failure == 0;
    }
    if (failure != 0)
        error_set(
            error, ERROR_MEMORY,
            "cannot start loader thread %d of %d: %s; check the limits of this job (ulimit -u, "
            "ulimit -v) or lower data.workers",
            loader->worker_count + 1, workers, strerror(failure));
    if (loader->worker_count == workers)
        return loader;
    loader_close(loader);
    return NULL;
}

void loader_close(struct loader *loader)
{
    if (loader == NULL)
        return;
    pthread_mutex_lock(&loader->mutex);
    loader->closing = true;
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->mutex);
    for (int i = 0; i < loader->worker_count; i++) {
        pthread_join(loader->workers[i].thread, NULL);
        crop_scratch_free(&loader->workers[i].scratch);
    }
    pthread_cond_destroy(&loader->ready);
    pthread_cond_destroy(&loader->work);
    pthread_mutex_destroy(&loader->mutex);
    if (loader->pinned != NULL)
        loader->device->backend->release_pinned(loader->device, loader->pinned);
    free(loader->slots);
    free(loader->workers);
    free(loader);
}

void loader_stop(struct loader *loader)
{
    pthread_mutex_lock(&loader->mutex);
    ENSURE(loader->taken == loader->given_back, "a batch is still held");
    loader->end = loader->taken;
    while (loader->busy > 0)
        pthread_cond_wait(&loader->ready, &loader->mutex);
    pthread_mutex_unlock(&loader->mutex);
}

void loader_start(struct loader *loader, int64_t epoch, int64_t first_step, int64_t steps)
{
    const struct sampler *sampler = loader->sampler;
    const int64_t epoch_steps = sampler_steps(sampler);
    ENSURE(epoch_steps > 0 && epoch >= 0 && first_step >= 0 && steps >= 0,
           "%lld steps from step %lld of epoch %lld on, with %lld an epoch", (long long)steps,
           (long long)first_step, (long long)epoch, (long long)epoch_steps);
    const int64_t first = epoch * epoch_steps + first_step;
    loader_stop(loader);
    pthread_mutex_lock(&loader->mutex);
    loader->epoch_batches = epoch_steps * sampler->accumulate;
    loader->end = (first + steps) * sampler->accumulate;
    loader->filling = loader->taken = loader->given_back = first * sampler->accumulate;
    loader->claimed = 0;
    loader->drawn = -1;
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->mutex);
}

struct batch *loader_next(struct loader *loader, double *waited)
{
    pthread_mutex_lock(&loader->mutex);
    struct batch *batch = NULL;
    if (loader->taken < loader->end) {
        ENSURE(loader->taken - loader->given_back < loader->slot_count - 1,
               "more than %lld batches are held", (long long)loader->slot_count - 1);
        struct slot *slot = slot_of(loader, loader->taken);
        const double begin = clock_now();
        while (loader->taken == loader->filling || slot->unfinished > 0)
            pthread_cond_wait(&loader->ready, &loader->mutex);
        *waited += clock_now() - begin;
        loader->taken++;
        batch = &slot->batch;
    }
    pthread_mutex_unlock(&loader->mutex);
    return batch;
}

void loader_give_back(struct loader *loader, struct batch *batch)
{
    pthread_mutex_lock(&loader->mutex);
    ENSURE(loader->given_back < loader->taken &&
               batch == &slot_of(loader, loader->given_back)->batch,
           "batches are given back in the order in which they were taken");
    loader->given_back++;
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->mutex);
}
