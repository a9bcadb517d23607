// SPDX-License-Identifier: BSD-3-Clause
/* The gradient of LayerScale on the CPU. Each of a fixed number of row blocks computes partial
 * sums, which are added in order. */
#include "cpu/cpu.h"

#include <string.h>

/* Maximum number of row blocks, minimum rows per block, columns added at a time. */
enum { BLOCKS = 128, BLOCK_ROWS = 16, SUM_COLUMNS = 64 };

/* Process row r and add its g * pre to products [width], the sums of its row block, unless NULL. */
static void row_backward(const struct cpu_device *cpu, const struct scale_backward *args, int64_t r,
                         float *products)
{
    const int64_t sample = r / args->rows_per_sample, padded = (args->width + 7) / 8 * 8;
    const size_t offset = (size_t)(r * args->width) * type_size(args->type);
    float *mask = NULL;
    if (args->dropout.rate > 0) {
        const struct mask_source source = cpu_mask_source(&args->dropout, sample);
        mask = cpu_workspace_thread(cpu, (size_t)padded * sizeof(float));
        cpu->kernels->random->mask(&source, r % args->rows_per_sample * (padded / 8), padded, mask);
    }
    cpu->kernels->linear->drop(
        &(struct linear_row){.type = args->type,
                             .count = args->width,
                             .mask = mask,
                             .residual = (const char *)args->dy + offset,
                             .path_scale = cpu_path_scale(&args->drop_path, sample),
                             .scale = args->scale,
                             .pre = (char *)args->pre + offset,
                             .products = products,
                             .y = (char *)args->dx + offset});
}

void cpu_scale_backward(struct stream *stream, const struct scale_backward *args)
{
    const struct cpu_device *cpu = stream->cpu;
    const int64_t width = args->width, bytes = width * (int64_t)sizeof(float);

    if (args->rows == 0 || width == 0)
        return;
    const int64_t most = smaller(BLOCKS, WORKSPACE_SHARED / bytes);
    ENSURE(most > 0, "LayerScale: width %lld exceeds the workspace", (long long)width);
    const int64_t block_rows = larger((args->rows + most - 1) / most, BLOCK_ROWS);
    const int64_t blocks = (args->rows + block_rows - 1) / block_rows;
    float *sums = args->dscale != NULL ? cpu_workspace_shared(cpu, (size_t)(blocks * bytes)) : NULL;
    if (args->dscale != NULL)
        memset(sums, 0, (size_t)(blocks * bytes));
    if (args->dscale != NULL && args->overwrite)
        memset(args->dscale, 0, (size_t)bytes);
#pragma omp parallel num_threads(cpu_threads_for(cpu, args->rows *width))
    {
#pragma omp for schedule(static)
        for (int64_t block = 0; block < blocks; block++)
            for (int64_t r = block * block_rows; r < smaller((block + 1) * block_rows, args->rows);
                 r++)
                row_backward(cpu, args, r, sums != NULL ? sums + block * width : NULL);
#pragma omp for schedule(static)
        for (int64_t column = 0; column < (sums != NULL ? width : 0); column += SUM_COLUMNS)
            cpu->kernels->elements->add_columns(TYPE_FP32, args->dscale + column, sums + column,
                                                blocks, width,
                                                smaller(SUM_COLUMNS, width - column));
    }
}
