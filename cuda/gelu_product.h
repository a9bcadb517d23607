// SPDX-License-Identifier: BSD-3-Clause
/* Matrix products with GELU in the library's kernel: the interface between linear.cu and the
 * library. gelu_cudnn.cu calls cuDNN; test/emulation/product.cpp computes the same on the host. The
 * library is opened by the first call. */
#ifndef VITTRAIN_CUDA_GELU_PRODUCT_H
#define VITTRAIN_CUDA_GELU_PRODUCT_H

#include "cuda.h"

/* Tensors are row-major, dense and aligned to 16 bytes; columns and inner are multiples of 8. Sums
 * are in fp32. */
struct gelu_product {
    enum data_type type; /* bf16 or fp16 */
    bool tanh;           /* the tanh approximation of GELU */
    bool gradient; /* false: pre = a . b^T + bias, c = gelu(pre); true: c = a . b * gelu'(pre) */
    int64_t rows, columns, inner;
    const void *a;    /* [rows, inner] */
    const void *b;    /* [columns, inner]; with gradient [inner, columns] */
    const void *bias; /* [columns]; with gradient NULL */
    void *pre;        /* [rows, columns]; with gradient only read */
    void *c;          /* [rows, columns] */
};

/* The library has several plans for a product; the fastest must be measured. */
enum { GELU_PLANS = 2 };

/* Elements of c from which on the time that a separate kernel takes justifies the time to compile
 * the library's. */
int64_t gelu_product_least(void);

/* The library's version, on which plans depend. */
int gelu_product_version(void);

/* Queue the product by plan 0 <= number < GELU_PLANS. The first call of a shape compiles the plan,
 * unless the stream is being recorded. Return false if there is no such plan. */
bool gelu_product_queue(struct stream *stream, const struct gelu_product *product, int number);

#endif
