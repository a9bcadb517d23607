// SPDX-License-Identifier: BSD-3-Clause
/* The order of an epoch and each rank's share of it. */
#include "data/sampler.h"

#include <stdlib.h>

#include "base/allocate.h"
#include "base/base.h"
#include "base/error.h"
#include "base/random.h"

static uint32_t *numbers_allocate(int64_t count)
{
    return allocate((size_t)count, sizeof(uint32_t));
}

void sampler_open(struct sampler *sampler, uint64_t seed, int64_t count, int64_t global_batch,
                  int64_t accumulate, bool shuffle, bool drop_last, int rank, int size)
{
    ENSURE(count >= 0 && count <= (int64_t)UINT32_MAX, "a data set of %lld samples",
           (long long)count);
    ENSURE(global_batch > 0 && accumulate > 0 && rank >= 0 && rank < size,
           "global batch %lld in %lld pieces for rank %d of %d", (long long)global_batch,
           (long long)accumulate, rank, size);
    *sampler = (struct sampler){
        .seed = seed,
        .count = count,
        .global_batch = global_batch,
        .accumulate = accumulate,
        .shuffle = shuffle,
        .drop_last = drop_last,
        .repeat = 1,
        .group = 1,
        .rank = rank,
        .size = size,
        .epoch = -1,
        .samples = numbers_allocate(count),
    };
}

void sampler_close(struct sampler *sampler)
{
    free(sampler->samples);
    free(sampler->block_begin);
    free(sampler->by_class);
    free(sampler->class_begin);
    free(sampler->copies);
    *sampler = (struct sampler){.epoch = -1};
}

void sampler_use_blocks(struct sampler *sampler,
                        int64_t (*block_of)(const void *context, int64_t sample),
                        const void *context)
{
    int64_t blocks = 0;
    ENSURE(sampler->shuffle && sampler->block_count == 0 && sampler->epoch < 0,
           "blocks of samples are set twice, or after an epoch was drawn");
    sampler->block_begin = numbers_allocate(sampler->count + 1);
    for (int64_t i = 0, before = -1; i < sampler->count; i++) {
        const int64_t block = block_of(context, i);
        if (i == 0 || block != before)
            sampler->block_begin[blocks++] = (uint32_t)i;
        before = block;
    }
    sampler->block_begin[blocks] = (uint32_t)sampler->count;
    sampler->block_count = blocks;
}

void sampler_use_classes(struct sampler *sampler, uint32_t *by_class, size_t *begin,
                         int64_t classes)
{
    ENSURE(sampler->shuffle && sampler->block_count == 0 && sampler->class_count == 0 &&
               sampler->repeat == 1 && sampler->epoch < 0,
           "the classes of samples cannot be balanced");
    for (int64_t c = 0; c < classes; c++)
        if (begin[c + 1] > begin[c])
            begin[sampler->class_count++] = begin[c];
    begin[sampler->class_count] = (size_t)sampler->count;
    sampler->by_class = by_class;
    sampler->class_begin = begin;
    sampler->copies = allocate((size_t)sampler->count, sizeof *sampler->copies);
}

/* Write the draws of class c at their positions among the unshuffled draws of the epoch. permuted:
 * buffer for a permutation of the class. */
static void class_draw(const struct sampler *sampler, uint64_t c, uint32_t *drawn, uint8_t *copies,
                       uint32_t *permuted)
{
    const uint64_t count = (uint64_t)sampler->count, classes = (uint64_t)sampler->class_count;
    const uint64_t size = sampler->class_begin[c + 1] - sampler->class_begin[c];
    const uint64_t before = (uint64_t)sampler->epoch * count; /* draws of earlier epochs */
    const uint64_t begin = (c + classes - before % classes) % classes;
    const uint64_t first = (before + begin) / classes / size;
    uint64_t pass = UINT64_MAX; /* number of the permutation */
    for (uint64_t i = begin; i < count; i += classes) {
        const uint64_t draw = (before + i) / classes;
        if (draw / size != pass) {
            pass = draw / size;
            random_permutation(sampler->seed, RANDOM_BALANCE, (uint32_t)(pass * classes + c),
                               (uint32_t)size, permuted);
        }
        drawn[i] = sampler->by_class[sampler->class_begin[c] + permuted[draw % size]];
        copies[i] = (uint8_t)(pass - first);
    }
}

/* Draw each class, and shuffle the draws. */
static void classes_draw(struct sampler *sampler)
{
    OWNED uint32_t *drawn = numbers_allocate(sampler->count);
    OWNED uint32_t *permuted = numbers_allocate(sampler->count);
    OWNED uint8_t *copies = allocate((size_t)sampler->count, sizeof *copies);
    for (int64_t c = 0; c < sampler->class_count; c++)
        class_draw(sampler, (uint64_t)c, drawn, copies, permuted);
    random_permutation(sampler->seed, RANDOM_SHUFFLE, (uint32_t)sampler->epoch,
                       (uint32_t)sampler->count, sampler->samples);
    for (int64_t i = 0; i < sampler->count; i++) {
        const uint32_t draw = sampler->samples[i];
        sampler->samples[i] = drawn[draw];
        sampler->copies[i] = copies[draw];
    }
}

/* Write the samples block by block, and mix those of each window: a permutation of all positions,
 * visited in order, yields a permutation of each window's positions. */
