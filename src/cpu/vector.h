// SPDX-License-Identifier: BSD-3-Clause
/* Vectors of the compiler's vector extensions, as wide as the instruction set that the file is
 * compiled for, or 16 lanes if AMX is emulated. Only kernels_*.c and tile*.c include this. */
#ifndef VITTRAIN_CPU_VECTOR_H
#define VITTRAIN_CPU_VECTOR_H

#include <stdint.h>
#include <string.h>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "device/device.h"
#include "device/gelu_fit.h"

#ifdef __aarch64__
#include <arm_neon.h>
#endif

#if defined(__AVX512F__) || defined(TILES_EMULATED)
#define VECTOR_WIDTH 16
#elif defined(__AVX2__)
#define VECTOR_WIDTH 8
#else
#define VECTOR_WIDTH 4
#endif

/* The vector_size attribute requires a typedef. */
typedef float vector_float __attribute__((vector_size(VECTOR_WIDTH * 4)));
typedef int32_t vector_int __attribute__((vector_size(VECTOR_WIDTH * 4)));
typedef uint32_t vector_word __attribute__((vector_size(VECTOR_WIDTH * 4)));
typedef uint16_t vector_half __attribute__((vector_size(VECTOR_WIDTH * 2)));
typedef float vector_four __attribute__((vector_size(16)));
typedef double vector_four_doubles __attribute__((vector_size(32)));

#define KERNEL_INLINE static inline __attribute__((always_inline, unused))

KERNEL_INLINE vector_float vector_all(float value)
{
    return value - (vector_float){0};
}

KERNEL_INLINE vector_float vector_load(const float *from)
{
    vector_float vector;
    memcpy(&vector, from, sizeof vector);
    return vector;
}

KERNEL_INLINE void vector_store(float *to, vector_float vector)
{
    memcpy(to, &vector, sizeof vector);
}

/* if_true where mask is all ones, if_false where it is 0. */
KERNEL_INLINE vector_float vector_select(vector_int mask, vector_float if_true,
                                         vector_float if_false)
{
    return (vector_float)((mask & (vector_int)if_true) | (~mask & (vector_int)if_false));
}

/* a > b ? a : b, and below a < b ? a : b. Compilers do not emit the single instruction for this. */
KERNEL_INLINE vector_float vector_max(vector_float a, vector_float b)
{
#if defined(__AVX512F__)
    return _mm512_max_ps(a, b);
#elif defined(__AVX2__)
    return _mm256_max_ps(a, b);
#else
    return vector_select(a > b, a, b);
#endif
}

KERNEL_INLINE vector_float vector_min(vector_float a, vector_float b)
{
#if defined(__AVX512F__)
    return _mm512_min_ps(a, b);
#elif defined(__AVX2__)
    return _mm256_min_ps(a, b);
#else
    return vector_select(a < b, a, b);
#endif
}

/* Select lanes by index from those of a followed by those of b. type: vector of integers as wide as
 * a lane; the type of the result. */
#if __has_builtin(__builtin_shufflevector)
#define VECTOR_SHUFFLE(type, a, b, ...) __builtin_shufflevector((type)(a), (type)(b), __VA_ARGS__)
#else
#define VECTOR_SHUFFLE(type, a, b, ...) __builtin_shuffle((type)(a), (type)(b), (type){__VA_ARGS__})
#endif

/* Square root per lane; the compiler turns the loop into one instruction. */
KERNEL_INLINE vector_float vector_sqrt(vector_float vector)
{
    float lanes[VECTOR_WIDTH];
    vector_store(lanes, vector);
    for (int lane = 0; lane < VECTOR_WIDTH; lane++)
        lanes[lane] = __builtin_sqrtf(lanes[lane]);
    return vector_load(lanes);
}

/* Sum of the lanes, four at a time, because some compilers do not unroll a loop over lanes. */
KERNEL_INLINE float vector_sum(vector_float vector)
{
    vector_four fours[VECTOR_WIDTH / 4];
    memcpy(fours, &vector, sizeof vector);
    for (int i = 1; i < VECTOR_WIDTH / 4; i++)
        fours[0] += fours[i];
    return (fours[0][0] + fours[0][2]) + (fours[0][1] + fours[0][3]);
}

/* Largest lane. */
KERNEL_INLINE float vector_largest(vector_float vector)
{
    vector_four fours[VECTOR_WIDTH / 4];
    memcpy(fours, &vector, sizeof vector);
    for (int i = 1; i < VECTOR_WIDTH / 4; i++)
        for (int lane = 0; lane < 4; lane++)
            fours[0][lane] = fours[i][lane] > fours[0][lane] ? fours[i][lane] : fours[0][lane];
    const float a = fours[0][0] > fours[0][2] ? fours[0][0] : fours[0][2];
    const float b = fours[0][1] > fours[0][3] ? fours[0][1] : fours[0][3];
    return a > b ? a : b;
}

