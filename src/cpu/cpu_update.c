// SPDX-License-Identifier: BSD-3-Clause
/* Optimizer step, loss scale and sums of squares. They are memory-bound; blocks of a fixed size are
 * distributed over the threads. */
#include "cpu/cpu.h"

#include "device/update_rule.h"

/* Return the arguments of the kernel for a segment. */
static struct update segment_rule(const struct update *args, const struct update_segment *segment)
{
    struct update rule = *args;
    if (segment->running)
        rule.rule = UPDATE_SGD;
    else if (rule.rule == UPDATE_MUON && !segment->matrix)
        rule.rule = UPDATE_ADAMW;
    if (segment->running || rule.rule == UPDATE_MUON_APPLY)
        rule.moment1 = rule.moment2 = NULL;
    return rule;
}

static void exact_sum_add(struct exact_sum *sum, const struct exact_sum *other)
{
    for (int i = 0; i < EXACT_WORDS; i++)
        sum->word[i] += other->word[i];
    sum->infinities += other->infinities;
    sum->nans += other->nans;
}

/* clang-format off */
#pragma omp declare reduction(exact : struct exact_sum : exact_sum_add(&omp_out, &omp_in)) \
    initializer(omp_priv = (struct exact_sum){0})
/* clang-format on */

/* Add a segment's sums of squares to its tensor's norms. */
static void segment_measure(const struct cpu_device *cpu, const struct update *args,
                            const struct update_segment *segment,
                            const struct update_coefficients *coefficients)
{
    const struct cpu_kernels *kernels = cpu->kernels;
    struct tensor_norms *norms = &args->norms[segment->tensor];
    struct exact_sum weights = norms->weights, directions = norms->direction;
    const int threads = cpu_threads_for(cpu, segment->end - segment->begin);
#pragma omp parallel for num_threads(threads) reduction(exact : weights, directions)
    for (int64_t i = segment->begin; i < segment->end; i += CPU_BLOCK) {
        int64_t end = smaller(i + CPU_BLOCK, segment->end);
        float *direction = cpu_workspace_thread(cpu, CPU_BLOCK * sizeof *direction);
        kernels->update->measure(args, coefficients, i, end, direction);
        kernels->elements->sum_squares(args->weights + i, end - i, &weights);
        kernels->elements->sum_squares(direction, end - i, &directions);
    }
    *norms = (struct tensor_norms){weights, directions};
}

static void buffer_update(const struct cpu_device *cpu, const struct update *args)
{
    update_check(args);
    ENSURE(args->moment1 != NULL || args->params->momentum == 0, "update without moment1");
    if (update_skips(args))
        return;
    for (int s = 0; s < args->segment_count; s++) {
        const struct update_segment *segment = &args->segments[s];
        if (segment_skips(args, segment))
            continue;
        ENSURE(args->direction != NULL || !segment->matrix, "update of a matrix without direction");
        struct update_coefficients coefficients;
        update_coefficients_make(&coefficients, args, segment);
        if (args->measure) {
            segment_measure(cpu, args, segment, &coefficients);
            continue;
        }
        const struct update rule = segment_rule(args, segment);
        int64_t count = segment->end - segment->begin;
#pragma omp parallel for schedule(static) num_threads(cpu_threads_for(cpu, count))
        for (int64_t i = segment->begin; i < segment->end; i += CPU_BLOCK)
            cpu->kernels->update->update(&rule, &coefficients, i,
                                         smaller(i + CPU_BLOCK, segment->end));
    }
}

void cpu_update(struct stream *stream, const struct update *args)
{
    for (; args != NULL; args = args->next)
        buffer_update(stream->cpu, args);
}

void cpu_scaler_update(struct stream *stream, struct loss_scaler *scaler,
                       const double *norm_squared)
{
    (void)stream;
    loss_scaler_adjust(scaler, *norm_squared);
}

void cpu_sum_squares(struct stream *stream, const float *values, int64_t count,
                     struct exact_sum *sum)
{
    const struct cpu_device *cpu = stream->cpu;
    const int threads = cpu_threads_for(cpu, count);
    struct exact_sum total = *sum;
#pragma omp parallel for num_threads(threads) reduction(exact : total)
    for (int64_t i = 0; i < count; i += CPU_BLOCK)
        cpu->kernels->elements->sum_squares(values + i, smaller(CPU_BLOCK, count - i), &total);
    *sum = total;
}

void cpu_sum_value(struct stream *stream, const struct exact_sum *sum, double *value)
{
    (void)stream;
    *value = exact_sum_value(sum);
}
