/* The order of an epoch and each rank's share of it. */
#include "data/sampler.h"

#include <stdlib.h>

#include "core/error.h"
#include "core/random.h"

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t round_up_division(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Piece `part` of `count` things cut into `parts` contiguous pieces; the first count % parts pieces
 * are one larger. */
static void cut(int64_t count, int64_t parts, int64_t part, int64_t *begin, int64_t *length)
{
    int64_t size = count / parts, larger = count % parts;
    *begin = part * size + smaller(part, larger);
    *length = size + (part < larger);
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
        .rank = rank,
        .size = size,
        .order = malloc(((size_t)count + 1) * sizeof *sampler->order),
    };
    ENSURE(sampler->order != NULL, "no memory for the order of %lld samples", (long long)count);
    sampler_set_epoch(sampler, 0);
}

void sampler_close(struct sampler *sampler)
{
    free(sampler->order);
    sampler->order = NULL;
}

void sampler_set_epoch(struct sampler *sampler, uint32_t epoch)
{
    sampler->epoch = epoch;
    uint32_t count = (uint32_t)sampler->count;
    if (sampler->shuffle) {
        random_permutation(sampler->seed, RANDOM_SHUFFLE, epoch, count, sampler->order);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        sampler->order[i] = i;
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
    cut(global_count, sampler->size, sampler->rank, &rank_begin, &rank_count);
    cut(rank_count, sampler->accumulate, micro, &piece_begin, &piece_count);
    int64_t position = rank_begin + piece_begin;
    return (struct sampler_slice){.begin = batch_begin + position,
                                  .count = piece_count,
                                  .position = position,
                                  .global_count = global_count};
}

int64_t sampler_piece_samples(const struct sampler *sampler, int64_t global_count, int64_t micro)
{
    int64_t larger = global_count % sampler->size, count = global_count / sampler->size;
    int64_t begin, piece, larger_piece;
    cut(count, sampler->accumulate, micro, &begin, &piece);
    cut(count + 1, sampler->accumulate, micro, &begin, &larger_piece);
    return larger * larger_piece + (sampler->size - larger) * piece;
}

int64_t sampler_largest_slice(const struct sampler *sampler)
{
    int64_t batch = smaller(sampler->global_batch, sampler->count);
    return round_up_division(round_up_division(batch, sampler->size), sampler->accumulate);
}
