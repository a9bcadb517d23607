/* The loss over threads: blocks of rows of a fixed size count for themselves, and the counts are
 * added in order. */
#include "device/cpu.h"

enum { LOSS_ROWS = 16 };

static void sums_add(struct loss_sums *sums, const struct loss_sums *block)
{
    sums->loss += block->loss;
    sums->top1 += block->top1;
    sums->top5 += block->top5;
    sums->samples += block->samples;
}

/* A label outside would be read, and written, outside the logits. */
static void check_labels(const struct cross_entropy *args)
{
    for (int64_t i = 0; args->targets == NULL && i < args->batch; i++)
        ENSURE(args->labels[i] >= 0 && args->labels[i] < args->classes,
               "label %d of sample %lld is not one of %lld classes", (int)args->labels[i],
               (long long)i, (long long)args->classes);
}

void cpu_cross_entropy(struct stream *stream, const struct cross_entropy *args)
{
    const struct cpu_device *cpu = stream->cpu;
    const int64_t most = WORKSPACE_SHARED / (int64_t)sizeof(struct loss_sums);
    const size_t bytes = LOSS_BUFFERS * (size_t)loss_stride(args->classes) * sizeof(float);
    int64_t blocks = (args->batch + LOSS_ROWS - 1) / LOSS_ROWS;
    ENSURE(blocks <= most, "a batch of %lld", (long long)args->batch);
    check_labels(args);
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
    for (int64_t block = 0; args->sums != NULL && block < blocks; block++)
        sums_add(args->sums, &sums[block]);
}
