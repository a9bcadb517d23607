// SPDX-License-Identifier: BSD-3-Clause
/* Layer normalisation, limited by memory bandwidth. A warp keeps a row in registers between passes,
 * so that each tensor is moved once and the variance is computed around the mean. In the backward
 * pass the warps of a block also keep their sums over rows in registers. Rows that are too wide or
 * unaligned use simple, slow kernels: a block processes a row one number per thread. */
#include "cuda.h"
#include "kernel.h"

/* Octets of a row per lane: variants for rows of up to 256, 768, 1536. */
enum { OCTETS_SMALL = 1, OCTETS_MIDDLE = 3, OCTETS_LARGE = 6 };
enum { FORWARD_THREADS = 256, SLOW_THREADS = 256 };
/* Shared memory of the slow kernels: two sums per warp. */
enum { SLOW_ROOM = 2 * SLOW_THREADS / WARP * sizeof(float) };

/* In the backward pass each multiprocessor runs one block, because there are at most SUM_CHUNKS
 * chunks of rows. So the block is as large as its threads' registers allow. `size` is the size of
 * an element in bytes. */
__host__ __device__ constexpr int backward_threads(int octets_held, size_t size)
{
    return octets_held == OCTETS_SMALL   ? 768
           : octets_held == OCTETS_LARGE ? 256
           : size == sizeof(float)       ? 384
                                         : 512;
}

/* Call function<number, octets_held>(arguments...) for a row of `width` elements. */
#define OCTETS_SWITCH(width, number, function, ...)                                                \
    do {                                                                                           \
        if ((width) <= 8 * WARP * OCTETS_SMALL)                                                    \
            function<number, OCTETS_SMALL>(__VA_ARGS__);                                           \
        else if ((width) <= 8 * WARP * OCTETS_MIDDLE)                                              \
            function<number, OCTETS_MIDDLE>(__VA_ARGS__);                                          \
        else                                                                                       \
            function<number, OCTETS_LARGE>(__VA_ARGS__);                                           \
    } while (0)

static bool registers_hold(int64_t width)
{
    return width <= 8 * WARP * OCTETS_LARGE;
}

/* Zeros past the end of the row. */
template <typename number>
__device__ static inline struct packed_eight<number> packed_load(const void *row, int octet,
                                                                 int octets) {
    struct packed_eight<number> packed = {
    };
    if (octet < octets)
        packed = ((const struct packed_eight<number> *)row)[octet];
    return packed;
}

/* First element of a row; see norm_forward.group. */
__device__ static inline int64_t
row_at(int64_t row, int64_t width, int64_t group, int64_t stride)
{
    return group == 0 ? row * width : row / group * stride + row % group * width;
}

/* ---- Forward: one row per warp */
template <typename number, int octets_held>
__global__ static void forward_kernel(struct norm_forward args)
{
    kernel_begin();
    int64_t row = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    int lane = (int)threadIdx.x % WARP, octets = (int)args.width / 8;
    if (row >= args.rows)
        return;
    int64_t at = row_at(row, args.width, args.group, args.stride);
    const number *x = (const number *)args.x + at;
    number *y = (number *)args.y + at;
    struct packed_eight<number> read[octets_held];
    struct eight held[octets_held];
    float sum = 0, squares = 0;
    for (int k = 0; k < octets_held; k++)
        read[k] = packed_load<number>(x, k * WARP + lane, octets);
    for (int k = 0; k < octets_held; k++)
        if (args.kept != NULL && k * WARP + lane < octets)
            ((struct packed_eight<number> *)args.kept)[row * octets + k * WARP + lane] = read[k];
    for (int k = 0; k < octets_held; k++) {
        held[k] = packed_open(read[k]);
        for (int i = 0; i < 8; i++)
            sum += held[k].value[i];
    }
    float mean = warp_sum(sum) / (float)args.width;
    for (int k = 0; k < octets_held; k++)
        for (int i = 0; i < 8; i++) {
            held[k].value[i] -= mean;
            squares += k * WARP + lane < octets ? held[k].value[i] * held[k].value[i] : 0;
        }
    float rstd = 1 / sqrtf(warp_sum(squares) / (float)args.width + args.epsilon);
    for (int k = 0; k < octets_held; k++)
        if (k * WARP + lane < octets) {
            int column = (k * WARP + lane) * 8;
            struct eight gamma = eight_load((const number *)args.gamma + column);
            struct eight beta = eight_load((const number *)args.beta + column);
            for (int i = 0; i < 8; i++)
                held[k].value[i] = held[k].value[i] * rstd * gamma.value[i] + beta.value[i];
            eight_store(y + column, held[k]);
        }
    if (args.mean != NULL && lane == 0) {
        args.mean[row] = mean;
        args.rstd[row] = rstd;
    }
}

