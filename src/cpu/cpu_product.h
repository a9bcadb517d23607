// SPDX-License-Identifier: BSD-3-Clause
/* Matrix products of the CPU backend by oneDNN: c = a . b or c += a . b, usually on one thread. The
 * caller splits a large product over threads, so that each thread can continue with its part of the
 * result in the cache. Only cpu_product.c and cpu_convolution_plan.c use oneDNN. */
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
    int threads; /* threads of oneDNN: 0 and 1 mean one, required inside a parallel region */
};

enum { PRODUCT_SCRATCH = 1 << 20 };

struct product_cache;
struct product_plan;

struct product_cache *product_cache_open(int threads);
void product_cache_close(struct product_cache *cache);

/* Return the plan for a product of this shape; it is created at the first call. Not to be called in
 * a parallel region. */
const struct product_plan *product_plan(struct product_cache *cache, const struct product *product);

/* Run on the calling thread, which is thread number `thread` of the device. scratch:
 * PRODUCT_SCRATCH bytes. */
void product_run(const struct product_plan *plan, int thread, const void *a, const void *b,
                 float *c, void *scratch);

/* Return oneDNN's name of the implementation: "gemm:jit", never "ref:any". */
const char *product_implementation(const struct product_plan *plan);

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

typedef void product_run_once(void *context);
/* Repeat `run` for 0.02 s of CPU time and at most 0.25 s. Return the best rate, in operations per
 * second of the thread's CPU time, which other processes on its core do not lengthen. */
double product_rate(product_run_once *run, void *context, double operations);

/* Measure the operations per second of one thread in products of this type, in 0.05 s of CPU time
 * and at most 0.5 s. */
double product_measure_peak(struct product_cache *cache, enum data_type type);

#endif
