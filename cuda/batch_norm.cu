// SPDX-License-Identifier: BSD-3-Clause
/* Batch normalisation over the rows of [rows, channels], limited by memory bandwidth. A thread
 * processes eight channels down the rows, so values per channel are read once and sums stay in
 * registers: fp32 within a thread, fp64 beyond. Sums over rows take two launches: one partial sum
 * per block and channel, then their sum in order. The formulas are in operations.h. */
#include "cuda.h"
#include "device/tree_sum.h"
#include "kernel.h"

/* At most BLOCKS blocks run, two for each of the 132 multiprocessors of an H100, so no
 * multiprocessor is idle while the last blocks run. The number is a constant because the order of
 * sums depends on it. A thread processes at least ROWS rows. */
enum { THREADS = 256, BLOCKS_OF_SM = 2, BLOCKS = BLOCKS_OF_SM * 132, ROWS = 8 };

/* Return the number of rows that a thread loads before it uses the first: `rows` for 16-bit
 * numbers, half of that for fp32, and one if eight elements cannot be loaded as a vector. */
template <typename number, bool fits> __device__ constexpr int rows_together(int rows)
{
    return fits ? rows * 2 / (int)sizeof(number) : 1;
}

/* Mapping of blocks to the tensor. A block has `lanes` threads side by side, each with an octet of
 * channels, and `lines` rows of them. blockIdx.y is the group of columns. The blocks of a group
 * process adjacent rows and advance by `stride` rows, over the tensor as a whole. Excess threads do
 * nothing. */
struct grid {
    int lanes, lines;
    int64_t rows, channels, stride;
    unsigned chunks, columns;
};

/* A thread's octets of a tensor: `count` octets, which begin at elements at, at + step, ... */
struct position {
    int64_t channel, left; /* channels from there to the last one */
    int64_t at, step, count;
    bool outside, fits;
};

/* The grid depends on the sizes only. */
static struct grid grid_of(int64_t rows, int64_t channels)
{
    struct grid grid = {};
    int64_t octets = (channels + 7) / 8;
    grid.columns = blocks_for(octets, WARP);
    grid.lanes = (int)blocks_for(octets, grid.columns);
    grid.lines = THREADS / grid.lanes;
    grid.rows = rows;
    grid.channels = channels;
    ENSURE(grid.columns < 65536, "%lld channels are too many", (long long)channels);
    unsigned most = grid.columns < BLOCKS ? BLOCKS / grid.columns : 1;
    unsigned chunks = rows > 0 ? blocks_for(rows, (int64_t)grid.lines * ROWS) : 1;
    grid.chunks = chunks < most ? chunks : most;
    grid.stride = (int64_t)grid.lines * grid.chunks;
    return grid;
}

/* Launch kernel<number, flag, fits> on the grid. `fits` is known at compile time, because a branch
 * between two loads would make the second wait for the first. */
#define GRID_LAUNCH(kernel, flag, fits, grid, ...)                                                 \
    do {                                                                                           \
        if ((flag) && (fits))                                                                      \
            GRID_LAUNCH_ONE((kernel<number, true, true>), grid, __VA_ARGS__);                      \
        else if (flag)                                                                             \
            GRID_LAUNCH_ONE((kernel<number, true, false>), grid, __VA_ARGS__);                     \
        else if (fits)                                                                             \
            GRID_LAUNCH_ONE((kernel<number, false, true>), grid, __VA_ARGS__);                     \
        else                                                                                       \
            GRID_LAUNCH_ONE((kernel<number, false, false>), grid, __VA_ARGS__);                    \
    } while (0)
#define GRID_LAUNCH_ONE(kernel, grid, shared_bytes, stream, ...)                                   \
    KERNEL_LAUNCH(kernel, dim3((grid).chunks, (grid).columns), THREADS, shared_bytes,              \
                  (stream)->handle, grid, __VA_ARGS__)

/* `last_first`: from the last row to the first one. `fits`: the kernel's template argument. */
__device__ static inline struct position position_of(const struct grid &grid, bool last_first,
                                                     bool fits)
{
    struct position position;
    int line = (int)threadIdx.x / grid.lanes, lane = (int)threadIdx.x - line * grid.lanes;
    int64_t row = (int64_t)blockIdx.x * grid.lines + line;
    position.channel = ((int64_t)blockIdx.y * grid.lanes + lane) * 8;
    position.left = grid.channels - position.channel;
    position.outside = line >= grid.lines || position.left <= 0 || row >= grid.rows;
    position.count = position.outside ? 0 : (grid.rows - row + grid.stride - 1) / grid.stride;
    position.at = (last_first ? grid.rows - 1 - row : row) * grid.channels + position.channel;
    position.fits = fits;
    position.step = (last_first ? -grid.stride : grid.stride) * grid.channels;
    return position;
}

