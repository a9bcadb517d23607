/* The module for GPUs, vittrain-cuda.so: opened when it is wanted and a driver is there, because
 * the CUDA libraries cost half a second and 150 MB a process, which runs on CPUs need not pay. */
#ifndef VITTRAIN_DEVICE_MODULE_H
#define VITTRAIN_DEVICE_MODULE_H

#include "core/error.h"

/* A symbol of the module; NULL and an error that says what is missing: module, driver, a version
 * that fits. The module lies beside the program, or where it was installed, or is the file that
 * VITTRAIN_CUDA_MODULE names (which is then opened without looking for a driver). */
void *module_symbol(const char *name, struct error *error);

#endif
