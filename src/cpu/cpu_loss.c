// SPDX-License-Identifier: BSD-3-Clause
/* The loss over threads: each block of rows of fixed size has its own counters. */
#include "cpu/cpu.h"

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
