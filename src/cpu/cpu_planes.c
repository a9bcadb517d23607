// SPDX-License-Identifier: BSD-3-Clause
/* Max pooling over threads, transposition between channels first and channels last, bilinear
 * interpolation and its gradient. */
#include "cpu/cpu.h"

void cpu_max_pool_forward(struct stream *stream, const struct max_pool_forward *args)
{
    const struct cpu_device *cpu = stream->cpu;
    const int64_t down = convolved_size(args->height, args->kernel, args->stride, args->padding);

    ENSURE(args->kernel <= 15 && args->padding < args->kernel,
           "max pool: kernel %lld, padding %lld not supported", (long long)args->kernel,
           (long long)args->padding);
#pragma omp parallel for schedule(static)                                                          \
    num_threads(cpu_threads_for(cpu, args->batch * args->height * args->width * args->channels))
    for (int64_t row = 0; row < args->batch * down; row++)
        cpu->kernels->max_pool->forward(args, row);
}

void cpu_max_pool_backward(struct stream *stream, const struct max_pool_backward *args)
{
    const struct cpu_device *cpu = stream->cpu;

#pragma omp parallel for schedule(static)                                                          \
    num_threads(cpu_threads_for(cpu, args->batch * args->height * args->width * args->channels))
    for (int64_t row = 0; row < args->batch * args->height; row++)
        cpu->kernels->max_pool->backward(
            args, row,
            cpu_workspace_thread(cpu, (size_t)(args->width * args->channels) * sizeof(float)));
}

/* Size of a tile, which fits into the L1 cache. */
enum { TILE = 64 };

static void transpose_tile(const struct transpose *args, int64_t b, int64_t row, int64_t column)
{
    const int64_t rows = args->rows, columns = args->columns, sample = b * rows * columns;
    const int64_t row_end = smaller(row + TILE, rows), column_end = smaller(column + TILE, columns);

    if (args->type == TYPE_FP32) {
        const float *x = (const float *)args->x + sample;
        float *y = (float *)args->y + sample;
        for (int64_t c = column; c < column_end; c++)
            for (int64_t r = row; r < row_end; r++)
                y[c * rows + r] = x[r * columns + c];
    } else {
        const uint16_t *x = (const uint16_t *)args->x + sample;
        uint16_t *y = (uint16_t *)args->y + sample;
        for (int64_t c = column; c < column_end; c++)
            for (int64_t r = row; r < row_end; r++)
                y[c * rows + r] = x[r * columns + c];
    }
}

void cpu_transpose(struct stream *stream, const struct transpose *args)
{
    const int64_t down = round_up_division(args->rows, TILE);
    const int64_t across = round_up_division(args->columns, TILE);

#pragma omp parallel for schedule(static)                                                          \
    num_threads(cpu_threads_for(stream->cpu, args->batch * args->rows * args->columns))
    for (int64_t tile = 0; tile < args->batch * down * across; tile++)
        transpose_tile(args, tile / (down * across), tile / across % down * TILE,
                       tile % across * TILE);
}

/* ---- Bilinear interpolation: a task is one row of a channel */

/* An output at position (1 - share) * low + share * high. */
struct tap {
    int64_t low, high;
    float share;
};

/* The position of output i, (i + 0.5) * size / out_size - 0.5, is a fraction of integers. */
static struct tap tap_at(int64_t i, int64_t size, int64_t out_size)
{
    const int64_t position = larger(0, (2 * i + 1) * size - out_size);
    const int64_t low = position / (2 * out_size);
    return (struct tap){low, smaller(low + 1, size - 1),
                        (float)(position % (2 * out_size)) / (float)(2 * out_size)};
}

/* Return the weight of input `at` in an output. */
static float tap_weight(const struct tap *tap, int64_t at)
{
    return (tap->low == at ? 1 - tap->share : 0) + (tap->high == at ? tap->share : 0);
}

/* Return the first output whose position is at least that of input at - 1. */
static int64_t first_output(int64_t at, int64_t size, int64_t out_size)
{
    const int64_t first = round_up_division((2 * at - 1) * out_size - size, 2 * size);
    return smaller(larger(0, first), out_size);
}

/* Set the range of outputs that read input `at`. */
static void outputs_find(int64_t at, int64_t size, int64_t out_size, int64_t *first, int64_t *end)
{
    *first = at > 0 ? first_output(at, size, out_size) : 0;
    *end = at < size - 1 ? first_output(at + 2, size, out_size) : out_size;
}

