/* The second half of sums over rows: partial sums of chunks of rows, added up in their order. The
 * chunks depend on the number of rows alone, so every GPU gives the same bits. */
#include "cuda.h"
#include "kernel.h"

enum { THREADS = 128 };

int64_t sum_chunk_rows(int64_t rows)
{
    int64_t each = (rows + SUM_CHUNKS - 1) / SUM_CHUNKS;
    return each < 32 ? 32 : each;
}

__global__ static void columns_kernel(const float *partial, int64_t chunks, int64_t width,
                                      float *sum)
{
    int64_t column = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= width)
        return;
    float total = 0;
    for (int64_t chunk = 0; chunk < chunks; chunk++)
        total += partial[chunk * width + column];
    sum[column] += total;
}

void columns_add(struct stream *stream, const float *partial, int64_t chunks, int64_t width,
                 float *sum)
{
    if (chunks > 0 && width > 0)
        KERNEL_LAUNCH(columns_kernel, blocks_for(width, THREADS), THREADS, 0, stream->handle,
                      partial, chunks, width, sum);
}
