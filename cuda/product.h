/* Matrix products: the thin line between our operations and the library. product_cublaslt.cu calls
 * cuBLASLt; emulation/product.cpp does the same arithmetic on the host, so that everything above
 * this line (which operand is transposed, what is added, in which order) runs in tests. */
#ifndef VITTRAIN_CUDA_PRODUCT_H
#define VITTRAIN_CUDA_PRODUCT_H

#include "cuda.h"

/* What else the product does. */
enum product_epilogue {
    EPILOGUE_NONE,
    EPILOGUE_BIAS,           /* + bias[column] */
    EPILOGUE_BIAS_GRADIENT_A /* bias[row] = sum of row of op(a) over `inner` */
};

/* c[rows, columns] = op(a) . op(b) + add, row-major, dense; op(a) is [rows, inner]: `a` is stored
 * so, or with a_transposed as [inner, rows]; op(b) is [inner, columns], with b_transposed stored as
 * [columns, inner]. No size is 0. Sums are in fp32. */
struct product {
    enum data_type type;   /* of a and b */
    enum data_type c_type; /* type or fp32 */
    int64_t rows, columns, inner;
    bool a_transposed, b_transposed;
    const void *a, *b;
    const void *add; /* [rows, columns] of c_type, or NULL; may be c */
    void *c;
    enum product_epilogue epilogue;
    void *bias; /* EPILOGUE_BIAS: [columns] of c_type; _BIAS_GRADIENT_A: [rows] fp32 */
};

struct products *products_open(struct cuda_device *cuda);
void products_close(struct products *products);
/* device.h, products_set. */
void products_set(struct products *products, bool tf32, const char *cache);
/* Can the library do this one? Without an epilogue it always can. */
bool product_possible(struct stream *stream, const struct product *product);
void product_run(struct stream *stream, const struct product *product);

#endif