template <typename number>
__device__ static inline struct packed_eight<number>
row_load(const void *values, const struct position &position, int64_t row) {
    return packed_load_some((const number *)values + position.at + row * position.step,
                            position.left, position.fits);
}

/* Load the thread's rows `first`, first + 1, ...; row `first` instead of those past its last one.
 */
template <typename number, int together>
__device__ static inline void rows_load(struct packed_eight<number> (&rows)[together],
                                        const void *values, const struct position &position,
                                        int64_t first)
{
    UNROLL for (int k = 0; k < together; k++) rows[k] =
        row_load<number>(values, position, first + (first + k < position.count ? k : 0));
}

template <typename number>
__device__ static inline void row_store(void *values, const struct position &position, int64_t row,
                                        const struct eight &eight)
{
    eight_store_some((number *)values + position.at + row * position.step, eight, position.left,
                     position.fits);
}

/* Load the thread's octet of a tensor of [channels]. */
template <typename number>
__device__ static inline struct eight channels_load(const number *values,
                                                    const struct position &position)
{
    return packed_open(packed_load_some(values + position.channel, position.left, position.fits));
}

/* ---- Sums of a block, two per channel, to partial, [chunks, 2, channels] */
struct two_sums {
    double first[8], second[8];
};
enum { SUMS_ROOM = THREADS * 16 * sizeof(double) };

__device__ static inline void block_write(const struct grid &grid, const struct two_sums &sums,
                                          double *room, double *partial)
{
    int64_t base = (int64_t)blockIdx.y * grid.lanes * 8;
    for (int i = 0; i < 8; i++) {
        room[i * THREADS + (int)threadIdx.x] = sums.first[i];
        room[(8 + i) * THREADS + (int)threadIdx.x] = sums.second[i];
    }
    __syncthreads();
    partial += (int64_t)blockIdx.x * 2 * grid.channels;
    for (int k = (int)threadIdx.x; k < grid.lanes * 16; k += THREADS) {
        int value = k / grid.lanes, lane = k - value * grid.lanes;
        int64_t channel = base + lane * 8 + value % 8;
        double sum = 0;
        for (int line = 0; line < grid.lines; line++)
            sum += room[value * THREADS + line * grid.lanes + lane];
        if (channel < grid.channels)
            partial[value / 8 * grid.channels + channel] = sum;
    }
}

/* ---- The second launch: a block processes WARP channels; each of its warps sums a range of the
 * chunks and loads FINISH_CHUNKS of them at a time. The first warp receives the totals of its
 * lanes' channels. */
enum {
    FINISH_WARPS = 16,
    FINISH_CHUNKS = 9,
    FINISH_ROOM = 2 * FINISH_WARPS * WARP * sizeof(double)
};

struct totals {
    double first, second;
};

__device__ static inline struct totals chunks_sum(const double *partial, int64_t chunks,
                                                  int64_t channels, double *room)
{
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int64_t channel = (int64_t)blockIdx.x * WARP + lane;
    int64_t each = (chunks + FINISH_WARPS - 1) / FINISH_WARPS, end = (warp + 1) * each;
    struct totals sum = {};
    end = end < chunks ? end : chunks;
    if (channel < channels) {
        for (int64_t chunk = warp * each; chunk < end; chunk += FINISH_CHUNKS) {
            double first[FINISH_CHUNKS], second[FINISH_CHUNKS];
            UNROLL for (int k = 0; k < FINISH_CHUNKS; k++)
            {
                const double *from = partial + (chunk + k) * 2 * channels + channel;
                first[k] = chunk + k < end ? from[0] : 0;
                second[k] = chunk + k < end ? from[channels] : 0;
            }
            UNROLL for (int k = 0; k < FINISH_CHUNKS; k++)
            {
                sum.first += first[k];
                sum.second += second[k];
            }
        }
    }
    double *second = room + FINISH_WARPS * WARP;
    room[threadIdx.x] = sum.first;
    second[threadIdx.x] = sum.second;
    __syncthreads();
    for (int i = 1; i < FINISH_WARPS && warp == 0; i++) {
        sum.first += room[i * WARP + lane];
        sum.second += second[i * WARP + lane];
    }
    return sum;
}

