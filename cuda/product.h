/* Matrix products: the thin line between our operations and the library. product_cublaslt.cu calls
 * cuBLASLt; emulation/product.cpp does the same arithmetic on the host, so that everything above
 * this line (which operand is transposed, what is added, in which order) runs in tests. */
#ifndef VITTRAIN_CUDA_PRODUCT_H
#define VITTRAIN_CUDA_PRODUCT_H

#include "cuda.h"

/* What is done to a product's elements before they are stored. */
enum product_epilogue {
    EPILOGUE_NONE,
    EPILOGUE_BIAS,           /* + bias[column] */
    EPILOGUE_GELU,           /* auxiliary = that sum, c = gelu(it), tanh's form */
    EPILOGUE_GELU_GRADIENT,  /* c = product * gelu'(auxiliary), tanh's form */
    EPILOGUE_BIAS_GRADIENT_A /* bias[row] = sum of row of op(a) over `inner` */
};

/* c[rows, columns] = op(a) . op(b) + (add ? c : 0), row-major, dense; op(a) is [rows, inner]: `a`
 * is stored so, or with a_transposed as [inner, rows]; op(b) is [inner, columns], with b_transposed
 * stored as [columns, inner]. Sums are in fp32 (TF32 where products_set_tf32 allows it and the
 * type is fp32). */
struct product {
    enum data_type type;   /* of a and b */
    enum data_type c_type; /* type or fp32 */
    int64_t rows, columns, inner;
    bool a_transposed, b_transposed, add;
    const void *a, *b;
    void *c;
    enum product_epilogue epilogue;
    void *bias;      /* EPILOGUE_BIAS, _GELU: [columns] of c_type; _BIAS_GRADIENT_A: [rows] fp32 */
    void *auxiliary; /* GELU's: [rows, columns] of c_type */
};

struct products *products_open(struct cuda_device *cuda);
void products_close(struct products *products);
void product_run(struct stream *stream, const struct product *product);

#endif