/* For any row: one row per block. */
template <typename number> __global__ static void slow_forward_kernel(struct norm_forward args)
{
    kernel_begin();
    SHARED_MEMORY(shared);
    float *room = (float *)shared;
    int64_t width = args.width, row = blockIdx.x;
    int64_t at = row_at(row, width, args.group, args.stride);
    const number *x = (const number *)args.x + at;
    const number *gamma = (const number *)args.gamma, *beta = (const number *)args.beta;
    float sum = 0, squares = 0;
    for (int64_t i = threadIdx.x; i < width; i += SLOW_THREADS) {
        if (args.kept != NULL)
            ((number *)args.kept)[row * width + i] = x[i];
        sum += number_load(x[i]);
    }
    float mean = block_sum(sum, room) / (float)width;
    for (int64_t i = threadIdx.x; i < width; i += SLOW_THREADS) {
        float difference = number_load(x[i]) - mean;
        squares += difference * difference;
    }
    squares = block_sum(squares, room + SLOW_THREADS / WARP);
    float rstd = 1 / sqrtf(squares / (float)width + args.epsilon);
    for (int64_t i = threadIdx.x; i < width; i += SLOW_THREADS) {
        float normal = (number_load(x[i]) - mean) * rstd;
        number_store((number *)args.y + at + i,
                     normal * number_load(gamma[i]) + number_load(beta[i]));
    }
    if (args.mean != NULL && threadIdx.x == 0) {
        args.mean[row] = mean;
        args.rstd[row] = rstd;
    }
}

template <typename number, int octets_held>
static void forward_held_launch(struct stream *stream, const struct norm_forward *args)
{
    KERNEL_LAUNCH((forward_kernel<number, octets_held>),
                  blocks_for(args->rows, FORWARD_THREADS / WARP), FORWARD_THREADS, 0,
                  stream->handle, *args);
}

template <typename number>
static void forward_launch(struct stream *stream, const struct norm_forward *args)
{
    bool fits = eight_fits(args->x, args->width) && eight_fits(args->y, args->width) &&
                eight_fits(args->gamma, args->width) && eight_fits(args->beta, args->width) &&
                eight_fits(args->kept, args->width) && args->stride % 8 == 0;
    if (fits && registers_hold(args->width))
        OCTETS_SWITCH(args->width, number, forward_held_launch, stream, args);
    else
        KERNEL_LAUNCH(slow_forward_kernel<number>, (unsigned)args->rows, SLOW_THREADS, SLOW_ROOM,
                      stream->handle, *args);
}

void cuda_norm_forward(struct stream *stream, const struct norm_forward *args)
{
    if (args->rows > 0 && args->width > 0)
        NUMBER_SWITCH(args->type, forward_launch, stream, args);
}

/* ---- Backward. With xhat the normalised x and g = dy * gamma:
 *   dx = add + rstd (g - mean(g) - xhat mean(g xhat)), dgamma = sum of dy xhat, dbeta = sum of dy
 */

/* The lane's sums of `add` in shared memory, [warps, octets_held, 8, WARP]. */
template <int octets_held> __device__ static inline float *add_sums_of(unsigned char *shared)
{
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    return (float *)shared + warp * octets_held * 8 * WARP + lane;
}

__device__ static inline void add_sums_add(float *sums, const struct eight &add)
{
    for (int i = 0; i < 8; i++)
        sums[i * WARP] += add.value[i];
}

/* One row of a warp; adds to its lanes' sums. `add` is read before any of dx is written, because
 * both may be the same memory. `shared` holds the sums of `add` (add_sums_of), if they are needed.
 */