/* Write the sums of a forward or a backward pass; in the backward pass also the gradients. */
template <bool backward>
__global__ static void __launch_bounds__(FINISH_WARPS *WARP)
    finish_kernel(struct batch_norm_backward_sums args, const double *partial, int64_t chunks)
{
    kernel_begin(FINISH_WARPS * WARP);
    SHARED_MEMORY(shared);
    int64_t channels = args.channels, channel = (int64_t)blockIdx.x * WARP + threadIdx.x;
    struct totals sum = chunks_sum(partial, chunks, channels, (double *)shared);
    if (threadIdx.x >= WARP || channel >= channels)
        return;
    args.sums[channel] = sum.first;
    args.sums[channels + channel] = sum.second;
    if (channel == 0)
        args.sums[2 * channels] = (double)args.rows;
    if (backward && args.dgamma != NULL) {
        gradient_put(&args.dgamma[channel], (float)sum.second, args.overwrite);
        gradient_put(&args.dbeta[channel], (float)sum.first, args.overwrite);
    }
    if (backward && args.drunning_mean != NULL && args.forward_sums != NULL) {
        double all = args.forward_sums[2 * channels];
        double share = all > 0 ? (double)args.rows / all : 0;
        float weight = (float)((double)args.running_weight * share);
        gradient_put(&args.drunning_mean[channel], weight * args.statistics[channel],
                     args.overwrite);
        gradient_put(&args.drunning_variance[channel],
                     weight * args.statistics[2 * channels + channel], args.overwrite);
    }
}

template <bool backward>
static void finish_launch(struct stream *stream, const struct batch_norm_backward_sums &args,
                          const double *partial, const struct grid &grid)
{
    KERNEL_LAUNCH(finish_kernel<backward>, blocks_for(args.channels, WARP), FINISH_WARPS * WARP,
                  FINISH_ROOM, stream->handle, args, partial, (int64_t)grid.chunks);
}

/* ---- Sums of x and x^2. Differences from the thread's first value are summed in fp32, so that
 * precision is kept if the mean is large. */
template <typename number, bool fits>
__global__ static void __launch_bounds__(THREADS, BLOCKS_OF_SM)
    sums_kernel(struct grid grid, const number *x, double *partial)
{
    kernel_begin(THREADS);
    SHARED_MEMORY(shared);
    const int together = rows_together<number, fits>(8);
    struct position position = position_of(grid, true, fits);
    struct eight shift = {}, sum = {}, squares = {};
    if (!position.outside)
        shift = packed_open(row_load<number>(x, position, 0));
    for (int64_t row = 1; row < position.count; row += together) {
        struct packed_eight<number> read[together];
        rows_load(read, x, position, row);
        UNROLL for (int k = 0; k < together; k++) if (row + k < position.count)
        {
            struct eight here = packed_open(read[k]);
            for (int i = 0; i < 8; i++) {
                float difference = here.value[i] - shift.value[i];
                sum.value[i] += difference;
                squares.value[i] += difference * difference;
            }
        }
    }
    struct two_sums sums;
    for (int i = 0; i < 8; i++) {
        double from = (double)shift.value[i], n = (double)position.count, s = (double)sum.value[i];
        sums.first[i] = s + n * from;
        sums.second[i] = (double)squares.value[i] + 2 * from * s + n * from * from;
    }
    block_write(grid, sums, (double *)shared, partial);
}

static double *partial_sums(struct stream *stream, const struct grid &grid)
{
    size_t count = (size_t)grid.chunks * 2 * (size_t)grid.channels;
    return (double *)cuda_workspace_sums(stream->cuda, count * sizeof(double));
}

template <typename number>
static void sums_launch(struct stream *stream, const struct batch_norm_sums *args)
{
    struct grid grid = grid_of(args->rows, args->channels);
    double *partial = partial_sums(stream, grid);
    const bool fits = eight_fits(args->x, args->channels);
    GRID_LAUNCH_ONE((fits ? sums_kernel<number, true> : sums_kernel<number, false>), grid,
                    SUMS_ROOM, stream, (const number *)args->x, partial);
    struct batch_norm_backward_sums sums = {};
    sums.rows = args->rows;
    sums.channels = args->channels;
    sums.sums = args->sums;
    finish_launch<false>(stream, sums, partial, grid);
}

