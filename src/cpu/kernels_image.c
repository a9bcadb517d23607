// SPDX-License-Identifier: BSD-3-Clause
/* Image kernels: both passes of a resize, tracing output pixels back to input pixels, and the
 * lookup from levels to values, or the normalisation of fp32. */
#include <math.h>

#include "cpu/kernels.h"
#include "cpu/vector.h"

/* As in Pillow's Resample.c: weights in units of 1 / 2^22, rounded to nearest, clamped to 0..255.
 */
enum { PRECISION = 22, COLUMNS = 64 };

KERNEL_INLINE uint8_t level(int32_t sum)
{
    int32_t value = sum >> PRECISION;
    value = value < 0 ? 0 : value;
    return (uint8_t)(value > 255 ? 255 : value);
}

/* Rows are transposed in blocks of TRANSPOSED_COLUMNS bytes, [byte][line], so that one weight is
 * applied to LINES adjacent levels at once. */
enum { LINES = 32, TRANSPOSED_COLUMNS = 1024, TILE = 16 };

typedef uint8_t vector_bytes __attribute__((vector_size(TILE)));

/* Transpose TILE x TILE bytes: log2(TILE) times, interleave rows i and i + TILE / 2. */
KERNEL_INLINE void transpose_tile(vector_bytes rows[TILE])
{
    for (int round = 1; round < TILE; round *= 2) {
        vector_bytes next[TILE];
        for (int i = 0; i < TILE / 2; i++) {
            const vector_bytes a = rows[i], b = rows[i + TILE / 2];
            next[2 * i] = VECTOR_SHUFFLE(vector_bytes, a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5,
                                         21, 6, 22, 7, 23);
            next[2 * i + 1] = VECTOR_SHUFFLE(vector_bytes, a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12,
                                             28, 13, 29, 14, 30, 15, 31);
        }
        memcpy(rows, next, sizeof next);
    }
}

/* Transpose `columns` bytes of line_count rows. The lines up to the next multiple of TILE are
 * copies of the last row. */
KERNEL_INLINE void transpose_lines(const uint8_t *from, int64_t row_stride, int64_t line_count,
                                   int64_t columns, uint8_t *transposed)
{
    for (int64_t line = 0; line < line_count; line += TILE) {
        const uint8_t *rows[TILE];
        int64_t x = 0;
        for (int i = 0; i < TILE; i++)
            rows[i] = from + (line + i < line_count ? line + i : line_count - 1) * row_stride;
        for (; x + TILE <= columns; x += TILE) {
            vector_bytes tile[TILE];
            for (int i = 0; i < TILE; i++)
                memcpy(&tile[i], rows[i] + x, TILE);
            transpose_tile(tile);
            for (int i = 0; i < TILE; i++)
                memcpy(transposed + (x + i) * LINES + line, &tile[i], TILE);
        }
        for (; x < columns; x++)
            for (int i = 0; i < TILE; i++)
                transposed[x * LINES + line + i] = rows[i][x];
    }
}

/* Write up to TILE columns [column][line] to the rows of a plane. */
KERNEL_INLINE void columns_store(const uint8_t *transposed, int64_t columns, int64_t line_count,
                                 int64_t row_stride, uint8_t *to)
{
    for (int64_t line = 0; line < line_count; line += TILE) {
        const int64_t count = line_count - line < TILE ? line_count - line : TILE;
        vector_bytes tile[TILE];
        for (int i = 0; i < TILE; i++)
            memcpy(&tile[i], transposed + i * LINES + line, TILE);
        transpose_tile(tile);
        for (int64_t i = 0; i < count; i++, to += row_stride)
            if (columns == TILE)
                memcpy(to, &tile[i], TILE);
            else
                memcpy(to, &tile[i], (size_t)columns);
    }
}

