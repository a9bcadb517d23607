// SPDX-License-Identifier: BSD-3-Clause
/* Draws initial weights by the inverse of the distribution function, as PyTorch's trunc_normal_:
 * one uniform number gives one value, and no loop depends on the values. The compiler vectorises
 * the loops, so 87 million parameters take a fraction of a second. */
#include "mesh/unit.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/random.h"

enum { PIECE = 4096 }; /* elements that a thread draws at a time */

/* Draws uniform numbers in (-1, 1) with 23 bits: symmetric, never 0, -1 or 1. */
static void draw_uniform(const struct unit_tensor *tensor, uint64_t seed, int64_t first,
                         int64_t count, float *values)
{
    uint32_t word[PIECE]; /* blocks of 4 */
    for (int64_t i = 0; i < count; i += 4) {
        struct random_block block = random_block_at(seed, RANDOM_INITIAL_WEIGHTS, 0, 0,
                                                    tensor->index, (uint32_t)((first + i) / 4));
        memcpy(&word[i], block.word, sizeof block.word);
    }
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        values[i] = ((float)(int32_t)(word[i] >> 9) + 0.5f) * 0x1p-22f - 1;
}

/* Natural logarithm of a normal positive number, to 1e-7 (the polynomial is Cephes' logf). */
static inline float logarithm(float x)
{
    const int32_t half_root = 0x3f3504f3; /* the bits of sqrt(1/2) */
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    int32_t power = (bits - half_root) >> 23;
    bits -= power * (1 << 23);
    float exponent = (float)power, m; /* sqrt(1/2) <= m < sqrt(2) */
    memcpy(&m, &bits, sizeof m);
    m -= 1;
    float square = m * m;
    float y = 7.0376836292e-2f;
    y = y * m - 1.1514610310e-1f;
    y = y * m + 1.1676998740e-1f;
    y = y * m - 1.2420140846e-1f;
    y = y * m + 1.4249322787e-1f;
    y = y * m - 1.6668057665e-1f;
    y = y * m + 2.0000714765e-1f;
    y = y * m - 2.4999993993e-1f;
    y = y * m + 3.3333331174e-1f;
    y = y * m * square - 2.12194440e-4f * exponent - 0.5f * square;
    return m + y + 0.693359375f * exponent;
}

/* erfinv(x) in single precision by M. Giles, "Approximating the erfinv function" (GPU Computing
 * Gems, Jade edition, 2011): the centre, |x| < about 0.9966, where w = -log(1 - x^2) < 5, and the
 * tails. */
static inline float erfinv_centre(float x, float w)
{
    w -= 2.5f;
    float p = 2.81022636e-08f;
    p = p * w + 3.43273939e-07f;
    p = p * w - 3.5233877e-06f;
    p = p * w - 4.39150654e-06f;
    p = p * w + 0.00021858087f;
    p = p * w - 0.00125372503f;
    p = p * w - 0.00417768164f;
    p = p * w + 0.246640727f;
    p = p * w + 1.50140941f;
    return p * x;
}

static float erfinv_tail(float x, float w)
{
    w = sqrtf(w) - 3;
    float p = -0.000200214257f;
    p = p * w + 0.000100950558f;
    p = p * w + 0.00134934322f;
    p = p * w - 0.00367342844f;
    p = p * w + 0.00573950773f;
    p = p * w - 0.0076224613f;
    p = p * w + 0.00943887047f;
    p = p * w + 1.00167406f;
    p = p * w + 2.83297682f;
    return p * x;
}

/* Transforms uniform numbers to standard normal numbers in place: sqrt(2) erfinv(x). */
static void quantile_normal(float *x, int64_t count)
{
    const float root = 1.41421356f;
    float w[PIECE], given[PIECE];
    memcpy(given, x, (size_t)count * sizeof *x);
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        w[i] = -logarithm((1 - given[i]) * (1 + given[i]));
        x[i] = root * erfinv_centre(given[i], w[i]);
    }
    for (int64_t i = 0; i < count; i++) /* the tails: one of 300 values */
        if (w[i] >= 5)
            x[i] = root * erfinv_tail(given[i], w[i]);
}

/* As timm's trunc_normal_: clipped at +-2 for every standard deviation. */
static void draw_truncated(float scale, float *values, int64_t count)
{
    const float cut = 2;
    float share = (float)erf(cut / (scale * sqrt(2.0))); /* of the distribution inside the cut */
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        values[i] *= share;
    quantile_normal(values, count);
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        float value = values[i] * scale;
        value = value < -cut ? -cut : value;
        values[i] = value > cut ? cut : value;
    }
}

