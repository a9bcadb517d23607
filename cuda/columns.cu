// SPDX-License-Identifier: BSD-3-Clause
/* Sums over rows: first over chunks of rows, then over the partial sums in order. The chunks depend
 * on the number of rows only, so every GPU computes identical bits. */
#include "cuda.h"
#include "kernel.h"

int64_t sum_chunk_rows(int64_t rows)
{
    int64_t each = (rows + SUM_CHUNKS - 1) / SUM_CHUNKS;
    return each < 32 ? 32 : each;
}

/* A block processes WARP columns; each of its warps sums a range of the chunks, so that the loads
 * of a column are in flight together, and the first warp adds the warps' sums. Blocks with y = 1
 * reduce the second set of partial sums. */
enum { WARPS = 8 };

__global__ static void columns_kernel(const float *partial, int64_t chunks, int64_t stride,
                                      int64_t width, float *first, float *second, bool overwrite)
{
    kernel_begin();
    SHARED_MEMORY(shared);
    float *of_warps = (float *)shared, *sum = blockIdx.y == 0 ? first : second;
    partial += (int64_t)blockIdx.y * chunks * stride;
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int64_t column = (int64_t)blockIdx.x * WARP + lane, each = (chunks + WARPS - 1) / WARPS;
    float total = 0;
    if (column < width)
        for (int64_t chunk = warp * each; chunk < (warp + 1) * each && chunk < chunks; chunk++)
            total += partial[chunk * stride + column];
    of_warps[threadIdx.x] = total;
    __syncthreads();
    if (warp > 0 || column >= width)
        return;
    for (int i = 1; i < WARPS; i++)
        total += of_warps[i * WARP + lane];
    gradient_put(&sum[column], total, overwrite);
}

static void columns_launch(struct stream *stream, const float *partial, int64_t chunks,
                           int64_t stride, int64_t width, float *first, float *second,
                           bool overwrite)
{
    size_t room = WARPS * WARP * sizeof(float);
    if (chunks > 0 && width > 0)
        KERNEL_LAUNCH(columns_kernel, dim3(blocks_for(width, WARP), second != NULL ? 2 : 1),
                      WARPS * WARP, room, stream->handle, partial, chunks, stride, width, first,
                      second, overwrite);
}

void columns_add_two(struct stream *stream, const float *partial, int64_t chunks, int64_t width,
                     float *first, float *second, bool overwrite)
{
    columns_launch(stream, partial, chunks, width, width, first, second, overwrite);
}

void columns_add(struct stream *stream, const float *partial, int64_t chunks, int64_t stride,
                 int64_t width, float *sum, bool overwrite)
{
    columns_launch(stream, partial, chunks, stride, width, sum, NULL, overwrite);
}

/* ---- First step, for operations without a kernel that could include it: a block processes a chunk
 * of rows and 256 columns; its warps take the rows in round-robin order. If partial is NULL there
 * is one chunk, which is added to sums. */
enum { SUMS_COLUMNS = WARP * 8 };

template <typename number>
__global__ static void column_sums_kernel(const number *values, int64_t rows, int64_t width,
                                          int64_t stride, int64_t chunk_rows, float *partial,
                                          float *sums, bool overwrite, bool fits)
{
    kernel_begin();
    SHARED_MEMORY(shared);
    float *room = (float *)shared; /* [WARPS, SUMS_COLUMNS] */
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    int64_t column = (int64_t)blockIdx.x * SUMS_COLUMNS, left = width - column - lane * 8;
    int64_t first = (int64_t)blockIdx.y * chunk_rows, end = first + chunk_rows;
    struct eight sum = {};
    end = end < rows ? end : rows;
    if (left > 0) {
#pragma unroll 4
        for (int64_t row = first + warp; row < end; row += WARPS) {
            struct eight eight =
                eight_load_some(values + row * stride + column + lane * 8, left, fits);
            for (int i = 0; i < 8; i++)
                sum.value[i] += eight.value[i];
        }
    }
    for (int i = 0; i < 8; i++)
        room[warp * SUMS_COLUMNS + lane * 8 + i] = sum.value[i];
    __syncthreads();
    float total = 0;
    for (int i = 0; i < WARPS; i++)
        total += room[i * SUMS_COLUMNS + (int)threadIdx.x];
    column += threadIdx.x;
    if (column < width && partial != NULL)
        partial[(int64_t)blockIdx.y * width + column] = total;
    else if (column < width)
        gradient_put(&sums[column], total, overwrite);
}

template <typename number>
static void columns_sum_launch(struct stream *stream, const void *values, int64_t rows,
                               int64_t width, float *sum, bool overwrite)
{
    const int64_t most = WORKSPACE_SUMS / (SUM_CHUNKS * sizeof(float));
    int64_t chunk_rows = sum_chunk_rows(rows), chunks = blocks_for(rows, chunk_rows);
    for (int64_t first = 0; first < width; first += most) {
        int64_t here = width - first < most ? width - first : most;
        float *partial = NULL;
        if (chunks > 1)
            partial = (float *)cuda_workspace_sums(stream->cuda,
                                                   (size_t)(chunks * here) * sizeof *partial);
        KERNEL_LAUNCH(column_sums_kernel<number>,
                      dim3(blocks_for(here, SUMS_COLUMNS), (unsigned)chunks), WARPS * WARP,
                      WARPS * SUMS_COLUMNS * sizeof(float), stream->handle,
                      (const number *)values + first, rows, here, width, chunk_rows, partial,
                      sum + first, overwrite, eight_fits(values, width));
        if (partial != NULL)
            columns_add(stream, partial, chunks, here, here, sum + first, overwrite);
    }
}

void columns_sum(struct stream *stream, enum data_type type, const void *values, int64_t rows,
                 int64_t width, float *sum, bool overwrite)
{
    if (rows > 0 && width > 0)
        NUMBER_SWITCH(type, columns_sum_launch, stream, values, rows, width, sum, overwrite);
}
