/* The products of product.h on the host, for the emulated GPU: the same arithmetic, sums in fp32.
 * It runs in the stream's turn. */
#include "product.h"
#include "internal.h"
#include "value.h"

struct products {
    bool tf32;
};

struct products *products_open(struct cuda_device *)
{
    return new products{false};
}

/* There is one algorithm only, so none to remember. */
void products_set(struct products *products, bool tf32, const char *)
{
    products->tf32 = tf32;
}

void products_close(struct products *products)
{
    delete products;
}

static void must_hold(const struct product *p, const void *values, int64_t count,
                      enum data_type type, const char *which)
{
    size_t size = type_size(type);
    if (count > 0 && !memory_is_known(values, (size_t)count * size))
        emulated_fault("operand %s of a product of %lld x %lld x %lld is not in device memory",
                       which, (long long)p->rows, (long long)p->columns, (long long)p->inner);
    /* The library wants 16 bytes for its fast kernels; less is legal. */
    if ((uintptr_t)values % size != 0)
        emulated_fault("operand %s of a product is not aligned", which);
}

/* c is written while operands are still read. */
static void must_not_overlap(const struct product *p, const void *values, int64_t count,
                             const char *which)
{
    uintptr_t begin = (uintptr_t)values, c = (uintptr_t)p->c;
    if (begin < c + (size_t)(p->rows * p->columns) * type_size(p->c_type) &&
        c < begin + (size_t)count * type_size(p->type))
        emulated_fault("operand %s of a product lies in its result", which);
}

static float element_finish(const struct product *p, int64_t row, int64_t column, float sum)
{
    if (p->epilogue == EPILOGUE_BIAS)
        sum += value_at(p->c_type, p->bias, column);
    if (p->add != NULL)
        sum += value_at(p->c_type, p->add, row * p->columns + column);
    return sum;
}

/* Both operands as floats, `inner` innermost: the loop over it is then one that compilers like. */
static float *operand_spread(enum data_type type, const void *values, int64_t outer, int64_t inner,
                             bool inner_first)
{
    float *spread = new float[(size_t)(outer * inner) + 1];
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++)
            spread[o * inner + i] =
                value_at(type, values, inner_first ? i * outer + o : o * inner + i);
    return spread;
}

/* In eight sums, which is faster and rounds less than one: as on a GPU, whose sums are many. */
static float sum_of_products(const float *left, const float *right, int64_t count)
{
    float sums[8] = {};
    int64_t i = 0;
    for (; i + 8 <= count; i += 8)
        for (int lane = 0; lane < 8; lane++)
            sums[lane] += left[i + lane] * right[i + lane];
    for (; i < count; i++)
        sums[i % 8] += left[i] * right[i];
    float low = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    return low + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

/* To nearest, as the hardware's conversion to TF32: 10 bits are kept. */
static void tf32_round(float *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = __float_as_uint(values[i]);
        if ((bits & 0x7f800000) != 0x7f800000)
            values[i] = __uint_as_float((bits + 0x1000) & 0xffffe000);
    }
}

static void product_compute(const struct product *p, bool tf32)
{
    float *a = operand_spread(p->type, p->a, p->rows, p->inner, p->a_transposed);
    float *b = operand_spread(p->type, p->b, p->columns, p->inner, !p->b_transposed);
    if (tf32 && p->type == TYPE_FP32) {
        tf32_round(a, p->rows * p->inner);
        tf32_round(b, p->columns * p->inner);
    }
    for (int64_t row = 0; row < p->rows; row++) {
        const float *left = a + row * p->inner;
        for (int64_t column = 0; column < p->columns; column++) {
            float sum = sum_of_products(left, b + column * p->inner, p->inner);
            value_put(p->c_type, p->c, row * p->columns + column,
                      element_finish(p, row, column, sum));
        }
        if (p->epilogue == EPILOGUE_BIAS_GRADIENT_A) {
            float sum = 0;
            for (int64_t i = 0; i < p->inner; i++)
                sum += left[i];
            ((float *)p->bias)[row] = sum;
        }
    }
    delete[] a;
    delete[] b;
}

/* As a library that wants operands aligned for its epilogues, so that tests see both answers. */
bool product_possible(struct stream *, const struct product *p)
{
    return p->epilogue != EPILOGUE_BIAS_GRADIENT_A || (p->rows % 8 == 0 && p->columns % 8 == 0);
}

void product_run(struct stream *stream, const struct product *product)
{
    const struct product p = *product;
    bool sums_a = p.epilogue == EPILOGUE_BIAS_GRADIENT_A;
    ENSURE(p.rows > 0 && p.columns > 0 && p.inner > 0, "a product without a size");
    ENSURE(product_possible(stream, product), "a product that is not possible");
    ENSURE((p.epilogue != EPILOGUE_NONE) == (p.bias != NULL), "a product's bias");
    must_hold(&p, p.a, p.rows * p.inner, p.type, "a");
    must_hold(&p, p.b, p.inner * p.columns, p.type, "b");
    must_hold(&p, p.c, p.rows * p.columns, p.c_type, "c");
    if (p.add != NULL)
        must_hold(&p, p.add, p.rows * p.columns, p.c_type, "add");
    if (p.bias != NULL)
        must_hold(&p, p.bias, sums_a ? p.rows : p.columns, sums_a ? TYPE_FP32 : p.c_type, "bias");
    must_not_overlap(&p, p.a, p.rows * p.inner, "a");
    must_not_overlap(&p, p.b, p.inner * p.columns, "b");
    bool tf32 = stream->cuda->products->tf32;
    emulated_enqueue(stream->handle, "product", [=]() { product_compute(&p, tf32); });
}
