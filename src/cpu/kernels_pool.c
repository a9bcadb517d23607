// SPDX-License-Identifier: BSD-3-Clause
/* Max pooling of rows of pixels, one vector of channels at a time. Backward accumulates the windows
 * of a row of dx in fp32, in a fixed order, and writes the row once. */
#include "cpu/kernels.h"
#include "cpu/vector.h"

/* The vector_size attribute requires a typedef. */
typedef uint8_t vector_byte __attribute__((vector_size(VECTOR_WIDTH)));

/* Convert in steps of a factor of two in width, each of which is one instruction. */
KERNEL_INLINE void index_store(uint8_t *to, int64_t count, vector_int index)
{
    const vector_half halves = __builtin_convertvector(index, vector_half);
    const vector_byte bytes = __builtin_convertvector(halves, vector_byte);
    memcpy(to, &bytes, (size_t)count);
}

KERNEL_INLINE vector_int index_load(const uint8_t *from, int64_t count)
{
    vector_byte bytes = {0};
    memcpy(&bytes, from, (size_t)count);
    const vector_half halves = __builtin_convertvector(bytes, vector_half);
    return __builtin_convertvector(halves, vector_int);
}

/* The window of a pixel of y, clipped to the image. */
struct window {
    int64_t top, bottom, left, right; /* rows and columns of x, ends exclusive */
    int64_t first;                    /* index of (top, left) in the window */
};

KERNEL_INLINE struct window window_at(const struct max_pool_forward *args, int64_t row,
                                      int64_t column)
{
    const int64_t top = row * args->stride - args->padding;
    const int64_t left = column * args->stride - args->padding;
    struct window window = {top > 0 ? top : 0, top + args->kernel, left > 0 ? left : 0,
                            left + args->kernel, 0};

    window.first = (window.top - top) * args->kernel + window.left - left;
    if (window.bottom > args->height)
        window.bottom = args->height;
    if (window.right > args->width)
        window.right = args->width;
    return window;
}

/* Process `count` channels from c on. */
KERNEL_INLINE void forward_part(enum data_type type, const struct max_pool_forward *args,
                                const struct window *window, const void *x, int64_t y, int64_t c,
                                int64_t count)
{
    const int64_t channels = args->channels;
    vector_float most = {0};
    vector_int index = {0};

    for (int64_t r = window->top; r < window->bottom; r++)
        for (int64_t q = window->left; q < window->right; q++) {
            const int64_t at = (r * args->width + q) * channels + c;
            const int64_t number =
                window->first + (r - window->top) * args->kernel + q - window->left;
            const vector_float value = typed_load_row(type, x, at, at + count);
            const vector_int is_more =
                number == window->first ? (vector_int){0} - 1 : ~(value <= most) & (most == most);
            most = vector_select(is_more, value, most);
            index = (is_more & (int32_t)number) | (~is_more & index);
        }
    typed_store_row(type, args->y, y + c, y + c + count, most);
    if (args->index != NULL)
        index_store(args->index + y + c, count, index);
}

KERNEL_INLINE void forward_typed(enum data_type type, const struct max_pool_forward *given,
                                 int64_t row)
{
    const struct max_pool_forward here = *given,
                                  *args = &here; /* local copy: stores cannot alias it */
    const int64_t down = convolved_size(args->height, args->kernel, args->stride, args->padding);
    const int64_t across = convolved_size(args->width, args->kernel, args->stride, args->padding);
    const int64_t channels = args->channels, sample = args->height * args->width * channels;

    const void *x = element(type, args->x, row / down * sample);

    for (int64_t column = 0; column < across; column++) {
        const struct window window = window_at(args, row % down, column);
        const int64_t y = (row * across + column) * channels;
        int64_t c = 0;
        for (; c + VECTOR_WIDTH <= channels; c += VECTOR_WIDTH)
            forward_part(type, args, &window, x, y, c, VECTOR_WIDTH);
        if (c < channels)
            forward_part(type, args, &window, x, y, c, channels - c);
    }
}