/* Fill in the fixed position embeddings of Beyer et al. 2022 (big_vision's posemb_sincos_2d). The
 * quarters of a row are sine and cosine of the patch's column, then of its row, at width / 4
 * frequencies from 1 to 1 / 10000. */
static void fill_sincos(const struct unit_tensor *tensor, int64_t first, int64_t count,
                        float *values)
{
    int64_t width = tensor->shape[2], frequencies = width / 4;
    for (int64_t i = 0; i < count; i++) {
        int64_t patch = (first + i) / width, quarter = (first + i) % width / frequencies;
        int64_t number = (first + i) % frequencies;
        int64_t at = quarter < 2 ? patch % tensor->grid[1] : patch / tensor->grid[1];
        double angle = (double)at * pow(10000, -(double)number / (double)(frequencies - 1));
        values[i] = (float)(quarter % 2 == 0 ? sin(angle) : cos(angle));
    }
}

/* Set filters [out, in, height, width] to functions of the three-dimensional discrete cosine basis
 * (DCT-II, norm 1), each followed by its negative. These functions are close to the principal
 * components of patches of natural images. So the outputs are nearly uncorrelated, like those of
 * the whitening layer of airbench94 (Jordan 2024). */
static void fill_cosines(const struct unit_tensor *tensor, int64_t first, int64_t count,
                         float *values)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t at = first + i, frequency = (first + i) / (tensor->count / tensor->shape[0]);
        double value = frequency % 2 == 0 ? 1 : -1;
        frequency /= 2;
        for (int d = 3; d >= 1; d--) { /* width, height, channels */
            int64_t size = tensor->shape[d], k = frequency % size;
            value *= sqrt((k == 0 ? 1.0 : 2.0) / (double)size) *
                     cos(M_PI * (double)k * ((double)(at % size) + 0.5) / (double)size);
            at /= size;
            frequency /= size;
        }
        values[i] = (float)value;
    }
}

/* Overwrite the first filters as PyTorch's dirac_ does: filter c copies input channel c. */
static void fill_dirac(const struct unit_tensor *tensor, int64_t first, int64_t count,
                       float *values)
{
    int64_t window = tensor->shape[2] * tensor->shape[3];
    int64_t centre = tensor->shape[2] / 2 * tensor->shape[3] + tensor->shape[3] / 2;
    for (int64_t i = 0; i < count; i++) {
        int64_t filter = (first + i) / (tensor->shape[1] * window);
        int64_t channel = (first + i) / window % tensor->shape[1];
        if (filter < tensor->shape[1])
            values[i] = filter == channel && (first + i) % window == centre ? 1 : 0;
    }
}

static void draw_piece(const struct unit_tensor *tensor, uint64_t seed, int64_t first,
                       int64_t count, float *values)
{
    const enum initial_rule rule = tensor->initial;
    const float scale = (float)tensor->initial_scale;
    const int64_t half = tensor->count / 2; /* first element of the second half */
    if (rule <= INITIAL_HALF_ONE) {
        for (int64_t i = 0; i < count; i++)
            values[i] =
                rule == INITIAL_CONSTANT
                    ? scale
                    : rule == INITIAL_ONE || (rule == INITIAL_HALF_ONE && first + i >= half);
        return;
    }
    if (rule == INITIAL_SINCOS || rule == INITIAL_COSINES) {
        (rule == INITIAL_SINCOS ? fill_sincos : fill_cosines)(tensor, first, count, values);
        return;
    }
    draw_uniform(tensor, seed, first, count, values);
    if (rule == INITIAL_TRUNCATED_NORMAL || rule == INITIAL_HALF_NORMAL) {
        draw_truncated(scale, values, count);
        for (int64_t i = 0; i < count && rule == INITIAL_HALF_NORMAL; i++)
            values[i] *= first + i < half ? 1 : 1e-6f / scale;
        return;
    }
    if (rule == INITIAL_NORMAL || rule == INITIAL_DIRAC)
        quantile_normal(values, count);
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        values[i] *= scale;
    if (rule == INITIAL_DIRAC)
        fill_dirac(tensor, first, count, values);
}

void initial_draw(const struct unit_tensor *tensor, uint64_t seed, int64_t first, int64_t count,
                  float *values)
{
    ENSURE(first % 4 == 0, "cannot draw %s from element %lld: not a multiple of 4", tensor->name,
           (long long)first);
#pragma omp parallel for schedule(static) if (count > PIECE)
    for (int64_t begin = 0; begin < count; begin += PIECE)
        draw_piece(tensor, seed, first + begin, count - begin < PIECE ? count - begin : PIECE,
                   values + begin);
}
