// SPDX-License-Identifier: BSD-3-Clause
/* Operations on single elements of flat buffers: hash, search for non-finite values, zeroing,
 * conversion, addition. They are memory-bound; blocks of a fixed size are distributed over the
 * threads. */
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

/* SwiGLU on the CPU: threads process rows. */

static void *row_of(const void *tensor, int64_t row, int64_t width, enum data_type type)
{
    return (char *)tensor + (size_t)(row * width) * type_size(type);
}

void cpu_glu_forward(struct stream *stream, const struct glu_forward *args)
{
    const struct cpu_device *cpu = stream->cpu;
    const int64_t width = args->width;
#pragma omp parallel for schedule(static) num_threads(cpu_threads_for(cpu, args->rows *width))
    for (int64_t r = 0; r < args->rows; r++)
        cpu->kernels->elements->glu(args->type, row_of(args->y, r, width, args->type),
                                    row_of(args->x, r, 2 * width, args->type), width);
}

void cpu_glu_backward(struct stream *stream, const struct glu_backward *args)
{
    const struct cpu_device *cpu = stream->cpu;
    const int64_t width = args->width;
#pragma omp parallel for schedule(static) num_threads(cpu_threads_for(cpu, args->rows *width))
    for (int64_t r = 0; r < args->rows; r++)
        cpu->kernels->elements->glu_backward(args->type, row_of(args->dx, r, 2 * width, args->type),
                                             row_of(args->x, r, 2 * width, args->type),
                                             row_of(args->dy, r, width, args->type), width);
}
