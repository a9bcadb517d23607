/* Which records, whose turn. The global order of an epoch depends on (seed, epoch) only; a global
 * batch is a stretch of it; a rank takes a contiguous slice of each global batch, slices differ by
 * at most one sample (and may be empty). So no layout changes what is learnt. */
#ifndef VITTRAIN_DATA_SAMPLER_H
#define VITTRAIN_DATA_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

struct sampler {
    uint64_t seed;
    int64_t count;        /* samples of the data set */
    int64_t global_batch;
    int64_t accumulate;   /* micro-batches of a step; a rank's slice is cut into so many pieces */
    bool shuffle, drop_last;
    int64_t limit;        /* global batches an epoch at most, 0: all (debug.batches, .overfit) */
    int rank, size;
    uint32_t epoch;
    uint32_t *order;      /* [count] of `epoch` */
};

/* Rank's piece number `micro` of a global batch: order[begin .. begin + count). */
struct sampler_slice {
    int64_t begin, count;
    int64_t position;     /* of its first sample in the global batch */
    int64_t global_count; /* samples of the whole global batch (the last one may be short) */
};

/* Stands at epoch 0, without a limit. */
void sampler_open(struct sampler *sampler, uint64_t seed, int64_t count, int64_t global_batch,
                  int64_t accumulate, bool shuffle, bool drop_last, int rank, int size);
void sampler_close(struct sampler *sampler);
void sampler_set_epoch(struct sampler *sampler, uint32_t epoch);
int64_t sampler_steps(const struct sampler *sampler); /* of an epoch */
struct sampler_slice sampler_slice_at(const struct sampler *sampler, int64_t step, int64_t micro);

/* Samples of all ranks together in piece `micro` of a global batch of `global_count`; pieces without
 * any come last. */
int64_t sampler_piece_samples(const struct sampler *sampler, int64_t global_count, int64_t micro);

/* The largest slice that any rank can get: what batches are allocated for. */
int64_t sampler_largest_slice(const struct sampler *sampler);

#endif
