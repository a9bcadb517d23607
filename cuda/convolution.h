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

/* A convolution of images (shape.images) with stride 2 is computed with stride 1 on folded images
 * (space to depth): pixel (2 r + i, 2 q + j) of the padded image, channel c, becomes pixel (r, q),
 * channel 8 i + 4 j + c. Taps of the filters are folded in the same way. Channels, taps and pixels
 * that do not exist are 0. So the library needs no copies with padding or with more channels. */
enum { FOLD_CHANNELS = 4, FOLDED_CHANNELS = 4 * FOLD_CHANNELS };

/* True if a convolution of images can be folded: convolution_reads_images of device.h. */
static inline bool convolution_folds(enum data_type type, const struct convolution_shape *s)
{
    return type != TYPE_FP32 && s->stride == 2 && s->in <= FOLD_CHANNELS;
}

/* Return the convolution of folded images, which has the same y. */
static inline struct convolution_shape convolution_folded(const struct convolution_shape *s)
{
    struct convolution_shape folded = *s;
    folded.kernel = (s->kernel + 1) / 2;
    folded.height = convolved_height(s) + folded.kernel - 1;
    folded.width = convolved_width(s) + folded.kernel - 1;
    folded.in = FOLDED_CHANNELS;
    folded.stride = 1;
    folded.padding = 0;
    folded.images = 0;
    return folded;
}

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
