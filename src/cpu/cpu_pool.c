// SPDX-License-Identifier: BSD-3-Clause
/* Max pooling over threads, and transposition between channels first and channels last. */
#include "cpu/cpu.h"

void cpu_max_pool_forward(struct stream *stream, const struct max_pool_forward *args)
{
    const struct cpu_device *cpu = stream->cpu;
    const int64_t down = convolved_size(args->height, args->kernel, args->stride, args->padding);

    ENSURE(args->kernel <= 15 && args->padding < args->kernel,
           "max pool: kernel %lld, padding %lld not supported", (long long)args->kernel,
           (long long)args->padding);
#pragma omp parallel for schedule(static)                                                          \
    num_threads(cpu_threads_for(cpu, args->batch * args->height * args->width * args->channels))
    for (int64_t row = 0; row < args->batch * down; row++)
        cpu->kernels->max_pool->forward(args, row, row + 1);
}

void cpu_max_pool_backward(struct stream *stream, const struct max_pool_backward *args)
{
    const struct cpu_device *cpu = stream->cpu;

#pragma omp parallel for schedule(static)                                                          \
    num_threads(cpu_threads_for(cpu, args->batch * args->height * args->width * args->channels))
    for (int64_t row = 0; row < args->batch * args->height; row++)
        cpu->kernels->max_pool->backward(
            args, row, row + 1,
            cpu_workspace_thread(cpu, (size_t)(args->width * args->channels) * sizeof(float)));
}

/* Size of a tile, which fits into the L1 cache. */
enum { TILE = 64 };

static int64_t tile_end(int64_t begin, int64_t size)
{
    return begin + TILE < size ? begin + TILE : size;
}

static void transpose_tile(const struct transpose *args, int64_t b, int64_t row, int64_t column)
{
    const int64_t rows = args->rows, columns = args->columns, sample = b * rows * columns;
    const int64_t row_end = tile_end(row, rows), column_end = tile_end(column, columns);

    if (args->type == TYPE_FP32) {
        const float *x = (const float *)args->x + sample;
        float *y = (float *)args->y + sample;
        for (int64_t c = column; c < column_end; c++)
            for (int64_t r = row; r < row_end; r++)
                y[c * rows + r] = x[r * columns + c];
    } else {
        const uint16_t *x = (const uint16_t *)args->x + sample;
        uint16_t *y = (uint16_t *)args->y + sample;
        for (int64_t c = column; c < column_end; c++)
            for (int64_t r = row; r < row_end; r++)
                y[c * rows + r] = x[r * columns + c];
    }
}

void cpu_transpose(struct stream *stream, const struct transpose *args)
{
    const int64_t down = (args->rows + TILE - 1) / TILE;
    const int64_t across = (args->columns + TILE - 1) / TILE;

#pragma omp parallel for schedule(static)                                                          \
    num_threads(cpu_threads_for(stream->cpu, args->batch * args->rows * args->columns))
    for (int64_t tile = 0; tile < args->batch * down * across; tile++)
        transpose_tile(args, tile / (down * across), tile / across % down * TILE,
                       tile % across * TILE);
}
