// SPDX-License-Identifier: BSD-3-Clause
/* The loss over threads: each block of rows of fixed size has its own counters. */
#include "device/cpu.h"
#include "device/exact_sum.h"

enum { LOSS_ROWS = 16 };

void cpu_labels_check(const int32_t *labels, int64_t count, int64_t classes)
{
    for (int64_t i = 0; i < count; i++)
        ENSURE(labels[i] >= 0 && labels[i] < classes,
               "label %d of sample %lld is not one of %lld classes", (int)labels[i], (long long)i,
               (long long)classes);
}

void cpu_cross_entropy(struct stream *stream, const struct cross_entropy *args)
{
    const struct cpu_device *cpu = stream->cpu;
    const int64_t most = WORKSPACE_SHARED / (int64_t)sizeof(struct loss_sums);
    const size_t bytes = LOSS_BUFFERS * (size_t)loss_stride(args->classes) * sizeof(float);
    int64_t blocks = (args->batch + LOSS_ROWS - 1) / LOSS_ROWS;
    ENSURE(blocks <= most, "a batch of %lld samples exceeds the workspace", (long long)args->batch);
    if (args->targets == NULL)
        cpu_labels_check(args->labels, args->batch, args->classes);
    struct loss_sums *sums = cpu_workspace_shared(cpu, WORKSPACE_SHARED);
#pragma omp parallel for schedule(static)                                                          \
    num_threads(cpu_threads_for(cpu, args->batch * args->classes))
    for (int64_t block = 0; block < blocks; block++) {
        int64_t begin = block * LOSS_ROWS, end = begin + LOSS_ROWS;
        float *buffer = cpu_workspace_thread(cpu, bytes);
        sums[block] = (struct loss_sums){0};
        cpu->kernels->loss->cross_entropy(args, begin, end < args->batch ? end : args->batch,
                                          buffer, &sums[block]);
    }
    for (int64_t block = 0; args->sums != NULL && block < blocks; block++) {
        args->sums->loss += sums[block].loss;
        args->sums->top1 += sums[block].top1;
        args->sums->top5 += sums[block].top5;
        args->sums->samples += sums[block].samples;
    }
}

/* Outputs converted to fp32 at a time. */
enum { ERROR_OUTPUTS = 256 };

/* Return the sum of squared errors of one sample. Its gradient is factor * error. */
static double squared_errors(const struct convert_kernels *convert,
                             const struct squared_error *args, int64_t sample, float factor)
{
    const double target = (double)args->labels[sample] * args->label_unit;
    const size_t size = type_size(args->type);
    double sum = 0;

    for (int64_t i = 0; i < args->outputs; i += ERROR_OUTPUTS) {
        const int64_t left = args->outputs - i, count = left < ERROR_OUTPUTS ? left : ERROR_OUTPUTS;
        const size_t first = (size_t)(sample * args->outputs + i) * size;
        float values[ERROR_OUTPUTS];
        convert->to_fp32(values, args->type, (const char *)args->predictions + first, count);
        for (int64_t j = 0; j < count; j++) {
            const double error = (double)values[j] - target;
            sum += error * error;
            values[j] = factor * (float)error;
        }
        if (args->dpredictions != NULL)
            convert->from_fp32(args->type, (char *)args->dpredictions + first, values, count);
    }
    return sum;
}

/* Models have few outputs: one thread suffices. */
void cpu_squared_error(struct stream *stream, const struct squared_error *args)
{
    const float scale = args->scaler != NULL ? args->scaler->scale : 1;
    const double outputs = (double)args->outputs;
    const float factor = (float)(2 * (double)args->scale * (double)scale / outputs);
    double loss = 0;

    if (args->outputs == 0)
        return;
    for (int64_t sample = 0; sample < args->batch; sample++)
        loss += loss_round(squared_errors(stream->cpu->kernels->convert, args, sample, factor) /
                           outputs);
    if (args->sums != NULL) {
        args->sums->loss += loss;
        args->sums->samples += (double)args->batch;
    }
}
