// SPDX-License-Identifier: BSD-3-Clause
/* The gradient of LayerScale: one pass over the gradient of the output, which also computes the
 * column sums. */
#include "columns.h"

template <typename number>
__global__ static void scale_backward_kernel(struct scale_backward args, struct column_sums sums,
                                             struct mask mask, struct mask path, bool fits)
{
    kernel_begin();
    SHARED_MEMORY(shared);
    struct column_position position = column_position_of(sums);
    int64_t at = position.column, left = position.left;
    struct eight sum = {}, scale = {};
    if (left > 0)
        scale = eight_load_some((const number *)args.scale + at, left, fits);
    for (int64_t row = position.row; row < position.end; row += COLUMN_WARPS) {
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
    column_sums_store(sums, sum, shared);
}

template <typename number>
static void scale_backward_launch(struct stream *stream, const struct scale_backward *args)
{
    int64_t width = args->width;
    bool fits = eight_fits(args->pre, width) && eight_fits(args->dy, width) &&
                eight_fits(args->dx, width) && eight_fits(args->scale, width);
    struct column_sums sums = columns_cut(stream, args->rows, width, sum_chunk_rows(args->rows),
                                          args->dscale, args->overwrite);
    KERNEL_LAUNCH(scale_backward_kernel<number>, columns_grid(&sums), COLUMN_THREADS, COLUMN_ROOM,
                  stream->handle, *args, sums, mask_of(&args->dropout), mask_of(&args->drop_path),
                  fits);
    columns_finish(stream, &sums);
}

void cuda_scale_backward(struct stream *stream, const struct scale_backward *args)
{
    if (args->rows > 0 && args->width > 0)
        NUMBER_SWITCH(args->type, scale_backward_launch, stream, args);
}
