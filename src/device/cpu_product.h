/* Matrix products of the CPU backend, by oneDNN: c = a . b or c += a . b, on one thread as a rule.
 * Who splits a large product over threads is the caller, so that each thread can go on with its
 * part of the result while it is in the cache. The files that know oneDNN are cpu_product.c and
 * cpu_convolution_plan.c. */
#ifndef VITTRAIN_DEVICE_CPU_PRODUCT_H
#define VITTRAIN_DEVICE_CPU_PRODUCT_H

#include "device/device.h"

/* a is [m, k], or [k, m] read transposed; b is [k, n], or [n, k] read transposed; c is [m, n] fp32.
 * `stride`: elements from a row to the next as it lies in memory. */
struct product {
    enum data_type type; /* of a and b: TYPE_FP32, or TYPE_BF16 where product_multiplies_bf16 */
    int64_t m, n, k;
    int64_t a_stride, b_stride, c_stride;
    bool a_transposed, b_transposed;
    bool accumulate;
    int threads; /* that oneDNN may use: 0 and 1 are one, as it must be in a parallel region */
};

enum { PRODUCT_SCRATCH = 1 << 20 };

struct product_cache;
struct product_plan;

struct product_cache *product_cache_open(int threads);
void product_cache_close(struct product_cache *cache);

/* The plan for a product of this shape, made when it is asked for the first time. Not in a parallel
 * region. */
const struct product_plan *product_plan(struct product_cache *cache, const struct product *product);

/* Runs on the calling thread, as its number `thread` of the device. scratch: PRODUCT_SCRATCH
 * bytes. */
void product_run(const struct product_plan *plan, int thread, const void *a, const void *b,
                 float *c, void *scratch);

/* oneDNN's name of how it does it: "gemm:jit", never "ref:any". */
const char *product_implementation(const struct product_plan *plan);

/* Does this processor multiply bf16 (AVX512_BF16 or AMX)? */
bool product_multiplies_bf16(void);

/* Operations a second that `threads` threads reach in a product of this type, measured in some ten
 * milliseconds. */
double product_measure_peak(struct product_cache *cache, enum data_type type, int threads);

#endif
