// SPDX-License-Identifier: BSD-3-Clause
/* Batch normalisation over the rows of [rows, channels], limited by memory bandwidth. A thread
 * processes eight channels down the rows, so values per channel are read once and sums stay in
 * registers: fp32 within a thread, fp64 beyond. Sums over rows take two launches: one partial sum
 * per block and channel, then their sum in order. The formulas are in device.h. */
#include "cuda.h"
#include "device/tree_sum.h"
#include "kernel.h"

/* Maximum number of blocks for sums: a few per multiprocessor, so that the second launch has few
 * partial sums. In elementwise kernels a thread processes ROWS rows and loads TOGETHER of them at a
 * time. */
enum { THREADS = 256, BLOCKS_MOST = 512, ROWS = 8, TOGETHER = 2 };

/* Mapping of blocks to the tensor. A block has `lanes` threads side by side, each with an octet of
 * channels, and `lines` rows of them; it processes chunk_rows rows. blockIdx.x is the chunk of
 * rows, blockIdx.y the group of columns. Excess threads do nothing. */
struct grid {
    int lanes, lines;
    int64_t rows, channels, chunk_rows;
    unsigned chunks, columns;
    bool fits;
};

/* The part of a thread. */
struct position {
    int64_t channel, left; /* channels from there to the last one */
    int64_t row, end;      /* row, row + lines, ... up to end */
    bool outside;
};

static struct grid grid_of(int64_t rows, int64_t channels, bool fits)
{
    struct grid grid = {};
    int64_t octets = (channels + 7) / 8;
    grid.columns = blocks_for(octets, WARP);
    grid.lanes = (int)blocks_for(octets, grid.columns);
    grid.lines = THREADS / grid.lanes;
    grid.rows = rows;
    grid.channels = channels;
    grid.fits = fits;
    ENSURE(grid.columns < 65536, "%lld channels are too many", (long long)channels);
    return grid;
}

static void grid_cut(struct grid *grid, int64_t chunk_rows)
{
    grid->chunk_rows = chunk_rows;
    grid->chunks = blocks_for(grid->rows, chunk_rows);
}

static struct grid grid_of_elements(int64_t rows, int64_t channels, bool fits)
{
    struct grid grid = grid_of(rows, channels, fits);
    grid_cut(&grid, (int64_t)grid.lines * ROWS);
    return grid;
}

/* At least ROWS rows per thread; the split depends on the sizes only. */
static struct grid grid_of_sums(int64_t rows, int64_t channels, bool fits)
{
    struct grid grid = grid_of(rows, channels, fits);
    int64_t most = BLOCKS_MOST / grid.columns, least = (int64_t)grid.lines * ROWS;
    int64_t chunk_rows = blocks_for(rows, most > 0 ? most : 1);
    grid_cut(&grid, chunk_rows < least ? least : chunk_rows);
    return grid;
}

__device__ static inline struct position position_of(const struct grid &grid)
{
    struct position position;
    int line = (int)threadIdx.x / grid.lanes, lane = (int)threadIdx.x - line * grid.lanes;
    int64_t end = ((int64_t)blockIdx.x + 1) * grid.chunk_rows;
    position.channel = ((int64_t)blockIdx.y * grid.lanes + lane) * 8;
    position.left = grid.channels - position.channel;
    position.row = (int64_t)blockIdx.x * grid.chunk_rows + line;
    position.end = end < grid.rows ? end : grid.rows;
    position.outside = line >= grid.lines || position.left <= 0;
    return position;
}

template <typename number>
__device__ static inline struct eight position_load(const number *values, const struct grid &grid,
                                                    const struct position &position, int64_t row)
{
    return eight_load_some(values + row * grid.channels + position.channel, position.left,
                           grid.fits);
}

template <typename number>
__device__ static inline void position_store(number *values, const struct grid &grid,
                                             const struct position &position, int64_t row,
                                             const struct eight &eight)
{
    eight_store_some(values + row * grid.channels + position.channel, eight, position.left,
                     grid.fits);
}

