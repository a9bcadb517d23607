// SPDX-License-Identifier: BSD-3-Clause
/* Matrix products of the CPU backend by oneDNN: c = a . b or c += a . b on one thread. The caller
 * splits a large product over threads, so that each thread can continue with its part of the result
 * in the cache. Only cpu_product.c and cpu_convolution_plan.c use oneDNN. */
#ifndef VITTRAIN_CPU_CPU_PRODUCT_H
#define VITTRAIN_CPU_CPU_PRODUCT_H

#include "device/device.h"

/* a is [m, k], or [k, m] transposed; b is [k, n], or [n, k] transposed; c is [m, n] fp32. stride:
 * elements from one row to the next in memory. */
struct product {
    enum data_type type; /* of a and b: TYPE_FP32, or TYPE_BF16 if product_multiplies_bf16 */
    int64_t m, n, k;
    int64_t a_stride, b_stride, c_stride;
    bool a_transposed, b_transposed;
    bool accumulate;
};

enum { PRODUCT_SCRATCH = 1 << 20 };

struct onednn;
struct product_plan;

/* Open oneDNN for a device with some threads. It keeps all plans of products and convolutions. */
struct onednn *onednn_open(int threads);
void onednn_close(struct onednn *onednn);

/* Return the plan for a product of this shape; it is created at the first call. Not to be called in
 * a parallel region. */
const struct product_plan *product_plan(struct onednn *onednn, const struct product *product);

/* Run on the calling thread, which is thread number `thread` of the device. scratch:
 * PRODUCT_SCRATCH bytes. */
void product_run(const struct product_plan *plan, int thread, const void *a, const void *b,
                 float *c, void *scratch);

/* Write the library's name and version: "oneDNN 2.6.0". */
void product_library(char *name, size_t size);

/* Bytes that the library allocates for generated machine code in the first step. Without them, the
 * resident memory exceeded the plan by up to 6.7 MiB with oneDNN 3.12, and by 3.1 MiB with 2.6
 * (ResNet-50 with evaluation, bf16 with AMX). */
enum { PRODUCT_LIBRARY_BYTES = 8 << 20 };

/* Fail if the interface of the loaded library is not that of the headers. */
bool product_library_check(struct error *error);

/* True if oneDNN multiplies bf16: with AVX512_BF16 or AMX, unless ONEDNN_MAX_CPU_ISA excludes
 * them. */
bool product_multiplies_bf16(void);

#endif