static void blocks_draw(struct sampler *sampler)
{
    const uint32_t count = (uint32_t)sampler->count, epoch = (uint32_t)sampler->epoch;
    OWNED uint32_t *blocks = numbers_allocate(sampler->block_count);
    OWNED uint32_t *next = numbers_allocate(sampler->block_count); /* position of each window */
    OWNED uint32_t *samples = numbers_allocate(count);
    OWNED uint32_t *window_of = numbers_allocate(count);
    OWNED uint32_t *draw = numbers_allocate(count);
    uint32_t position = 0;
    random_permutation(sampler->seed, RANDOM_SHUFFLE_BLOCKS, epoch, (uint32_t)sampler->block_count,
                       blocks);
    for (uint32_t place = 0; place < sampler->block_count; place++) {
        const uint32_t *begin = &sampler->block_begin[blocks[place]];
        if (place % SHUFFLE_WINDOW == 0)
            next[place / SHUFFLE_WINDOW] = position;
        for (uint32_t i = begin[0]; i < begin[1]; i++) {
            window_of[position] = place / SHUFFLE_WINDOW;
            samples[position++] = i;
        }
    }
    random_permutation(sampler->seed, RANDOM_SHUFFLE_WINDOW, epoch, count, draw);
    for (uint32_t i = 0; i < count; i++)
        sampler->samples[next[window_of[draw[i]]]++] = samples[draw[i]];
}

/* Return the number of different samples in a global batch. */
static int64_t batch_samples(const struct sampler *sampler)
{
    return round_up_division(sampler->global_batch, sampler->repeat);
}

int64_t sampler_copy_at(const struct sampler *sampler, int64_t position)
{
    if (sampler->copies != NULL)
        return sampler->copies[position];
    return position % sampler->global_batch / batch_samples(sampler);
}

void sampler_draw(struct sampler *sampler, uint32_t epoch)
{
    uint32_t count = (uint32_t)sampler->count;
    if (sampler->epoch == epoch)
        return;
    sampler->epoch = epoch;
    if (sampler->block_count > 0) {
        blocks_draw(sampler);
        for (int64_t begin = 0; begin < sampler->count; begin += sampler->global_batch) {
            const int64_t left = sampler->count - begin;
            qsort(sampler->samples + begin, (size_t)smaller(sampler->global_batch, left),
                  sizeof *sampler->samples, compare_uint32);
        }
        return;
    }
    if (sampler->class_count > 0) {
        classes_draw(sampler);
        return;
    }
    if (sampler->shuffle)
        random_permutation(sampler->seed, RANDOM_SHUFFLE, epoch, count, sampler->samples);
    else
        for (uint32_t i = 0; i < count; i++)
            sampler->samples[i] = i;
    /* Repeat samples in place. The loop runs backwards, because each sample is copied from its own
     * index or a lower one. */
    const int64_t batch = sampler->global_batch, different = batch_samples(sampler);
    for (int64_t i = sampler->count - 1; i >= 0; i--)
        sampler->samples[i] = sampler->samples[i / batch * different + i % batch % different];
}

int64_t sampler_steps(const struct sampler *sampler)
{
    int64_t steps = sampler->drop_last ? sampler->count / sampler->global_batch
                                       : round_up_division(sampler->count, sampler->global_batch);
    return sampler->limit > 0 ? smaller(steps, sampler->limit) : steps;
}

struct sampler_slice sampler_slice_at(const struct sampler *sampler, int64_t step, int64_t micro)
{
    ENSURE(step >= 0 && step < sampler_steps(sampler) && micro >= 0 && micro < sampler->accumulate,
           "step %lld of %lld, piece %lld of %lld", (long long)step,
           (long long)sampler_steps(sampler), (long long)micro, (long long)sampler->accumulate);
    int64_t batch_begin = step * sampler->global_batch;
    int64_t global_count = smaller(sampler->global_batch, sampler->count - batch_begin);
    int64_t rank_begin, rank_count, piece_begin, piece_count;
    int64_t group = sampler->group, groups = round_up_division(global_count, group);
    cut_evenly(groups, sampler->size, sampler->rank, &rank_begin, &rank_count);
    cut_evenly(rank_count, sampler->accumulate, micro, &piece_begin, &piece_count);
    int64_t position = smaller((rank_begin + piece_begin) * group, global_count);
    return (struct sampler_slice){.begin = batch_begin + position,
                                  .count = smaller(piece_count * group, global_count - position),
                                  .position = position,
                                  .global_count = global_count};
}

/* The last group may be short; it is in the last non-empty piece of the last rank. */
int64_t sampler_piece_samples(const struct sampler *sampler, int64_t global_count, int64_t micro)
{
    int64_t groups = round_up_division(global_count, sampler->group);
    int64_t last_slice = groups < sampler->size ? 1 : groups / sampler->size;
    int64_t lacking = groups * sampler->group - global_count;
    int64_t larger = groups % sampler->size, begin, piece, larger_piece;
    cut_evenly(groups / sampler->size, sampler->accumulate, micro, &begin, &piece);
    cut_evenly(groups / sampler->size + 1, sampler->accumulate, micro, &begin, &larger_piece);
    int64_t samples = (larger * larger_piece + (sampler->size - larger) * piece) * sampler->group;
    return micro == smaller(last_slice, sampler->accumulate) - 1 ? samples - lacking : samples;
}

int64_t sampler_slice_bound(int64_t global_batch, int64_t size, int64_t accumulate, int64_t group)
{
    int64_t groups = round_up_division(global_batch, group);
    return smaller(global_batch,
                   group * round_up_division(round_up_division(groups, size), accumulate));
}

int64_t sampler_largest_slice(const struct sampler *sampler)
{
    return sampler_slice_bound(smaller(sampler->global_batch, sampler->count), sampler->size,
                               sampler->accumulate, sampler->group);
}
