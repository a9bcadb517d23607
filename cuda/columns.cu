// SPDX-License-Identifier: BSD-3-Clause
/* Sums over rows: first over chunks of rows, then over the partial sums in order. The chunks depend
 * on the number of rows only, so every GPU computes identical bits. */
#include "columns.h"

int64_t sum_chunk_rows(int64_t rows)
{
    int64_t each = (rows + SUM_CHUNKS - 1) / SUM_CHUNKS;
    return each < 32 ? 32 : each;
}

/* A block processes WARP columns; each of its warps sums a range of the chunks, so that the loads
 * of a column are in flight together, and the first warp adds the warps' sums. blockIdx.y: the set
 * of partial sums. */
enum { SETS_MOST = 3 };

struct column_sets {
    float *sum[SETS_MOST];
};

__global__ static void columns_kernel(const float *partial, int64_t chunks, int64_t stride,
                                      int64_t width, struct column_sets sets, bool overwrite)
{
    kernel_begin();
    SHARED_MEMORY(shared);
    float *of_warps = (float *)shared, *sum = sets.sum[0];
    for (unsigned i = 1; i < SETS_MOST; i++)
        sum = blockIdx.y == i ? sets.sum[i] : sum; /* a computed index would use local memory */
    partial += (int64_t)blockIdx.y * chunks * stride;
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int64_t column = (int64_t)blockIdx.x * WARP + lane,
            each = (chunks + COLUMN_WARPS - 1) / COLUMN_WARPS;
    float total = 0;
    if (column < width)
        for (int64_t chunk = warp * each; chunk < (warp + 1) * each && chunk < chunks; chunk++)
            total += partial[chunk * stride + column];
    of_warps[threadIdx.x] = total;
    __syncthreads();
    if (warp > 0 || column >= width)
        return;
    for (int i = 1; i < COLUMN_WARPS; i++)
        total += of_warps[i * WARP + lane];
    gradient_put(&sum[column], total, overwrite);
}

static void columns_launch(struct stream *stream, const float *partial, int64_t chunks,
                           int64_t stride, int64_t width, float *const *sums, int count,
                           bool overwrite)
{
    struct column_sets sets = {};
    for (int i = 0; i < count; i++)
        sets.sum[i] = sums[i];
    if (chunks > 0 && width > 0)
        KERNEL_LAUNCH(columns_kernel, dim3(blocks_for(width, WARP), (unsigned)count),
                      COLUMN_THREADS, COLUMN_THREADS * sizeof(float), stream->handle, partial,
                      chunks, stride, width, sets, overwrite);
}

void columns_add_sets(struct stream *stream, const float *partial, int64_t chunks, int64_t width,
                      float *const *sums, int count, bool overwrite)
{
    columns_launch(stream, partial, chunks, width, width, sums, count, overwrite);
}

void columns_add(struct stream *stream, const float *partial, int64_t chunks, int64_t stride,
                 int64_t width, float *sum, bool overwrite)
{
    columns_launch(stream, partial, chunks, stride, width, &sum, 1, overwrite);
}

/* ---- First step (columns.h) */
struct column_sums columns_cut(struct stream *stream, int64_t rows, int64_t width,
                               int64_t chunk_rows, float *sum, bool overwrite)
{
    struct column_sums sums = {};
    int64_t most = WORKSPACE_SUMS / (width * (int64_t)sizeof(float));
    ENSURE(rows <= INT32_MAX && most > 0, "column sums of %lld rows of %lld", (long long)rows,
           (long long)width);
    while (blocks_for(rows, chunk_rows) > most)
        chunk_rows *= 2;
    sums.rows = (uint32_t)rows;
    sums.chunk_rows = (uint32_t)chunk_rows;
    sums.chunks = blocks_for(rows, chunk_rows);
    sums.width = width;
    sums.sum = sum;
    sums.overwrite = overwrite;
    if (sum != NULL && sums.chunks > 1)
        sums.partial = (float *)cuda_workspace_sums(stream->cuda, (size_t)(sums.chunks * width) *
                                                                      sizeof *sums.partial);
    return sums;
}

struct column_sums columns_part(const struct column_sums *sums, int64_t first, int64_t rows)
{
    struct column_sums part = *sums;
    part.rows = (uint32_t)rows;
    part.chunks = blocks_for(rows, sums->chunk_rows);
    if (part.partial != NULL)
        part.partial += first / sums->chunk_rows * sums->width;
    return part;
}

void columns_finish(struct stream *stream, const struct column_sums *sums)
{
    if (sums->partial != NULL)
        columns_add(stream, sums->partial, sums->chunks, sums->width, sums->width, sums->sum,
                    sums->overwrite);
}

/* For operations without a kernel that could include it. */
template <typename number>
__global__ static void column_sums_kernel(const number *values, struct column_sums sums, bool fits)
{
    kernel_begin();
    SHARED_MEMORY(shared);
    struct column_position position = column_position_of(sums);
    struct eight sum = {};
#pragma unroll 4
    for (int64_t row = position.row; row < position.end; row += COLUMN_WARPS) {
        struct eight eight =
            eight_load_some(values + row * sums.width + position.column, position.left, fits);
        for (int i = 0; i < 8; i++)
            sum.value[i] += eight.value[i];
    }
    column_sums_store(sums, sum, shared);
}

template <typename number>
static void columns_sum_launch(struct stream *stream, const void *values, int64_t rows,
                               int64_t width, float *sum, bool overwrite)
{
    struct column_sums sums =
        columns_cut(stream, rows, width, sum_chunk_rows(rows), sum, overwrite);
    KERNEL_LAUNCH(column_sums_kernel<number>, columns_grid(&sums), COLUMN_THREADS, COLUMN_ROOM,
                  stream->handle, (const number *)values, sums, eight_fits(values, width));
    columns_finish(stream, &sums);
}

void columns_sum(struct stream *stream, enum data_type type, const void *values, int64_t rows,
                 int64_t width, float *sum, bool overwrite)
{
    if (rows > 0 && width > 0)
        NUMBER_SWITCH(type, columns_sum_launch, stream, values, rows, width, sum, overwrite);
}
