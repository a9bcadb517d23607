// SPDX-License-Identifier: BSD-3-Clause
/* Dropout, drop path and the gradient of LayerScale on the CPU. Each of a fixed number of row
 * blocks computes partial sums, which are added in order. */
#include <string.h>

#include "base/random.h"
#include "cpu/cpu.h"

/* Maximum number of row blocks, minimum rows per block, columns added at a time. */
enum { BLOCKS = 128, BLOCK_ROWS = 16, SUM_COLUMNS = 64 };

static struct step_params params_of(const struct dropout *dropout)
{
    ENSURE(dropout->params != NULL, "dropout without step parameters");
    return *dropout->params;
}

/* Return the index in the global batch of an operation's sample. */
static uint32_t index_of(const struct dropout *dropout, int64_t sample)
{
    return params_of(dropout).position + dropout->first + (uint32_t)sample;
}

struct mask_source cpu_mask_source(const struct dropout *dropout, int64_t sample)
{
    const uint32_t all = 65536;
    const uint32_t threshold = (uint32_t)(dropout->rate * (float)all + 0.5f);

    return (struct mask_source){.threshold = threshold,
                                .scale =
                                    threshold < all ? (float)all / (float)(all - threshold) : 0,
                                .key = {(uint32_t)dropout->seed, (uint32_t)(dropout->seed >> 32)},
                                .counter = {index_of(dropout, sample), params_of(dropout).step,
                                            RANDOM_DROPOUT + (dropout->layer << 8)}};
}

const float *cpu_row_mask(const struct cpu_device *cpu, const struct dropout *dropout,
                          int64_t rows_per_sample, int64_t width, int64_t row, int64_t column,
                          int64_t count, float *mask)
{
    if (dropout->rate == 0)
        return NULL;
    const struct mask_source source = cpu_mask_source(dropout, row / rows_per_sample);
    const int64_t block = row % rows_per_sample * round_up_division(width, 8) + column / 8;
    cpu->kernels->random->mask(&source, block, round_up(count, 8), mask);
    return mask;
}

float cpu_path_scale(const struct dropout *drop_path, int64_t sample)
{
    if (drop_path->rate == 0)
        return 1;
    const struct step_params params = params_of(drop_path);
    const struct random_block drawn =
        random_block_at(drop_path->seed, RANDOM_DROP_PATH, drop_path->layer, params.step,
                        index_of(drop_path, sample), 0);
    return random_uniform(drawn.word[0]) < drop_path->rate ? 0 : 1 / (1 - drop_path->rate);
}

/* Process row r and add its g * pre to products [width], the sums of its row block, unless NULL. */
static void row_backward(const struct cpu_device *cpu, const struct scale_backward *args, int64_t r,
                         float *products)
{
    const int64_t first = r * args->width;
    float *memory = args->dropout.rate > 0
                        ? cpu_workspace_thread(cpu, ((size_t)args->width + 7) * sizeof *memory)
                        : NULL;
    cpu->kernels->linear->drop(&(struct linear_row){
        .type = args->type,
        .count = args->width,
        .mask = cpu_row_mask(cpu, &args->dropout, args->rows_per_sample, args->width, r, 0,
                             args->width, memory),
        .residual = element(args->type, args->dy, first),
        .path_scale = cpu_path_scale(&args->drop_path, r / args->rows_per_sample),
        .scale = args->scale,
        .pre_read = element(args->type, args->pre, first),
        .products = products,
        .y = element_to_write(args->type, args->dx, first)});
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

void cpu_dropout_apply(struct stream *stream, const struct dropout_apply *args)
{
    if (!dropout_is_idle(args))
        cpu_scale_backward(stream,
                           &(struct scale_backward){.type = args->type,
                                                    .rows = args->rows,
                                                    .width = args->width,
                                                    .rows_per_sample = args->rows_per_sample,
                                                    .dy = args->x,
                                                    .dx = args->y,
                                                    .dropout = args->dropout,
                                                    .drop_path = args->drop_path});
}
