// SPDX-License-Identifier: BSD-3-Clause
// devices: cpu gpu
/* The rotation of queries and keys against its definition in double precision, for all types and
 * sizes, and its inverse. */
#include "device_test.h"
#include "test.h"

static void check(enum data_type type, int64_t batch, const int64_t *size, bool inverse)
{
    const double tolerance = type == TYPE_FP32 ? 4e-6 : 1.001 * device_test_precision(type);
    const int64_t tokens = size[0], heads = size[3], width = size[4];
    const int64_t patches = size[1] * size[2];
    const int64_t count = batch * tokens * 3 * heads * width, half = width / 2;
    DEVICE_TEST(test, 2);
    void *qkv = device_test_random(&test, type, count, 3, 1);
    void *given = device_test_random(&test, type, count, 3, 1);
    double *expected = device_test_expected(&test, count);
    DEVICE_RUN(&test, rotary, .type = type, .batch = batch, .tokens = tokens,
               .grid = {size[1], size[2]}, .heads = heads, .head_dim = width, .temperature = 100,
               .inverse = inverse, .qkv = qkv);
    device_test_wait(&test);
    for (int64_t e = 0; e < count; e++) {
        const int64_t row = e / (heads * width), i = e % width % half, quarter = half / 2;
        const int64_t patch = row / 3 % tokens - (tokens - patches);
        const bool second = e % width >= half;
        expected[e] = device_test_value(type, given, e);
        if (row % 3 == 2 || patch < 0)
            continue;
        const int axis = i >= quarter;
        const double place = (double)(axis == 0 ? patch / size[2] : patch % size[2]);
        const double angle = 2 * acos(-1) * ((2 * place + 1) / (double)size[1 + axis] - 1) *
                             pow(100, -(double)(i % quarter) / (double)quarter);
        const double other = device_test_value(type, given, second ? e - half : e + half);
        expected[e] = expected[e] * cos(angle) + (second != inverse ? 1 : -1) * sin(angle) * other;
    }
    device_test_near("qkv", type, qkv, expected, count, tolerance, 1);
}

TEST_KERNELS(all_types_and_sizes)
{
    /* tokens, rows and columns of patches, heads, head_dim */
    static const int64_t sizes[][5] = {
        {5, 2, 2, 3, 64}, {9, 2, 3, 2, 24}, {4, 1, 4, 1, 4}, {3, 0, 0, 2, 8}, {69, 4, 16, 3, 32}};
    for (enum data_type type = TYPE_FP32; type <= TYPE_FP16; type++)
        for (int i = 0; i < device_test_cases(5, 4); i++)
            for (int64_t batch = 0; batch < 3; batch++)
                check(type, batch, sizes[i], ((int)type + i + batch) % 2 == 0);
}

TEST_MAIN()
