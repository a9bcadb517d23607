// SPDX-License-Identifier: BSD-3-Clause
// devices: cpu gpu
/* Operations on flat buffers other than the update: sums of squares and of matrices, zeroing, type
 * conversion, search for non-finite values. test_grains has additions. */
#include <float.h>

#include "base/base.h"
#include "base/random.h"
#include "device_test.h"

/* A reference for sums of squares: an integer in units of 2^-352, one bit per element. */
enum { BITS = 704, UNIT = 352, BLOCK = 16 };
struct big {
    unsigned char bit[BITS];
};

static void big_add(struct big *big, double value)
{
    int exponent, carry = 0;
    uint64_t mantissa = (uint64_t)ldexp(frexp(value, &exponent), 53);
    int from = exponent - 53 + UNIT, i = from;
    for (; mantissa != 0 && (i < from + 53 || carry != 0); i++) {
        carry += big->bit[i] + (i < from + 53 ? (int)(mantissa >> (i - from) & 1) : 0);
        big->bit[i] = (unsigned char)(carry % 2);
        carry /= 2;
    }
}

/* Return the value rounded to nearest even. */
static double big_value(const struct big *big)
{
    int top = BITS - 1;
    uint64_t mantissa = 0;
    bool rest = false;
    while (top > 53 && big->bit[top] == 0)
        top--;
    for (int i = top; i > top - 53; i--)
        mantissa = 2 * mantissa + big->bit[i];
    for (int i = top - 54; i >= 0; i--)
        rest = rest || big->bit[i] != 0;
    mantissa += big->bit[top - 53] != 0 && (rest || mantissa % 2 != 0);
    return ldexp((double)mantissa, top - 52 - UNIT);
}

static bool big_equals(const struct big *big, const struct exact_sum *sum)
{
    int64_t carry = 0;
    for (int i = 0; i < BITS; i++) {
        carry += i % 32 == 0 && i / 32 < EXACT_WORDS ? sum->word[i / 32] : 0;
        if ((carry >> i % 32 & 1) != big->bit[i])
            return false;
        carry = i % 32 == 31 ? carry >> 32 : carry;
    }
    return true;
}

static struct big squares_expected(const float *values, int64_t count)
{
    struct big big = {{0}};
    for (int64_t block = 0; block < count; block += BLOCK) {
        double sums[4] = {0};
        for (int i = 0; i < BLOCK && block + i < count; i++)
            sums[i % 4] += (double)values[block + i] * (double)values[block + i];
        big_add(&big, (sums[0] + sums[2]) + (sums[1] + sums[3]));
    }
    return big;
}

/* Return the sum of squares, computed in `parts` parts whose order is reversed. */
static struct exact_sum *squares_of(struct device_test *test, const float *values, int64_t count,
                                    int parts)
{
    const struct device_backend *backend = test->device->backend;
    struct exact_sum *sum =
        device_test_zeros(test, TYPE_FP32, sizeof(struct exact_sum) / sizeof(float));
    const int64_t part = (count / parts + BLOCK) / BLOCK * BLOCK;
    for (int64_t begin = (parts - 1) * part; begin >= 0; begin -= part)
        if (begin < count)
            backend->sum_squares(test->stream, values + begin,
                                 begin + part < count ? part : count - begin, sum);
    device_test_wait(test);
    return sum;
}

static double value_of(struct device_test *test, const struct exact_sum *sum)
{
    double *value = device_test_number(test, 0);
    test->device->backend->sum_value(test->stream, sum, value);
    device_test_wait(test);
    return *value;
}

static void squares_check(const float *from, int64_t count)
{
    const struct big expected = squares_expected(from, count);
    for (int threads = 1; threads <= device_test_cases(3, 1); threads++) {
        DEVICE_TEST(test, threads);
        const float *values = device_test_copy(&test, TYPE_FP32, from, count);
        for (int parts = 1; parts <= 7; parts += 2) {
            const struct exact_sum *sum = squares_of(&test, values, count, parts);
            assert_true(big_equals(&expected, sum));
            assert_true(value_of(&test, sum) == big_value(&expected));
        }
    }
}

/* Sums of squares have the bits of the reference, whatever the parts and threads: numbers of normal
 * size, of all magnitudes from denormal to the largest, mostly zeros, all extreme. */
