/* Max pooling of rows of pixels, a vector of channels at a time. Backward asks each pixel in which
 * windows it was the largest, so that it is written once, and sums have the order of the windows.
 */
#include "device/kernels.h"
#include "device/vector.h"

/* Vector types cannot be named without a typedef. */
typedef uint8_t vector_byte __attribute__((vector_size(VECTOR_WIDTH)));

KERNEL_INLINE void index_store(uint8_t *to, int64_t count, vector_int index)
{
    const vector_byte bytes = __builtin_convertvector(index, vector_byte);
    memcpy(to, &bytes, (size_t)count);
}

KERNEL_INLINE vector_int index_load(const uint8_t *from, int64_t count)
{
    vector_byte bytes = {0};
    memcpy(&bytes, from, (size_t)count);
    return __builtin_convertvector(bytes, vector_int);
}

/* A pixel of y: its window, cut at the image's edges. */
struct window {
    int64_t top, bottom, left, right; /* rows and columns of x, the last ones excluded */
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

/* `count` channels from c on. */
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

KERNEL_INLINE void forward_typed(enum data_type type, const struct max_pool_forward *args,
                                 int64_t begin, int64_t end)
{
    const int64_t down = convolved_size(args->height, args->kernel, args->stride, args->padding);
    const int64_t across = convolved_size(args->width, args->kernel, args->stride, args->padding);
    const int64_t channels = args->channels, sample = args->height * args->width * channels;

    for (int64_t row = begin; row < end; row++) {
        const char *x = (const char *)args->x + (size_t)(row / down * sample) * type_size(type);
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
}

/* Fewer channels than a vector, in fp32: four at a time. */
typedef float vector_four __attribute__((vector_size(16)));
typedef int32_t vector_four_int __attribute__((vector_size(16)));
typedef uint8_t vector_four_byte __attribute__((vector_size(4)));

static bool goes_by_four(enum data_type type, int64_t channels)
{
    return type == TYPE_FP32 && channels < VECTOR_WIDTH && channels % 4 == 0;
}

/* x, y, index: at the first pixel of the sample, at four elements of y. */
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

static void forward_by_four(const struct max_pool_forward *args, int64_t begin, int64_t end)
{
    const int64_t down = convolved_size(args->height, args->kernel, args->stride, args->padding);
    const int64_t across = convolved_size(args->width, args->kernel, args->stride, args->padding);
    const int64_t channels = args->channels, sample = args->height * args->width * channels;

    for (int64_t row = begin; row < end; row++)
        for (int64_t column = 0; column < across; column++) {
            const struct window window = window_at(args, row % down, column);
            const int64_t y = (row * across + column) * channels;
            for (int64_t c = 0; c < channels; c += 4)
                forward_four(args, &window, (const float *)args->x + row / down * sample + c,
                             (float *)args->y + y + c,
                             args->index != NULL ? args->index + y + c : NULL);
        }
}

static void forward(const struct max_pool_forward *args, int64_t begin, int64_t end)
{
    if (goes_by_four(args->type, args->channels)) {
        forward_by_four(args, begin, end);
        return;
    }
    TYPED_CALL(forward_typed, args->type, args, begin, end);
}

/* The windows, of `count` along an axis, that have pixel `place` in them: first to last, the last
 * one excluded. */
struct windows {
    int64_t first, last;
};

KERNEL_INLINE struct windows windows_with(const struct max_pool_backward *args, int64_t place,
                                          int64_t count)
{
    const int64_t end = place + args->padding, begin = end - args->kernel + 1;
    struct windows windows = {begin <= 0 ? 0 : (begin + args->stride - 1) / args->stride,
                              end / args->stride + 1};

    if (windows.last > count)
        windows.last = count;
    return windows;
}

/* A pixel of dx. */
struct pixel {
    int64_t row, column;            /* in its sample */
    struct windows rows, columns;   /* that it is in */
    int64_t windows, across, place; /* first element of the sample's windows; of dx */
};

KERNEL_INLINE void backward_part(enum data_type type, const struct max_pool_backward *args,
                                 const struct pixel *pixel, int64_t c, int64_t count)
{
    vector_float dx = {0};

    for (int64_t r = pixel->rows.first; r < pixel->rows.last; r++)
        for (int64_t q = pixel->columns.first; q < pixel->columns.last; q++) {
            const int64_t at = pixel->windows + (r * pixel->across + q) * args->channels + c;
            const int64_t number = (pixel->row + args->padding - r * args->stride) * args->kernel +
                                   pixel->column + args->padding - q * args->stride;
            const vector_int is_it = index_load(args->index + at, count) == (int32_t)number;
            vector_float dy = typed_load_row(type, args->dy, at, at + count);
            if (args->add != NULL)
                dy += typed_load_row(type, args->add, at, at + count);
            dx += vector_select(is_it, dy, vector_all(0));
        }
    typed_store_row(type, args->dx, pixel->place + c, pixel->place + c + count, dx);
}

KERNEL_INLINE void backward_typed(enum data_type type, const struct max_pool_backward *args,
                                  int64_t begin, int64_t end)
{
    const int64_t down = convolved_size(args->height, args->kernel, args->stride, args->padding);
    const int64_t across = convolved_size(args->width, args->kernel, args->stride, args->padding);
    const int64_t channels = args->channels;

    for (int64_t row = begin; row < end; row++)
        for (int64_t column = 0; column < args->width; column++) {
            const int64_t sample = row / args->height;
            const struct pixel pixel = {.row = row % args->height,
                                        .column = column,
                                        .rows = windows_with(args, row % args->height, down),
                                        .columns = windows_with(args, column, across),
                                        .windows = sample * down * across * channels,
                                        .across = across,
                                        .place = (row * args->width + column) * channels};
            int64_t c = 0;
            for (; c + VECTOR_WIDTH <= channels; c += VECTOR_WIDTH)
                backward_part(type, args, &pixel, c, VECTOR_WIDTH);
            if (c < channels)
                backward_part(type, args, &pixel, c, channels - c);
        }
}

/* One row of a window that has no pixel with another in common: its row `number` / kernel. */
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
        const vector_four_int is_it = index == (int32_t)(number + k);
        const vector_four value = (vector_four)(is_it & (vector_four_int)dy);
        if (left + k >= 0 && left + k < args->width)
            memcpy(dx + (left + k) * args->channels, &value, sizeof value);
    }
}

