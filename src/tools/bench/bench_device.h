// SPDX-License-Identifier: BSD-3-Clause
/* Interface between the files of `bench device`. */
#ifndef VITTRAIN_TOOLS_BENCH_BENCH_DEVICE_H
#define VITTRAIN_TOOLS_BENCH_BENCH_DEVICE_H

#include "device/cpu_convolution_plan.h"
#include "device/cpu_product.h"
#include "tools/bench/bench_machine.h"

struct device_bench {
    struct machine_bench machine; /* first: trials cast its address to device_bench */
    struct product_cache *products;
    struct convolution_cache *convolutions;
    bool cpu;
    double peak; /* FLOP/s; 0: no shares of the peak are written */
};

/* Measure an operation and write its rows. alone: the same computation by oneDNN, measured in turn,
 * or NULL. */
void device_operation_measure(struct device_bench *self, const char *model, const char *work,
                              machine_trial *run, machine_trial *alone, const int64_t *size,
                              struct error *error);

struct device_images {
    int64_t batch, pixels; /* pixels: height and width */
};

/* Measure the convolutions of the model `name` on a CPU. */
void device_convolutions_measure(struct device_bench *self, const char *name,
                                 const struct device_images *images, struct error *error);

#endif
