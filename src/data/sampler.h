// SPDX-License-Identifier: BSD-3-Clause
/* Order of the samples. The global order of an epoch depends on (seed, epoch) only, and a global
 * batch is a contiguous part of it. Each rank takes a contiguous slice of each global batch. Slices
 * differ by at most one sample, or one group if samples stay together, and may be empty. So the
 * results do not depend on the layout.
 *
 * Shuffling by blocks is for files in which several samples are compressed together. Blocks of
 * consecutive samples come in random order, and the samples of SHUFFLE_WINDOW blocks are mixed: the
 * position of a sample inside its window is uniformly random. While a window lasts, only its blocks
 * are read. Inside a global batch the samples are in file order, so each rank's slice covers a part
 * of the window's blocks and the ranks share the reading.
 *
 * Repeated augmentation (Hoffer et al. 2020): a global batch of B samples consists of B / repeat
 * different ones, all of them once, then all once more, and so on. An epoch has as many steps as
 * without it, so it visits only a part of the data.
 *
 * Balanced classes: the draws of all epochs, `count` in each, cycle through the K classes that have
 * samples, so each class has count / K of the draws of an epoch, rounded down or up. Draw d of a
 * class of n samples is sample d % n of the permutation d / n of the class: all of its samples are
 * drawn before one is drawn again, also in different epochs. The draws of an epoch are shuffled. */
#ifndef VITTRAIN_DATA_SAMPLER_H
#define VITTRAIN_DATA_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHUFFLE_WINDOW = 16 };

struct sampler {
    uint64_t seed;
    int64_t count; /* number of samples */
    int64_t global_batch;
    int64_t accumulate; /* micro-batches per step: number of pieces of a rank's slice */
    bool shuffle, drop_last;
    int64_t limit;  /* limit of global batches per epoch; 0: none (debug.batches, debug.overfit) */
    int64_t repeat; /* copies of a sample in a global batch; at least 1 */
    int64_t group;  /* samples that stay in one slice, counted from the beginning of the batch; at
                      least 1 */
    int rank, size;
    int64_t epoch;     /* whose order was drawn; -1: none */
    uint32_t *samples; /* [count] the order */
    /* Shuffling by blocks: */
    int64_t block_count;   /* 0: shuffle all samples */
    uint32_t *block_begin; /* [block_count + 1] first sample of each block */
    /* Balanced classes: */
    int64_t class_count; /* classes that have samples; 0: classes are not balanced */
    uint32_t *by_class;  /* [count] samples ordered by class */
    size_t *class_begin; /* [class_count + 1] first index of each class in by_class */
    uint8_t *copies;     /* [count] by position: earlier draws of the sample in the epoch, modulo
                          * 256. Each copy has its own random numbers. */
};

/* Piece `micro` of a rank's slice: samples[begin .. begin + count) of the order. */
struct sampler_slice {
    int64_t begin, count;
    int64_t position;     /* index of its first sample in the global batch */
    int64_t global_count; /* size of the global batch; the last one may be short */
};

/* Initialize without an order, a limit, repetitions or groups. Blocks: see sampler_use_blocks. */
void sampler_open(struct sampler *sampler, uint64_t seed, int64_t count, int64_t global_batch,
                  int64_t accumulate, bool shuffle, bool drop_last, int rank, int size);
void sampler_close(struct sampler *sampler);

/* Shuffle by blocks: consecutive samples with the same result of block_of are one. Call it before
 * the first order is drawn. */
void sampler_use_blocks(struct sampler *sampler,
                        int64_t (*block_of)(const void *context, int64_t sample),
                        const void *context);

/* Balance the classes. The samples of class c of `classes` are by_class[begin[c]] to begin[c + 1];
 * some classes may have none. The sampler frees both arrays. Call it before the first order is
 * drawn. */
void sampler_use_classes(struct sampler *sampler, uint32_t *by_class, size_t *begin,
                         int64_t classes);

/* Draw the order of an epoch, unless it is present. It replaces that of another epoch. */
void sampler_draw(struct sampler *sampler, uint32_t epoch);

/* Return the number of the copy, from 0, that a position of the order contains. */
int64_t sampler_copy_at(const struct sampler *sampler, int64_t position);
int64_t sampler_steps(const struct sampler *sampler); /* steps of an epoch */
struct sampler_slice sampler_slice_at(const struct sampler *sampler, int64_t step, int64_t micro);

/* Samples in piece `micro` of all ranks' slices of a global batch of `global_count`; empty pieces
 * come last. */
int64_t sampler_piece_samples(const struct sampler *sampler, int64_t global_count, int64_t micro);

/* Return the size of the largest slice of any rank, for allocating batches. */
int64_t sampler_largest_slice(const struct sampler *sampler);

/* The same without a sampler, for this global batch. */
int64_t sampler_slice_bound(int64_t global_batch, int64_t size, int64_t accumulate, int64_t group);

#endif
