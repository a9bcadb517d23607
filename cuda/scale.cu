// SPDX-License-Identifier: BSD-3-Clause
/* The gradient of LayerScale: one pass over the gradient of the output, which also computes the
 * column sums. */
#include "cuda.h"
#include "kernel.h"

enum { WARPS = 8, COLUMNS = WARP * 8 };

/* A block processes a chunk of rows and 256 columns, one octet per thread; its warps take the rows
 * in round-robin order. dscale is summed to partial [chunks, width]; if partial is NULL there is
 * one chunk, whose sums are added to dscale. */
template <typename number>
__global__ static void scale_backward_kernel(struct scale_backward args, int64_t chunk_rows,
                                             float *partial, struct mask mask, struct mask path,
                                             bool fits)
{
    kernel_begin();
    SHARED_MEMORY(shared);
    float *room = (float *)shared; /* [WARPS, COLUMNS] */
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    int64_t column = (int64_t)blockIdx.x * COLUMNS, at = column + lane * 8, left = args.width - at;
    int64_t end = ((int64_t)blockIdx.y + 1) * chunk_rows;
    struct eight sum = {}, scale = {};
    end = end < args.rows ? end : args.rows;
    if (left > 0)
        scale = eight_load_some((const number *)args.scale + at, left, fits);
    for (int64_t row = (int64_t)blockIdx.y * chunk_rows + warp; row < end && left > 0;
         row += WARPS) {
        uint32_t sample = (uint32_t)row / (uint32_t)args.rows_per_sample;
        int64_t row_of_sample = row - (int64_t)sample * args.rows_per_sample;
        struct eight g =
            eight_load_some((const number *)args.dy + row * args.width + at, left, fits);
        struct eight pre =
            eight_load_some((const number *)args.pre + row * args.width + at, left, fits);
        mask_apply(mask, sample, row_of_sample * ((args.width + 7) / 8) + at / 8, &g);
        float factor = path_factor(path, sample);
        for (int i = 0; i < 8; i++) {
            g.value[i] *= factor;
            sum.value[i] += g.value[i] * pre.value[i];
            g.value[i] *= scale.value[i];
        }
        eight_store_some((number *)args.dx + row * args.width + at, g, left, fits);
    }
    if (args.dscale == NULL)
        return;
    eight_store(room + warp * COLUMNS + lane * 8, sum);
    __syncthreads();
    float total = 0;
    for (int i = 0; i < WARPS; i++)
        total += room[i * COLUMNS + (int)threadIdx.x];
    column += threadIdx.x;
    if (column < args.width && partial != NULL)
        partial[(int64_t)blockIdx.y * args.width + column] = total;
    else if (column < args.width)
        gradient_put(&args.dscale[column], total, args.overwrite);
}

template <typename number>
static void scale_backward_launch(struct stream *stream, const struct scale_backward *args)
{
    int64_t width = args->width, rows = sum_chunk_rows(args->rows);
    int64_t most = WORKSPACE_SUMS / (width * (int64_t)sizeof(float));
    ENSURE(most > 0, "LayerScale: width %lld exceeds the workspace", (long long)width);
    int64_t least = (args->rows + most - 1) / most;
    rows = rows < least ? least : rows;
    int64_t chunks = (args->rows + rows - 1) / rows;
    bool fits = eight_fits(args->pre, width) && eight_fits(args->dy, width) &&
                eight_fits(args->dx, width) && eight_fits(args->scale, width);
    float *partial = NULL;
    if (args->dscale != NULL && chunks > 1)
        partial =
            (float *)cuda_workspace_sums(stream->cuda, (size_t)(chunks * width) * sizeof *partial);
    KERNEL_LAUNCH(scale_backward_kernel<number>, dim3(blocks_for(width, COLUMNS), (unsigned)chunks),
                  WARPS * WARP, WARPS * COLUMNS * sizeof(float), stream->handle, *args, rows,
                  partial, mask_of(&args->dropout), mask_of(&args->drop_path), fits);
    if (partial != NULL)
        columns_add(stream, partial, chunks, width, width, args->dscale, args->overwrite);
}

void cuda_scale_backward(struct stream *stream, const struct scale_backward *args)
{
    if (args->rows > 0 && args->width > 0)
        NUMBER_SWITCH(args->type, scale_backward_launch, stream, args);
}
