/* Which records, whose turn. The global order of an epoch depends on (seed, epoch) only; a global
 * batch is a stretch of it; a rank takes a contiguous slice of each global batch, slices differ by
 * at most one sample (and may be empty), or by one group where samples stay together (of which the
 * batch's last may be short). So no layout changes what is learnt.
 *
 * Shuffling by blocks is for data that lie in one file, on disks that read large stretches faster
 * than single records. Blocks of `block` consecutive samples come in a random order; the samples of
 * SHUFFLE_WINDOW blocks are mixed with each other: a sample's place inside its window is uniformly
 * random, it never leaves it, and while a window lasts only that many places of the file are read.
 * Which samples a global batch has follows from (seed, epoch); inside of it they are in the order
 * of the file, so that each rank's slice, too, lies in a part of the window's blocks: ranks share
 * the reading as they would with a part of the file each, and the layout still changes nothing. */
#ifndef VITTRAIN_DATA_SAMPLER_H
#define VITTRAIN_DATA_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

enum { SHUFFLE_WINDOW = 16, SAMPLER_ORDERS = 2 };

/* The order of one epoch. */
struct sampler_order {
    int64_t epoch;       /* -1: not drawn yet */
    uint32_t *samples;   /* [count] */
    uint32_t *blocks;    /* shuffling by blocks: their numbers in the order in which they come */
    int64_t short_place; /* turn of the data's last block, which may be short */
};

struct sampler {
    uint64_t seed;
    int64_t count; /* samples of the data set */
    int64_t global_batch;
    int64_t accumulate; /* micro-batches of a step; a rank's slice is cut into so many pieces */
    bool shuffle, drop_last;
    int64_t limit; /* global batches an epoch at most, 0: all (debug.batches, .overfit) */
    int64_t block; /* shuffle by blocks of so many samples; 0: all among each other */
    int64_t group; /* samples that no slice parts, counted from the batch's begin; 1 or more */
    int rank, size;
    int64_t block_count;
    struct sampler_order order[SAMPLER_ORDERS]; /* epoch e is in order[e % SAMPLER_ORDERS] */
};

/* Rank's piece number `micro` of a global batch: samples[begin .. begin + count) of the order. */
struct sampler_slice {
    int64_t begin, count;
    int64_t position;     /* of its first sample in the global batch */
    int64_t global_count; /* samples of the whole global batch (the last one may be short) */
};

/* No order is drawn yet; without a limit, in groups of 1. Blocks: see sampler_use_blocks. */
void sampler_open(struct sampler *sampler, uint64_t seed, int64_t count, int64_t global_batch,
                  int64_t accumulate, bool shuffle, bool drop_last, int rank, int size);
void sampler_close(struct sampler *sampler);

/* From here on shuffling is by blocks (block > 0). Called before the first order is drawn. */
void sampler_use_blocks(struct sampler *sampler, int64_t block);

/* Draw the order of an epoch, unless it is there. It replaces the order of epoch - 2 and leaves
 * that of epoch - 1, which other threads may read meanwhile. */
void sampler_draw(struct sampler *sampler, uint32_t epoch);

/* The order of an epoch that was drawn. */
const struct sampler_order *sampler_order_of(const struct sampler *sampler, uint32_t epoch);
int64_t sampler_steps(const struct sampler *sampler); /* of an epoch */
struct sampler_slice sampler_slice_at(const struct sampler *sampler, int64_t step, int64_t micro);

/* Samples of all ranks together in piece `micro` of a global batch of `global_count`; pieces
 * without any come last. */
int64_t sampler_piece_samples(const struct sampler *sampler, int64_t global_count, int64_t micro);

/* With blocks: calls `advise` for blocks (samples first, first + 1, ...) that this rank's slices
 * will need when SHUFFLE_WINDOW more blocks have gone by. Called for each step of an epoch it names
 * each block once; `start`: the epoch is entered at this step, what is needed until then is named,
 * too.
 */
void sampler_ahead(const struct sampler *sampler, uint32_t epoch, int64_t step, bool start,
                   void (*advise)(void *context, int64_t first, int64_t count), void *context);

/* The largest slice that any rank can get: what batches are allocated for. */
int64_t sampler_largest_slice(const struct sampler *sampler);

/* The same of global batches of so many samples, without a sampler. */
int64_t sampler_slice_bound(int64_t global_batch, int64_t size, int64_t accumulate, int64_t group);

#endif