template <typename number, int octets_held>
__device__ static inline void row_backward(const struct norm_backward &args, int64_t row,
                                           struct eight *dgamma, struct eight *dbeta,
                                           unsigned char *shared)
{
    int lane = (int)threadIdx.x % WARP, octets = (int)args.width / 8;
    int64_t at = row_at(row, args.width, args.group, args.stride);
    const number *x_row = (const number *)args.x + row * args.width;
    float mean = args.mean[row], rstd = args.rstd[row], sum_g = 0, sum_gx = 0;
    struct packed_eight<number> x_read[octets_held], dy_read[octets_held];
    struct eight x[octets_held], g[octets_held];
    for (int k = 0; k < octets_held; k++) {
        x_read[k] = packed_load<number>(x_row, k * WARP + lane, octets);
        dy_read[k] = packed_load<number>((const number *)args.dy + at, k * WARP + lane, octets);
    }
    for (int k = 0; k < octets_held; k++) {
        struct eight gamma = packed_open(packed_load<number>(args.gamma, k * WARP + lane, octets));
        x[k] = packed_open(x_read[k]);
        g[k] = packed_open(dy_read[k]);
        for (int i = 0; i < 8; i++) {
            x[k].value[i] = (x[k].value[i] - mean) * rstd;
            dgamma[k].value[i] += g[k].value[i] * x[k].value[i];
            dbeta[k].value[i] += g[k].value[i];
            g[k].value[i] *= gamma.value[i];
            sum_g += g[k].value[i];
            sum_gx += g[k].value[i] * x[k].value[i];
        }
    }
    sum_g = warp_sum(sum_g) / (float)args.width;
    sum_gx = warp_sum(sum_gx) / (float)args.width;
    for (int k = 0; k < octets_held; k++)
        for (int i = 0; i < 8; i++)
            g[k].value[i] = rstd * (g[k].value[i] - sum_g - x[k].value[i] * sum_gx);
    if (args.add != NULL)
        for (int k = 0; k < octets_held; k++)
            x_read[k] = packed_load<number>((const number *)args.add + at, k * WARP + lane, octets);
    for (int k = 0; k < octets_held; k++) {
        if (args.add != NULL) {
            struct eight add = packed_open(x_read[k]);
            for (int i = 0; i < 8; i++)
                g[k].value[i] += add.value[i];
            if (args.add_sums != NULL)
                add_sums_add(add_sums_of<octets_held>(shared) + k * 8 * WARP, add);
        }
        if (k * WARP + lane < octets)
            eight_store((number *)args.dx + at + (k * WARP + lane) * 8, g[k]);
    }
}

/* Reduce the sums of all warps of the block into the first warp: in each round the upper half of
 * the warps adds its sums to the lower half. The shared memory holds the values passed in the first
 * round. */
template <int octets_held> __device__ static inline void warps_add(struct eight *sums, float *room)
{
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    for (int givers, warps = (int)blockDim.x / WARP; warps > 1; warps -= givers) {
        givers = warps / 2;
        int keepers = warps - givers;
        float *slot = room + ((warp % keepers * octets_held) * WARP + lane) * 8;
        if (warp >= keepers && warp < warps)
            for (int k = 0; k < octets_held; k++)
                eight_store(slot + k * WARP * 8, sums[k]);
        __syncthreads();
        if (warp < givers)
            for (int k = 0; k < octets_held; k++) {
                struct eight other = eight_load(slot + k * WARP * 8);
                for (int i = 0; i < 8; i++)
                    sums[k].value[i] += other.value[i];
            }
        __syncthreads();
    }
}

enum sum_set { SUM_DGAMMA, SUM_DBETA, SUM_ADD, SUM_SETS };

/* Add the first `count` of eight values to the block's sums of columns `column`, ... or, with
 * `first`, begin these sums. They are partial, [sets, chunks, width], or the gradients themselves
 * if there is one chunk (partial is NULL). */
