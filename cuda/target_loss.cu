// SPDX-License-Identifier: BSD-3-Clause
/* The loss of float targets. One block per piece of a sample: pieces have a fixed size, so that a
 * few large samples occupy the GPU. The first kernel sums the weights of pieces, because the
 * gradient needs the sum of its sample. The formulas are those of
 * src/cpu/kernels_loss.c. */
#include "cuda.h"
#include "device/exact_sum.h"
#include "kernel.h"

enum { THREADS = 256, PIECE = 4096 };

struct piece_sums {
    double weight; /* sum of the weights */
    double loss;   /* share in the loss of the sample */
};

/* A block's targets: begin..end of a sample. */
struct piece {
    int64_t sample;
    unsigned begin, end;
};

__device__ static inline struct piece piece_of_block(unsigned targets, unsigned pieces)
{
    unsigned begin = blockIdx.x % pieces * PIECE, left = targets - begin;
    return {blockIdx.x / pieces, begin, begin + (left < PIECE ? left : (unsigned)PIECE)};
}

/* Return the class of a target; -1 if it is not the number of an output. */
__device__ static inline int target_class(const struct target_loss &args, float target)
{
    bool valid = target >= 0 && target < (float)args.outputs && target == truncf(target);
    return valid ? (int)target : -1;
}

/* Return the weight of target i of a sample. */
__device__ static inline float target_weight(const struct target_loss &args, int64_t sample,
                                             float target, unsigned i)
{
    unsigned width = (unsigned)args.width, height = (unsigned)args.height;
    unsigned first_row = args.first_rows != NULL ? (unsigned)args.first_rows[sample] : 0;
    float weight = args.row_weights != NULL ? args.row_weights[first_row + i / width % height] : 1;
    if (isnan(target))
        return 0;
    if (args.kind == TARGET_CROSS_ENTROPY) {
        int label = target_class(args, target);
        if (label < 0)
            return NAN;
        return args.weights != NULL ? weight * args.weights[label] : weight;
    }
    return args.weights != NULL ? weight * args.weights[i / (width * height)] : weight;
}

__global__ static void weights_kernel(struct target_loss args, unsigned targets, unsigned pieces,
                                      struct piece_sums *sums)
{
    kernel_begin();
    SHARED_MEMORY(shared);
    struct piece piece = piece_of_block(targets, pieces);
    const float *values = args.targets + piece.sample * targets;
    double weight = 0;
    for (unsigned i = piece.begin + threadIdx.x; i < piece.end; i += THREADS)
        weight += (double)target_weight(args, piece.sample, values[i], i);
    weight = block_sum(weight, (double *)shared);
    if (threadIdx.x == 0)
        sums[blockIdx.x].weight = weight;
}

/* Loss of a prediction and its derivative. */
struct element_loss {
    double loss;
    float derivative;
};

/* Return the loss of prediction p with target t. NaN stays NaN. */
__device__ static inline struct element_loss loss_of(enum target_loss_kind kind, float p, float t)
{
    float error = p - t, size = fabsf(error), sign = error > 0 ? 1 : error < 0 ? -1 : error;
    double exact = (double)p - (double)t;
    switch (kind) {
    case TARGET_SQUARED:
        return {exact * exact, 2 * error};
    case TARGET_ABSOLUTE:
        return {(double)size, sign};
    case TARGET_HUBER:
        if (size < 1)
            return {0.5 * exact * exact, error};
        return {(double)(size - 0.5f), sign};
    default:
        return {(double)((p > 0 ? p : 0) - p * t) + (double)log1pf(expf(-fabsf(p))),
                1 / (1 + expf(-p)) - t};
    }
}

/* Return weight * loss of element `at` and write its gradient. */
template <typename number>
__device__ static inline double element_run(const struct target_loss &args, int64_t at,
                                            float target, float weight, float factor)
{
    struct element_loss loss = {0, 0};
    if (!isnan(target))
        loss = loss_of(args.kind, number_load(((const number *)args.predictions)[at]), target);
    if (args.dpredictions != NULL)
        number_store((number *)args.dpredictions + at, factor * (weight * loss.derivative));
    return (double)weight * loss.loss;
}

/* Return weight * loss of a pixel whose target is a class and write the gradient of its outputs.
 * `at` is its element of output 0. */