void cuda_batch_norm_sums(struct stream *stream, const struct batch_norm_sums *args)
{
    if (args->channels > 0)
        NUMBER_SWITCH(args->type, sums_launch, stream, args);
}

/* ---- Mean, 1 / deviation, unbiased variance: a thread of each block computes those of one of the
 * block's channels, and the first block of a group of columns stores them. The first two are
 * written to `shared`, [2, THREADS], from which a thread reads those of its octet. */
enum { STATISTICS_ROOM = 2 * THREADS * sizeof(float) };

template <typename number>
__device__ static inline void
statistics_compute(const struct grid &grid, const struct batch_norm_forward &args, float *shared)
{
    int64_t channels = args.channels;
    int64_t channel = (int64_t)blockIdx.y * grid.lanes * 8 + threadIdx.x;
    double mean = 0, variance = 0, unbiased = 0;
    if (channel < channels && args.sums != NULL) {
        double n = args.sums[2 * channels] > 0 ? args.sums[2 * channels] : 1;
        mean = args.sums[channel] / n;
        variance = args.sums[channels + channel] / n - mean * mean;
        variance = variance < 0 ? 0 : variance;
        unbiased = variance * (n / (n > 2 ? n - 1 : 1));
    } else if (channel < channels) {
        mean = (double)number_load(((const number *)args.running_mean)[channel]);
        variance = (double)number_load(((const number *)args.running_variance)[channel]);
        unbiased = variance;
    }
    shared[threadIdx.x] = (float)mean;
    shared[THREADS + threadIdx.x] = (float)(1 / sqrt(variance + (double)args.epsilon));
    if (blockIdx.x == 0 && (int)threadIdx.x < grid.lanes * 8 && channel < channels) {
        args.statistics[channel] = shared[threadIdx.x];
        args.statistics[channels + channel] = shared[THREADS + threadIdx.x];
        args.statistics[2 * channels + channel] = (float)unbiased;
    }
    __syncthreads();
}

/* ---- y before residual and ReLU. Forward and backward kernels must round identically, so the
 * fused multiply-add is written explicitly. */
__device__ static inline float normalise(float x, float mean, float scale, float beta)
{
    return fmaf(x - mean, scale, beta);
}

/* Compute y. A row is read before it is written, because y may be x. */
template <typename number, bool adds, bool fits>
__global__ static void __launch_bounds__(THREADS, BLOCKS_OF_SM)
    forward_kernel(struct grid grid, struct batch_norm_forward args)
{
    kernel_begin(THREADS);
    SHARED_MEMORY(shared);
    const int together = rows_together<number, fits>(adds ? 4 : 8);
    struct position position = position_of(grid, false, fits);
    const float *statistics = (const float *)shared + (int)threadIdx.x % grid.lanes * 8;
    statistics_compute<number>(grid, args, (float *)shared);
    if (position.outside)
        return;
    struct eight mean = eight_load(statistics), scale = eight_load(statistics + THREADS);
    struct eight gamma = channels_load((const number *)args.gamma, position);
    struct eight beta = channels_load((const number *)args.beta, position);
    for (int i = 0; i < 8; i++)
        scale.value[i] *= gamma.value[i];
    for (int64_t row = 0; row < position.count; row += together) {
        struct packed_eight<number> read[together], past_read[together];
        rows_load(read, args.x, position, row);
        if (adds)
            rows_load(past_read, args.residual, position, row);
        UNROLL for (int k = 0; k < together; k++) if (row + k < position.count)
        {
            struct eight x = packed_open(read[k]), past = {};
            if (adds)
                past = packed_open(past_read[k]);
            for (int i = 0; i < 8; i++) {
                float y = normalise(x.value[i], mean.value[i], scale.value[i], beta.value[i]) +
                          past.value[i];
                x.value[i] = args.relu && y < 0 ? 0 : y;
            }
            row_store<number>(args.y, position, row + k, x);
        }
    }
}

/* True if all tensors, [rows, channels] or [channels], can be accessed as vectors. */
static bool all_fit(int64_t channels, const void *const *tensors, int count)
{
    bool fits = true;
    for (int i = 0; i < count; i++)
        fits = fits && eight_fits(tensors[i], channels);
    return fits;
}