/* Load the thread's octet of a tensor of [channels]. */
template <typename number>
__device__ static inline struct eight channels_load(const number *values, const struct grid &grid,
                                                    const struct position &position)
{
    return eight_load_some(values + position.channel, position.left, grid.fits);
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
 * chunks. The first warp receives the totals of its lanes' channels. */
enum { FINISH_WARPS = 16 };

__device__ static inline double chunks_sum(const double *partial, int64_t chunks, int64_t channels,
                                           double *room)
{
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int64_t channel = (int64_t)blockIdx.x * WARP + lane;
    int64_t each = (chunks + FINISH_WARPS - 1) / FINISH_WARPS, end = (warp + 1) * each;
    double sum = 0;
    end = end < chunks ? end : chunks;
    if (channel < channels) {
#pragma unroll 4
        for (int64_t chunk = warp * each; chunk < end; chunk++)
            sum += partial[chunk * 2 * channels + channel];
    }
    room[threadIdx.x] = sum;
    __syncthreads();
    for (int i = 1; i < FINISH_WARPS && warp == 0; i++)
        sum += room[i * WARP + lane];
    return sum;
}

/* ---- Sums of x and x^2. Differences from the thread's first value are summed in fp32, so that
 * precision is kept if the mean is large. */
template <typename number>
__global__ static void sums_kernel(struct grid grid, const number *x, double *partial)
{
    kernel_begin();
    SHARED_MEMORY(shared);
    struct position position = position_of(grid);
    struct eight shift = {}, sum = {}, squares = {};
    int64_t count = 0;
    if (!position.outside && position.row < position.end) {
        shift = position_load(x, grid, position, position.row);
        count = (position.end - position.row + grid.lines - 1) / grid.lines;
#pragma unroll 4
        for (int64_t row = position.row + grid.lines; row < position.end; row += grid.lines) {
            struct eight here = position_load(x, grid, position, row);
            for (int i = 0; i < 8; i++) {
                float difference = here.value[i] - shift.value[i];
                sum.value[i] += difference;
                squares.value[i] += difference * difference;
            }
        }
    }
    struct two_sums sums;
    for (int i = 0; i < 8; i++) {
        double from = (double)shift.value[i], n = (double)count, s = (double)sum.value[i];
        sums.first[i] = s + n * from;
        sums.second[i] = (double)squares.value[i] + 2 * from * s + n * from * from;
    }
    block_write(grid, sums, (double *)shared, partial);
}

__global__ static void sums_finish_kernel(const double *partial, int64_t chunks, int64_t channels,
                                          int64_t rows, double *sums)
{
    kernel_begin();
    SHARED_MEMORY(shared);
    double *room = (double *)shared;
    int64_t channel = (int64_t)blockIdx.x * WARP + threadIdx.x;
    double sum = chunks_sum(partial, chunks, channels, room);
    double squares = chunks_sum(partial + channels, chunks, channels, room + FINISH_WARPS * WARP);
    if (threadIdx.x >= WARP || channel >= channels)
        return;
    sums[channel] = sum;
    sums[channels + channel] = squares;
    if (channel == 0)
        sums[2 * channels] = (double)rows;
}

static double *partial_sums(struct stream *stream, const struct grid &grid)
{
    size_t count = (size_t)grid.chunks * 2 * (size_t)grid.channels;
    return (double *)cuda_workspace_sums(stream->cuda, count * sizeof(double));
}

template <typename number>
static void sums_launch(struct stream *stream, const struct batch_norm_sums *args)
{
    struct grid grid =
        grid_of_sums(args->rows, args->channels, eight_fits(args->x, args->channels));
    double *partial = partial_sums(stream, grid);
    if (grid.chunks > 0)
        KERNEL_LAUNCH(sums_kernel<number>, dim3(grid.chunks, grid.columns), THREADS, SUMS_ROOM,
                      stream->handle, grid, (const number *)args->x, partial);
    KERNEL_LAUNCH(sums_finish_kernel, blocks_for(args->channels, WARP), FINISH_WARPS * WARP,
                  2 * FINISH_WARPS * WARP * sizeof(double), stream->handle, partial,
                  (int64_t)grid.chunks, args->channels, args->rows, args->sums);
}

void cuda_batch_norm_sums(struct stream *stream, const struct batch_norm_sums *args)
{
    if (args->channels > 0)
        NUMBER_SWITCH(args->type, sums_launch, stream, args);
}

/* ---- Mean, 1 / deviation, unbiased variance: one thread per channel */
template <typename number> __global__ static void statistics_kernel(struct batch_norm_forward args)
{
    kernel_begin();
    int64_t channels = args.channels, channel = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    double mean, variance, unbiased;
    if (channel >= channels)
        return;
    if (args.sums != NULL) {
        double n = args.sums[2 * channels] > 0 ? args.sums[2 * channels] : 1;
        mean = args.sums[channel] / n;
        variance = args.sums[channels + channel] / n - mean * mean;
        variance = variance < 0 ? 0 : variance;
        unbiased = variance * (n / (n > 2 ? n - 1 : 1));
    } else {
        mean = (double)number_load(((const number *)args.running_mean)[channel]);
        variance = (double)number_load(((const number *)args.running_variance)[channel]);
        unbiased = variance;
    }
    args.statistics[channel] = (float)mean;
    args.statistics[channels + channel] = (float)(1 / sqrt(variance + (double)args.epsilon));
    args.statistics[2 * channels + channel] = (float)unbiased;
}

/* ---- y before residual and ReLU. Forward and backward kernels must round identically, so the
 * fused multiply-add is written explicitly. */
__device__ static inline float normalise(float x, float mean, float scale, float beta)
{
    return fmaf(x - mean, scale, beta);
}

/* Compute y. A row is read before it is written, because y may be x. */
template <typename number>
__global__ static void forward_kernel(struct grid grid, struct batch_norm_forward args)
{
    kernel_begin();
    struct position position = position_of(grid);
    if (position.outside)
        return;
    const number *residual = (const number *)args.residual;
    struct eight mean = channels_load(args.statistics, grid, position);
    struct eight scale = channels_load(args.statistics + grid.channels, grid, position);
    struct eight gamma = channels_load((const number *)args.gamma, grid, position);
    struct eight beta = channels_load((const number *)args.beta, grid, position);
    for (int i = 0; i < 8; i++)
        scale.value[i] *= gamma.value[i];
    for (int64_t row = position.row; row < position.end; row += TOGETHER * grid.lines) {
        struct eight x[TOGETHER] = {}, past[TOGETHER] = {};
        UNROLL for (int k = 0; k < TOGETHER; k++) if (row + k * grid.lines < position.end)
        {
            x[k] = position_load((const number *)args.x, grid, position, row + k * grid.lines);
            if (residual != NULL)
                past[k] = position_load(residual, grid, position, row + k * grid.lines);
        }
        UNROLL for (int k = 0; k < TOGETHER; k++)
        {
            for (int i = 0; i < 8; i++) {
                float y = normalise(x[k].value[i], mean.value[i], scale.value[i], beta.value[i]) +
                          past[k].value[i];
                x[k].value[i] = args.relu && y < 0 ? 0 : y;
            }
            if (row + k * grid.lines < position.end)
                position_store((number *)args.y, grid, position, row + k * grid.lines, x[k]);
        }
    }
}

/* True if all tensors that are not NULL, [rows or one, channels], can be accessed as vectors. */
static bool all_fit(int64_t channels, const void *const *tensors, int count)
{
    bool fits = true;
    for (int i = 0; i < count; i++)
        fits = fits && (tensors[i] == NULL || eight_fits(tensors[i], channels));
    return fits;
}

template <typename number>
static void forward_launch(struct stream *stream, const struct batch_norm_forward *args)
{
    const void *const tensors[] = {args->x,    args->y,        args->gamma,
                                   args->beta, args->residual, args->statistics};
    struct grid grid =
        grid_of_elements(args->rows, args->channels, all_fit(args->channels, tensors, 6));
    KERNEL_LAUNCH(statistics_kernel<number>, blocks_for(args->channels, THREADS), THREADS, 0,
                  stream->handle, *args);
    if (grid.chunks > 0)
        KERNEL_LAUNCH(forward_kernel<number>, dim3(grid.chunks, grid.columns), THREADS, 0,
                      stream->handle, grid, *args);
}

void cuda_batch_norm_forward(struct stream *stream, const struct batch_norm_forward *args)
{
    ENSURE(args->statistics != NULL, "batch norm without a position for its statistics");
    if (args->channels > 0)
        NUMBER_SWITCH(args->type, forward_launch, stream, args);
}

/* ---- First step of the gradient: dy, updated in place if it changes, and its sums. The ReLU's
 * mask is read from y or, with `computes`, recomputed: 0 where y is at most `zero`,
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

template <typename number, bool computes>
__global__ static void backward_sums_kernel(struct grid grid, struct batch_norm_backward_sums args,
                                            float zero, double *partial)
{
    kernel_begin();
    /* Rows in flight: with a recomputed mask, a row has two tensors instead of three. */
    const int together = computes ? TOGETHER : 1;
    SHARED_MEMORY(shared);
    struct position position = position_of(grid);
    struct eight mean = {}, rstd = {}, scale = {}, beta = {}, sum = {}, product = {};
    const number *y = (const number *)args.y, *add = (const number *)args.add;
    if (!position.outside) {
        mean = channels_load(args.statistics, grid, position);
        rstd = channels_load(args.statistics + grid.channels, grid, position);
    }
    if (computes && !position.outside) {
        scale = channels_load((const number *)args.gamma, grid, position);
        beta = channels_load((const number *)args.beta, grid, position);
        for (int i = 0; i < 8; i++)
            scale.value[i] *= rstd.value[i];
    }
    int64_t end = position.outside ? 0 : position.end;
    for (int64_t row = position.row; row < end; row += together * grid.lines) {
        struct eight x[together] = {}, dy[together] = {};
        UNROLL for (int k = 0; k < together; k++) if (row + k * grid.lines < end)
        {
            dy[k] = position_load((const number *)args.dy, grid, position, row + k * grid.lines);
            x[k] = position_load((const number *)args.x, grid, position, row + k * grid.lines);
        }
        UNROLL for (int k = 0; k < together; k++) if (row + k * grid.lines < end)
        {
            if (add != NULL) {
                struct eight other = position_load(add, grid, position, row + k * grid.lines);
                for (int i = 0; i < 8; i++)
                    dy[k].value[i] += other.value[i];
            }
            if (computes) {
                mask_compute(&dy[k], x[k], mean, scale, beta, zero);
            } else if (y != NULL) {
                struct eight out = position_load(y, grid, position, row + k * grid.lines);
                for (int i = 0; i < 8; i++)
                    dy[k].value[i] = out.value[i] <= 0 ? 0 : dy[k].value[i];
            }
            if (add != NULL || y != NULL)
                position_store((number *)args.dy, grid, position, row + k * grid.lines, dy[k]);
            for (int i = 0; i < 8; i++) {
                float normal = (x[k].value[i] - mean.value[i]) * rstd.value[i];
                sum.value[i] += dy[k].value[i];
                product.value[i] += dy[k].value[i] * normal;
            }
        }
    }
    struct two_sums sums;
    for (int i = 0; i < 8; i++) {
        sums.first[i] = (double)sum.value[i];
        sums.second[i] = (double)product.value[i];
    }
    block_write(grid, sums, (double *)shared, partial);
}

