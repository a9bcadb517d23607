// SPDX-License-Identifier: BSD-3-Clause
/* The CPU's matrix products against double precision, for all layouts of operands; oneDNN must
 * never use its reference loops. */

#include <dlfcn.h>
#include <dnnl.h>

#include "cpu/cpu_product.h"
#include "device_test.h"
#include "test.h"

struct operands {
    void *a, *b;
    float *c, *before;
    void *scratch;
};

static int64_t elements(int64_t rows, int64_t columns, int64_t stride)
{
    return (rows - 1) * stride + columns;
}

static struct operands operands_make(struct device_test *test, const struct product *p)
{
    const int64_t c_count = elements(p->m, p->n, p->c_stride);
    return (struct operands){
        .a = device_test_random(test, p->type,
                                p->a_transposed ? elements(p->k, p->m, p->a_stride)
                                                : elements(p->m, p->k, p->a_stride),
                                1, 1),
        .b = device_test_random(test, p->type,
                                p->b_transposed ? elements(p->n, p->k, p->b_stride)
                                                : elements(p->k, p->n, p->b_stride),
                                1, 2),
        .c = device_test_random(test, TYPE_FP32, c_count, 1, 3),
        .before = device_test_random(test, TYPE_FP32, c_count, 1, 3),
        .scratch = device_test_zeros(test, TYPE_FP32, PRODUCT_SCRATCH / 4)};
}

static double expected_at(const struct product *p, const struct operands *o, int64_t row,
                          int64_t column)
{
    double sum = p->accumulate ? o->before[row * p->c_stride + column] : 0;
    for (int64_t k = 0; k < p->k; k++) {
        const int64_t a = p->a_transposed ? k * p->a_stride + row : row * p->a_stride + k;
        const int64_t b = p->b_transposed ? column * p->b_stride + k : k * p->b_stride + column;
        sum += device_test_value(p->type, o->a, a) * device_test_value(p->type, o->b, b);
    }
    return sum;
}

static void check(const struct product *p)
{
    DEVICE_TEST(test, 1);
    struct onednn *onednn = onednn_open(1);
    const struct operands o = operands_make(&test, p);
    const struct product_plan *plan = product_plan(onednn, p);
    assert_ptr_equal(plan, product_plan(onednn, p));
    product_run(plan, 0, o.a, o.b, o.c, o.scratch);
    for (int64_t i = 0; i < elements(p->m, p->n, p->c_stride); i++) {
        const int64_t row = i / p->c_stride, column = i % p->c_stride;
        const bool outside = column >= p->n;
        const double expected = outside ? (double)o.before[i] : expected_at(p, &o, row, column);
        const double tolerance = outside ? 0 : 1e-6 * sqrt((double)p->k) * 4;
        if (fabs(o.c[i] - expected) > tolerance)
            fail_msg("row %lld column %lld is %g, not %g", (long long)row, (long long)column,
                     (double)o.c[i], expected);
    }
    onednn_close(onednn);
}

TEST(every_way_to_lie)
{
    for (int way = 0; way < 16; way++) {
        const bool a = way & 1, b = way & 2, accumulate = way & 4, gaps = way & 8;
        struct product p = DEVICE_ARGS(
            product, .m = 37, .n = 50, .k = 23, .a_transposed = a, .b_transposed = b,
            .accumulate = accumulate, .a_stride = (a ? 37 : 23) + (gaps ? 5 : 0),
            .b_stride = (b ? 23 : 50) + (gaps ? 3 : 0), .c_stride = 50 + (gaps ? 7 : 0));
        check(&p);
        if (product_multiplies_bf16()) {
            p.type = TYPE_BF16;
            check(&p);
        }
    }
}

TEST(other_sizes)
{
    check(&(struct product){.m = 1, .n = 1, .k = 1, .a_stride = 1, .b_stride = 1, .c_stride = 1});
    check(&DEVICE_ARGS(product, .m = 4, .n = 10, .k = 768, .a_stride = 768, .b_stride = 768,
                       .c_stride = 10, .b_transposed = true));
    check(&DEVICE_ARGS(product, .m = 300, .n = 272, .k = 260, .a_stride = 260, .b_stride = 1024,
                       .c_stride = 272, .accumulate = true));
}

/* Replaces oneDNN's function, to see which implementation it creates. */
dnnl_status_t dnnl_primitive_create(dnnl_primitive_t *primitive,
                                    const_dnnl_primitive_desc_t description)
{
    dnnl_status_t (*create)(dnnl_primitive_t *, const_dnnl_primitive_desc_t);
    const char *name = "";
    dnnl_primitive_desc_query(description, dnnl_query_impl_info_str, 0, (void *)&name);
#ifdef __x86_64__
    assert_null(strstr(name, "ref"));
#endif
    *(void **)&create = dlsym(RTLD_NEXT, "dnnl_primitive_create");
    return create(primitive, description);
}

static int library_major = DNNL_VERSION_MAJOR;

/* Replaces oneDNN's function. */
const dnnl_version_t *dnnl_version(void)
{
    static dnnl_version_t version = {.minor = 6, .patch = 3};
    version.major = library_major;
    return &version;
}

TEST(library_of_other_headers_is_refused)
{
    struct error error = {0};
    struct device_limits limits;
    struct device *device = device_cpu.open(0, 1, &error);
    char expected[32];
    device_cpu.limits(device, &limits);
    snprintf(expected, sizeof expected, "oneDNN %d.6.3", library_major);
    assert_string_equal(limits.library, expected);
    device_cpu.close(device);
    library_major++;
    assert_null(device_cpu.open(0, 1, &error));
    library_major--;
    snprintf(expected, sizeof expected, "headers of oneDNN %d:", library_major);
    assert_has(error.text, expected);
}

TEST_MAIN()