KERNEL_INLINE void vector_to_doubles(vector_four four, vector_four_doubles *doubles)
{
#ifdef __AVX2__ /* compilers use narrower instructions for the other line */
    *doubles = (vector_four_doubles)_mm256_cvtps_pd(four);
#else
    *doubles = __builtin_convertvector(four, vector_four_doubles);
#endif
}

/* Load 16-bit values as words. On Arm, GCC converts lane by lane without intrinsics. */
KERNEL_INLINE vector_word vector_load_halves(const uint16_t *from)
{
#if defined(__aarch64__) && VECTOR_WIDTH == 4
    return (vector_word)vmovl_u16(vld1_u16(from));
#else
    vector_half half;
    memcpy(&half, from, sizeof half);
    return __builtin_convertvector(half, vector_word);
#endif
}

/* Store the lower halves of words. */
KERNEL_INLINE void vector_store_halves(uint16_t *to, vector_word words)
{
    vector_half half = __builtin_convertvector(words, vector_half);
    memcpy(to, &half, sizeof half);
}

/* bf16 is the upper half of fp32. Duplicating each element and masking takes two instructions; some
 * compilers need five for a conversion. */
KERNEL_INLINE vector_float vector_from_bf16(const uint16_t *from)
{
#if !__has_builtin(__builtin_shufflevector) || defined(__aarch64__)
    return (vector_float)(vector_load_halves(from) << 16);
#else
    vector_half half;
    memcpy(&half, from, sizeof half);
#if VECTOR_WIDTH == 16
    return (vector_float)((vector_word)__builtin_shufflevector(
                              half, half, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9,
                              9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15) &
                          0xffff0000);
#elif VECTOR_WIDTH == 8
    return (vector_float)((vector_word)__builtin_shufflevector(half, half, 0, 0, 1, 1, 2, 2, 3, 3,
                                                               4, 4, 5, 5, 6, 6, 7, 7) &
                          0xffff0000);
#else
    return (vector_float)((vector_word)__builtin_shufflevector(half, half, 0, 0, 1, 1, 2, 2, 3, 3) &
                          0xffff0000);
#endif
#endif
}

/* Round to nearest even; NaN stays NaN. Arm's conversions give the same bits. */
KERNEL_INLINE void vector_to_bf16(uint16_t *to, vector_float vector)
{
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC) && VECTOR_WIDTH == 4
    bfloat16x4_t half = vcvt_bf16_f32((float32x4_t)vector);
    memcpy(to, &half, sizeof half);
#else
    vector_word bits = (vector_word)vector;
    vector_word rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    vector_word quiet = (bits >> 16) | 0x40;
    vector_word is_nan = (vector_word)(vector != vector);
    vector_store_halves(to, (is_nan & quiet) | (~is_nan & rounded));
#endif
}

/* fp16 by integer arithmetic, because not every processor has a conversion. The exponent is moved
 * by a multiplication, which also handles subnormals; infinity and NaN are handled separately. */
KERNEL_INLINE vector_float vector_from_fp16(const uint16_t *from)
{
    vector_word bits = vector_load_halves(from);
    vector_word magnitude = (bits & 0x7fff) << 13;
    vector_word sign = (bits & 0x8000) << 16;
    vector_word special = (vector_word)(magnitude >= 0x0f800000) & 0x7f800000;
    vector_word value = (vector_word)((vector_float)magnitude * 0x1p112f);
    return (vector_float)(value | special | sign);
}

