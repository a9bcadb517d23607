// SPDX-License-Identifier: BSD-3-Clause
/* SwiGLU on the CPU: threads process rows. */
#include "device/cpu.h"

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