__global__ static void backward_finish_kernel(struct batch_norm_backward_sums args,
                                              const double *partial, int64_t chunks)
{
    kernel_begin();
    SHARED_MEMORY(shared);
    double *room = (double *)shared;
    int64_t channels = args.channels, channel = (int64_t)blockIdx.x * WARP + threadIdx.x;
    double sum = chunks_sum(partial, chunks, channels, room);
    double product = chunks_sum(partial + channels, chunks, channels, room + FINISH_WARPS * WARP);
    if (threadIdx.x >= WARP || channel >= channels)
        return;
    args.sums[channel] = sum;
    args.sums[channels + channel] = product;
    if (channel == 0)
        args.sums[2 * channels] = (double)args.rows;
    if (args.dgamma != NULL) {
        gradient_put(&args.dgamma[channel], (float)product, args.overwrite);
        gradient_put(&args.dbeta[channel], (float)sum, args.overwrite);
    }
    if (args.drunning_mean != NULL && args.forward_sums != NULL) {
        double all = args.forward_sums[2 * channels];
        double share = all > 0 ? (double)args.rows / all : 0;
        float weight = (float)((double)args.running_weight * share);
        gradient_put(&args.drunning_mean[channel], weight * args.statistics[channel],
                     args.overwrite);
        gradient_put(&args.drunning_variance[channel],
                     weight * args.statistics[2 * channels + channel], args.overwrite);
    }
}

