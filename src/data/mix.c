// SPDX-License-Identifier: BSD-3-Clause
/* Draws of mixup and CutMix. A Beta(alpha, alpha) number is x / (x + y) of two Gamma(alpha) numbers
 * by Marsaglia and Tsang (2000); each attempt uses its own block of random numbers. For alpha < 1,
 * alpha is raised by 1 and the number multiplied by uniform^(1 / alpha). Logarithms are used, since
 * these powers underflow for small alpha. */
#include "data/augment.h"

#include <math.h>

#include "config/options.h"
#include "core/integer.h"
#include "core/random.h"

/* Blocks of the pair's stream. An attempt succeeds with a probability above 0.95; if all fail (once
 * in 10^41 numbers), the mode of the distribution is used. */
enum { ATTEMPTS = 32, BLOCK_CHOICE = 0, BLOCK_CENTER = 1, BLOCK_FIRST = 2 };
enum { BLOCK_SECOND = BLOCK_FIRST + ATTEMPTS };

bool mix_is_asked_for(const struct options *options)
{
    return options->augment.mixup > 0 || options->augment.cutmix > 0;
}

void mix_open(struct mix *mix, const struct options *options, int64_t width, int64_t height,
              bool training)
{
    *mix = (struct mix){.seed = (uint64_t)options->run.seed,
                        .mixup = training ? options->augment.mixup : 0,
                        .cutmix = training ? options->augment.cutmix : 0,
                        .cut_share = options->augment.mix_switch,
                        .width = width,
                        .height = height};
}

bool mix_is_on(const struct mix *mix)
{
    return mix->mixup > 0 || mix->cutmix > 0;
}

/* Uniform in (0, 1]. */
static double open_uniform(uint32_t word)
{
    return ((double)word + 1) * 0x1p-32;
}

/* Draw the logarithm of a Gamma(shape) number, shape >= 1. */
static double log_gamma_draw(const struct mix *mix, uint32_t epoch, uint32_t index, uint32_t first,
                             double shape)
{
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (uint32_t attempt = 0; attempt < ATTEMPTS; attempt++) {
        struct random_block draw =
            random_block_at(mix->seed, RANDOM_MIX, 0, epoch, index, first + attempt);
        float normal[2];
        random_normal_pair(draw.word[0], draw.word[1], normal);
        double x = (double)normal[0], v = (1 + c * x) * (1 + c * x) * (1 + c * x);
        if (v > 0 && log(open_uniform(draw.word[2])) < x * x / 2 + d - d * v + d * log(v))
            return log(d * v);
    }
    return log(d);
}

double mix_draw_share(const struct mix *mix, uint32_t epoch, uint32_t index, double alpha)
{
    double shape = alpha < 1 ? alpha + 1 : alpha;
    double first = log_gamma_draw(mix, epoch, index, BLOCK_FIRST, shape);
    double second = log_gamma_draw(mix, epoch, index, BLOCK_SECOND, shape);
    if (alpha < 1) {
        struct random_block draw =
            random_block_at(mix->seed, RANDOM_MIX, 0, epoch, index, BLOCK_CHOICE);
        const double logs[2] = {log(open_uniform(draw.word[0])), log(open_uniform(draw.word[1]))};
        first += logs[0] / alpha;
        second += logs[1] / alpha;
        /* Both are infinite with a tiny alpha: Beta(0, 0) is 0 or 1 with equal probability. */
        if (isinf(first) && isinf(second))
            return logs[0] > logs[1];
    }
    return 1 / (1 + exp(second - first));
}

void mix_cut(double share, int64_t center_x, int64_t center_y, int64_t width, int64_t height,
             struct mix_plan *plan)
{
    double reach = 0.5 * sqrt(1 - share);
    int64_t half_width = (int64_t)(reach * (double)width);
    int64_t half_height = (int64_t)(reach * (double)height);
    int64_t left = integer_clamp(center_x - half_width, 0, width);
    int64_t top = integer_clamp(center_y - half_height, 0, height);
    int64_t right = integer_clamp(center_x + half_width, 0, width);
    int64_t bottom = integer_clamp(center_y + half_height, 0, height);
    double area = (double)((right - left) * (bottom - top));
    *plan = (struct mix_plan){.share = (float)(1 - area / (double)(width * height)),
                              .cut = true,
                              .x = (int16_t)left,
                              .y = (int16_t)top,
                              .width = (int16_t)(right - left),
                              .height = (int16_t)(bottom - top)};
}

void mix_plan(const struct mix *mix, uint32_t epoch, uint32_t index, struct mix_plan *plan)
{
    struct random_block choice =
        random_block_at(mix->seed, RANDOM_MIX, 0, epoch, index, BLOCK_CHOICE);
    double cut_share = mix->mixup > 0 ? mix->cutmix > 0 ? mix->cut_share : 0 : 1;
    bool cut = (double)random_uniform(choice.word[2]) < cut_share;
    double share = mix_draw_share(mix, epoch, index, cut ? mix->cutmix : mix->mixup);
    if (!cut) {
        *plan = (struct mix_plan){.share = (float)share};
        return;
    }
    struct random_block center =
        random_block_at(mix->seed, RANDOM_MIX, 0, epoch, index, BLOCK_CENTER);
    int64_t x = (int64_t)(((uint64_t)center.word[0] * (uint64_t)mix->width) >> 32);
    int64_t y = (int64_t)(((uint64_t)center.word[1] * (uint64_t)mix->height) >> 32);
    mix_cut(share, x, y, mix->width, mix->height, plan);
}