TEST_KERNELS(sums_of_squares_are_exact)
{
    enum { MOST = 70007, KINDS = 5 };
    static float values[MOST];
    const int64_t counts[] = {0, 15, 1000, 16385, 1, 1024, MOST};
    for (int kind = 0; kind < KINDS; kind++) {
        for (int i = 0; i < MOST; i++) {
            struct random_block drawn = random_block_at(1, RANDOM_SHUFFLE, 0, 0, 0, (uint32_t)i);
            const float unit = (float)(drawn.word[0] >> 8) * 0x1p-23f - 1;
            const float scaled[KINDS] = {
                unit, ldexpf(unit, (int)(drawn.word[1] % 270) - 145),
                ldexpf(unit, (int)((uint32_t)i / BLOCK * 2654435761u >> 24) - 140),
                drawn.word[1] % 256 == 0 ? unit : 0, drawn.word[1] % 2 != 0 ? FLT_MAX : 0x1p-149f};
            values[i] = scaled[kind];
        }
        for (int i = 0; i < device_test_cases(7, 4); i++)
            squares_check(values, counts[i]);
    }
}

/* Sums of blocks near the middle between two fp64 numbers, 1 and 1 + 2^-52 or 1 + 2^-51. */
TEST(sums_of_squares_are_rounded_once)
{
    const float ulp = 0x1p-26f, half = 0x1p-27f; /* squares: 2^-52, 2^-54 */
    const struct {
        float odd, below;
        double expected;
    } cases[] = {{0, 0, 1},
                 {0, 0x1p-149f, 1 + 0x1p-52},
                 {ulp, 0, 1 + 0x1p-51},
                 {ulp, 0x1p-149f, 1 + 0x1p-51}};
    for (int i = 0; i < 4; i++) {
        DEVICE_TEST(test, 1);
        float values[4 * BLOCK] = {cases[i].below};
        values[BLOCK] = values[BLOCK + 1] = half;
        values[2 * BLOCK] = cases[i].odd;
        values[3 * BLOCK] = 1;
        const float *copy = device_test_copy(&test, TYPE_FP32, values, 4 * BLOCK);
        assert_true(value_of(&test, squares_of(&test, copy, 4 * BLOCK, 1)) == cases[i].expected);
    }
}

TEST(sums_of_squares_that_are_not_finite)
{
    enum { COUNT = 3000 };
    const float special[] = {INFINITY, -INFINITY, NAN, -NAN};
    for (int i = 0; i < 4; i++) {
        DEVICE_TEST(test, 2);
        float *values = device_test_random(&test, TYPE_FP32, COUNT, 1, 1);
        values[i * 900] = special[i];
        const double sum = value_of(&test, squares_of(&test, values, COUNT, 3));
        assert_true(i < 2 ? isinf(sum) : isnan(sum));
        values[20] = INFINITY;
        assert_true(isnan(value_of(&test, squares_of(&test, values, COUNT, 1))) == (i >= 2));
    }
}

/* Sums of matrices in place and not, with a norm that is above or below epsilon. */
static void check_matrix_sum(enum data_type type, int64_t rows, int64_t width, bool both)
{
    DEVICE_TEST(test, 2);
    const double norms[] = {16, 0};
    for (int i = 0; i < 2; i++) {
        const int64_t count = rows * width;
        void *x = device_test_random(&test, type, count, 1, 1);
        void *z = device_test_random(&test, type, count, 1, 2);
        void *y = i == 1 && both ? z : x;
        const double *from = device_test_given(&test, x), *other = device_test_given(&test, z);
        DEVICE_RUN(&test, matrix_sum, .type = type, .rows = rows, .width = width, .x = x,
                   .z = both ? z : NULL, .x_factor = 2, .z_factor = -0.5f, .diagonal = both ? 3 : 0,
                   .epsilon = 0.5f, .norm_squared = device_test_number(&test, norms[i]), .y = y);
        device_test_wait(&test);
        for (int64_t j = 0; j < count; j++) {
            double expected = from[j] * (i == 0 ? 0.5 : 4);
            if (both)
                expected += (j / width == j % width ? 3 : 0) - 0.5 * other[j];
            double rounding = type == TYPE_FP32 ? 1e-6 : type == TYPE_BF16 ? 1.0 / 250 : 1e-3;
            assert_true(fabs(device_test_value(type, y, j) - expected) <=
                        rounding * (0.1 + fabs(expected)));
        }
    }
}

