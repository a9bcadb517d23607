// SPDX-License-Identifier: BSD-3-Clause
/* Pillow's ImageEnhance, ImageOps and affine transforms on planes. Changes of single levels use
 * tables of 256 entries; the others are in kernels_image.c. */
#include "image/augment.h"

#include <string.h>

#include "base/base.h"

enum { LEVELS = 256, CHANNELS = 3 };

static int64_t plane_of(const struct changed_image *image)
{
    return image->height * image->width;
}

static void plane_look_up(uint8_t *plane, int64_t count, const uint8_t *table)
{
    for (int64_t i = 0; i < count; i++)
        plane[i] = table[plane[i]];
}

/* Blend with an image of one level. */
static void blend_level(const struct changed_image *image, int level, double factor)
{
    uint8_t from[LEVELS], table[LEVELS];
    memset(from, level, sizeof from);
    for (int i = 0; i < LEVELS; i++)
        table[i] = (uint8_t)i;
    image->host->image->blend(LEVELS, from, (float)factor, table);
    plane_look_up(image->planes, CHANNELS * plane_of(image), table);
}

/* Blend the image with its mean grey, its greyscale version, or its smoothed version. factor >= 0;
 * 0 gives that image, 1 changes nothing. */
static void colour_contrast(const struct changed_image *image, double factor)
{
    const int64_t plane = plane_of(image);
    int64_t sum = 0;
    image->host->image->grey(plane, image->planes, image->scratch);
    for (int64_t i = 0; i < plane; i++)
        sum += image->scratch[i];
    blend_level(image, plane > 0 ? (int)((double)sum / (double)plane + 0.5) : 0, factor);
}

static void colour_saturation(const struct changed_image *image, double factor)
{
    const int64_t plane = plane_of(image);
    image->host->image->grey(plane, image->planes, image->scratch);
    for (int64_t channel = 0; channel < CHANNELS; channel++)
        image->host->image->blend(plane, image->scratch, (float)factor,
                                  image->planes + channel * plane);
}

static void colour_sharpness(const struct changed_image *image, double factor)
{
    const int64_t plane = plane_of(image);
    memcpy(image->scratch, image->planes, (size_t)(CHANNELS * plane));
    for (int64_t channel = 0; channel < CHANNELS; channel++)
        image->host->image->smooth(image->height, image->width, image->planes + channel * plane,
                                   image->scratch + channel * plane);
    image->host->image->blend(CHANNELS * plane, image->scratch, (float)factor, image->planes);
}

/* Invert levels that are not below `threshold`. */
static void colour_solarize(const struct changed_image *image, double threshold)
{
    uint8_t table[LEVELS];
    for (int i = 0; i < LEVELS; i++)
        table[i] = (uint8_t)(i < threshold ? i : 255 - i);
    plane_look_up(image->planes, CHANNELS * plane_of(image), table);
}

/* Stretch the levels of a plane to 0 to 255, linearly or by histogram equalization. */
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

static void each_plane(const struct changed_image *image,
                       void (*change)(uint8_t *plane, int64_t count))
{
    for (int64_t channel = 0; channel < CHANNELS; channel++)
        change(image->planes + channel * plane_of(image), plane_of(image));
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

/* Pillow's GaussianBlur: three box blurs in each direction (Gwosdek et al. 2011). radius: standard
 * deviation in pixels. */
static void colour_blur(const struct changed_image *image, double radius)
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

/* ---- Geometric changes: torchvision's affine and rotate of PIL images. Whole pixels are moved by
 * a pixel_plan with one stage. */

enum { PIECE = 256 /* pixels per call of the kernel */ };

/* Apply a plan to all channels. */
static void image_move(const struct changed_image *image, const struct pixel_plan *plan)
{
    const int64_t width = image->width, plane = image->height * width;
    int32_t origin[PIECE];
    memcpy(image->scratch, image->planes, (size_t)(CHANNELS * plane));
    for (int64_t y = 0; y < image->height; y++)
        for (int64_t x = 0; x < width; x += PIECE) {
            int64_t count = x + PIECE < width ? PIECE : width - x;
            image->host->image->follow(plan, (int32_t)width, (int32_t)image->height, (int32_t)x,
                                       (int32_t)y, (int32_t)count, origin);
            for (int64_t channel = 0; channel < CHANNELS; channel++) {
                const uint8_t *from = image->scratch + channel * plane;
                uint8_t *to = image->planes + channel * plane + y * width + x;
                for (int64_t i = 0; i < count; i++)
                    to[i] = origin[i] < 0 ? 0 : from[origin[i]];
            }
        }
}

/* Shear around the upper left corner; x and y are the tangents of the angles. The matrix is the
 * inverse mapping of a pixel's centre, with the signs that torchvision's affine passes to
 * Pillow. */
static void image_shear(const struct changed_image *image, double x, double y)
{
    struct pixel_plan plan = {.rotate = true,
                              .matrix = {fixed_point(1), fixed_point(x), fixed_point(0.5 + x * 0.5),
                                         fixed_point(y), fixed_point(1),
                                         fixed_point(y * 0.5 + 0.5)}};
    image_move(image, &plan);
}

void image_change(const struct changed_image *image, const struct image_change *change)
{
    const double amount = change->amount;
    const int64_t plane = plane_of(image);
    const struct image_kernels *kernels = image->host->image;
    struct pixel_plan plan = {0};
    switch (change->kind) {
    case CHANGE_IDENTITY:
        return;
    case CHANGE_SHEAR_X:
        return image_shear(image, amount, 0);
    case CHANGE_SHEAR_Y:
        return image_shear(image, 0, amount);
    case CHANGE_TRANSLATE_X:
        plan.translate_x = (int16_t)amount;
        return image_move(image, &plan);
    case CHANGE_TRANSLATE_Y:
        plan.translate_y = (int16_t)amount;
        return image_move(image, &plan);
    case CHANGE_ROTATE:
        augment_rotation(amount, image->width, image->height, &plan);
        return image_move(image, &plan);
    case CHANGE_BRIGHTNESS:
        return blend_level(image, 0, amount);
    case CHANGE_SATURATION:
        return colour_saturation(image, amount);
    case CHANGE_CONTRAST:
        return colour_contrast(image, amount);
    case CHANGE_SHARPNESS:
        return colour_sharpness(image, amount);
    case CHANGE_POSTERIZE: /* keep the upper bits */
        for (int64_t i = 0; i < CHANNELS * plane; i++)
            image->planes[i] &= (uint8_t)(0xff << (8 - (int)amount));
        return;
    case CHANGE_SOLARIZE:
        return colour_solarize(image, amount);
    case CHANGE_AUTOCONTRAST:
        return each_plane(image, plane_autocontrast);
    case CHANGE_EQUALIZE:
        return each_plane(image, plane_equalize);
    case CHANGE_HUE:
        return kernels->hue(plane, image->planes, (uint8_t)(int32_t)(amount * 255));
    case CHANGE_GREYSCALE:
        kernels->grey(plane, image->planes, image->scratch);
        for (int64_t channel = 0; channel < CHANNELS; channel++)
            memcpy(image->planes + channel * plane, image->scratch, (size_t)plane);
        return;
    case CHANGE_BLUR:
        return colour_blur(image, amount);
    }
}
