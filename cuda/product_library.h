// SPDX-License-Identifier: BSD-3-Clause
/* The library of matrix products behind product.cu. product_cublaslt.cu calls cuBLASLt;
 * test/emulation/product.cpp computes the same on the host, so that everything above this interface
 * runs in tests. */
#ifndef VITTRAIN_CUDA_PRODUCT_LIBRARY_H
#define VITTRAIN_CUDA_PRODUCT_LIBRARY_H

#include "product.h"

/* Everything that an algorithm depends on; compared as bytes. */
struct product_shape {
    int64_t type, c_type, rows, columns, inner, a_transposed, b_transposed, adds, in_place,
        epilogue, alignment, tf32;
};

struct product_library;
struct product_descriptors; /* the library's description of a shape */

struct product_library *product_library_open(void);
void product_library_close(struct product_library *library);
/* Name and version of the library, for which algorithms are valid. */
void product_library_name(char *text, size_t size);

struct product_descriptors *product_descriptors_open(const struct product_shape *shape);
void product_descriptors_close(struct product_descriptors *descriptors);

/* Write the algorithms that the library proposes for the shape with at most WORKSPACE_PRODUCTS
 * bytes, the best one first, at most `most`. Their summation order is fixed. Return their number;
 * if it is 0, *reason is the library's reason. */
int product_algorithms(struct product_library *library,
                       const struct product_descriptors *descriptors, struct choice *algorithms,
                       int most, const char **reason);
/* True if the library can use this algorithm for the shape. */
bool product_algorithm_fits(struct product_library *library,
                            const struct product_descriptors *descriptors,
                            const struct choice *algorithm);

/* Queue the product with its result in `c` instead of product->c. Return NULL, or the library's
 * reason why nothing was queued. */
const char *product_queue(struct product_library *library, struct stream *stream,
                          struct product_descriptors *descriptors, const struct choice *algorithm,
                          const struct product *product, void *c);

#endif
