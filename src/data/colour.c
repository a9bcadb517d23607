// SPDX-License-Identifier: BSD-3-Clause
/* Pillow's ImageEnhance and ImageOps on planes. Changes of single levels use tables of 256 entries;
 * the others are in kernels_colour.c. */
#include "data/colour.h"

#include <math.h>
#include <string.h>

#include "core/integer.h"

enum { LEVELS = 256, CHANNELS = 3 };

static int64_t plane_of(const struct colour_image *image)
{
    return image->height * image->width;
}

static void plane_look_up(uint8_t *plane, int64_t count, const uint8_t *table)
{
    for (int64_t i = 0; i < count; i++)
        plane[i] = table[plane[i]];
}

static void look_up(const struct colour_image *image, const uint8_t *table)
{
    plane_look_up(image->planes, CHANNELS * plane_of(image), table);
}

/* Blend with an image of one level. */
static void blend_level(const struct colour_image *image, int level, double factor)
{
    uint8_t from[LEVELS], table[LEVELS];
    memset(from, level, sizeof from);
    for (int i = 0; i < LEVELS; i++)
        table[i] = (uint8_t)i;
    image->host.colour->blend(LEVELS, from, (float)factor, table);
    look_up(image, table);
}

void colour_brightness(const struct colour_image *image, double factor)
{
    blend_level(image, 0, factor);
}

void colour_contrast(const struct colour_image *image, double factor)
{
    const int64_t plane = plane_of(image);
    int64_t sum = 0;
    image->host.colour->grey(plane, image->planes, image->scratch);
    for (int64_t i = 0; i < plane; i++)
        sum += image->scratch[i];
    blend_level(image, plane > 0 ? (int)((double)sum / (double)plane + 0.5) : 0, factor);
}

void colour_saturation(const struct colour_image *image, double factor)
{
    const int64_t plane = plane_of(image);
    image->host.colour->grey(plane, image->planes, image->scratch);
    for (int64_t channel = 0; channel < CHANNELS; channel++)
        image->host.colour->blend(plane, image->scratch, (float)factor,
                                  image->planes + channel * plane);
}

void colour_sharpness(const struct colour_image *image, double factor)
{
    const int64_t plane = plane_of(image);
    memcpy(image->scratch, image->planes, (size_t)(CHANNELS * plane));
    for (int64_t channel = 0; channel < CHANNELS; channel++)
        image->host.colour->smooth(image->height, image->width, image->planes + channel * plane,
                                   image->scratch + channel * plane);
    image->host.colour->blend(CHANNELS * plane, image->scratch, (float)factor, image->planes);
}

void colour_hue(const struct colour_image *image, double part)
{
    image->host.colour->hue(plane_of(image), image->planes, (uint8_t)(int32_t)(part * 255));
}

void colour_greyscale(const struct colour_image *image)
{
    const int64_t plane = plane_of(image);
    image->host.colour->grey(plane, image->planes, image->scratch);
    for (int64_t channel = 0; channel < CHANNELS; channel++)
        memcpy(image->planes + channel * plane, image->scratch, (size_t)plane);
}

void colour_posterize(const struct colour_image *image, int bits)
{
    const uint8_t mask = (uint8_t)(0xff << (8 - bits));
    for (int64_t i = 0; i < CHANNELS * plane_of(image); i++)
        image->planes[i] &= mask;
}

void colour_solarize(const struct colour_image *image, double threshold)
{
    uint8_t table[LEVELS];
    for (int i = 0; i < LEVELS; i++)
        table[i] = (uint8_t)(i < threshold ? i : 255 - i);
    look_up(image, table);
}

static void plane_autocontrast(uint8_t *plane, int64_t count)
{
    uint8_t lowest = 255, highest = 0, table[LEVELS];
    for (int64_t i = 0; i < count; i++) {
        lowest = plane[i] < lowest ? plane[i] : lowest;
        highest = plane[i] > highest ? plane[i] : highest;
    }
    if (highest <= lowest)
        return;
    double scale = 255.0 / (highest - lowest), offset = -lowest * scale;
    for (int i = 0; i < LEVELS; i++) {
        volatile double scaled =
            i * scale; /* volatile: rounds the product, so that no fused multiply-add is used */
        int level = (int)(scaled + offset);
        table[i] = (uint8_t)(level < 0 ? 0 : level > 255 ? 255 : level);
    }
    plane_look_up(plane, count, table);
}

