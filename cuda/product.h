// SPDX-License-Identifier: BSD-3-Clause
/* Matrix products as used by operations. A shape gets a plan at its first product, with the
 * library's algorithm that was measured to be fastest (product.cu). */
#ifndef VITTRAIN_CUDA_PRODUCT_H
#define VITTRAIN_CUDA_PRODUCT_H

#include "cuda.h"

extern "C" {
#include "device/algorithm_choices.h"
}

/* Epilogue computed by the library. */
enum product_epilogue {
    EPILOGUE_NONE,
    EPILOGUE_BIAS,           /* + bias[column] */
    EPILOGUE_BIAS_GRADIENT_A /* bias[row] = sum of row of op(a) over `inner`; of product_run_sums */
};

/* c[rows, columns] = op(a) . op(b) + add, row-major, dense. op(a) is [rows, inner], stored as
 * [inner, rows] if a_transposed; op(b) is [inner, columns], stored as [columns, inner] if
 * b_transposed. No size is 0. Sums are in fp32. */
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
/* device.h: settings_set, choices_export, choices_are_new, choices_adopt. */
void products_set(struct products *products, bool tf32, const char *cache);
char *products_export(struct products *products);
bool products_are_new(struct products *products);
bool products_adopt(struct products *products, const char *choices);
/* The choices of this device, for operations that are no products (variant.h), too. */
struct choices *products_choices(struct products *products);

void product_run(struct stream *stream, const struct product *product);

/* Run a product with a_transposed and no epilogue, and compute the sum of each row of op(a) over
 * `inner` into sums[row], accumulating if product->add is not NULL. The sums are computed by the
 * library's epilogue if that is supported and faster, else by columns_sum. */
void product_run_sums(struct stream *stream, const struct product *product, float *sums);

#endif
