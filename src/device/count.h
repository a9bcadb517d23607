/* What operations would do, without doing it: a backend in front of the device's own, which counts
 * each operation's products and the bytes that it must read and write at least. So arithmetic about
 * a step comes from the very calls that a step makes. */
#ifndef VITTRAIN_DEVICE_COUNT_H
#define VITTRAIN_DEVICE_COUNT_H

#include "device/operations.h"

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

#endif
