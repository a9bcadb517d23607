// SPDX-License-Identifier: BSD-3-Clause
/* Initial values: their distributions, and filters of convolutions. */
#include "mesh/unit.h"

#include "base/random.h"
#include "test.h"

static struct unit_tensor tensor_of(enum initial_rule rule, int64_t count, float scale)
{
    return (struct unit_tensor){.name = "t",
                                .dimensions = 1,
                                .shape = {count},
                                .count = count,
                                .initial = rule,
                                .initial_scale = scale};
}

TEST(normal_numbers_invert_the_distribution)
{
    enum { COUNT = 400000 };
    static float value[COUNT];
    struct unit_tensor tensor = tensor_of(INITIAL_NORMAL, COUNT, 1);
    tensor.index = 7;
    initial_draw(&tensor, 5, 0, COUNT, value);
    double sum = 0, squares = 0, gap = 0;
    for (int i = 0; i < COUNT; i++) {
        struct random_block drawn =
            random_block_at(5, RANDOM_INITIAL_WEIGHTS, 0, 0, 7, (uint32_t)i / 4);
        double uniform = ((double)(drawn.word[i % 4] >> 9) + 0.5) * 0x1p-22 - 1;
        gap = fmax(gap, fabs(erf(value[i] / sqrt(2)) - uniform));
        sum += value[i];
        squares += (double)value[i] * value[i];
    }
    assert_true(gap < 1e-6);
    assert_true(fabs(sum / COUNT) < 0.01 && fabs(squares / COUNT - 1) < 0.01);
}

TEST(truncated_numbers_stay_within_two)
{
    enum { COUNT = 100000 };
    static float value[COUNT];
    struct unit_tensor tensor = tensor_of(INITIAL_TRUNCATED_NORMAL, COUNT, 1);
    initial_draw(&tensor, 5, 0, COUNT, value);
    double squares = 0, largest = 0;
    for (int i = 0; i < COUNT; i++) {
        squares += (double)value[i] * value[i];
        largest = fmax(largest, fabs((double)value[i]));
    }
    /* The variance of a standard normal distribution truncated at +-2. */
    assert_true(fabs(squares / COUNT - 0.7737413) < 0.01);
    assert_true(largest <= 2 && largest > 1.99);
}

/* Initial values of [out, in, kernel, kernel] filters, drawn in two parts. */
static void filters_draw(enum initial_rule rule, int64_t out, int64_t in, int64_t kernel,
                         float *value)
{
    struct unit_tensor tensor = tensor_of(rule, out * in * kernel * kernel, 0.5f);
    tensor.dimensions = 4;
    memcpy(tensor.shape, (int64_t[]){out, in, kernel, kernel}, sizeof tensor.shape);
    initial_draw(&tensor, 5, 0, 20, value);
    initial_draw(&tensor, 5, 20, tensor.count - 20, value + 20);
}

TEST(cosine_filters_are_orthonormal_pairs)
{
    enum { FILTERS = 24, PATCH = 12 };
    float value[FILTERS][PATCH];
    filters_draw(INITIAL_COSINES, FILTERS, 3, 2, value[0]);
    for (int a = 0; a < FILTERS; a++) {
        for (int b = 0; b < FILTERS; b++) {
            double product = 0, expected = a / 2 != b / 2 ? 0 : a == b ? 1 : -1;
            for (int i = 0; i < PATCH; i++)
                product += (double)value[a][i] * value[b][i];
            assert_true(fabs(product - expected) < 1e-6);
        }
        /* The first pair is the mean of a patch. */
        assert_true(a > 1 || fabs(value[a][a] - (a == 0 ? 1 : -1) / sqrt(PATCH)) < 1e-6);
    }
}

TEST(dirac_filters_pass_on_their_channel)
{
    enum { IN = 3, OUT = 5, WINDOW = 9, FILTER = IN * WINDOW };
    float value[OUT * FILTER], normal[OUT * FILTER];
    filters_draw(INITIAL_DIRAC, OUT, IN, 3, value);
    filters_draw(INITIAL_NORMAL, OUT, IN, 3, normal);
    for (int i = 0; i < IN * FILTER; i++) {
        int filter = i / FILTER, at = i % FILTER;
        assert_true(value[i] == (at == filter * WINDOW + WINDOW / 2 ? 1 : 0));
    }
    assert_memory_equal(value + IN * FILTER, normal + IN * FILTER, 2 * FILTER * sizeof *value);
}

TEST_MAIN()
