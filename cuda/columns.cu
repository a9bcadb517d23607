/* The second half of sums over rows: partial sums of chunks of rows, added up in their order. The
 * chunks depend on the number of rows alone, so every GPU gives the same bits. */
#include "cuda.h"
#include "kernel.h"

int64_t sum_chunk_rows(int64_t rows)
{
    int64_t each = (rows + SUM_CHUNKS - 1) / SUM_CHUNKS;
    return each < 32 ? 32 : each;
}

/* A block takes as many columns as a warp has lanes; each of its warps adds up a stretch of the
 * chunks, so that a column's loads do not wait for each other, and the first adds up the warps. */
enum { WARPS = 8 };

__global__ static void columns_kernel(const float *partial, int64_t chunks, int64_t width,
                                      float *sum)
{
    SHARED_MEMORY(shared);
    float *of_warps = (float *)shared;
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int64_t column = (int64_t)blockIdx.x * WARP + lane, each = (chunks + WARPS - 1) / WARPS;
    float total = 0;
    if (column < width)
        for (int64_t chunk = warp * each; chunk < (warp + 1) * each && chunk < chunks; chunk++)
            total += partial[chunk * width + column];
    of_warps[threadIdx.x] = total;
    __syncthreads();
    if (warp > 0 || column >= width)
        return;
    for (int i = 1; i < WARPS; i++)
        total += of_warps[i * WARP + lane];
    sum[column] += total;
}

void columns_add(struct stream *stream, const float *partial, int64_t chunks, int64_t width,
                 float *sum)
{
    size_t room = WARPS * WARP * sizeof(float);
    if (chunks > 0 && width > 0)
        KERNEL_LAUNCH(columns_kernel, blocks_for(width, WARP), WARPS * WARP, room, stream->handle,
                      partial, chunks, width, sum);
}
