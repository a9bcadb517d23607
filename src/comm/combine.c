// SPDX-License-Identifier: BSD-3-Clause
/* Sum, minimum and maximum of two vectors: the arithmetic of a reduction. The compiler vectorizes
 * one loop per type and operation; this is fast enough because the data is in the cache. */
#include "comm/internal.h"

#include <string.h>

#define COMBINE(function, element, expression)                                                     \
    static void function(void *into, const void *from, int64_t count)                              \
    {                                                                                              \
        element *restrict a = into;                                                                \
        const element *restrict b = from;                                                          \
        _Pragma("omp simd") for (int64_t i = 0; i < count; i++) a[i] = (element)(expression);      \
    }

/* sum: the type in which values are added. */
#define COMBINE_TYPE(name, element, sum)                                                           \
    COMBINE(sum_##name, sum, a[i] + b[i])                                                          \
    COMBINE(min_##name, element, b[i] < a[i] ? b[i] : a[i])                                        \
    COMBINE(max_##name, element, b[i] > a[i] ? b[i] : a[i])

COMBINE_TYPE(byte, uint8_t, uint8_t)
COMBINE_TYPE(int64, int64_t, uint64_t) /* modulo 2^64 */
COMBINE_TYPE(fp32, float, float)
COMBINE_TYPE(fp64, double, double)

static inline float bf16_widen(uint16_t value)
{
    uint32_t bits = (uint32_t)value << 16;
    float wide;
    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

/* Round to nearest even; NaN stays NaN. */
static inline uint16_t bf16_round(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    uint32_t quiet = (bits >> 16) | 0x40;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
}

COMBINE(sum_bf16, uint16_t, bf16_round(bf16_widen(a[i]) + bf16_widen(b[i])))
COMBINE(min_bf16, uint16_t, bf16_widen(b[i]) < bf16_widen(a[i]) ? b[i] : a[i])
COMBINE(max_bf16, uint16_t, bf16_widen(b[i]) > bf16_widen(a[i]) ? b[i] : a[i])

/* A multiplication adjusts the exponent, which also converts subnormals correctly. Infinity and NaN
 * are set separately. */
static inline float fp16_widen(uint16_t value)
{
    uint32_t magnitude = (uint32_t)(value & 0x7fff) << 13;
    uint32_t sign = (uint32_t)(value & 0x8000) << 16;
    uint32_t special = magnitude >= 0x0f800000 ? 0x7f800000 : 0;
    float wide;
    memcpy(&wide, &magnitude, sizeof wide);
    wide *= 0x1p112f;
    memcpy(&magnitude, &wide, sizeof magnitude);
    magnitude |= special | sign;
    memcpy(&wide, &magnitude, sizeof wide);
    return wide;
}

/* Round to nearest even. Adding 0.5 rounds subnormals, because its last mantissa bit has the value
 * of theirs. */
static inline uint16_t fp16_round(float value)
{
    uint32_t bits, small;
    memcpy(&bits, &value, sizeof bits);
    uint32_t magnitude = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
    float shifted;
    memcpy(&shifted, &magnitude, sizeof shifted);
    shifted += 0.5f;
    memcpy(&small, &shifted, sizeof small);
    uint32_t rounded = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
    rounded = magnitude < 0x38800000 ? small - 0x3f000000 : rounded;
    rounded = magnitude >= 0x47800000 ? 0x7c00 : rounded;
    rounded = magnitude > 0x7f800000 ? 0x7e00 : rounded;
    return (uint16_t)(rounded | sign);
}

COMBINE(sum_fp16, uint16_t, fp16_round(fp16_widen(a[i]) + fp16_widen(b[i])))
COMBINE(min_fp16, uint16_t, fp16_widen(b[i]) < fp16_widen(a[i]) ? b[i] : a[i])
COMBINE(max_fp16, uint16_t, fp16_widen(b[i]) > fp16_widen(a[i]) ? b[i] : a[i])

static const struct {
    int64_t size;
    const char *name;
    void (*combine[3])(void *into, const void *from, int64_t count); /* by comm_operation */
} types[] = {
    [COMM_BYTE] = {1, "bytes", {sum_byte, min_byte, max_byte}},
    [COMM_INT64] = {8, "int64", {sum_int64, min_int64, max_int64}},
    [COMM_FP32] = {4, "fp32", {sum_fp32, min_fp32, max_fp32}},
    [COMM_FP64] = {8, "fp64", {sum_fp64, min_fp64, max_fp64}},
    [COMM_BF16] = {2, "bf16", {sum_bf16, min_bf16, max_bf16}},
    [COMM_FP16] = {2, "fp16", {sum_fp16, min_fp16, max_fp16}},
};

void combine(enum comm_type type, enum comm_operation operation, void *into, const void *from,
             int64_t count)
{
    types[type].combine[operation](into, from, count);
}

int64_t comm_type_size(enum comm_type type)
{
    return types[type].size;
}

const char *comm_type_name(enum comm_type type)
{
    return types[type].name;
}