template <typename number>
static void backward_sums_launch(struct stream *stream, const struct batch_norm_backward_sums *args)
{
    const void *const tensors[] = {args->x,          args->y,     args->add, args->dy,
                                   args->statistics, args->gamma, args->beta};
    struct grid grid =
        grid_of_sums(args->rows, args->channels, all_fit(args->channels, tensors, 7));
    dim3 blocks(grid.chunks, grid.columns);
    double *partial = partial_sums(stream, grid);
    float zero = type_rounds_to_zero(args->type);
    if (grid.chunks > 0 && args->beta != NULL)
        KERNEL_LAUNCH((backward_sums_kernel<number, true>), blocks, THREADS, SUMS_ROOM,
                      stream->handle, grid, *args, zero, partial);
    else if (grid.chunks > 0)
        KERNEL_LAUNCH((backward_sums_kernel<number, false>), blocks, THREADS, SUMS_ROOM,
                      stream->handle, grid, *args, zero, partial);
    KERNEL_LAUNCH(backward_finish_kernel, blocks_for(args->channels, WARP), FINISH_WARPS * WARP,
                  2 * FINISH_WARPS * WARP * sizeof(double), stream->handle, *args, partial,
                  (int64_t)grid.chunks);
}

void cuda_batch_norm_backward_sums(struct stream *stream,
                                   const struct batch_norm_backward_sums *args)
{
    if (args->channels > 0)
        NUMBER_SWITCH(args->type, backward_sums_launch, stream, args);
}

