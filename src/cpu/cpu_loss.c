// SPDX-License-Identifier: BSD-3-Clause
/* Losses over threads. Blocks of rows, or pieces of a sample's targets, of fixed size have their
 * own sums. */
#include "cpu/cpu.h"
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
        args->sums->weight += sums[block].weight;
        args->sums->counted += sums[block].weight;
    }
}

/* ---- Targets that are not one class. Pieces let a few large samples use all threads. The gradient
 * needs the sum of the weights of its sample. */

enum { PIECE = 1024 };

struct piece_sums {
    double weight, loss;
};

/* Add the losses of all samples. */
static void losses_add(struct loss_sums *all, const struct piece_sums *sums, int64_t batch,
                       int64_t pieces)
{
    double total = 0, counted = 0;

    for (int64_t sample = 0; sample < batch; sample++, sums += pieces) {
        double loss = 0;
        for (int64_t piece = 0; piece < pieces; piece++)
            loss += sums[piece].loss;
        total += loss_round(sums->weight != 0 ? loss / sums->weight : 0);
        counted += sums->weight != 0;
    }
    all->loss += total;
    all->samples += counted;
    all->counted += counted;
    all->empty += (double)batch - counted;
}

/* Replace the weight of the first piece of each sample by the divisor of its loss: the sum of the
 * weights of all pieces, or 1 with is_sum; 0 without targets. */
static void divisors_set(const struct target_loss *args, struct piece_sums *sums, int64_t pieces)
{
    for (int64_t sample = 0; sample < args->batch; sample++, sums += pieces) {
        for (int64_t piece = 1; piece < pieces; piece++)
            sums->weight += sums[piece].weight;
        if (args->is_sum && sums->weight > 0)
            sums->weight = 1;
    }
}

void cpu_target_loss(struct stream *stream, const struct target_loss *args)
{
    const struct cpu_device *cpu = stream->cpu;
    const struct loss_kernels *kernels = cpu->kernels->loss;
    const int64_t count = target_count(args), pieces = round_up_division(count, PIECE);
    const int64_t all = args->batch * pieces;
    const int64_t elements = args->batch * args->outputs * args->height * args->width;
    const double scale =
        (double)args->scale * (args->scaler != NULL ? (double)args->scaler->scale : 1);

    if (elements == 0)
        return;
    struct piece_sums *sums = cpu_workspace_shared(cpu, (size_t)all * sizeof *sums);
#pragma omp parallel for schedule(static) num_threads(cpu_threads_for(cpu, elements))
    for (int64_t i = 0; i < all; i++) {
        const int64_t begin = i % pieces * PIECE;
        sums[i].weight =
            kernels->target_weights(args, i / pieces, begin, smaller(begin + PIECE, count));
    }
    divisors_set(args, sums, pieces);
#pragma omp parallel for schedule(static) num_threads(cpu_threads_for(cpu, elements))
    for (int64_t i = 0; i < all; i++) {
        const int64_t begin = i % pieces * PIECE;
        const double weight = sums[i / pieces * pieces].weight;
        sums[i].loss =
            kernels->target_losses(args, i / pieces, begin, smaller(begin + PIECE, count),
                                   (float)(weight != 0 ? scale / weight : 0));
    }
    if (args->sums != NULL)
        losses_add(args->sums, sums, args->batch, pieces);
}
