/* What operations would do, without doing it: a backend in front of the device's own, which counts
 * each operation's products and the bytes that it must read and write at least. So arithmetic about
 * a step comes from the very calls that a step makes. */
#ifndef VITTRAIN_DEVICE_COUNT_H
#define VITTRAIN_DEVICE_COUNT_H

#include "device/operations.h"

/* One kernel of an operation, as the GPU's backend launches them. family: what kind of kernel it is
 * ("product", "gelu"; the operation's name where an operation is one kernel). result: what it
 * writes ("dx"), "" where the family says it. bytes: what it reads and writes at least. */
struct counted_kernel {
    const char *family, *result;
    double flops, bytes;
};

enum { COUNTED_KERNELS = 6 };

/* One operation. flops: multiplications and additions of its products, those that attention's
 * backward pass computes anew not counted (as in model.h's flops_per_image). bytes: each tensor
 * once, as if caches held the rest. size: what a product is like: rows, columns, and what is summed
 * over; of attention heads of all samples, tokens, width of a head; of what multiplies no matrices
 * bytes, 1, 1. */
struct counted {
    enum operation operation;
    enum data_type type;
    double flops, bytes;
    double size[3];
    struct counted_kernel kernel[COUNTED_KERNELS]; /* in the order in which they are launched */
    int kernels;                                   /* 0: part of another kernel, or idle */
};

/* Who is told, in the order of the calls. range: a phase or unit begins (its name) or ends (NULL).
 */
struct counter {
    void (*operation)(struct counter *counter, const struct counted *counted);
    void (*range)(struct counter *counter, const char *name);
};

/* From here on the device's operations are counted and do nothing; neither do its events and
 * streams. Memory is not looked at. One device of a process can be counted at a time. */
void count_open(struct device *device, struct counter *counter);
void count_close(struct device *device);

/* Fill in the kernels of an operation that `args` describe. */
void count_kernels(struct counted *counted, const void *args);

#endif