static void backward_by_four(const struct max_pool_backward *args, int64_t begin, int64_t end)
{
    const int64_t down = convolved_size(args->height, args->kernel, args->stride, args->padding);
    const int64_t across = convolved_size(args->width, args->kernel, args->stride, args->padding);
    const int64_t channels = args->channels, width = args->width * channels;

    for (int64_t row = begin; row < end; row++) {
        const int64_t in_sample = row % args->height + args->padding, r = in_sample / args->stride;
        const int64_t number = in_sample % args->stride * args->kernel;
        float *dx = (float *)args->dx + row * width;
        memset(dx, 0, (size_t)width * sizeof *dx);
        if (r >= down || number >= args->kernel * args->kernel)
            continue;
        for (int64_t q = 0; q < across; q++)
            for (int64_t c = 0; c < channels; c += 4)
                backward_four(args, ((row / args->height * down + r) * across + q) * channels + c,
                              dx + c, q * args->stride - args->padding, number);
    }
}

static void backward(const struct max_pool_backward *args, int64_t begin, int64_t end)
{
    if (goes_by_four(args->type, args->channels) && args->stride >= args->kernel) {
        backward_by_four(args, begin, end);
        return;
    }
    TYPED_CALL(backward_typed, args->type, args, begin, end);
}

extern const struct max_pool_kernels KERNEL(max_pool_kernels);
const struct max_pool_kernels KERNEL(max_pool_kernels) = {.forward = forward, .backward = backward};