template <typename number>
static void forward_launch(struct stream *stream, const struct batch_norm_forward *args)
{
    const void *const tensors[] = {args->x, args->y, args->gamma, args->beta, args->residual};
    const struct grid grid = grid_of(args->rows, args->channels);
    GRID_LAUNCH(forward_kernel, args->residual != NULL, all_fit(args->channels, tensors, 5), grid,
                STATISTICS_ROOM, stream, *args);
}

void cuda_batch_norm_forward(struct stream *stream, const struct batch_norm_forward *args)
{
    ENSURE(args->statistics != NULL, "batch norm without a position for its statistics");
    if (args->channels > 0)
        NUMBER_SWITCH(args->type, forward_launch, stream, args);
}

/* ---- First step of the gradient: dy, updated in place if it changes, and its sums. The ReLU's
 * mask is read from y or, with `recomputes`, computed again: 0 where y is at most `zero`,
 * type_rounds_to_zero. */
__device__ static inline void mask_compute(struct eight *dy, const struct eight &x,
                                           const struct eight &mean, const struct eight &scale,
                                           const struct eight &beta, float zero)
{
    for (int i = 0; i < 8; i++) {
        float y = normalise(x.value[i], mean.value[i], scale.value[i], beta.value[i]);
        dy->value[i] = y <= zero ? 0 : dy->value[i];
    }
}

template <typename number, bool recomputes, bool fits>
__global__ static void __launch_bounds__(THREADS, BLOCKS_OF_SM)
    backward_sums_kernel(struct grid grid, struct batch_norm_backward_sums args, float zero,
                         double *partial)
{
    kernel_begin(THREADS);
    SHARED_MEMORY(shared);
    const int together = rows_together<number, fits>(4);
    const float *rstds = args.statistics + grid.channels;
    struct position position = position_of(grid, true, fits);
    struct eight mean = {}, scale = {}, beta = {}, sum = {}, product = {};
    bool masked = !recomputes && args.y != NULL, changes = args.add != NULL || args.y != NULL;
    if (!position.outside)
        mean = channels_load(args.statistics, position);
    if (recomputes && !position.outside) {
        struct eight rstd = channels_load(rstds, position);
        scale = channels_load((const number *)args.gamma, position);
        beta = channels_load((const number *)args.beta, position);
        for (int i = 0; i < 8; i++)
            scale.value[i] *= rstd.value[i];
    }
    for (int64_t row = 0; row < position.count; row += together) {
        struct packed_eight<number> dy_read[together], x_read[together], y_read[together],
            add_read[together];
        rows_load(dy_read, args.dy, position, row);
        rows_load(x_read, args.x, position, row);
        if (masked)
            rows_load(y_read, args.y, position, row);
        if (!recomputes && args.add != NULL)
            rows_load(add_read, args.add, position, row);
        UNROLL for (int k = 0; k < together; k++) if (row + k < position.count)
        {
            struct eight dy = packed_open(dy_read[k]), x = packed_open(x_read[k]);
            if (args.add != NULL) {
                if (recomputes) /* rare, so not loaded earlier, which would take registers */
                    add_read[k] = row_load<number>(args.add, position, row + k);
                struct eight add = packed_open(add_read[k]);
                for (int i = 0; i < 8; i++)
                    dy.value[i] += add.value[i];
            }
            if (recomputes)
                mask_compute(&dy, x, mean, scale, beta, zero);
            if (masked) {
                struct eight y = packed_open(y_read[k]);
                for (int i = 0; i < 8; i++)
                    dy.value[i] = y.value[i] <= 0 ? 0 : dy.value[i];
            }
            if (changes)
                row_store<number>(args.dy, position, row + k, dy);
            for (int i = 0; i < 8; i++) {
                sum.value[i] += dy.value[i];
                product.value[i] += dy.value[i] * (x.value[i] - mean.value[i]);
            }
        }
    }
    struct two_sums sums;
    struct eight rstd = {};
    if (!position.outside)
        rstd = channels_load(rstds, position);
    for (int i = 0; i < 8; i++) {
        sums.first[i] = (double)sum.value[i];
        sums.second[i] = (double)product.value[i] * (double)rstd.value[i];
    }
    block_write(grid, sums, (double *)shared, partial);
}