TEST_KERNELS(sums_of_matrices)
{
    for (int type = TYPE_FP32; type <= TYPE_FP16; type++) {
        check_matrix_sum((enum data_type)type, 37, 37, true);
        check_matrix_sum((enum data_type)type, 8, 24, true);
        check_matrix_sum((enum data_type)type, 21, 5, true);
        check_matrix_sum((enum data_type)type, 3, 129, false);
        check_matrix_sum((enum data_type)type, 0, 8, false);
    }
}

/* Exactly the requested bytes are zeroed. */
TEST(zeros)
{
    const size_t block = 65536,
                 sizes[] = {0, 1, 3, 1000, block - 1, block, block + 1, 5 * block + 7};
    for (int i = 0; i < 8; i++) {
        DEVICE_TEST(test, 3);
        unsigned char *memory = device_test_zeros(&test, TYPE_BF16, (int64_t)(3 * block));
        memset(memory, 0xff, 6 * block);
        test.device->backend->zero(test.stream, memory + 5, sizes[i]);
        device_test_wait(&test);
        for (size_t j = 0; j < 6 * block; j++)
            assert_int_equal(memory[j], j >= 5 && j < 5 + sizes[i] ? 0 : 0xff);
    }
}

static void set_value(enum data_type type, void *values, int64_t index, uint32_t bits)
{
    if (type == TYPE_FP32)
        ((uint32_t *)values)[index] = bits;
    else
        ((uint16_t *)values)[index] = (uint16_t)bits;
}

TEST_KERNELS(values_that_are_not_finite)
{
    /* By type: infinity, NaN, and the largest finite number. */
    static const uint32_t bits[3][3] = {
        {0xff800000, 0x7f800001, 0x7f7fffff}, {0x7f80, 0xffc1, 0x7f7f}, {0xfc00, 0x7c01, 0x7bff}};
    enum { COUNT_VALUES = 5003 };
    const int64_t places[] = {0, 7, 1023, 1024, 4096, COUNT_VALUES - 1};
    for (enum data_type type = TYPE_FP32; type <= TYPE_FP16; type++) {
        DEVICE_TEST(test, 2);
        void *values = device_test_random(&test, type, COUNT_VALUES, 1, 1);
        int64_t *index = device_test_zeros(&test, TYPE_FP32, 2);
        struct nonfinite args = {type, COUNT_VALUES, values, index};
        set_value(type, values, 33, bits[type][2]);
        test.device->backend->nonfinite(test.stream, &args);
        device_test_wait(&test);
        assert_int_equal(*index, -1);
        for (int i = 5; i >= 0; i--) {
            set_value(type, values, places[i], bits[type][i % 2]);
            test.device->backend->nonfinite(test.stream, &args);
            device_test_wait(&test);
            assert_int_equal(*index, places[i]);
        }
        args.count = 0;
        test.device->backend->nonfinite(test.stream, &args);
        device_test_wait(&test);
        assert_int_equal(*index, -1);
    }
}

/* The hash is the sum of those of the elements, also if the array is hashed in two parts. */
TEST_KERNELS(hashes_of_elements)
{
    enum { COUNT_VALUES = 70001, LEFT = 4099 };
    const int64_t counts[] = {0, 1, 31, 1000, COUNT_VALUES};
    const uint64_t key = (uint64_t)3 << 40;
    DEVICE_TEST(test, 3);
    float *values = device_test_random(&test, TYPE_FP32, COUNT_VALUES, 1, 1);
    uint64_t *sum = device_test_zeros(&test, TYPE_FP32, 2);
    for (size_t n = 0; n < sizeof counts / sizeof counts[0]; n++) {
        const int64_t left = counts[n] > LEFT ? LEFT : 0;
        uint64_t expected = 7;
        for (int64_t i = 0; i < counts[n]; i++)
            expected += hash_element(key + (uint64_t)i, values[i]);
        *sum = 7;
        DEVICE_RUN(&test, hash, left, values, key, sum);
        DEVICE_RUN(&test, hash, counts[n] - left, values + left, key + (uint64_t)left, sum);
        device_test_wait(&test);
        assert_true(*sum == expected);
    }
}

