// SPDX-License-Identifier: BSD-3-Clause
/* Layer and batch normalisation over threads. Sums over all rows: each of a fixed number of row
 * blocks computes a partial sum, and the partial sums are added in order. */
#include "cpu/cpu.h"

#include <math.h>
#include <string.h>

#include "device/tree_sum.h"

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

/* ---- Batch normalisation: tasks accumulate in double. Values shared by all rows of a channel are
 * computed once per call in double. */

enum { MOST_TASKS = 128, TASK_ELEMENTS = 16384 };

/* Return the rows per task. If tasks have sums, these and two vectors of channels must fit into the
 * workspace. */
static int64_t task_rows(int64_t rows, int64_t channels, bool sums)
{
    const int64_t bytes = 2 * channels * (int64_t)sizeof(double);
    const int64_t room = WORKSPACE_SHARED - 2 * channels * (int64_t)sizeof(float);
    const int64_t fit = smaller(MOST_TASKS, room / bytes);
    const int64_t least = (TASK_ELEMENTS + channels - 1) / channels;

    if (!sums)
        return least;
    ENSURE(fit > 0, "batch normalisation: %lld channels exceed the workspace", (long long)channels);
    const int64_t even = (rows + fit - 1) / fit;
    return even > least ? even : least;
}

/* sums = [2 * channels + 1]: the sum over tasks, and the number of rows. */
static void sums_of_tasks(const double *tasks, int64_t count, int64_t rows, int64_t channels,
                          double *sums)
{
    memset(sums, 0, 2 * (size_t)channels * sizeof *sums);
    for (int64_t task = 0; task < count; task++)
        for (int64_t i = 0; i < 2 * channels; i++)
            sums[i] += tasks[task * 2 * channels + i];
    sums[2 * channels] = (double)rows;
}

static float *buffer_of_thread(const struct cpu_device *cpu, int64_t channels)
{
    return cpu_workspace_thread(cpu, BATCH_NORM_BUFFERS * (size_t)channels * sizeof(float));
}

static double *task_sums(double *tasks, int64_t task, int64_t channels)
{
    double *sums = tasks + task * 2 * channels;

    memset(sums, 0, 2 * (size_t)channels * sizeof *sums);
    return sums;
}

void cpu_batch_norm_sums(struct stream *stream, const struct batch_norm_sums *args)
{
    const struct cpu_device *cpu = stream->cpu;
    const int64_t rows = args->rows, channels = args->channels;

    if (channels == 0)
        return;
    const int64_t step = task_rows(rows, channels, true), count = (rows + step - 1) / step;
    double *tasks = cpu_workspace_shared(cpu, WORKSPACE_SHARED);
#pragma omp parallel for schedule(static) num_threads(cpu_threads_for(cpu, rows *channels))
    for (int64_t task = 0; task < count; task++)
        cpu->kernels->batch_norm->sums(args, task * step, smaller((task + 1) * step, rows),
                                       task_sums(tasks, task, channels),
                                       buffer_of_thread(cpu, channels));
    sums_of_tasks(tasks, count, rows, channels, args->sums);
}

/* Compute args->statistics. */
static void statistics_of_sums(const struct batch_norm_forward *args)
{
    const int64_t channels = args->channels;
    const double n = args->sums[2 * channels] > 0 ? args->sums[2 * channels] : 1;

    for (int64_t i = 0; i < channels; i++) {
        const double mean = args->sums[i] / n;
        const double difference = args->sums[channels + i] / n - mean * mean;
        const double variance = difference < 0 ? 0 : difference; /* NaN stays NaN */
        args->statistics[i] = (float)mean;
        args->statistics[channels + i] = (float)(1 / sqrt(variance + (double)args->epsilon));
        args->statistics[2 * channels + i] = (float)(variance * n / (n > 2 ? n - 1 : 1));
    }
}

static void statistics_of_running(const struct cpu_device *cpu,
                                  const struct batch_norm_forward *args)
{
    const int64_t channels = args->channels;
    float *rstd = args->statistics + channels, *variance = rstd + channels;

    cpu->kernels->convert->to_fp32(args->statistics, args->type, args->running_mean, channels);
    cpu->kernels->convert->to_fp32(variance, args->type, args->running_variance, channels);
    for (int64_t i = 0; i < channels; i++)
        rstd[i] = (float)(1 / sqrt((double)variance[i] + (double)args->epsilon));
}

/* factor = gamma * rstd in fp32. */
static void make_factor(const struct cpu_device *cpu, enum data_type type, const void *gamma,
                        const float *rstd, int64_t channels, float *factor)
{
    cpu->kernels->convert->to_fp32(factor, type, gamma, channels);
    for (int64_t i = 0; i < channels; i++)
        factor[i] *= rstd[i];
}

