// SPDX-License-Identifier: BSD-3-Clause
/* Patches, token sequences, pooling and rotary positions. Rows are copied and added; sums over
 * samples are computed per column in a fixed order. */
#include "cpu/cpu.h"

#include <math.h>
#include <string.h>

enum { SUM_COLUMNS = 64 };

/* Copy a row of a patch that begins in column `left` from or to a row of the image. */
static void patch_row_copy(const struct patches *args, char *in_row, char *image_row, int64_t left)
{
    const size_t size = type_size(args->type);
    const int64_t inside = smaller(args->patch, args->width - left);
    char *in_image = image_row + (size_t)left * size;
    memcpy(args->back ? in_image : in_row, args->back ? in_row : in_image, (size_t)inside * size);
    for (int64_t x = inside; x < args->patch && !args->back; x++) {
        const int64_t column = args->pad == PAD_WRAP ? (left + x) % args->width : args->width - 1;
        if (args->pad == PAD_NONE)
            memset(in_row + (size_t)x * size, 0, size);
        else
            memcpy(in_row + (size_t)x * size, image_row + (size_t)column * size, size);
    }
}

void cpu_patches(struct stream *stream, const struct patches *args)
{
    const struct cpu_device *cpu = stream->cpu;
    const int64_t patch = args->patch, across = round_up_division(args->width, patch);
    const int64_t down = round_up_division(args->height, patch);
    const int64_t row_width = args->channels * patch * patch, rows = args->first + down * across;
    const size_t bytes = (size_t)patch * type_size(args->type);
#pragma omp parallel for schedule(static)                                                          \
    num_threads(cpu_threads_for(cpu, args->batch * args->channels * args->height * args->width))
    for (int64_t row = 0; row < args->batch * rows; row++) {
        const int64_t b = row / rows, number = row % rows - args->first;
        const int64_t top = number / across * patch, left = number % across * patch;
        if (number < 0 && !args->back)
            memset(element_to_write(args->type, args->rows, row * row_width), 0,
                   (size_t)(row_width / patch) * bytes);
        for (int64_t line = 0; line < args->channels * patch && number >= 0; line++) {
            const int64_t c = line / patch, y = top + line % patch;
            const int64_t image_row =
                (b * args->channels + c) * args->height + smaller(y, args->height - 1);
            char *in_row = element_to_write(args->type, args->rows, row * row_width + line * patch);
            if (y < args->height || (!args->back && args->pad != PAD_NONE))
                patch_row_copy(args, in_row,
                               element_to_write(args->type, args->images, image_row * args->width),
                               left);
            else if (!args->back)
                memset(in_row, 0, bytes);
        }
    }
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
        void *to = element_to_write(args->type, args->x, row * width);
        const void *from = element(args->type, args->patches, (b * patches + t - prefix) * width);
        if (t < prefix)
            from = t < classes ? args->class_token
                               : element(args->type, args->register_tokens, (t - classes) * width);
        if (t < args->unplaced)
            memcpy(to, from, (size_t)width * type_size(args->type));
        else
            cpu->kernels->elements->add(
                args->type, to, from,
                element(args->type, args->position, (t - args->unplaced) * width), width);
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
    cpu->kernels->elements->add_columns(args->type, sum,
                                        element(args->type, args->dx, t * args->width), args->batch,
                                        args->tokens * args->width, args->width);
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
            memcpy(element_to_write(args->type, args->dpatches, b * patches * width),
                   element(args->type, args->dx, (b * args->tokens + prefix) * width), sample);
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
            memcpy(element_to_write(args->type, args->y, b * width),
                   element(args->type, args->x, b * sample), row);
        return;
    }
    const int64_t averaged = args->tokens - args->first;
#pragma omp parallel for schedule(static) num_threads(cpu_threads_for(cpu, args->batch *sample))
    for (int64_t b = 0; b < args->batch; b++)
        for (int64_t j = 0; j < width; j += SUM_COLUMNS) {
            float sums[SUM_COLUMNS] = {0};
            const int64_t count = smaller(SUM_COLUMNS, width - j);
            cpu->kernels->elements->add_columns(
                args->type, sums,
                element(args->type, args->x, b * sample + args->first * width + j), averaged, width,
                count);
            cpu->kernels->elements->scale(TYPE_FP32, sums, sums, 1 / (float)averaged, count);
            cpu->kernels->convert->from_fp32(
                args->type, element_to_write(args->type, args->y, b * width + j), sums, count);
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
            void *to = element_to_write(args->type, args->dx, b * sample + t * width);
            if (t >= first && t < end)
                cpu->kernels->elements->scale(
                    args->type, to, element(args->type, args->dy, b * width), factor, width);
            else
                memset(to, 0, row);
        }
}

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

/* A thread computes the angles of a patch once and rotates its queries and keys in all samples. */
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
