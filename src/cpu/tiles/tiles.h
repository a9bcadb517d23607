// SPDX-License-Identifier: BSD-3-Clause
/* What the CPU backend computes in bf16 with tiles (tile.h): matrix products, attention, and weight
 * gradients of convolutions. Each kernels_SUBJECT.c of this folder is compiled twice: with
 * -DKERNELS=amx for processors with AMX, and with -DKERNELS=amx_emulated for tests on any
 * processor, where plain C replaces the tile instructions. Shapes that an operation does not
 * support are computed without tiles. */
#ifndef VITTRAIN_CPU_TILES_TILES_H
#define VITTRAIN_CPU_TILES_TILES_H

#include "cpu/kernels.h"

struct cpu_device;

/* kernels_convolution.c */
struct tile_convolution_kernels {
    /* Return the bytes of workspace; 0 if the shape is not supported. */
    size_t (*workspace)(const struct convolution_shape *shape);
    /* Add the weight's gradient to args->dweight. Runs on all threads of the device. */
    void (*weight)(const struct cpu_device *cpu, const struct convolution_backward *args,
                   void *workspace);
};

/* Numbers of a packed tile: 16 lines of 32. */
enum { TILE_NUMBERS = 512 };

/* Two adjacent strips of an operand of a matrix product. A strip has 16 lines (rows of a, columns
 * of b) of k numbers, packed in tiles. Lines and numbers that are missing are packed as zeros. */
struct tile_strips {
    const uint16_t *from;     /* first number of the first line */
    int64_t lines, k, stride; /* lines: at most 32; stride: elements from one row to the next */
    int64_t step;             /* elements from the first packed strip to the second */
    bool along_k, of_b;       /* a row in memory is a line; packed as b, otherwise as a */
    float *sums;              /* [lines] += sums over k, or NULL; only of a, without along_k */
};

/* Two strips of a times `pairs` pairs of strips of b. a_step, b_step: distances between strips. */
struct tile_block {
    const uint16_t *a, *b;
    float *c; /* [32, 32 * pairs] */
    int64_t a_step, b_step, c_stride, pairs, tiles;
    bool begin; /* c starts at 0 */
};

/* kernels_product.c */
struct tile_product_kernels {
    void (*pack)(const struct tile_strips *strips, uint16_t *tiles);
    void (*multiply)(const struct tile_block *block);
};

struct tile_kernels {
    const char *name; /* value of VITTRAIN_CPU */
    const struct tile_convolution_kernels *convolution;
    const struct tile_product_kernels *product;
    const struct attention_kernels *attention; /* heads of 32, 64, 96 and 128 numbers */
};

#ifdef KERNELS
extern const struct tile_convolution_kernels KERNEL(tile_convolution_kernels);
extern const struct tile_product_kernels KERNEL(tile_product_kernels);
extern const struct attention_kernels KERNEL(tile_attention_kernels);
#endif

/* tile_kernels_amx is compiled in if HAVE_KERNELS_AMX is defined (config.h). */
extern const struct tile_kernels tile_kernels_amx, tile_kernels_amx_emulated;

/* ---- Products of matrices on all threads of a device (product.c). Each element of the result is
 * summed in the order of k, so its bits do not depend on threads or block sizes. */

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
enum { TILE_PRODUCT_WIDEST = 131008 };
void tile_product_run(const struct cpu_device *cpu, const struct tile_product *product);

/* Return the largest k whose packed operands fit into the workspace. */
int64_t tile_product_depth(const struct tile_product *product);

#endif
