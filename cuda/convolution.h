// SPDX-License-Identifier: BSD-3-Clause
/* Convolutions: the interface between our operations and the library, like product.h for matrix
 * products. convolution_cudnn.cu calls cuDNN; test/emulation/convolution.cpp computes the same on
 * the host. The library is opened by the first call about a convolution, so that a run without
 * convolutions does not load it. */
#ifndef VITTRAIN_CUDA_CONVOLUTION_H
#define VITTRAIN_CUDA_CONVOLUTION_H

#ifdef __cplusplus
extern "C" {
#endif

#include "device/device.h"

struct cuda_device;
struct engines;

enum convolution_part {
    CONVOLUTION_FORWARD, /* y = x * filter */
    CONVOLUTION_INPUTS,  /* x = gradient of the inputs; y is that of the outputs */
    CONVOLUTION_FILTERS, /* filter = gradient of the filters; y as above */
    CONVOLUTION_PARTS
};

/* All tensors have type `type` and are channels last, dense, and aligned to 16 bytes; sums are in
 * fp32. No size is 0. */
struct convolution {
    enum convolution_part part;
    enum data_type type;
    struct convolution_shape shape;
    void *x;         /* [batch, height, width, in] */
    void *filter;    /* [out, kernel, kernel, in] */
    void *y;         /* [batch, out height, out width, out] */
    void *workspace; /* convolutions_bytes(...) */
};

/* Return the maximum number of elements of a tensor in a convolution of several samples. */
int64_t convolutions_numbers(void);
/* Return the workspace in bytes for all parts of such a convolution, with this batch or a smaller
 * one. Selects the algorithms of this batch, so it must be called before the run. */
size_t convolutions_bytes(struct cuda_device *cuda, enum data_type type,
                          const struct convolution_shape *shape);
/* Allocates no device memory. Legal in stream capture if convolutions_bytes or an earlier call had
 * the same shape. */
void convolution_run(struct stream *stream, const struct convolution *convolution);
/* Close cuda->engines. NULL does nothing. */
void engines_close(struct engines *engines);

#ifdef __cplusplus
}
#endif

#endif
