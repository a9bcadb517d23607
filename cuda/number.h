// SPDX-License-Identifier: BSD-3-Clause
/* Element types of kernels: float, bf16, fp16, loaded and stored one at a time or eight at a time
 * (16 bytes of a 16-bit type, the widest access). All arithmetic is in fp32; conversions round to
 * nearest even, as on the CPU. */
#ifndef VITTRAIN_CUDA_NUMBER_H
#define VITTRAIN_CUDA_NUMBER_H

#include "portable.h"

struct bf16 {
    uint16_t bits;
};
struct fp16 {
    uint16_t bits;
};

__device__ static inline float number_load(float value)
{
    return value;
}

__device__ static inline float number_load(struct bf16 value)
{
    return __uint_as_float((uint32_t)value.bits << 16);
}

__device__ static inline void number_store(float *to, float value)
{
    *to = value;
}

#ifdef __CUDACC__

__device__ static inline float number_load(struct fp16 value)
{
    return __half2float(__ushort_as_half(value.bits));
}

__device__ static inline void number_store(struct bf16 *to, float value)
{
    to->bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
}

__device__ static inline void number_store(struct fp16 *to, float value)
{
    to->bits = __half_as_ushort(__float2half_rn(value));
}

#else

static inline float number_load(struct fp16 value)
{
    uint32_t sign = (uint32_t)(value.bits & 0x8000) << 16, exponent = value.bits >> 10 & 31;
    uint32_t mantissa = value.bits & 1023;
    if (exponent == 0) {
        float magnitude = (float)mantissa * 0x1p-24f;
        return sign != 0 ? -magnitude : magnitude;
    }
    uint32_t wide = exponent == 31 ? 255 : exponent + 112;
    return __uint_as_float(sign | wide << 23 | mantissa << 13);
}

static inline void number_store(struct bf16 *to, float value)
{
    uint32_t bits = __float_as_uint(value);
    to->bits = value != value ? 0x7fff : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline void number_store(struct fp16 *to, float value)
{
    uint32_t bits = __float_as_uint(value), sign = bits >> 16 & 0x8000,
             magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) {
        to->bits = 0x7fff;
    } else if (magnitude >= 0x47800000) { /* 65536 and more; below, 65520 rounds up to it */
        to->bits = (uint16_t)(sign | 0x7c00);
    } else if (magnitude < 0x38800000) { /* subnormal: the addition discards the excess bits */
        float scaled = __uint_as_float(magnitude) + 0.5f;
        to->bits = (uint16_t)(sign | (__float_as_uint(scaled) - 0x3f000000));
    } else {
        uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
        to->bits = (uint16_t)(sign | (rounded - 0x38000000) >> 13);
    }
}

#endif

/* 16 bytes moved at once; the address is a multiple of 16. */
struct alignas(16) vector16 {
    uint32_t word[4];
};

/* Eight consecutive elements. */
struct eight {
    float value[8];
};

__device__ static inline struct eight eight_load(const float *from)
{
    struct vector16 low = ((const struct vector16 *)from)[0];
    struct vector16 high = ((const struct vector16 *)from)[1];
    struct eight eight;
    for (int i = 0; i < 4; i++) {
        eight.value[i] = __uint_as_float(low.word[i]);
        eight.value[4 + i] = __uint_as_float(high.word[i]);
    }
    return eight;
}

template <typename number16> __device__ static inline struct eight eight_load(const number16 *from)
{
    struct vector16 vector = *(const struct vector16 *)from;
    struct eight eight;
    for (int i = 0; i < 4; i++) {
        eight.value[2 * i] = number_load(number16{(uint16_t)vector.word[i]});
        eight.value[2 * i + 1] = number_load(number16{(uint16_t)(vector.word[i] >> 16)});
    }
    return eight;
}

__device__ static inline void four_pack(struct vector16 *vector, const float *value)
{
    for (int i = 0; i < 4; i++)
        vector->word[i] = __float_as_uint(value[i]);
}

