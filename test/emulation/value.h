// SPDX-License-Identifier: BSD-3-Clause
/* Conversion of single values of any floating-point type: the emulated libraries favour correctness
 * over speed. */
#ifndef VITTRAIN_CUDA_EMULATION_VALUE_H
#define VITTRAIN_CUDA_EMULATION_VALUE_H

#include "number.h"

static inline float value_at(enum data_type type, const void *values, int64_t index)
{
    if (type == TYPE_FP32)
        return ((const float *)values)[index];
    if (type == TYPE_BF16)
        return number_load(((const struct bf16 *)values)[index]);
    return number_load(((const struct fp16 *)values)[index]);
}

static inline void value_put(enum data_type type, void *values, int64_t index, float value)
{
    if (type == TYPE_FP32)
        ((float *)values)[index] = value;
    else if (type == TYPE_BF16)
        number_store(&((struct bf16 *)values)[index], value);
    else
        number_store(&((struct fp16 *)values)[index], value);
}

/* Round to nearest, like the hardware's conversion to TF32: 10 bits are kept. */
static inline float tf32_round(float value)
{
    uint32_t bits = __float_as_uint(value);
    return (bits & 0x7f800000) == 0x7f800000 ? value
                                             : __uint_as_float((bits + 0x1000) & 0xffffe000);
}

#endif
