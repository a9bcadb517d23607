// SPDX-License-Identifier: BSD-3-Clause
/* Matrix products in tiles against double precision, for all layouts of operands and for sizes
 * around those of a tile. Bits do not depend on threads and cache sizes. */
#include <stdatomic.h>

#include "cpu/cpu.h"
#include "device_test.h"

enum { ALONG_A = 1, ALONG_B = 2, LAYOUTS = 4, GAP = 3 };

struct shape {
    int64_t m, n, k;
    int layout; /* ALONG_A + ALONG_B: operands whose rows are lines */
};

struct operands {
    struct tile_product product;
    int64_t n;
    float *c;
};

/* Rows of the result may be finished in any order, but each number once. */
static void store(const void *context, int64_t row, int64_t column, int64_t count, const float *sum,
                  float *buffer)
{
    const struct operands *o = context;
    memset(buffer, 0, (size_t)count * sizeof *buffer);
    for (int64_t i = 0; i < count; i++)
        o->c[row * o->n + column + i] += sum[i];
}

/* Run with the threads of a device. small: caches hold few tiles. */
static void run(struct device_test *test, struct operands *o, const struct shape *s, bool small)
{
    struct cpu_device *cpu = (struct cpu_device *)test->device;
    const bool along_a = s->layout & ALONG_A, along_b = s->layout & ALONG_B;
    const int64_t a_stride = (along_a ? s->k : s->m) + GAP,
                  b_stride = (along_b ? s->k : s->n) + GAP;
    o->n = s->n;
    o->c = device_test_zeros(test, TYPE_FP32, s->m * s->n);
    o->product = (struct tile_product){
        .k = s->k,
        .a = {device_test_random(test, TYPE_BF16, (along_a ? s->m : s->k) * a_stride - GAP, 1, 1),
              s->m, a_stride, along_a, NULL},
        .b = {device_test_random(test, TYPE_BF16, (along_b ? s->n : s->k) * b_stride - GAP, 1, 2),
              s->n, b_stride, along_b, NULL},
        .finish = store,
        .context = o};
    if (!along_a)
        o->product.a.sums = device_test_random(test, TYPE_FP32, s->m, 1, 3);
    if (small) {
        cpu->l1_bytes = 8 << 10;
        cpu->l2_bytes = 32 << 10;
    }
    tile_product_run(cpu, &o->product);
}

static double number(const struct tile_operand *operand, int64_t line, int64_t k)
{
    return device_test_value(TYPE_BF16, operand->from,
                             operand->along_k ? line * operand->stride + k
                                              : k * operand->stride + line);
}

static void check_close(const struct shape *s, int64_t i, double value, double expected)
{
    if (fabs(value - expected) > 4e-6 * sqrt((double)s->k))
        fail_msg("%lld x %lld x %lld, layout %d: element %lld is %g, not %g", (long long)s->m,
                 (long long)s->n, (long long)s->k, s->layout, (long long)i, value, expected);
}

static void check(const struct operands *o, const struct shape *s, struct device_test *test)
{
    const struct tile_operand *a = &o->product.a, *b = &o->product.b;
    for (int64_t i = 0; i < s->m * s->n; i++) {
        double expected = 0;
        for (int64_t k = 0; k < s->k; k++)
            expected += number(a, i / s->n, k) * number(b, i % s->n, k);
        check_close(s, i, (double)o->c[i], expected);
    }
    if (a->sums == NULL)
        return;
    const float *before = device_test_random(test, TYPE_FP32, s->m, 1, 3);
    for (int64_t row = 0; row < s->m; row++) {
        double expected = (double)before[row];
        for (int64_t k = 0; k < s->k; k++)
            expected += number(a, row, k);
        check_close(s, row, (double)a->sums[row], expected);
    }
}

static void check_shape(const struct shape *s)
{
    struct operands reference, other;
    DEVICE_TEST(first, 1);
    run(&first, &reference, s, false);
    for (int threads = 1; threads <= 3; threads++) {
        DEVICE_TEST(test, threads);
        run(&test, &other, s, threads > 1);
        device_test_equal(&first, &test);
    }
    check(&reference, s, &first);
}

TEST(sizes_around_a_tile)
{
    static const int64_t sizes[] = {1, 16, 17, 33, 70};
    enum { SIZES = sizeof sizes / sizeof sizes[0] };
    for (int i = 0; i < SIZES * SIZES * SIZES; i++)
        check_shape(&(struct shape){sizes[i % SIZES], sizes[i / SIZES % SIZES],
                                    sizes[i / SIZES / SIZES], i % LAYOUTS});
}

TEST(many_blocks)
{
    for (int layout = 0; layout < LAYOUTS; layout++)
        check_shape(&(struct shape){300, 170, 400, layout});
}

/* Several blocks of columns. */
TEST(more_than_the_workspace)
{
    check_shape(&(struct shape){3, 4200, 1030, ALONG_A + ALONG_B});
    check_shape(&(struct shape){3, 4200, 1030, ALONG_A});
}

static atomic_int calls;

static void count_and_multiply(const struct tile_block *block)
{
    calls++;
    tile_kernels_amx_emulated.product->multiply(block);
}

/* oneDNN can give the same bits, so calls of the tile kernels are counted. */
TEST(layers_use_tiles_unless_they_are_too_wide)
{
    enum { ROWS = 40, WIDER = TILE_PRODUCT_WIDEST };
    static struct tile_product_kernels product;
    static struct tile_kernels tiles;
    DEVICE_TEST(test, 2);
    const uint16_t *x = device_test_random(&test, TYPE_BF16, ROWS, 1, 1);
    const uint16_t *dy = device_test_random(&test, TYPE_BF16, ROWS * WIDER, 1, 2);
    float *dweight = device_test_zeros(&test, TYPE_FP32, WIDER);
    product = *tile_kernels_amx_emulated.product;
    product.multiply = count_and_multiply;
    tiles = tile_kernels_amx_emulated;
    tiles.product = &product;
    ((struct cpu_device *)test.device)->tiles = &tiles;
    for (int64_t out = WIDER / 2; out <= WIDER; out *= 2) {
        calls = 0;
        DEVICE_RUN(&test, linear_backward, .type = TYPE_BF16, .rows = ROWS, .in = 1, .out = out,
                   .rows_per_sample = 1, .x = x, .dy = dy, .dweight = dweight, .overwrite = true);
        assert_int_equal(calls > 0, out < WIDER);
    }
}

int main(void)
{
    setenv("VITTRAIN_CPU", "amx-emulated", 1);
    return TESTS_RUN();
}