/* All 65536 values of a type survive the conversion to fp32 and back; NaN stays NaN. */
TEST_KERNELS(all_halves_survive)
{
    enum { ALL = 1 << 16 };
    for (enum data_type type = TYPE_BF16; type <= TYPE_FP16; type++) {
        DEVICE_TEST(test, 2);
        uint16_t *halves = device_test_zeros(&test, type, ALL);
        uint16_t *back = device_test_zeros(&test, type, ALL);
        float *wide = device_test_zeros(&test, TYPE_FP32, ALL);
        for (int i = 0; i < ALL; i++)
            halves[i] = (uint16_t)i;
        test.device->backend->convert(test.stream, TYPE_FP32, wide, type, halves, ALL);
        test.device->backend->convert(test.stream, type, back, TYPE_FP32, wide, ALL);
        device_test_wait(&test);
        for (int i = 0; i < ALL; i++) {
            double value = device_test_value(type, halves, i);
            if (isnan(value)) {
                assert_true(isnan(wide[i]) && isnan(device_test_value(type, back, i)));
            } else {
                assert_true((double)wide[i] == value);
                assert_int_equal(back[i], i);
            }
        }
    }
}

/* Values between two neighbours of a type round to the nearer one, and half way to the even one;
 * for every step-th pair from `begin` to `end` and both signs. */
static void check_rounding(struct device_test *test, enum data_type type, int begin, int end,
                           int step)
{
    const int pairs = 2 * ((end - begin + step - 1) / step);
    float *values = device_test_zeros(test, TYPE_FP32, 3 * pairs);
    uint16_t *rounded = device_test_zeros(test, type, 3 * pairs);
    uint16_t *lows = device_test_zeros(test, type, pairs);
    for (int i = 0; i < pairs; i++) {
        lows[i] = (uint16_t)((begin + i / 2 * step) | (i % 2) << 15);
        const uint16_t neighbours[2] = {lows[i], (uint16_t)(lows[i] + 1)};
        double a = device_test_value(type, neighbours, 0);
        double b = device_test_value(type, neighbours, 1);
        float middle = (float)((a + b) / 2);
        values[3 * i] = nextafterf(middle, (float)a);
        values[3 * i + 1] = middle;
        values[3 * i + 2] = nextafterf(middle, (float)b);
    }
    test->device->backend->convert(test->stream, type, rounded, TYPE_FP32, values, 3 * pairs);
    device_test_wait(test);
    for (int i = 0; i < pairs; i++) {
        assert_int_equal(rounded[3 * i], lows[i]);
        assert_int_equal(rounded[3 * i + 1], lows[i] + (lows[i] & 1));
        assert_int_equal(rounded[3 * i + 2], lows[i] + 1);
    }
}

/* Check that the first `count` of `values`, in this type, are `expected`. */
static void check_edges(struct device_test *test, enum data_type type, const float *values,
                        const uint16_t *expected, int64_t count)
{
    const float *given = device_test_copy(test, TYPE_FP32, values, count);
    uint16_t *halves = device_test_zeros(test, type, count);
    uint16_t *again = device_test_zeros(test, type, count);
    test->device->backend->convert(test->stream, type, halves, TYPE_FP32, given, count);
    test->device->backend->convert(test->stream, type, again, TYPE_FP32, given, 0);
    device_test_wait(test);
    device_test_same("edges", type, halves, expected, count);
    assert_int_equal(again[0], 0);
    test->device->backend->convert(test->stream, type, again, type, halves, count);
    device_test_wait(test);
    device_test_same("copies", type, again, expected, count);
}

TEST_KERNELS(halves_are_rounded_to_nearest_even)
{
    DEVICE_TEST(test, 1);
    check_rounding(&test, TYPE_FP16, 0, 0x7c00 - 1, 3);
    check_rounding(&test, TYPE_BF16, 0x0080, 0x7f80 - 1, 7);
    const float edges[] = {65519.9f, 65520, 1e30f, -INFINITY, 0x1p-25f, 0x1.8p-25f};
    check_edges(&test, TYPE_FP16, edges, (uint16_t[]){0x7bff, 0x7c00, 0x7c00, 0xfc00, 0, 1}, 6);
    const float large[] = {0x1.fep127f, 0x1.ffp127f, -0x1.fffffep127f};
    check_edges(&test, TYPE_BF16, large, (uint16_t[]){0x7f7f, 0x7f80, 0xff80}, 3);
}

TEST_MAIN()