/* Round to nearest even. Subnormals are rounded by adding 0.5, whose last bit has their weight. */
KERNEL_INLINE void vector_to_fp16(uint16_t *to, vector_float vector)
{
    vector_word bits = (vector_word)vector;
    vector_word magnitude = bits & 0x7fffffff;
    vector_word sign = (bits >> 16) & 0x8000;
    vector_word normal = (magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    vector_word subnormal = (vector_word)((vector_float)magnitude + 0.5f) - 0x3f000000;
    vector_word is_subnormal = (vector_word)(magnitude < 0x38800000);
    vector_word is_large = (vector_word)(magnitude >= 0x47800000);
    vector_word is_nan = (vector_word)(magnitude > 0x7f800000);
    vector_word value = (is_subnormal & subnormal) | (~is_subnormal & normal);
    value = (is_large & (0x7c00 | (is_nan & 0x200))) | (~is_large & value);
    vector_store_halves(to, value | sign);
}

/* Load the vector at element `index` of a tensor of any type. `type` should be a compile-time
 * constant: the caller is an always_inline function called once per type. */
KERNEL_INLINE vector_float typed_load(enum data_type type, const void *tensor, int64_t index)
{
    if (type == TYPE_FP32)
        return vector_load((const float *)tensor + index);
    if (type == TYPE_BF16)
        return vector_from_bf16((const uint16_t *)tensor + index);
    return vector_from_fp16((const uint16_t *)tensor + index);
}

KERNEL_INLINE void typed_store(enum data_type type, void *tensor, int64_t index,
                               vector_float vector)
{
    if (type == TYPE_FP32)
        vector_store((float *)tensor + index, vector);
    else if (type == TYPE_BF16)
        vector_to_bf16((uint16_t *)tensor + index, vector);
    else
        vector_to_fp16((uint16_t *)tensor + index, vector);
}

/* The last elements of a row, fewer than a vector: lanes from `count` on are 0 or not stored. */
KERNEL_INLINE vector_float typed_load_part(enum data_type type, const void *tensor, int64_t index,
                                           int64_t count)
{
    float whole[VECTOR_WIDTH] = {0};
    size_t size = type_size(type);
    memcpy(whole, (const char *)tensor + (size_t)index * size, (size_t)count * size);
    return typed_load(type, whole, 0);
}

KERNEL_INLINE void typed_store_part(enum data_type type, void *tensor, int64_t index,
                                    vector_float vector, int64_t count)
{
    float whole[VECTOR_WIDTH];
    size_t size = type_size(type);
    typed_store(type, whole, 0, vector);
    memcpy((char *)tensor + (size_t)index * size, whole, (size_t)count * size);
}

/* A vector of a row that ends at `end`, whole or partial. */
KERNEL_INLINE vector_float typed_load_row(enum data_type type, const void *tensor, int64_t index,
                                          int64_t end)
{
    if (index + VECTOR_WIDTH <= end)
        return typed_load(type, tensor, index);
    return typed_load_part(type, tensor, index, end - index);
}

KERNEL_INLINE void typed_store_row(enum data_type type, void *tensor, int64_t index, int64_t end,
                                   vector_float vector)
{
    if (index + VECTOR_WIDTH <= end)
        typed_store(type, tensor, index, vector);
    else
        typed_store_part(type, tensor, index, vector, end - index);
}

/* Call an always_inline kernel whose first parameter is the type, with the type as a constant. */
#define TYPED_CALL(function, type, ...)                                                            \
    do {                                                                                           \
        if ((type) == TYPE_FP32)                                                                   \
            function(TYPE_FP32, __VA_ARGS__);                                                      \
        else if ((type) == TYPE_BF16)                                                              \
            function(TYPE_BF16, __VA_ARGS__);                                                      \
        else                                                                                       \
            function(TYPE_FP16, __VA_ARGS__);                                                      \
    } while (0)

/* e^x to 2 ulp; 0 below -87.3; x is clamped to 88.3, so the result is never infinite; NaN stays
 * NaN. x = n ln 2 + r, |r| <= ln 2 / 2, degree 7 Taylor polynomial for e^r (Cody and Waite's
 * two-part ln 2). */
KERNEL_INLINE vector_float vector_exp(vector_float x)
{
    const float round_shift = 0x1.8p23f;
    x = vector_min(vector_all(88.3f), x); /* operand order preserves NaN */
    vector_int underflow = x < vector_all(-87.3f);
    x = vector_max(vector_all(-87.3f), x);
    vector_float n = x * 0x1.715476p0f + round_shift;
    n -= round_shift;
    vector_float r = x - n * 0x1.62e4p-1f;
    r = r - n * 0x1.7f7d1cp-20f;
    vector_float p = r * (1.0f / 5040) + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    vector_int exponent = (__builtin_convertvector(n, vector_int) + 127) << 23;
    return vector_select(underflow, vector_all(0), p * (vector_float)exponent);
}

/* Return x p / q + 1/2, limited to 0 below -end and to 1 above end (gelu_fit.h). */
KERNEL_INLINE vector_float vector_fitted(vector_float x, vector_float p, vector_float q, float end)
{
    vector_float value = x * p / q + 0.5f;
    value = vector_select(x > end, vector_all(1), value);
    return vector_select(x < -end, vector_all(0), value);
}

/* GELU(x) / x, and the derivative of GELU; with `tanh` those of the tanh approximation. */
KERNEL_INLINE vector_float vector_gelu_factor(vector_float x, bool tanh)
{
    if (tanh)
        return 1.0f / (vector_exp(-x * (x * x * GELU_TANH_B + GELU_TANH_A)) + 1.0f);
    vector_float t = x * x;
    NORMAL_FIT(vector_float, t, p, q);
    return vector_fitted(x, p, q, NORMAL_FIT_END);
}

KERNEL_INLINE vector_float vector_gelu_gradient(vector_float x, bool tanh)
{
    vector_float t = x * x;
    if (tanh) {
        vector_float s = vector_gelu_factor(x, true);
        return s + x * s * (1.0f - s) * (t * (3 * GELU_TANH_B) + GELU_TANH_A);
    }
    GELU_SLOPE_FIT(vector_float, t, p, q);
    return vector_fitted(x, p, q, GELU_SLOPE_FIT_END);
}

#endif
