// SPDX-License-Identifier: BSD-3-Clause
/* Products of bf16 matrices on all threads of a device with tiles (tile_kernels.h). Each element of
 * the result is summed in the order of k, so its bits do not depend on threads or block sizes. */
#ifndef VITTRAIN_DEVICE_CPU_PRODUCT_TILES_H
#define VITTRAIN_DEVICE_CPU_PRODUCT_TILES_H

#include "device/cpu.h"

/* An operand has lines (rows of a, columns of b) of k numbers each. along_k: a row in memory is a
 * line; otherwise it holds one number of each line. stride: elements from one row in memory to the
 * next. */
struct tile_operand {
    const uint16_t *from;
    int64_t lines, stride;
    bool along_k;
    float *sums; /* [lines] += sums over k, or NULL; only of a, without along_k */
};

/* Finish columns column..column+count of a row of the result. column: a multiple of 32. count: at
 * most TILE_PRODUCT_COLUMNS. buffer: scratch of TILE_PRODUCT_COLUMNS floats. */
typedef void tile_product_finish(const void *context, int64_t row, int64_t column, int64_t count,
                                 const float *sum, float *buffer);
enum { TILE_PRODUCT_COLUMNS = 768 };

struct tile_product {
    int64_t k;
    struct tile_operand a, b;
    tile_product_finish *finish;
    const void *context;
};

/* k must be at most tile_product_depth(product), which is at least 32 if both operands have at most
 * TILE_PRODUCT_WIDEST lines together. */
enum { TILE_PRODUCT_WIDEST = WORKSPACE_SHARED / 128 - 64 };
void tile_product_run(const struct cpu_device *cpu, const struct tile_product *product);

/* Return the largest k whose packed operands fit into the workspace. */
int64_t tile_product_depth(const struct tile_product *product);

/* Measure the operations per second of one thread, as product_measure_peak does. */
double tile_product_measure_peak(const struct cpu_device *cpu);

#endif
