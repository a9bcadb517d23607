/* The products of product.h on the host, for the emulated GPU: the same arithmetic, sums in fp32 in
 * the order of `inner`. It runs in the stream's turn. */
#include "product.h"
#include "internal.h"

#include "number.h"

struct products {
    struct cuda_device *cuda;
};

struct products *products_open(struct cuda_device *cuda)
{
    return new products{cuda};
}

void products_close(struct products *products)
{
    delete products;
}

static float value_at(enum data_type type, const void *values, int64_t index)
{
    if (type == TYPE_FP32)
        return ((const float *)values)[index];
    if (type == TYPE_BF16)
        return number_load(((const struct bf16 *)values)[index]);
    return number_load(((const struct fp16 *)values)[index]);
}

static void value_put(enum data_type type, void *values, int64_t index, float value)
{
    if (type == TYPE_FP32)
        ((float *)values)[index] = value;
    else if (type == TYPE_BF16)
        number_store(&((struct bf16 *)values)[index], value);
    else
        number_store(&((struct fp16 *)values)[index], value);
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

static float gelu(float x)
{
    return 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}

static float gelu_slope(float x)
{
    float inside = 0.7978845608f * (x + 0.044715f * x * x * x), t = tanhf(inside);
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.7978845608f * (1 + 0.134145f * x * x);
}

static float element_finish(const struct product *p, int64_t row, int64_t column, float sum)
{
    int64_t at = row * p->columns + column;
    if (p->add)
        sum += value_at(p->c_type, p->c, at);
    if (p->epilogue == EPILOGUE_BIAS || p->epilogue == EPILOGUE_GELU)
        sum += value_at(p->c_type, p->bias, column);
    if (p->epilogue == EPILOGUE_GELU) {
        value_put(p->c_type, p->auxiliary, at, sum);
        sum = gelu(sum);
    }
    if (p->epilogue == EPILOGUE_GELU_GRADIENT)
        sum *= gelu_slope(value_at(p->c_type, p->auxiliary, at));
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

static void product_compute(const struct product *p)
{
    float *a = operand_spread(p->type, p->a, p->rows, p->inner, p->a_transposed);
    float *b = operand_spread(p->type, p->b, p->columns, p->inner, !p->b_transposed);
    for (int64_t row = 0; row < p->rows; row++) {
        const float *left = a + row * p->inner;
        for (int64_t column = 0; column < p->columns; column++) {
            const float *right = b + column * p->inner;
            float sum = 0;
            for (int64_t i = 0; i < p->inner; i++)
                sum += left[i] * right[i];
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

void product_run(struct stream *stream, const struct product *product)
{
    const struct product p = *product;
    if (p.rows == 0 || p.columns == 0)
        return;
    must_hold(&p, p.a, p.rows * p.inner, p.type, "a");
    must_hold(&p, p.b, p.inner * p.columns, p.type, "b");
    must_hold(&p, p.c, p.rows * p.columns, p.c_type, "c");
    if (p.bias != NULL)
        must_hold(&p, p.bias, p.epilogue == EPILOGUE_BIAS_GRADIENT_A ? p.rows : p.columns,
                  p.epilogue == EPILOGUE_BIAS_GRADIENT_A ? TYPE_FP32 : p.c_type, "bias");
    if (p.auxiliary != NULL)
        must_hold(&p, p.auxiliary, p.rows * p.columns, p.c_type, "auxiliary");
    emulated_enqueue(stream->handle, "product", [=]() { product_compute(&p); });
}