template <typename number>
__device__ static inline double pixel_run(const struct target_loss &args, int64_t at, float target,
                                          float weight, float factor)
{
    int64_t pixels = args.height * args.width;
    const number *logits = (const number *)args.predictions + at;
    number *gradient = (number *)args.dpredictions;
    int outputs = (int)args.outputs, label = target_class(args, target);
    bool missing = isnan(target);
    float most = -INFINITY, sum = 0;
    for (int c = 0; c < outputs; c++)
        most = fmaxf(most, number_load(logits[c * pixels]));
    for (int c = 0; c < outputs; c++)
        sum += expf(number_load(logits[c * pixels]) - most);
    double loss = (double)logf(sum) -
                  (double)((label < 0 ? NAN : number_load(logits[label * pixels])) - most);
    for (int c = 0; gradient != NULL && c < outputs; c++) {
        float slope = expf(number_load(logits[c * pixels]) - most) / sum - (c == label ? 1 : 0);
        number_store(gradient + at + c * pixels, missing ? 0 : factor * weight * slope);
    }
    return missing ? 0 : (double)weight * loss;
}

template <typename number>
__global__ static void losses_kernel(struct target_loss args, unsigned targets, unsigned pieces,
                                     struct piece_sums *sums)
{
    kernel_begin();
    SHARED_MEMORY(shared);
    double *room = (double *)shared, total = 0, loss = 0;
    struct piece piece = piece_of_block(targets, pieces);
    for (unsigned i = threadIdx.x; i < pieces; i += THREADS)
        total += sums[piece.sample * pieces + i].weight;
    total = block_sum(total, room);
    if (args.is_sum && total > 0)
        total = 1;
    double scale = (double)args.scale * (args.scaler != NULL ? (double)args.scaler->scale : 1);
    float factor = total != 0 ? (float)(scale / total) : 0;
    const float *values = args.targets + piece.sample * targets;
    int64_t first = piece.sample * args.outputs * args.height * args.width;
    for (unsigned i = piece.begin + threadIdx.x; i < piece.end; i += THREADS) {
        float target = values[i], weight = target_weight(args, piece.sample, target, i);
        if (args.kind == TARGET_CROSS_ENTROPY)
            loss += pixel_run<number>(args, first + i, target, weight, factor);
        else
            loss += element_run<number>(args, first + i, target, weight, factor);
    }
    loss = block_sum(loss, room + THREADS / WARP);
    if (threadIdx.x == 0)
        sums[blockIdx.x].loss = total != 0 ? loss / total : 0;
}

/* One block adds the losses of samples and counts those with a target. A warp adds the pieces of a
 * sample. */
__global__ static void samples_kernel(const struct piece_sums *pieces_sums, int64_t batch,
                                      unsigned pieces, struct loss_sums *sums)
{
    kernel_begin();
    SHARED_MEMORY(shared);
    unsigned lanes = pieces > 1 ? WARP : 1;
    double *room = (double *)shared, total = 0, counted = 0;
    for (int64_t sample = threadIdx.x / lanes; sample < batch; sample += THREADS / lanes) {
        double loss = 0, weight = 0;
        for (unsigned i = threadIdx.x % lanes; i < pieces; i += lanes) {
            loss += pieces_sums[sample * pieces + i].loss;
            weight += pieces_sums[sample * pieces + i].weight;
        }
        if (lanes > 1) {
            loss = warp_sum(loss);
            weight = warp_sum(weight);
        }
        if (threadIdx.x % lanes == 0) {
            total += loss_round(loss);
            counted += weight != 0;
        }
    }
    total = block_sum(total, room);
    counted = block_sum(counted, room + THREADS / WARP);
    if (threadIdx.x != 0)
        return;
    sums->loss += total;
    sums->samples += counted;
    sums->counted += counted;
    sums->empty += (double)batch - counted;
}

template <typename number>
static void losses_launch(struct stream *stream, const struct target_loss *args, unsigned blocks,
                          unsigned targets, unsigned pieces, struct piece_sums *sums)
{
    KERNEL_LAUNCH(losses_kernel<number>, blocks, THREADS, 2 * THREADS / WARP * sizeof(double),
                  stream->handle, *args, targets, pieces, sums);
}

void cuda_target_loss(struct stream *stream, const struct target_loss *args)
{
    const size_t room = THREADS / WARP * sizeof(double);
    int64_t elements = args->outputs * args->height * args->width;
    if (args->batch == 0 || elements == 0)
        return;
    ENSURE(elements < 1LL << 31, "%lld predictions of a sample", (long long)elements);
    unsigned targets = (unsigned)target_count(args), pieces = blocks_for(targets, PIECE);
    size_t blocks = (size_t)args->batch * pieces;
    struct piece_sums *sums =
        (struct piece_sums *)cuda_workspace_sums(stream->cuda, blocks * sizeof *sums);
    KERNEL_LAUNCH(weights_kernel, (unsigned)blocks, THREADS, room, stream->handle, *args, targets,
                  pieces, sums);
    NUMBER_SWITCH(args->type, losses_launch, stream, args, (unsigned)blocks, targets, pieces, sums);
    if (args->sums != NULL)
        KERNEL_LAUNCH(samples_kernel, 1, THREADS, 2 * room, stream->handle, sums, args->batch,
                      pieces, args->sums);
}