__device__ static inline void eight_store(float *to, const struct eight &eight)
{
    struct vector16 low, high;
    four_pack(&low, eight.value);
    four_pack(&high, eight.value + 4);
    ((struct vector16 *)to)[0] = low;
    ((struct vector16 *)to)[1] = high;
}

template <typename number16>
__device__ static inline struct vector16 eight_pack(const struct eight &eight)
{
    struct vector16 vector;
    for (int i = 0; i < 4; i++) {
        number16 low, high;
        number_store(&low, eight.value[2 * i]);
        number_store(&high, eight.value[2 * i + 1]);
        vector.word[i] = (uint32_t)low.bits | (uint32_t)high.bits << 16;
    }
    return vector;
}

template <typename number16>
__device__ static inline void eight_store(number16 *to, const struct eight &eight)
{
    *(struct vector16 *)to = eight_pack<number16>(eight);
}

/* eight_store to global memory. nvcc splits a 16-bit eight_store into four stores of 4 bytes if the
 * code also contains an elementwise path; inline assembly prevents that. */
#ifdef __CUDACC__
__device__ static inline void vector_store_global(void *to, const struct vector16 &vector)
{
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
                 "r"(vector.word[0]), "r"(vector.word[1]), "r"(vector.word[2]), "r"(vector.word[3])
                 : "memory");
}
#else
static inline void vector_store_global(void *to, const struct vector16 &vector)
{
    *(struct vector16 *)to = vector;
}
#endif

__device__ static inline void eight_store_global(float *to, const struct eight &eight)
{
    struct vector16 low, high;
    four_pack(&low, eight.value);
    four_pack(&high, eight.value + 4);
    vector_store_global(to, low);
    vector_store_global(to + 4, high);
}

template <typename number16>
__device__ static inline void eight_store_global(number16 *to, const struct eight &eight)
{
    vector_store_global(to, eight_pack<number16>(eight));
}

/* True if rows of `width` elements can be accessed eight at a time; `memory` may be NULL. Called by
 * the host, once per launch. */
static inline bool eight_fits(const void *memory, int64_t width)
{
    return width % 8 == 0 && (uintptr_t)memory % 16 == 0;
}

/* Eight elements in their stored format, which need fewer registers than converted ones. So a
 * thread can load several rows before it uses the first. */
template <typename number> struct packed_eight {
    struct vector16 part[sizeof(number) / 2];
};

template <typename number>
__device__ static inline struct eight packed_open(const struct packed_eight<number> &packed)
{
    return eight_load((const number *)&packed);
}

/* The first `count` (at most 8) of eight elements, one at a time unless they are aligned vectors;
 * the others are 0. */
template <typename number>
__device__ static inline struct packed_eight<number> packed_load_some(const number *from,
                                                                      int64_t count, bool fits) {
    if (fits)
        return *(const struct packed_eight<number> *)from;
    struct packed_eight<number> packed;
    for (int i = 0; i < 8; i++)
        ((number *)&packed)[i] = i < count ? from[i] : number{};
    return packed;
}

template <typename number>
__device__ static inline struct eight eight_load_some(const number *from, int64_t count, bool fits)
{
    return packed_open(packed_load_some(from, count, fits));
}

template <typename number>
__device__ static inline void eight_store_some(number *to, const struct eight &eight, int64_t count,
                                               bool fits)
{
    if (fits)
        eight_store_global(to, eight);
    else
        for (int i = 0; i < 8; i++)
            if (i < count)
                number_store(to + i, eight.value[i]);
}

/* Call function<number>(arguments...) for the C++ type of a data_type. */
#define NUMBER_SWITCH(type, function, ...)                                                         \
    do {                                                                                           \
        if ((type) == TYPE_FP32)                                                                   \
            function<float>(__VA_ARGS__);                                                          \
        else if ((type) == TYPE_BF16)                                                              \
            function<struct bf16>(__VA_ARGS__);                                                    \
        else                                                                                       \
            function<struct fp16>(__VA_ARGS__);                                                    \
    } while (0)

#endif