template <typename number>
static void backward_sums_launch(struct stream *stream, const struct batch_norm_backward_sums *args)
{
    const void *const tensors[] = {args->x,          args->y,     args->add, args->dy,
                                   args->statistics, args->gamma, args->beta};
    struct grid grid = grid_of(args->rows, args->channels);
    double *partial = partial_sums(stream, grid);
    GRID_LAUNCH(backward_sums_kernel, args->beta != NULL, all_fit(args->channels, tensors, 7), grid,
                SUMS_ROOM, stream, *args, type_rounds_to_zero(args->type), partial);
    finish_launch<true>(stream, *args, partial, grid);
}

void cuda_batch_norm_backward_sums(struct stream *stream,
                                   const struct batch_norm_backward_sums *args)
{
    if (args->channels > 0)
        NUMBER_SWITCH(args->type, backward_sums_launch, stream, args);
}

/* ---- Second step of the gradient: dx, which may be dy */
template <typename number, bool recomputes, bool fits>
__global__ static void __launch_bounds__(THREADS, BLOCKS_OF_SM)
    backward_kernel(struct grid grid, struct batch_norm_backward args, float zero)
{
    kernel_begin(THREADS);
    const int together = rows_together<number, fits>(4);
    struct position position = position_of(grid, false, fits);
    if (position.outside)
        return;
    struct eight mean = channels_load(args.statistics, position);
    struct eight rstd = channels_load(args.statistics + grid.channels, position);
    struct eight scale = channels_load((const number *)args.gamma, position);
    struct eight beta = {}, of_sum = {}, of_product = {};
    if (recomputes)
        beta = channels_load((const number *)args.beta, position);
    if (args.sums != NULL) {
        const double *sums = args.sums + position.channel;
        float rows = (float)args.sums[2 * grid.channels];
        for (int i = 0; i < 8; i++) {
            of_sum.value[i] = fits || i < position.left ? (float)sums[i] : 0;
            of_product.value[i] = fits || i < position.left ? (float)sums[grid.channels + i] : 0;
        }
        for (int i = 0; i < 8; i++) {
            of_sum.value[i] /= rows;
            of_product.value[i] = of_product.value[i] / rows * rstd.value[i];
        }
    }
    for (int i = 0; i < 8; i++)
        scale.value[i] *= rstd.value[i];
    for (int64_t row = 0; row < position.count; row += together) {
        struct packed_eight<number> x_read[together], dy_read[together];
        rows_load(x_read, args.x, position, row);
        rows_load(dy_read, args.dy, position, row);
        UNROLL for (int k = 0; k < together; k++) if (row + k < position.count)
        {
            struct eight x = packed_open(x_read[k]), dy = packed_open(dy_read[k]);
            if (recomputes)
                mask_compute(&dy, x, mean, scale, beta, zero);
            for (int i = 0; i < 8; i++) {
                float off = (x.value[i] - mean.value[i]) * of_product.value[i];
                dy.value[i] = scale.value[i] * (dy.value[i] - of_sum.value[i] - off);
            }
            row_store<number>(args.dx, position, row + k, dy);
        }
    }
}

template <typename number>
static void backward_launch(struct stream *stream, const struct batch_norm_backward *args)
{
    const void *const tensors[] = {args->x,  args->gamma, args->statistics,
                                   args->dy, args->dx,    args->beta};
    const struct grid grid = grid_of(args->rows, args->channels);
    GRID_LAUNCH(backward_kernel, args->beta != NULL, all_fit(args->channels, tensors, 6), grid, 0,
                stream, *args, type_rounds_to_zero(args->type));
}

void cuda_batch_norm_backward(struct stream *stream, const struct batch_norm_backward *args)
{
    if (args->rows > 0 && args->channels > 0)
        NUMBER_SWITCH(args->type, backward_launch, stream, args);
}

/* ---- Sums of rows in the order of a tree: one column per thread */
__global__ static void tree_kernel(struct tree_sums args)
{
    kernel_begin();
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < args.count)
        args.sums[i] = tree_sum(args.from + i, args.rows, args.count);
}

void cuda_tree_sums(struct stream *stream, const struct tree_sums *args)
{
    if (args->rows > 0 && args->count > 0)
        KERNEL_LAUNCH(tree_kernel, blocks_for(args->count, THREADS), THREADS, 0, stream->handle,
                      *args);
}
