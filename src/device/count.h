// SPDX-License-Identifier: BSD-3-Clause
/* A backend that counts operations instead of executing them: matrix products, FLOPs and the
 * minimum number of bytes read and written. The cost model is thereby computed from the same calls
 * that a training step makes. */
#ifndef VITTRAIN_DEVICE_COUNT_H
#define VITTRAIN_DEVICE_COUNT_H

#include "device/device.h"

/* One kernel of an operation, as launched by the GPU backend. family: type of kernel ("product",
 * "gelu"; the operation's name if the operation is one kernel). result: the tensor written ("dx"),
 * "" if implied by the family. bytes: minimum read and written. */
struct counted_kernel {
    const char *family, *result;
    double flops, bytes;
};

enum { COUNTED_KERNELS = 6 };

/* One operation. flops: multiplications and additions of its matrix products, without those that
 * attention's backward pass recomputes (as in model.h's flops_per_image). bytes: each tensor once,
 * assuming an ideal cache. size: of a matrix product: rows, columns, inner dimension; of attention:
 * heads of all samples, tokens, head dimension; otherwise: bytes, 1, 1. */
struct counted {
    enum device_operation operation;
    enum data_type type;
    double flops, bytes;
    double size[3];
    double drawn; /* elements whose dropout is drawn in the operation */
    struct counted_kernel kernel[COUNTED_KERNELS]; /* in launch order */
    int kernels;                                   /* 0: fused into another kernel */
};

/* Callback for each operation, in the order of the calls. */
struct counter {
    void (*operation)(struct counter *counter, const struct counted *counted);
};

/* Replace the device's operations, events and streams by functions that only count. Memory is not
 * accessed. Only one device per process can be counted at a time. */
void count_open(struct device *device, struct counter *counter);
void count_close(struct device *device);

#endif