__device__ static inline void sums_put(const struct norm_backward &args, float *partial,
                                       enum sum_set set, int64_t column, const float *values,
                                       int count, bool first)
{
    float *sums = set == SUM_DGAMMA ? args.dgamma : set == SUM_DBETA ? args.dbeta : args.add_sums;
    if (partial != NULL)
        sums = partial + ((int64_t)set * gridDim.x + blockIdx.x) * args.width;
    UNROLL
    for (int i = 0; i < count; i++)
        gradient_put(&sums[column + i], values[i], first && (partial != NULL || args.overwrite));
}

/* Add the warps' sums of `add`, [warps, octets_held, 8, WARP] in shared memory, and store the
 * totals. The shared memory may be overwritten afterwards. */
template <int octets_held>
__device__ static inline void add_sums_store(const struct norm_backward &args, float *partial,
                                             const float *room)
{
    const int count = octets_held * 8 * WARP;
    __syncthreads();
    for (int at = (int)threadIdx.x; at < count; at += (int)blockDim.x) {
        int column = (at / (8 * WARP) * WARP + at % WARP) * 8 + at / WARP % 8;
        float sum = 0;
        for (int warp = 0; warp < (int)blockDim.x / WARP; warp++)
            sum += room[warp * count + at];
        if (column < args.width)
            sums_put(args, partial, SUM_ADD, column, &sum, 1, true);
    }
    __syncthreads();
}

/* One chunk of rows per block. */
template <typename number, int octets_held>
__global__ static void __launch_bounds__(backward_threads(octets_held, sizeof(number)))
    backward_kernel(struct norm_backward args, int64_t chunk_rows, float *partial)
{
    kernel_begin(backward_threads(octets_held, sizeof(number)));
    SHARED_MEMORY(shared);
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int octets = (int)args.width / 8;
    int end = ((int)blockIdx.x + 1) * (int)chunk_rows;
    end = end < args.rows ? end : (int)args.rows;
    struct eight dgamma[octets_held] = {}, dbeta[octets_held] = {};
    if (args.add_sums != NULL)
        for (int i = 0; i < octets_held * 8; i++)
            add_sums_of<octets_held>(shared)[i * WARP] = 0;
    for (int row = (int)blockIdx.x * (int)chunk_rows + warp; row < end;
         row += (int)blockDim.x / WARP)
        row_backward<number, octets_held>(args, row, dgamma, dbeta, shared);
    if (args.add_sums != NULL)
        add_sums_store<octets_held>(args, partial, (const float *)shared);
    if (args.dgamma == NULL)
        return;
    warps_add<octets_held>(dgamma, (float *)shared);
    warps_add<octets_held>(dbeta, (float *)shared);
    for (int k = 0; k < octets_held; k++)
        if (warp == 0 && k * WARP + lane < octets) {
            int column = (k * WARP + lane) * 8;
            sums_put(args, partial, SUM_DGAMMA, column, dgamma[k].value, 8, true);
            sums_put(args, partial, SUM_DBETA, column, dbeta[k].value, 8, true);
        }
}

/* For any row: one chunk of rows per block. A thread adds to the sums of its columns in memory. */
template <typename number>
__global__ static void slow_backward_kernel(struct norm_backward args, int64_t chunk_rows,
                                            float *partial)
{
    kernel_begin();
    SHARED_MEMORY(shared);
    float *room = (float *)shared;
    int64_t width = args.width, first = blockIdx.x * chunk_rows;
    int sets = args.dgamma == NULL ? 0 : args.add_sums == NULL ? SUM_ADD : SUM_SETS;
    const number *gamma = (const number *)args.gamma;
    for (int64_t row = first; row < first + chunk_rows && row < args.rows; row++) {
        int64_t at = row_at(row, width, args.group, args.stride);
        const number *x = (const number *)args.x + row * width;
        const number *dy = (const number *)args.dy + at, *add = (const number *)args.add;
        float mean = args.mean[row], rstd = args.rstd[row], sum_g = 0, sum_gx = 0;
        for (int64_t i = threadIdx.x; i < width; i += SLOW_THREADS) {
            float g = number_load(dy[i]) * number_load(gamma[i]);
            sum_g += g;
            sum_gx += g * ((number_load(x[i]) - mean) * rstd);
        }
        sum_g = block_sum(sum_g, room) / (float)width;
        sum_gx = block_sum(sum_gx, room + SLOW_THREADS / WARP) / (float)width;
        for (int64_t i = threadIdx.x; i < width; i += SLOW_THREADS) {
            float normal = (number_load(x[i]) - mean) * rstd, g = number_load(dy[i]);
            float terms[SUM_SETS] = {g * normal, g, add != NULL ? number_load(add[at + i]) : 0};
            float slope = g * number_load(gamma[i]) - sum_g - normal * sum_gx;
            number_store((number *)args.dx + at + i, terms[SUM_ADD] + rstd * slope);
            for (int set = 0; set < sets; set++)
                sums_put(args, partial, (enum sum_set)set, i, &terms[set], 1, row == first);
        }
    }
}