static struct tap *taps_make(const struct cpu_device *cpu, int64_t size, int64_t out_size)
{
    struct tap *taps = cpu_workspace_shared(cpu, (size_t)out_size * sizeof *taps);
    for (int64_t i = 0; i < out_size; i++)
        taps[i] = tap_at(i, size, out_size);
    return taps;
}

/* Write row `row` of the output of all samples and channels. room: [width + out_width] */
static void forward_row(const struct cpu_device *cpu, const struct upsample_forward *args,
                        const struct tap *taps, int64_t row, float *room)
{
    const int64_t plane = row / args->out_height, width = args->width;
    const int64_t sample = plane / args->channels, channel = plane % args->channels;
    const struct tap tap = tap_at(row % args->out_height, args->height, args->out_height);
    float *line = room, *out = room + width;
    for (int64_t i = 0; i < width; i++) {
        const int64_t low = ((sample * args->height + tap.low) * width + i) * args->channels;
        const int64_t high = ((sample * args->height + tap.high) * width + i) * args->channels;
        float from[2];
        cpu->kernels->convert->to_fp32(&from[0], args->type,
                                       element(args->type, args->x, low + channel), 1);
        cpu->kernels->convert->to_fp32(&from[1], args->type,
                                       element(args->type, args->x, high + channel), 1);
        line[i] = (1 - tap.share) * from[0] + tap.share * from[1];
    }
    for (int64_t i = 0; i < args->out_width; i++)
        out[i] = (1 - taps[i].share) * line[taps[i].low] + taps[i].share * line[taps[i].high];
    cpu->kernels->convert->from_fp32(args->type,
                                     element_to_write(args->type, args->y, row * args->out_width),
                                     out, args->out_width);
}

void cpu_upsample_forward(struct stream *stream, const struct upsample_forward *args)
{
    const struct cpu_device *cpu = stream->cpu;
    const int64_t rows = args->batch * args->channels * args->out_height;
    const size_t room = (size_t)(args->width + args->out_width) * sizeof(float);
    const struct tap *taps = taps_make(cpu, args->width, args->out_width);
#pragma omp parallel num_threads(cpu_threads_for(cpu, rows * args->out_width))
    {
        float *memory = cpu_workspace_thread(cpu, room);
#pragma omp for schedule(static)
        for (int64_t row = 0; row < rows; row++)
            forward_row(cpu, args, taps, row, memory);
    }
}

/* Write row `row` of dx of all samples and channels. room: [2 * out_width] */
static void backward_row(const struct cpu_device *cpu, const struct upsample_backward *args,
                         const struct tap *taps, int64_t row, float *room)
{
    const int64_t plane = row / args->height, at = row % args->height, width = args->out_width;
    const int64_t sample = plane / args->channels, channel = plane % args->channels;
    float *from = room, *sums = room + width;
    int64_t first, end;
    memset(sums, 0, (size_t)width * sizeof *sums);
    outputs_find(at, args->height, args->out_height, &first, &end);
    for (int64_t y = first; y < end; y++) {
        const struct tap tap = tap_at(y, args->height, args->out_height);
        const float weight = tap_weight(&tap, at);
        const int64_t line = (plane * args->out_height + y) * width;
        cpu->kernels->convert->to_fp32(from, args->type, element(args->type, args->dy, line),
                                       width);
        for (int64_t i = 0; i < width; i++)
            sums[i] += weight * from[i];
    }
    for (int64_t column = 0; column < args->width; column++) {
        const int64_t to = ((sample * args->height + at) * args->width + column) * args->channels;
        float sum = 0;
        outputs_find(column, args->width, width, &first, &end);
        for (int64_t i = first; i < end; i++)
            sum += tap_weight(&taps[i], column) * sums[i];
        cpu->kernels->convert->from_fp32(
            args->type, element_to_write(args->type, args->dx, to + channel), &sum, 1);
    }
}

void cpu_upsample_backward(struct stream *stream, const struct upsample_backward *args)
{
    const struct cpu_device *cpu = stream->cpu;
    const int64_t rows = args->batch * args->channels * args->height;
    const size_t room = 2 * (size_t)args->out_width * sizeof(float);
    const struct tap *taps = taps_make(cpu, args->width, args->out_width);
#pragma omp parallel num_threads(                                                                  \
    cpu_threads_for(cpu, args->batch * args->channels * args->out_height * args->out_width))
    {
        float *memory = cpu_workspace_thread(cpu, room);
#pragma omp for schedule(static)
        for (int64_t row = 0; row < rows; row++)
            backward_row(cpu, args, taps, row, memory);
    }
}
