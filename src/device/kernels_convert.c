/* Conversion between fp32 and the other types. */
#include "device/kernels.h"
#include "device/vector.h"

KERNEL_INLINE void convert_to_fp32(float *to, enum data_type type, const void *from, int64_t count)
{
    int64_t i = 0;
    for (; i + VECTOR_WIDTH <= count; i += VECTOR_WIDTH)
        vector_store(to + i, typed_load(type, from, i));
    if (i < count)
        typed_store_part(TYPE_FP32, to, i, typed_load_part(type, from, i, count - i), count - i);
}

KERNEL_INLINE void convert_from_fp32(enum data_type type, void *to, const float *from,
                                     int64_t count)
{
    int64_t i = 0;
    for (; i + VECTOR_WIDTH <= count; i += VECTOR_WIDTH)
        typed_store(type, to, i, vector_load(from + i));
    if (i < count)
        typed_store_part(type, to, i, typed_load_part(TYPE_FP32, from, i, count - i), count - i);
}

static void to_fp32(float *to, enum data_type type, const void *from, int64_t count)
{
    if (type == TYPE_FP32)
        memcpy(to, from, (size_t)count * sizeof(float));
    else if (type == TYPE_BF16)
        convert_to_fp32(to, TYPE_BF16, from, count);
    else
        convert_to_fp32(to, TYPE_FP16, from, count);
}

static void from_fp32(enum data_type type, void *to, const float *from, int64_t count)
{
    if (type == TYPE_FP32)
        memcpy(to, from, (size_t)count * sizeof(float));
    else if (type == TYPE_BF16)
        convert_from_fp32(TYPE_BF16, to, from, count);
    else
        convert_from_fp32(TYPE_FP16, to, from, count);
}

extern const struct convert_kernels KERNEL(convert_kernels);
const struct convert_kernels KERNEL(convert_kernels) = {to_fp32, from_fp32};