/* ---- Launches of backward */
struct norm_chunks {
    int64_t rows, count;
    int sets;       /* SUM_ADD or, with add_sums, SUM_SETS */
    float *partial; /* [sets, count, width]; NULL: one chunk, or no gradients of parameters */
};

/* The chunks, and with them the bits of the sums, depend on the sizes only. */
static struct norm_chunks chunks_of(struct stream *stream, const struct norm_backward *args)
{
    int sets = args->add_sums != NULL ? SUM_SETS : SUM_ADD;
    ENSURE(args->rows <= INT32_MAX / 2, "norm: %lld rows are too many", (long long)args->rows);
    size_t bytes = (size_t)(sets * args->width) * sizeof(float); /* of a chunk's sums */
    struct norm_chunks chunks = {sum_chunk_rows(args->rows), 0, sets, NULL};
    if (args->dgamma != NULL) {
        int64_t most = (int64_t)(WORKSPACE_SUMS / bytes);
        ENSURE(most > 0, "norm: width %lld exceeds the workspace", (long long)args->width);
        int64_t least_rows = (args->rows + most - 1) / most;
        chunks.rows = chunks.rows < least_rows ? least_rows : chunks.rows;
    }
    chunks.count = (args->rows + chunks.rows - 1) / chunks.rows;
    if (args->dgamma != NULL && chunks.count > 1)
        chunks.partial = (float *)cuda_workspace_sums(stream->cuda, (size_t)chunks.count * bytes);
    return chunks;
}

template <typename number, int octets_held>
static void backward_held_launch(struct stream *stream, const struct norm_backward *args,
                                 const struct norm_chunks *chunks)
{
    const int threads = backward_threads(octets_held, sizeof(number));
    size_t room = threads / WARP / (args->add_sums != NULL ? 1 : 2) * octets_held * WARP *
                  sizeof(struct eight);
    KERNEL_LAUNCH((backward_kernel<number, octets_held>), (unsigned)chunks->count, threads, room,
                  stream->handle, *args, chunks->rows, chunks->partial);
}

template <typename number>
static void backward_launch(struct stream *stream, const struct norm_backward *args)
{
    int64_t width = args->width;
    bool fits = eight_fits(args->x, width) && eight_fits(args->gamma, width) &&
                eight_fits(args->dy, width) && eight_fits(args->add, width) &&
                eight_fits(args->dx, width) && args->stride % 8 == 0;
    const struct norm_chunks chunks = chunks_of(stream, args);
    float *const sums[SUM_SETS] = {args->dgamma, args->dbeta, args->add_sums};
    if (fits && registers_hold(width))
        OCTETS_SWITCH(width, number, backward_held_launch, stream, args, &chunks);
    else
        KERNEL_LAUNCH(slow_backward_kernel<number>, (unsigned)chunks.count, SLOW_THREADS, SLOW_ROOM,
                      stream->handle, *args, chunks.rows, chunks.partial);
    if (chunks.partial != NULL)
        columns_add_sets(stream, chunks.partial, chunks.count, width, sums, chunks.sets,
                         args->overwrite);
}

void cuda_norm_backward(struct stream *stream, const struct norm_backward *args)
{
    ENSURE(args->add_sums == NULL || (args->add != NULL && args->dgamma != NULL),
           "norm: add_sums requires add and dgamma");
    if (args->rows > 0 && args->width > 0)
        NUMBER_SWITCH(args->type, backward_launch, stream, args);
}
