/* The GPU module, vittrain-cuda.so. It is opened on demand and only if a driver exists, because
 * loading the CUDA libraries takes half a second and 150 MB per process. */
#ifndef VITTRAIN_DEVICE_MODULE_H
#define VITTRAIN_DEVICE_MODULE_H

#include "core/error.h"

/* Return a symbol of the module, or NULL and an error: module missing, no driver, or a different
 * version. The module is searched for next to the program and in the installation directory.
 * VITTRAIN_CUDA_MODULE names another file, which is opened without searching for a driver. */
void *module_symbol(const char *name, struct error *error);

#endif
