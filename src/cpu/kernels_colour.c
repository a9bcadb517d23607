// SPDX-License-Identifier: BSD-3-Clause
/* Colour operations on planes of bytes, bit-identical to Pillow (src/libImaging: Convert.c,
 * Blend.c, Filter.c) on every instruction set: products are rounded via double before they are
 * added, so that no compiler fuses multiplication and addition. */
#include "cpu/kernels.h"
#include "cpu/vector.h"

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
    int32_t level = sixth == 0 || sixth == 5 ? value : low;
    level = sixth == 1 ? falling : level;
    return (uint8_t)(sixth == 4 ? rising : level);
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

const struct colour_kernels KERNEL(colour_kernels) = {grey, blend, hue, smooth};