/* For fewer channels than a vector, in fp32: four channels at a time. */
typedef int32_t vector_four_int __attribute__((vector_size(16)));
typedef uint8_t vector_four_byte __attribute__((vector_size(4)));

static bool uses_four_lanes(enum data_type type, int64_t channels)
{
    return type == TYPE_FP32 && channels < VECTOR_WIDTH && channels % 4 == 0;
}

/* x is at the sample's first pixel, y and index at four elements of the output. */
KERNEL_INLINE void forward_four(const struct max_pool_forward *args, const struct window *window,
                                const float *x, float *y, uint8_t *index)
{
    vector_four most;
    vector_four_int best = (vector_four_int){0} + (int32_t)window->first;

    memcpy(&most, x + (window->top * args->width + window->left) * args->channels, sizeof most);
    for (int64_t r = window->top; r < window->bottom; r++)
        for (int64_t q = window->left; q < window->right; q++) {
            const int64_t number =
                window->first + (r - window->top) * args->kernel + q - window->left;
            vector_four value;
            memcpy(&value, x + (r * args->width + q) * args->channels, sizeof value);
            const vector_four_int is_more = ~(value <= most) & (most == most);
            most = (vector_four)((is_more & (vector_four_int)value) |
                                 (~is_more & (vector_four_int)most));
            best = (is_more & (int32_t)number) | (~is_more & best);
        }
    memcpy(y, &most, sizeof most);
    if (index != NULL) {
        const vector_four_byte bytes = __builtin_convertvector(best, vector_four_byte);
        memcpy(index, &bytes, sizeof bytes);
    }
}

static void forward_by_four(const struct max_pool_forward *args, int64_t row)
{
    const int64_t down = convolved_size(args->height, args->kernel, args->stride, args->padding);
    const int64_t across = convolved_size(args->width, args->kernel, args->stride, args->padding);
    const int64_t channels = args->channels, sample = args->height * args->width * channels;

    for (int64_t column = 0; column < across; column++) {
        const struct window window = window_at(args, row % down, column);
        const int64_t y = (row * across + column) * channels;
        for (int64_t c = 0; c < channels; c += 4)
            forward_four(args, &window, (const float *)args->x + row / down * sample + c,
                         (float *)args->y + y + c,
                         args->index != NULL ? args->index + y + c : NULL);
    }
}

static void forward(const struct max_pool_forward *args, int64_t row)
{
    if (uses_four_lanes(args->type, args->channels)) {
        forward_by_four(args, row);
        return;
    }
    TYPED_CALL(forward_typed, args->type, args, row);
}

/* Add `count` channels of a window's gradient, starting at element `window`, to the pixels of the
 * window's row `number` / kernel. sums is at the window's first pixel; columns first to last are
 * inside the image. */
KERNEL_INLINE void backward_part(enum data_type type, const struct max_pool_backward *args,
                                 int64_t window, int64_t count, int64_t first, int64_t last,
                                 int64_t number, float *sums)
{
    const vector_int index = index_load(args->index + window, count);
    vector_float dy = typed_load_row(type, args->dy, window, window + count);

    if (args->add != NULL)
        dy += typed_load_row(type, args->add, window, window + count);
    for (int64_t k = first; k < last; k++) {
        const vector_int is_maximum = index == (int32_t)(number + k);
        float *sum = sums + k * args->channels;
        vector_float value = typed_load_row(TYPE_FP32, sum, 0, count);
        value += vector_select(is_maximum, dy, vector_all(0));
        typed_store_row(TYPE_FP32, sum, 0, count, value);
    }
}