/* Compute one output column of LINES rows. `step`: bytes from one input column to the next. */
KERNEL_INLINE void resize_transposed(int32_t taps, const int32_t *weights,
                                     const uint8_t *transposed, int64_t step, uint8_t *to)
{
    int32_t sums[LINES];

    for (int line = 0; line < LINES; line++)
        sums[line] = 1 << (PRECISION - 1);
    for (int32_t tap = 0; tap < taps; tap++)
        for (int line = 0; line < LINES; line++)
            sums[line] += transposed[tap * step + line] * weights[tap];
    for (int line = 0; line < LINES; line++)
        to[line] = level(sums[line]);
}

/* Compute one output whose inputs exceed a block. */
static void resize_long(const struct resize_axis *axis, const struct resize_lines *lines,
                        int64_t line_count, int64_t x, int64_t plane, uint8_t *to)
{
    for (int64_t channel = 0; channel < lines->channels; channel++, to += plane)
        for (int64_t line = 0; line < line_count; line++) {
            const uint8_t *from =
                lines->from + line * lines->row_stride + axis->first[x] * lines->channels + channel;
            int32_t sum = 1 << (PRECISION - 1);
            for (int32_t tap = 0; tap < axis->count[x]; tap++)
                sum += from[tap * lines->channels] * axis->weights[x * axis->taps + tap];
            to[line * axis->size + x] = level(sum);
        }
}

/* Compute the outputs from `begin` on whose inputs fit into one block; return the end of the range.
 */
static int64_t resize_block(const struct resize_axis *axis, const struct resize_lines *lines,
                            int64_t line_count, int64_t begin, uint8_t *transposed, int64_t plane,
                            uint8_t *to)
{
    const int64_t channels = lines->channels, first = axis->first[begin];
    int64_t last = first, end = begin;
    uint8_t columns[TILE * LINES] = {0};

    for (; end < axis->size &&
           (axis->first[end] + axis->count[end] - first) * channels <= TRANSPOSED_COLUMNS;
         end++)
        last = axis->first[end] + axis->count[end];
    if (end == begin) {
        resize_long(axis, lines, line_count, begin, plane, to);
        return begin + 1;
    }
    transpose_lines(lines->from + first * channels, lines->row_stride, line_count,
                    (last - first) * channels, transposed);
    for (int64_t channel = 0; channel < channels; channel++, to += plane)
        for (int64_t x = begin; x < end; x += TILE) {
            const int64_t count = end - x < TILE ? end - x : TILE;
            for (int64_t i = 0; i < count; i++)
                resize_transposed(axis->count[x + i], axis->weights + (x + i) * axis->taps,
                                  transposed +
                                      ((axis->first[x + i] - first) * channels + channel) * LINES,
                                  channels * LINES, columns + i * LINES);
            columns_store(columns, count, line_count, axis->size, to + x);
        }
    return end;
}

static void resize_horizontal(const struct resize_axis *axis, const struct resize_lines *lines,
                              uint8_t *to)
{
    uint8_t transposed[TRANSPOSED_COLUMNS * LINES] = {0};

    for (int64_t line = 0; line < lines->count; line += LINES) {
        const struct resize_lines block = {.from = lines->from + line * lines->row_stride,
                                           .row_stride = lines->row_stride,
                                           .channels = lines->channels};
        const int64_t line_count = lines->count - line < LINES ? lines->count - line : LINES;
        for (int64_t x = 0; x < axis->size;)
            x = resize_block(axis, &block, line_count, x, transposed, lines->count * axis->size,
                             to + line * axis->size);
    }
}

/* Compute up to COLUMNS pixels of one output row. */
KERNEL_INLINE void resize_columns(int32_t taps, const int32_t *weights, int64_t width,
                                  const uint8_t *from, int64_t columns, uint8_t *to)
{
    int32_t sums[COLUMNS];

    for (int64_t x = 0; x < columns; x++)
        sums[x] = 1 << (PRECISION - 1);
    for (int32_t tap = 0; tap < taps; tap++)
        for (int64_t x = 0; x < columns; x++)
            sums[x] += from[tap * width + x] * weights[tap];
    for (int64_t x = 0; x < columns; x++)
        to[x] = level(sums[x]);
}

