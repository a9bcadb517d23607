// SPDX-License-Identifier: BSD-3-Clause
/* The choice between oneDNN and tiles (cpu_product_tiles.h) for the bf16 products of a layer: the
 * faster one, measured at the first product of a shape (choices.h), or tiles if results must be
 * reproducible. Devices without tiles make no choices. */
#ifndef VITTRAIN_DEVICE_CPU_PRODUCT_CHOICE_H
#define VITTRAIN_DEVICE_CPU_PRODUCT_CHOICE_H

#include "device/cpu.h"

/* A product that can be repeated. */
struct product_trial {
    const char *operation;
    enum data_type type;
    int64_t rows, in, out, result_elements;
    /* Run the product. Its result, of any type, is written to scratch memory. */
    void (*run)(struct cpu_device *cpu, const void *args, void *result, bool tiles);
    const void *args;
};

/* True if tiles compute the product. Must not be called in a parallel region. */
bool product_takes_tiles(struct cpu_device *cpu, const struct product_trial *trial);

/* Open the choices of a device. folder: see choices_open. */
struct choices *product_choices_open(const struct cpu_device *cpu, const char *folder);

#endif