void colour_autocontrast(const struct colour_image *image)
{
    for (int64_t channel = 0; channel < CHANNELS; channel++)
        plane_autocontrast(image->planes + channel * plane_of(image), plane_of(image));
}

static void plane_equalize(uint8_t *plane, int64_t count)
{
    int64_t counts[LEVELS];
    uint8_t table[LEVELS];
    int last = LEVELS - 1;
    /* Counts go to four tables in turn, so that equal neighbouring levels do not wait for the same
     * counter. */
    uint32_t some[4][LEVELS] = {{0}};
    for (int64_t i = 0; i < count; i++)
        some[i % 4][plane[i]]++;
    for (int i = 0; i < LEVELS; i++)
        counts[i] = (int64_t)some[0][i] + some[1][i] + some[2][i] + some[3][i];
    while (last > 0 && counts[last] == 0)
        last--;
    int64_t step = (count - counts[last]) / 255, sum = step / 2;
    if (step == 0)
        return;
    for (int i = 0; i < LEVELS; i++) {
        int64_t level = sum / step;
        table[i] = (uint8_t)(level > 255 ? 255 : level);
        sum += counts[i];
    }
    plane_look_up(plane, count, table);
}

void colour_equalize(const struct colour_image *image)
{
    for (int64_t channel = 0; channel < CHANNELS; channel++)
        plane_equalize(image->planes + channel * plane_of(image), plane_of(image));
}

/* A box filter of 2 * radius + 1 pixels with `weight` and one more pixel at each end with
 * `end_weight`. Weights are 8.24 fixed point. */
struct box {
    int64_t radius;
    uint32_t weight, end_weight;
};

static struct box box_of(double deviation)
{
    enum { PASSES = 3 };
    const float radius = (float)deviation, variance = radius * radius / PASSES;
    const float length = (float)sqrt(12.0 * (double)variance + 1.0);
    const float whole = (float)floor(((double)length - 1.0) / 2.0);
    float part = (2 * whole + 1) * (whole * (whole + 1) - 3 * variance);
    part /= 6 * (variance - (whole + 1) * (whole + 1));
    const float size = whole + part;
    struct box box = {.radius = (int64_t)size,
                      .weight = (uint32_t)((float)(1 << 24) / (size * 2 + 1))};
    box.end_weight = ((1U << 24) - (uint32_t)(box.radius * 2 + 1) * box.weight) / 2;
    return box;
}

/* Blur a line of `count` pixels that are `step` bytes apart. Pixels outside the line equal its
 * first or last pixel. */
static void line_blur(const struct box *box, int64_t count, int64_t step, const uint8_t *from,
                      uint8_t *to)
{
    const int64_t radius = box->radius, last = count - 1;
    uint32_t sum = 0;
    for (int64_t i = -radius; i <= radius; i++)
        sum += from[step * (i < 0 ? 0 : smaller(i, last))];
    for (int64_t i = 0; i < count; i++) {
        const uint8_t before = from[step * larger(i - radius - 1, 0)];
        const uint8_t after = from[step * smaller(i + radius + 1, last)];
        const uint32_t ends = (uint32_t)before + after;
        to[step * i] = (uint8_t)((sum * box->weight + ends * box->end_weight + (1U << 23)) >> 24);
        sum += after - (uint32_t)from[step * larger(i - radius, 0)];
    }
}

void colour_blur(const struct colour_image *image, double radius)
{
    enum { PASSES = 6 };
    const struct box box = box_of(radius);
    const int64_t height = image->height, width = image->width;
    const uint8_t *from = image->planes;
    uint8_t *to = image->scratch;
    for (int pass = 0; pass < PASSES; pass++) {
        if (pass < PASSES / 2)
            for (int64_t row = 0; row < CHANNELS * height; row++)
                line_blur(&box, width, 1, from + row * width, to + row * width);
        else
            for (int64_t column = 0; column < CHANNELS * width; column++) {
                const int64_t first = column / width * height * width + column % width;
                line_blur(&box, height, width, from + first, to + first);
            }
        from = to;
        to = pass % 2 == 0 ? image->planes : image->scratch;
    }
}