/* ---- Second step of the gradient: dx, which may be dy */
template <typename number, bool computes>
__global__ static void backward_kernel(struct grid grid, struct batch_norm_backward args,
                                       float zero)
{
    kernel_begin();
    struct position position = position_of(grid);
    if (position.outside)
        return;
    struct eight mean = channels_load(args.statistics, grid, position);
    struct eight rstd = channels_load(args.statistics + grid.channels, grid, position);
    struct eight scale = channels_load((const number *)args.gamma, grid, position);
    struct eight beta = {}, of_sum = {}, of_product = {};
    if (computes)
        beta = channels_load((const number *)args.beta, grid, position);
    for (int i = 0; i < 8; i++) {
        scale.value[i] *= rstd.value[i];
        if (args.sums != NULL && i < position.left) {
            float rows = (float)args.sums[2 * grid.channels];
            const double *sums = args.sums + position.channel + i;
            of_sum.value[i] = (float)sums[0] / rows;
            of_product.value[i] = (float)sums[grid.channels] / rows * rstd.value[i];
        }
    }
    for (int64_t row = position.row; row < position.end; row += TOGETHER * grid.lines) {
        struct eight x[TOGETHER] = {}, dy[TOGETHER] = {};
        UNROLL for (int k = 0; k < TOGETHER; k++) if (row + k * grid.lines < position.end)
        {
            x[k] = position_load((const number *)args.x, grid, position, row + k * grid.lines);
            dy[k] = position_load((const number *)args.dy, grid, position, row + k * grid.lines);
        }
        UNROLL for (int k = 0; k < TOGETHER; k++)
        {
            if (computes)
                mask_compute(&dy[k], x[k], mean, scale, beta, zero);
            for (int i = 0; i < 8; i++) {
                float off = (x[k].value[i] - mean.value[i]) * of_product.value[i];
                dy[k].value[i] = scale.value[i] * (dy[k].value[i] - of_sum.value[i] - off);
            }
            if (row + k * grid.lines < position.end)
                position_store((number *)args.dx, grid, position, row + k * grid.lines, dy[k]);
        }
    }
}

template <typename number>
static void backward_launch(struct stream *stream, const struct batch_norm_backward *args)
{
    const void *const tensors[] = {args->x,  args->gamma, args->statistics,
                                   args->dy, args->dx,    args->beta};
    struct grid grid =
        grid_of_elements(args->rows, args->channels, all_fit(args->channels, tensors, 6));
    dim3 blocks(grid.chunks, grid.columns);
    float zero = type_rounds_to_zero(args->type);
    if (args->beta != NULL)
        KERNEL_LAUNCH((backward_kernel<number, true>), blocks, THREADS, 0, stream->handle, grid,
                      *args, zero);
    else
        KERNEL_LAUNCH((backward_kernel<number, false>), blocks, THREADS, 0, stream->handle, grid,
                      *args, zero);
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
