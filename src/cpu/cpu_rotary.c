// SPDX-License-Identifier: BSD-3-Clause
/* Rotary positions on the CPU: a thread computes the angles of a patch once and rotates its queries
 * and keys in all samples. */
#include <math.h>

#include "cpu/cpu.h"

/* Set cosine and sine [head_dim / 2] of a patch. */
static void angles_of(const struct rotary *args, int64_t patch, float *cosine, float *sine)
{
    const int64_t quarter = args->head_dim / 4;
    const int64_t place[] = {patch / args->grid[1], patch % args->grid[1]};
    for (int64_t i = 0; i < 2 * quarter; i++) {
        const int axis = i >= quarter;
        const double x = (double)(2 * place[axis] + 1) / (double)args->grid[axis] - 1;
        const double exponent = (double)(i % quarter) / (double)quarter;
        const double angle = 2 * M_PI * x / pow((double)args->temperature, exponent);
        cosine[i] = (float)cos(angle);
        sine[i] = (float)(args->inverse ? -sin(angle) : sin(angle));
    }
}

void cpu_rotary(struct stream *stream, const struct rotary *args)
{
    const struct cpu_device *cpu = stream->cpu;
    const int64_t patches = args->grid[0] * args->grid[1], half = args->head_dim / 2;
    const int64_t width = args->heads * args->head_dim;
    const size_t size = type_size(args->type);
#pragma omp parallel for schedule(static)                                                          \
    num_threads(cpu_threads_for(cpu, args->batch *patches *width))
    for (int64_t patch = 0; patch < patches; patch++) {
        float *cosine = cpu_workspace_thread(cpu, 2 * (size_t)half * sizeof(float));
        float *sine = cosine + half;
        angles_of(args, patch, cosine, sine);
        for (int64_t sample = 0; sample < args->batch; sample++) {
            const int64_t token = (sample + 1) * args->tokens - patches + patch;
            for (int64_t head = 0; head < 2 * args->heads; head++)
                cpu->kernels->elements->rotate(
                    args->type,
                    (char *)args->qkv + (size_t)(token * 3 * width + head * args->head_dim) * size,
                    cosine, sine, half);
        }
    }
}