static void resize_vertical(const struct resize_axis *axis, int64_t width, const uint8_t *from,
                            uint8_t *to)
{
    for (int64_t y = 0; y < axis->size; y++) {
        const uint8_t *source = from + axis->first[y] * width;
        const int32_t *weights = axis->weights + y * axis->taps;
        int64_t x = 0;
        for (; x + COLUMNS <= width; x += COLUMNS)
            resize_columns(axis->count[y], weights, width, source + x, COLUMNS, to + y * width + x);
        if (x < width)
            resize_columns(axis->count[y], weights, width, source + x, width - x,
                           to + y * width + x);
    }
}

KERNEL_INLINE int32_t inside(int32_t x, int32_t y, int32_t width, int32_t height)
{
    return (x >= 0) & (x < width) & (y >= 0) & (y < height);
}

/* Trace pixels back stage by stage (operations.h, struct pixel_plan). Branch-free, so that the loop
 * is vectorised. */
KERNEL_INLINE void follow_pixels(const struct pixel_plan *plan, bool rotate, int32_t width,
                                 int32_t height, int32_t begin, int32_t line, int32_t count,
                                 int32_t *origin)
{
    const int32_t *m = plan->matrix;
    int32_t erase_right = plan->erase_x + plan->erase_width;
    int32_t erased_line = (line >= plan->erase_y) & (line < plan->erase_y + plan->erase_height);

    for (int32_t i = 0; i < count; i++) {
        int32_t x = begin + i, y = line;
        int32_t erased = erased_line & (x >= plan->erase_x) & (x < erase_right);
        x -= plan->translate_x;
        y -= plan->translate_y;
        int32_t valid = inside(x, y, width, height) & (erased ^ 1);
        if (rotate) {
            x = valid ? x : 0; /* otherwise the products overflow far outside the image */
            y = valid ? y : 0;
            int32_t rotated_x = (m[0] * x + m[1] * y + m[2]) >> 16;
            int32_t rotated_y = (m[3] * x + m[4] * y + m[5]) >> 16;
            x = rotated_x;
            y = rotated_y;
            valid &= inside(x, y, width, height);
        }
        int32_t column = plan->transpose ? y : x, row = plan->transpose ? x : y;
        x = (plan->flip ? width - 1 - column : column) + plan->shift_x;
        y = (plan->vflip ? height - 1 - row : row) + plan->shift_y;
        valid &= inside(x, y, width, height);
        x -= plan->roll_x;
        y -= plan->roll_y;
        x += x < 0 ? width : 0;
        y += y < 0 ? height : 0;
        origin[i] = valid ? y * width + x : -1;
    }
}

static void follow(const struct pixel_plan *plan, int32_t width, int32_t height, int32_t x,
                   int32_t y, int32_t count, int32_t *origin)
{
    if (plan->rotate)
        follow_pixels(plan, true, width, height, x, y, count, origin);
    else
        follow_pixels(plan, false, width, height, x, y, count, origin);
}

KERNEL_INLINE uint8_t pixel(const uint8_t *plane, const int32_t *origin, int64_t i)
{
    if (origin == NULL)
        return plane[i];
    return origin[i] < 0 ? 0 : plane[origin[i]];
}

KERNEL_INLINE void look_up_origin(enum data_type type, const union pixel_table *table,
                                  const uint8_t *plane, const int32_t *origin, int64_t count,
                                  void *images)
{
    float *fp32 = images;
    uint16_t *half = images;

    for (int64_t i = 0; type == TYPE_FP32 && i < count; i++)
        fp32[i] = table->fp32[pixel(plane, origin, i)];
    for (int64_t i = 0; type != TYPE_FP32 && i < count; i++)
        half[i] = table->half[pixel(plane, origin, i)];
}