void cpu_batch_norm_forward(struct stream *stream, const struct batch_norm_forward *args)
{
    const struct cpu_device *cpu = stream->cpu;
    const int64_t rows = args->rows, channels = args->channels;

    if (channels == 0)
        return;
    float *factor = cpu_workspace_shared(cpu, 2 * (size_t)channels * sizeof *factor);
    float *beta = factor + channels;
    if (args->sums != NULL)
        statistics_of_sums(args);
    else
        statistics_of_running(cpu, args);
    make_factor(cpu, args->type, args->gamma, args->statistics + channels, channels, factor);
    cpu->kernels->convert->to_fp32(beta, args->type, args->beta, channels);
    const struct batch_norm_channels shared = {
        .mean = args->statistics, .factor = factor, .beta = beta};
    const int64_t step = task_rows(rows, channels, false);
#pragma omp parallel for schedule(static) num_threads(cpu_threads_for(cpu, rows *channels))
    for (int64_t row = 0; row < rows; row += step)
        cpu->kernels->batch_norm->forward(args, &shared, row, smaller(row + step, rows));
}

/* Accumulate or overwrite a gradient. */
static void gradient_put(float *gradient, float value, bool overwrite)
{
    *gradient = overwrite ? value : *gradient + value;
}

/* Add this rank's sums to the gradients and the running statistics. */
static void add_to_parameters(const struct batch_norm_backward_sums *args)
{
    const int64_t channels = args->channels;

    for (int64_t i = 0; args->dgamma != NULL && i < channels; i++) {
        gradient_put(&args->dbeta[i], (float)args->sums[i], args->overwrite);
        gradient_put(&args->dgamma[i], (float)args->sums[channels + i], args->overwrite);
    }
    if (args->drunning_mean == NULL || args->rows == 0)
        return;
    ENSURE(args->forward_sums != NULL, "running statistics need forward_sums");
    const float share = (float)((double)args->running_weight * (double)args->rows /
                                args->forward_sums[2 * channels]);
    for (int64_t i = 0; i < channels; i++) {
        gradient_put(&args->drunning_mean[i], share * args->statistics[i], args->overwrite);
        gradient_put(&args->drunning_variance[i], share * args->statistics[2 * channels + i],
                     args->overwrite);
    }
}

void cpu_batch_norm_backward_sums(struct stream *stream,
                                  const struct batch_norm_backward_sums *args)
{
    const struct cpu_device *cpu = stream->cpu;
    const int64_t rows = args->rows, channels = args->channels;

    if (channels == 0)
        return;
    const int64_t step = task_rows(rows, channels, true), count = (rows + step - 1) / step;
    double *tasks = cpu_workspace_shared(cpu, WORKSPACE_SHARED);
    float *factor = (float *)(tasks + count * 2 * channels), *beta = factor + channels;
    struct batch_norm_channels shared = {.mean = args->statistics, .factor = factor};
    if (args->beta != NULL) {
        make_factor(cpu, args->type, args->gamma, args->statistics + channels, channels, factor);
        cpu->kernels->convert->to_fp32(beta, args->type, args->beta, channels);
        shared.beta = beta;
    }
#pragma omp parallel for schedule(static) num_threads(cpu_threads_for(cpu, rows *channels))
    for (int64_t task = 0; task < count; task++)
        cpu->kernels->batch_norm->backward_sums(
            args, &shared, task * step, smaller((task + 1) * step, rows),
            task_sums(tasks, task, channels), buffer_of_thread(cpu, channels));
    sums_of_tasks(tasks, count, rows, channels, args->sums);
    add_to_parameters(args);
}

void cpu_batch_norm_backward(struct stream *stream, const struct batch_norm_backward *args)
{
    const struct cpu_device *cpu = stream->cpu;
    const int64_t rows = args->rows, channels = args->channels;

    if (rows == 0 || channels == 0)
        return;
    float *factor = cpu_workspace_shared(cpu, 3 * (size_t)channels * sizeof *factor);
    float *mean_dy = factor + channels, *slope = mean_dy + channels;
    const float *rstd = args->statistics + channels;
    make_factor(cpu, args->type, args->gamma, rstd, channels, factor);
    struct batch_norm_channels shared = {.mean = args->statistics, .factor = factor};
    if (args->sums != NULL) {
        const double n = args->sums[2 * channels];
        for (int64_t i = 0; i < channels; i++) {
            mean_dy[i] = (float)(args->sums[i] / n);
            slope[i] = (float)(args->sums[channels + i] / n * (double)rstd[i]);
        }
        shared.mean_dy = mean_dy;
        shared.slope = slope;
    }
    const int64_t step = task_rows(rows, channels, false);
#pragma omp parallel for schedule(static) num_threads(cpu_threads_for(cpu, rows *channels))
    for (int64_t row = 0; row < rows; row += step)
        cpu->kernels->batch_norm->backward(args, &shared, row, smaller(row + step, rows));
}

void cpu_tree_sums(struct stream *stream, const struct tree_sums *args)
{
    const int64_t rows = args->rows, count = args->count;

    if (rows == 0)
        return;
#pragma omp parallel for schedule(static) num_threads(cpu_threads_for(stream->cpu, rows *count))
    for (int64_t i = 0; i < count; i++)
        args->sums[i] = tree_sum(args->from + i, rows, count);
}
