// SPDX-License-Identifier: BSD-3-Clause
/* Column sums in kernels that process all rows of a tensor (columns.cu). A block processes a chunk
 * of rows and 256 columns, one octet per thread; its warps take the rows in round-robin order. */
#ifndef VITTRAIN_CUDA_COLUMNS_H
#define VITTRAIN_CUDA_COLUMNS_H

#include "cuda.h"
#include "kernel.h"

enum {
    COLUMN_WARPS = 8,
    COLUMN_THREADS = COLUMN_WARPS * WARP,
    BLOCK_COLUMNS = WARP * 8,
    COLUMN_ROOM = COLUMN_WARPS * BLOCK_COLUMNS * (int)sizeof(float) /* shared memory of a block */
};

struct column_sums {
    uint32_t rows, chunk_rows, chunks;
    int64_t width;
    float *partial; /* [chunks, width]; NULL: one chunk, or no sums */
    float *sum;     /* [width], or NULL: no sums */
    bool overwrite;
};

/* Divide the rows into chunks of chunk_rows, doubled until the partial sums fit into the workspace.
 * chunk_rows depends on the sizes only, for the same bits on every GPU. sum may be NULL. */
struct column_sums columns_cut(struct stream *stream, int64_t rows, int64_t width,
                               int64_t chunk_rows, float *sum, bool overwrite);
/* Return the arguments of a kernel for `rows` rows from `first` on, a multiple of the chunk. */
struct column_sums columns_part(const struct column_sums *sums, int64_t first, int64_t rows);
/* Add the sums of the chunks. Call it after the kernels. */
void columns_finish(struct stream *stream, const struct column_sums *sums);

static inline dim3 columns_grid(const struct column_sums *sums)
{
    return dim3(blocks_for(sums->width, BLOCK_COLUMNS), (unsigned)sums->chunks);
}

/* The rows and the columns of a thread. */
struct column_position {
    uint32_t row, end; /* rows row, row + COLUMN_WARPS, ... before end */
    int column;
    int left; /* columns from there to the end of the row; without any there are no rows */
};

__device__ static inline struct column_position column_position_of(const struct column_sums &sums)
{
    struct column_position position;
    uint32_t first = blockIdx.y * sums.chunk_rows, end = first + sums.chunk_rows;
    position.column = (int)(blockIdx.x * BLOCK_COLUMNS + threadIdx.x % WARP * 8);
    position.left = (int)sums.width - position.column;
    position.row = first + threadIdx.x / WARP;
    position.end = position.left <= 0 ? 0 : end < sums.rows ? end : sums.rows;
    return position;
}

/* Store the block's sums, given those of its threads. All threads must call it. */
__device__ static inline void column_sums_store(const struct column_sums &sums,
                                                const struct eight &sum, unsigned char *shared)
{
    float *room = (float *)shared; /* [COLUMN_WARPS, BLOCK_COLUMNS] */
    if (sums.sum == NULL)
        return;
    eight_store(room + threadIdx.x * 8, sum);
    __syncthreads();
    float total = 0;
    for (int i = 0; i < COLUMN_WARPS; i++)
        total += room[i * BLOCK_COLUMNS + (int)threadIdx.x];
    int64_t column = (int64_t)blockIdx.x * BLOCK_COLUMNS + threadIdx.x;
    if (column < sums.width && sums.partial != NULL)
        sums.partial[(int64_t)blockIdx.y * sums.width + column] = total;
    else if (column < sums.width)
        gradient_put(&sums.sum[column], total, sums.overwrite);
}

#endif
