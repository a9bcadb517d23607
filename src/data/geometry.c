/* Moves whole pixels with the kernels of the device: a pixel_plan with one stage. */
#include "data/geometry.h"

#include <math.h>
#include <string.h>

#include "data/augment.h"

enum { CHANNELS = 3, PIECE = 256 /* pixels per call of the kernel */ };

static void pixels_gather(const uint8_t *plane, const int32_t *origin, int64_t count, uint8_t *to)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = origin[i] < 0 ? 0 : plane[origin[i]];
}

/* Apply a plan to all channels. */
static void image_move(const struct colour_image *image, const struct pixel_plan *plan)
{
    const int64_t width = image->width, plane = image->height * width;
    int32_t origin[PIECE];
    memcpy(image->scratch, image->planes, (size_t)(CHANNELS * plane));
    for (int64_t y = 0; y < image->height; y++)
        for (int64_t x = 0; x < width; x += PIECE) {
            int64_t count = x + PIECE < width ? PIECE : width - x;
            image->kernels->image->follow(plan, (int32_t)width, (int32_t)image->height, (int32_t)x,
                                          (int32_t)y, (int32_t)count, origin);
            for (int64_t channel = 0; channel < CHANNELS; channel++)
                pixels_gather(image->scratch + channel * plane, origin, count,
                              image->planes + channel * plane + y * width + x);
        }
}

/* Same rounding as Pillow. */
static int32_t fixed_point(double value)
{
    return (int32_t)floor(value * 65536.0 + 0.5);
}

/* The inverse mapping of a pixel's centre, with the signs that torchvision's affine passes to
 * Pillow. */
void geometry_shear(const struct colour_image *image, double x, double y)
{
    struct pixel_plan plan = {.rotate = true,
                              .matrix = {fixed_point(1), fixed_point(x), fixed_point(0.5 + x * 0.5),
                                         fixed_point(y), fixed_point(1),
                                         fixed_point(y * 0.5 + 0.5)}};
    image_move(image, &plan);
}

void geometry_translate(const struct colour_image *image, int64_t x, int64_t y)
{
    struct pixel_plan plan = {.translate_x = (int16_t)x, .translate_y = (int16_t)y};
    image_move(image, &plan);
}

void geometry_rotate(const struct colour_image *image, double degrees)
{
    struct pixel_plan plan = {0};
    augment_rotation(degrees, image->width, image->height, &plan);
    image_move(image, &plan);
}