static void look_up(enum data_type type, const union pixel_table *table, const uint8_t *plane,
                    const int32_t *origin, int64_t count, void *images)
{
    if (origin == NULL)
        TYPED_CALL(look_up_origin, type, table, plane, NULL, count, images);
    else
        TYPED_CALL(look_up_origin, type, table, plane, origin, count, images);
}

/* ---- fp32; NaN is a missing value */

/* Compute output `i` of up to COLUMNS lines. */
KERNEL_INLINE void resize_value(const struct resize_axis *axis, const struct resize_values *lines,
                                int64_t i, int64_t line, int64_t count)
{
    const float *from = lines->from + line * lines->from_line + axis->first[i] * lines->from_step;
    float sums[COLUMNS] = {0}, weights[COLUMNS] = {0};

    for (int32_t tap = 0; tap < axis->count[i]; tap++, from += lines->from_step) {
        const float weight = (float)axis->weights[i * axis->taps + tap] * (1.0f / (1 << PRECISION));
        for (int64_t c = 0; c < count; c++) {
            const float value = from[c * lines->from_line];
            sums[c] += value == value ? weight * value : 0;
            weights[c] += value == value ? weight : 0;
        }
    }
    for (int64_t c = 0; c < count; c++)
        lines->to[(line + c) * lines->to_line + i * lines->to_step] =
            weights[c] >= 0.5f ? sums[c] / weights[c] : NAN;
}

static void resize_values(const struct resize_axis *axis, const struct resize_values *lines)
{
    for (int64_t line = 0; line < lines->count; line += COLUMNS)
        for (int64_t i = 0; i < axis->size; i++)
            resize_value(axis, lines, i, line,
                         lines->count - line < COLUMNS ? lines->count - line : COLUMNS);
}

KERNEL_INLINE float normal(float value, float mean, float std, float missing)
{
    return value == value ? (value - mean) / std : missing;
}

static void normalise(float mean, float std, float missing, const float *plane,
                      const int32_t *origin, int64_t count, float *images)
{
    for (int64_t i = 0; origin == NULL && i < count; i++)
        images[i] = normal(plane[i], mean, std, missing);
    for (int64_t i = 0; origin != NULL && i < count; i++)
        images[i] = origin[i] < 0 ? missing : normal(plane[origin[i]], mean, std, missing);
}

/* ---- Colour operations on planes of bytes, bit-identical to Pillow (src/libImaging: Convert.c,
 * Blend.c, Filter.c) on every instruction set: products are rounded via double before they are
 * added, so that no compiler fuses multiplication and addition. */

/* RGB to luminance: ITU-R 601 in units of 1 / 65536. */
static void grey(int64_t plane, const uint8_t *planes, uint8_t *levels)
{
    const uint8_t *red = planes, *green = red + plane, *blue = green + plane;
#pragma omp simd
    for (int64_t i = 0; i < plane; i++)
        levels[i] =
            (uint8_t)((red[i] * 19595u + green[i] * 38470u + blue[i] * 7471u + 0x8000u) >> 16);
}

static void blend(int64_t count, const uint8_t *from, float factor, uint8_t *to)
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        float product = (float)((double)factor * (double)(to[i] - from[i]));
        float value = (float)from[i] + product;
        value = value < 0 ? 0 : value;
        value = value > 255 ? 255 : value;
        to[i] = (uint8_t)(int32_t)value;
    }
}

KERNEL_INLINE int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

