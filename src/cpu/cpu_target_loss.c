// SPDX-License-Identifier: BSD-3-Clause
/* The loss of a regression, a forecast, several labels or a segmentation over threads. Pieces of
 * fixed size have their own sums, so that a few large samples use all threads. The gradient needs
 * the sum of the weights of its sample. */
#include "cpu/cpu.h"
#include "device/exact_sum.h"

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
    const struct target_loss_kernels *kernels = cpu->kernels->target_loss;
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
        sums[i].weight = kernels->weights(args, i / pieces, begin, smaller(begin + PIECE, count));
    }
    divisors_set(args, sums, pieces);
#pragma omp parallel for schedule(static) num_threads(cpu_threads_for(cpu, elements))
    for (int64_t i = 0; i < all; i++) {
        const int64_t begin = i % pieces * PIECE;
        const double weight = sums[i / pieces * pieces].weight;
        sums[i].loss = kernels->losses(args, i / pieces, begin, smaller(begin + PIECE, count),
                                       (float)(weight != 0 ? scale / weight : 0));
    }
    if (args->sums != NULL)
        losses_add(args->sums, sums, args->batch, pieces);
}
