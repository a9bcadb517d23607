// SPDX-License-Identifier: BSD-3-Clause
#include "array_check.h"

#include "arrays/decode.h"
#include "base/random.h"
#include "test.h"

struct array_box array_whole(const struct array *array)
{
    struct array_box box = {.begin = {0}};
    int64_t stride = 1;
    for (int d = array->dimensions; d-- > 0; stride *= array->extent[d]) {
        box.count[d] = array->extent[d];
        box.stride[d] = stride;
    }
    return box;
}

static void values_same(const char *name, double value, double expected)
{
    if (isnan(expected) ? !isnan(value) : value != expected)
        fail_msg("%s: %.17g instead of %.17g", name, value, expected);
}

/* Read a box with its dimensions in reverse order in memory, as floats, and compare. */
static void box_check(struct array *array, const double *expected, const struct array_box *box)
{
    static float got[ARRAY_CHECK_ELEMENTS];
    struct array_box reversed = *box;
    struct error error = {0};
    int64_t stride = 1, at[ARRAY_DIMENSIONS] = {0};
    for (int d = 0; d < array->dimensions; stride *= box->count[d++])
        reversed.stride[d] = stride;
    for (int pass = 0; pass < 2; pass++) {
        const struct array_box *order = pass == 0 ? box : &reversed;
        assert_ok(array_read(array, order, got, &error), &error);
        for (int d = 0; d >= 0;) {
            int64_t from = 0, to = 0;
            for (d = 0; d < array->dimensions; d++) {
                from = from * array->extent[d] + box->begin[d] + at[d];
                to += at[d] * order->stride[d];
            }
            values_same(array->name, (double)got[to], (double)(float)expected[from]);
            for (d = array->dimensions - 1; d >= 0 && ++at[d] == box->count[d]; d--)
                at[d] = 0;
        }
    }
}

static void boxes_check(struct array *array, const double *expected)
{
    for (uint32_t draw = 0; draw < 40; draw++) {
        struct array_box box = {.begin = {0}};
        int64_t stride = 1;
        for (int d = array->dimensions; d-- > 0; stride *= box.count[d]) {
            const struct random_block random =
                random_block_at(1, RANDOM_SYNTHETIC, 0, draw, (uint32_t)d, 0);
            const int64_t extent = array->extent[d];
            box.begin[d] = draw < 20 && d > 0 ? 0 : random.word[0] % extent;
            box.count[d] =
                draw < 20 ? d == 0 ? 1 : extent : 1 + random.word[1] % (extent - box.begin[d]);
            box.stride[d] = stride;
        }
        box_check(array, expected, &box);
    }
}

void array_check(struct array *array, const double *expected)
{
    static double got[ARRAY_CHECK_ELEMENTS];
    const struct array_box box = array_whole(array);
    const int64_t elements = array_elements(array);
    struct error error = {0};
    assert_true(elements <= ARRAY_CHECK_ELEMENTS);
    assert_ok(array_read_doubles(array, &box, got, &error), &error);
    for (int64_t i = 0; i < elements; i++)
        values_same(array->name, got[i], expected[i]);
    struct array_cache *cache = array_cache_new((int64_t)1 << 28);
    array_use_cache(array, cache, array);
    boxes_check(array, expected);
    array_use_cache(array, NULL, NULL);
    array_cache_free(cache);
}
