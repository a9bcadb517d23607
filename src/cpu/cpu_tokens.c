// SPDX-License-Identifier: BSD-3-Clause
/* Patches, token sequences and pooling. Rows are copied and added; sums over samples are computed
 * per column in a fixed order. */
#include "cpu/cpu.h"

#include <string.h>

enum { SUM_COLUMNS = 64 };

static inline char *at(const void *tensor, int64_t index, enum data_type type)
{
    return (char *)tensor + (size_t)index * type_size(type);
}

/* Copy between images and rows, to the images if `back`. */
static void patches_copy(const struct cpu_device *cpu, const struct patches_forward *args,
                         bool back)
{
    const int64_t patch = args->patch, across = args->width / patch, down = args->height / patch;
    const int64_t row_width = args->channels * patch * patch, rows = args->first + down * across;
    const size_t bytes = (size_t)patch * type_size(args->type);
#pragma omp parallel for schedule(static)                                                          \
    num_threads(cpu_threads_for(cpu, args->batch * args->channels * args->height * args->width))
    for (int64_t row = 0; row < args->batch * rows; row++) {
        const int64_t b = row / rows, number = row % rows - args->first;
        const int64_t top = number / across * patch, left = number % across * patch;
        if (number < 0 && !back)
            memset(at(args->rows, row * row_width, args->type), 0,
                   (size_t)(row_width / patch) * bytes);
        for (int64_t line = 0; line < args->channels * patch && number >= 0; line++) {
            const int64_t c = line / patch, y = top + line % patch;
            char *in_row = at(args->rows, row * row_width + line * patch, args->type);
            char *in_image =
                at(args->images, ((b * args->channels + c) * args->height + y) * args->width + left,
                   args->type);
            memcpy(back ? in_image : in_row, back ? in_row : in_image, bytes);
        }
    }
}

void cpu_patches_forward(struct stream *stream, const struct patches_forward *args)
{
    patches_copy(stream->cpu, args, false);
}

void cpu_patches_backward(struct stream *stream, const struct patches_backward *args)
{
    const struct patches_forward forward = {.type = args->type,
                                            .batch = args->batch,
                                            .channels = args->channels,
                                            .height = args->height,
                                            .width = args->width,
                                            .patch = args->patch,
                                            .first = args->first,
                                            .images = args->images,
                                            .rows = (void *)(uintptr_t)args->rows};
    patches_copy(stream->cpu, &forward, true);
}

void cpu_tokens_forward(struct stream *stream, const struct tokens_forward *args)
{
    const struct cpu_device *cpu = stream->cpu;
    const int64_t width = args->width, classes = args->class_token != NULL ? 1 : 0;
    const int64_t prefix = classes + args->registers, patches = args->tokens - prefix;
#pragma omp parallel for schedule(static)                                                          \
    num_threads(cpu_threads_for(cpu, args->batch * args->tokens * width))
    for (int64_t row = 0; row < args->batch * args->tokens; row++) {
        int64_t b = row / args->tokens, t = row % args->tokens;
        void *to = at(args->x, row * width, args->type);
        const void *from = at(args->patches, (b * patches + t - prefix) * width, args->type);
        if (t < prefix)
            from = t < classes ? args->class_token
                               : at(args->register_tokens, (t - classes) * width, args->type);
        if (t < args->unplaced)
            memcpy(to, from, (size_t)width * type_size(args->type));
        else
            cpu->kernels->elements->add(
                args->type, to, from, at(args->position, (t - args->unplaced) * width, args->type),
                width);
    }
}

/* Accumulate or overwrite row `row` of a gradient with token t's gradient: the sum over samples of
 * dx[b, t, j]. */
static void token_gradient(const struct cpu_device *cpu, const struct tokens_backward *args,
                           int64_t t, float *gradient, int64_t row)
{
    if (gradient == NULL)
        return;
    float *sum = gradient + row * args->width;
    if (args->overwrite)
        memset(sum, 0, (size_t)args->width * sizeof *sum);
    cpu->kernels->elements->add_columns(args->type, sum, at(args->dx, t * args->width, args->type),
                                        args->batch, args->tokens * args->width, args->width);
}

void cpu_tokens_backward(struct stream *stream, const struct tokens_backward *args)
{
    const struct cpu_device *cpu = stream->cpu;
    const int64_t width = args->width, classes = args->class_token ? 1 : 0;
    const int64_t prefix = classes + args->registers, patches = args->tokens - prefix;
    const size_t sample = (size_t)(patches * width) * type_size(args->type);
#pragma omp parallel num_threads(cpu_threads_for(cpu, args->batch * args->tokens * width))
    {
#pragma omp for schedule(static) nowait
        for (int64_t b = 0; b < args->batch; b++)
            memcpy(at(args->dpatches, b * patches * width, args->type),
                   at(args->dx, (b * args->tokens + prefix) * width, args->type), sample);
#pragma omp for schedule(static)
        for (int64_t t = 0; t < args->tokens; t++) {
            if (t >= args->unplaced)
                token_gradient(cpu, args, t, args->dposition, t - args->unplaced);
            if (t < classes)
                token_gradient(cpu, args, t, args->dclass_token, t);
            else if (t < prefix)
                token_gradient(cpu, args, t, args->dregister_tokens, t - classes);
        }
    }
}

void cpu_pool_forward(struct stream *stream, const struct pool_forward *args)
{
    const struct cpu_device *cpu = stream->cpu;
    const int64_t width = args->width, sample = args->tokens * width;
    const size_t row = (size_t)width * type_size(args->type);
    if (!args->mean) {
        for (int64_t b = 0; b < args->batch; b++)
            memcpy(at(args->y, b * width, args->type), at(args->x, b * sample, args->type), row);
        return;
    }
    const int64_t averaged = args->tokens - args->first;
#pragma omp parallel for schedule(static) num_threads(cpu_threads_for(cpu, args->batch *sample))
    for (int64_t b = 0; b < args->batch; b++)
        for (int64_t j = 0; j < width; j += SUM_COLUMNS) {
            float sums[SUM_COLUMNS] = {0};
            int64_t count = width - j < SUM_COLUMNS ? width - j : SUM_COLUMNS;
            cpu->kernels->elements->add_columns(
                args->type, sums, at(args->x, b * sample + args->first * width + j, args->type),
                averaged, width, count);
            cpu->kernels->elements->scale(TYPE_FP32, sums, sums, 1 / (float)averaged, count);
            if (args->type == TYPE_FP32)
                memcpy(at(args->y, b * width + j, args->type), sums, (size_t)count * sizeof *sums);
            else
                cpu->kernels->convert->from_fp32(args->type, at(args->y, b * width + j, args->type),
                                                 sums, count);
        }
}

void cpu_pool_backward(struct stream *stream, const struct pool_backward *args)
{
    const struct cpu_device *cpu = stream->cpu;
    const int64_t width = args->width, sample = args->tokens * width;
    const size_t row = (size_t)width * type_size(args->type);
    const int64_t first = args->mean ? args->first : 0, end = args->mean ? args->tokens : 1;
    const float factor = args->mean ? 1 / (float)(end - first) : 1;
#pragma omp parallel for schedule(static) num_threads(cpu_threads_for(cpu, args->batch *sample))
    for (int64_t b = 0; b < args->batch; b++)
        for (int64_t t = 0; t < args->tokens; t++) {
            void *to = at(args->dx, b * sample + t * width, args->type);
            if (t >= first && t < end)
                cpu->kernels->elements->scale(args->type, to, at(args->dy, b * width, args->type),
                                              factor, width);
            else
                memset(to, 0, row);
        }
}