KERNEL_INLINE int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* Return the hue, 0..255, of a pixel that is not grey. */
KERNEL_INLINE int32_t hue_of(int32_t red, int32_t green, int32_t blue, int32_t most, float range)
{
    float from_red = (float)(most - red) / range, from_green = (float)(most - green) / range;
    float from_blue = (float)(most - blue) / range;
    float to_green = (float)(2.0 + (double)from_red - (double)from_blue);
    float to_blue = (float)(4.0 + (double)from_green - (double)from_red);
    float sixth = red == most ? from_blue - from_green : green == most ? to_green : to_blue;
    double turn = (double)sixth / 6.0 + 1.0;
    float hue = (float)(turn >= 1.0 ? turn - 1.0 : turn);
    return (int32_t)((double)hue * 255.0);
}

/* Return `value` reduced by the fraction `part`. */
KERNEL_INLINE int32_t level_less(int32_t value, double part)
{
    return (int32_t)((double)value * (1.0 - part) + 0.5);
}

/* HSV to RGB. The three channels use the same wheel, rotated by a third: return a channel's level
 * in the given sixth, counted from the channel's own hue. */
KERNEL_INLINE uint8_t wheel(int32_t sixth, int32_t value, int32_t low, int32_t falling,
                            int32_t rising)
{
    int32_t chosen = sixth == 0 || sixth == 5 ? value : low;
    chosen = sixth == 1 ? falling : chosen;
    return (uint8_t)(sixth == 4 ? rising : chosen);
}

static void hue(int64_t plane, uint8_t *planes, uint8_t shift)
{
    uint8_t *reds = planes, *greens = reds + plane, *blues = greens + plane;
#pragma omp simd
    for (int64_t i = 0; i < plane; i++) {
        int32_t red = reds[i], green = greens[i], blue = blues[i];
        int32_t value = larger(red, larger(green, blue));
        int32_t range = value - least(red, least(green, blue));
        float divisor = (float)(range > 0 ? range : 1);
        float share = (float)range / (float)(value > 0 ? value : 1);
        int32_t saturation = (int32_t)((double)share * 255.0);
        int32_t turned = range > 0 ? hue_of(red, green, blue, value, divisor) : 0;
        turned = (turned + shift) & 255;

        int32_t sixth = turned * 6 / 255;
        float rest = (float)((double)turned * 6.0 / 255.0 - (double)sixth);
        float colour = (float)((double)saturation / 255.0);
        int32_t low = level_less(value, (double)colour);
        int32_t falling = level_less(value, (double)(float)((double)colour * (double)rest));
        int32_t rising = level_less(value, (double)colour * (1.0 - (double)rest));
        sixth = sixth == 6 ? 0 : sixth;
        int32_t from_green = sixth >= 2 ? sixth - 2 : sixth + 4;
        int32_t from_blue = sixth >= 4 ? sixth - 4 : sixth + 2;
        reds[i] = wheel(sixth, value, low, falling, rising);
        greens[i] = wheel(from_green, value, low, falling, rising);
        blues[i] = wheel(from_blue, value, low, falling, rising);
    }
}

/* 3 x 3 filter with weights 1 around 5, divided by 13; edge pixels are copied. Halves do not occur,
 * so integer arithmetic is exact. */
static void smooth(int64_t height, int64_t width, const uint8_t *from, uint8_t *to)
{
    for (int64_t y = 1; y + 1 < height; y++) {
        const uint8_t *above = from + (y - 1) * width, *here = above + width, *below = here + width;
        uint8_t *line = to + y * width;
#pragma omp simd
        for (int64_t x = 1; x < width - 1; x++) {
            uint16_t sum =
                (uint16_t)(above[x - 1] + above[x] + above[x + 1] + here[x - 1] + 5 * here[x] +
                           here[x + 1] + below[x - 1] + below[x] + below[x + 1]);
            line[x] = (uint8_t)((uint16_t)(2 * sum + 13) / 26);
        }
    }
}

const struct image_kernels KERNEL(image_kernels) = {resize_horizontal,
                                                    resize_vertical,
                                                    follow,
                                                    look_up,
                                                    resize_values,
                                                    normalise,
                                                    grey,
                                                    blend,
                                                    hue,
                                                    smooth};
