// SPDX-License-Identifier: BSD-3-Clause
/* Layer normalisation over threads. The gradients of gamma and beta are sums over all rows: each of
 * a fixed number of row blocks computes a partial sum, and the partial sums are added in order. */
#include "cpu/cpu.h"

#include <string.h>

/* Rows per task. */
enum { FORWARD_ROWS = 16 };

/* Maximum number of row blocks with partial sums, minimum rows per block, columns added at a time.
 */
enum { BACKWARD_BLOCKS = 128, BACKWARD_ROWS = 16, SUM_COLUMNS = 64 };

void cpu_norm_forward(struct stream *stream, const struct norm_forward *args)
{
    const struct cpu_device *cpu = stream->cpu;

#pragma omp parallel for schedule(static)                                                          \
    num_threads(cpu_threads_for(cpu, args->rows * args->width))
    for (int64_t row = 0; row < args->rows; row += FORWARD_ROWS)
        cpu->kernels->norm->forward(args, row, smaller(row + FORWARD_ROWS, args->rows));
}

/* A block's sums are [2, width]: dgamma, then dbeta. */
static void backward_blocks(const struct cpu_device *cpu, const struct norm_backward *args,
                            int64_t blocks, int64_t block_rows, float *sums)
{
    int64_t width = args->width;

#pragma omp parallel num_threads(cpu_threads_for(cpu, args->rows *width))
    {
#pragma omp for schedule(static)
        for (int64_t block = 0; block < blocks; block++) {
            float *dgamma = sums + block * 2 * width;
            memset(dgamma, 0, 2 * (size_t)width * sizeof *dgamma);
            cpu->kernels->norm->backward(args, block * block_rows,
                                         smaller((block + 1) * block_rows, args->rows), dgamma,
                                         dgamma + width);
        }
#pragma omp for schedule(static)
        for (int64_t column = 0; column < width; column += SUM_COLUMNS) {
            int64_t count = smaller(SUM_COLUMNS, width - column);
            cpu->kernels->elements->add_columns(TYPE_FP32, args->dgamma + column, sums + column,
                                                blocks, 2 * width, count);
            cpu->kernels->elements->add_columns(TYPE_FP32, args->dbeta + column,
                                                sums + width + column, blocks, 2 * width, count);
        }
    }
}

void cpu_norm_backward(struct stream *stream, const struct norm_backward *args)
{
    const struct cpu_device *cpu = stream->cpu;

    if (args->rows == 0 || args->width == 0)
        return;
    if (args->dgamma == NULL) {
        /* Without gradients of the parameters, rows are independent. */
#pragma omp parallel for schedule(static)                                                          \
    num_threads(cpu_threads_for(cpu, args->rows * args->width))
        for (int64_t row = 0; row < args->rows; row += FORWARD_ROWS)
            cpu->kernels->norm->backward(args, row, smaller(row + FORWARD_ROWS, args->rows), NULL,
                                         NULL);
        return;
    }
    int64_t bytes = 2 * args->width * (int64_t)sizeof(float);
    int64_t most = smaller(BACKWARD_BLOCKS, WORKSPACE_SHARED / bytes);
    ENSURE(most > 0, "norm: width %lld exceeds the workspace", (long long)args->width);
    int64_t block_rows = (args->rows + most - 1) / most;
    if (block_rows < BACKWARD_ROWS)
        block_rows = BACKWARD_ROWS;
    int64_t blocks = (args->rows + block_rows - 1) / block_rows;
    float *sums = cpu_workspace_shared(cpu, (size_t)(blocks * bytes));
    if (args->overwrite) {
        memset(args->dgamma, 0, (size_t)args->width * sizeof(float));
        memset(args->dbeta, 0, (size_t)args->width * sizeof(float));
    }
    backward_blocks(cpu, args, blocks, block_rows, sums);
}