/* Add the gradients of a row of windows to the sums of a row of dx. */
KERNEL_INLINE void backward_windows(enum data_type type, const struct max_pool_backward *args,
                                    int64_t windows, int64_t across, int64_t number, float *sums)
{
    const int64_t channels = args->channels;

    for (int64_t q = 0; q < across; q++) {
        const int64_t left = q * args->stride - args->padding, window = windows + q * channels;
        const int64_t first = left < 0 ? -left : 0;
        const int64_t last = left + args->kernel < args->width ? args->kernel : args->width - left;
        float *to = sums + left * channels;
        int64_t c = 0;
        for (; c + VECTOR_WIDTH <= channels; c += VECTOR_WIDTH)
            backward_part(type, args, window + c, VECTOR_WIDTH, first, last, number, to + c);
        if (c < channels)
            backward_part(type, args, window + c, channels - c, first, last, number, to + c);
    }
}

KERNEL_INLINE void backward_typed(enum data_type type, const struct max_pool_backward *given,
                                  int64_t row, float *sums)
{
    const struct max_pool_backward here = *given,
                                   *args = &here; /* local copy: stores cannot alias it */
    const int64_t down = convolved_size(args->height, args->kernel, args->stride, args->padding);
    const int64_t across = convolved_size(args->width, args->kernel, args->stride, args->padding);
    const int64_t width = args->width * args->channels;
    const int64_t from_top = row % args->height + args->padding;
    const int64_t above = from_top - args->kernel + 1;
    const int64_t first = above <= 0 ? 0 : (above + args->stride - 1) / args->stride;

    memset(sums, 0, (size_t)width * sizeof *sums);
    for (int64_t r = first; r <= from_top / args->stride && r < down; r++)
        backward_windows(type, args, (row / args->height * down + r) * across * args->channels,
                         across, (from_top - r * args->stride) * args->kernel, sums);
    for (int64_t i = 0; i < width; i += VECTOR_WIDTH)
        typed_store_row(type, args->dx, row * width + i, (row + 1) * width,
                        typed_load_row(TYPE_FP32, sums, i, width));
}

/* One row (`number` / kernel) of a window that does not overlap others. */
KERNEL_INLINE void backward_four(const struct max_pool_backward *args, int64_t window, float *dx,
                                 int64_t left, int64_t number)
{
    vector_four_byte bytes;
    vector_four dy, add = {0};

    memcpy(&bytes, args->index + window, sizeof bytes);
    memcpy(&dy, (const float *)args->dy + window, sizeof dy);
    if (args->add != NULL)
        memcpy(&add, (const float *)args->add + window, sizeof add);
    dy += add;
    const vector_four_int index = __builtin_convertvector(bytes, vector_four_int);
    for (int64_t k = 0; k < args->kernel; k++) {
        const vector_four_int is_maximum = index == (int32_t)(number + k);
        const vector_four value = (vector_four)(is_maximum & (vector_four_int)dy);
        if (left + k >= 0 && left + k < args->width)
            memcpy(dx + (left + k) * args->channels, &value, sizeof value);
    }
}

static void backward_by_four(const struct max_pool_backward *args, int64_t row)
{
    const int64_t down = convolved_size(args->height, args->kernel, args->stride, args->padding);
    const int64_t across = convolved_size(args->width, args->kernel, args->stride, args->padding);
    const int64_t channels = args->channels, width = args->width * channels;
    const int64_t in_sample = row % args->height + args->padding, r = in_sample / args->stride;
    const int64_t number = in_sample % args->stride * args->kernel;
    float *dx = (float *)args->dx + row * width;

    memset(dx, 0, (size_t)width * sizeof *dx);
    if (r >= down || number >= args->kernel * args->kernel)
        return;
    for (int64_t q = 0; q < across; q++)
        for (int64_t c = 0; c < channels; c += 4)
            backward_four(args, ((row / args->height * down + r) * across + q) * channels + c,
                          dx + c, q * args->stride - args->padding, number);
}

static void backward(const struct max_pool_backward *args, int64_t row, float *sums)
{
    if (uses_four_lanes(args->type, args->channels) && args->stride >= args->kernel) {
        backward_by_four(args, row);
        return;
    }
    TYPED_CALL(backward_typed, args->type, args, row, sums);
}

const struct max_pool_kernels KERNEL(max_pool_kernels) = {.forward = forward, .backward = backward};
