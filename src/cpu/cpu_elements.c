// SPDX-License-Identifier: BSD-3-Clause
/* Operations on single elements, most of them of flat buffers: hash, search for non-finite values,
 * zeroing, conversion, addition, SwiGLU; optimizer step, loss scale and sums of squares. They are
 * memory-bound; blocks of a fixed size are distributed over the threads. */
#include <string.h>

#include "cpu/cpu.h"
#include "device/update_rule.h"

void cpu_hash(struct stream *stream, const struct hash *args)
{
    const struct cpu_device *cpu = stream->cpu;
    uint64_t total = 0;
#pragma omp parallel for num_threads(cpu_threads_for(cpu, args->count)) reduction(+ : total)
    for (int64_t i = 0; i < args->count; i += CPU_BLOCK)
        total += cpu->kernels->elements->hash(args->values + i, smaller(CPU_BLOCK, args->count - i),
                                              args->key + (uint64_t)i);
    *args->sum += total;
}

void cpu_nonfinite(struct stream *stream, const struct nonfinite *args)
{
    *args->index =
        stream->cpu->kernels->elements->find_nonfinite(args->type, args->values, args->count);
}

void cpu_zero(struct stream *stream, void *memory, size_t bytes)
{
    const struct cpu_device *cpu = stream->cpu;
    const int64_t count = (int64_t)bytes, block = CPU_BLOCK * (int64_t)sizeof(float);
#pragma omp parallel for schedule(static) num_threads(cpu_threads_for(cpu, count / 4))
    for (int64_t i = 0; i < count; i += block)
        memset((char *)memory + i, 0, (size_t)smaller(block, count - i));
}

void cpu_convert(struct stream *stream, enum data_type to_type, void *to, enum data_type from_type,
                 const void *from, int64_t count)
{
    const struct cpu_device *cpu = stream->cpu;
    const struct convert_kernels *convert = cpu->kernels->convert;
    ENSURE(to_type == TYPE_FP32 || from_type == TYPE_FP32 || to_type == from_type,
           "conversion between two 16-bit types");
    if (to_type == from_type) {
        if (count > 0)
            memcpy(to, from, (size_t)count * type_size(to_type));
        return;
    }
#pragma omp parallel for schedule(static) num_threads(cpu_threads_for(cpu, count))
    for (int64_t i = 0; i < count; i += CPU_BLOCK) {
        int64_t some = smaller(CPU_BLOCK, count - i);
        if (to_type == TYPE_FP32)
            convert->to_fp32((float *)to + i, from_type, (const uint16_t *)from + i, some);
        else
            convert->from_fp32(to_type, (uint16_t *)to + i, (const float *)from + i, some);
    }
}

void cpu_add(struct stream *stream, float *sum, const float *addend, int64_t count)
{
    const struct cpu_device *cpu = stream->cpu;
#pragma omp parallel for schedule(static) num_threads(cpu_threads_for(cpu, count))
    for (int64_t i = 0; i < count; i += CPU_BLOCK)
        cpu->kernels->elements->add(TYPE_FP32, sum + i, sum + i, addend + i,
                                    smaller(CPU_BLOCK, count - i));
}

void cpu_matrix_sum(struct stream *stream, const struct matrix_sum *args)
{
    const struct cpu_device *cpu = stream->cpu;
    const float factor = matrix_sum_factor(args);
#pragma omp parallel for schedule(static)                                                          \
    num_threads(cpu_threads_for(cpu, args->rows * args->width))
    for (int64_t row = 0; row < args->rows; row++)
        cpu->kernels->elements->matrix_sum_row(args, factor, row);
}

void cpu_glu_forward(struct stream *stream, const struct glu_forward *args)
{
    const struct cpu_device *cpu = stream->cpu;
    const int64_t width = args->width;
#pragma omp parallel for schedule(static) num_threads(cpu_threads_for(cpu, args->rows *width))
    for (int64_t r = 0; r < args->rows; r++)
        cpu->kernels->elements->glu(args->type, element_to_write(args->type, args->y, r * width),
                                    element(args->type, args->x, 2 * r * width), width);
}

void cpu_glu_backward(struct stream *stream, const struct glu_backward *args)
{
    const struct cpu_device *cpu = stream->cpu;
    const int64_t width = args->width;
#pragma omp parallel for schedule(static) num_threads(cpu_threads_for(cpu, args->rows *width))
    for (int64_t r = 0; r < args->rows; r++)
        cpu->kernels->elements->glu_backward(args->type,
                                             element_to_write(args->type, args->dx, 2 * r * width),
                                             element(args->type, args->x, 2 * r * width),
                                             element(args->type, args->dy, r * width), width);
}

/* ---- Optimizer step, loss scale and sums of squares */

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
