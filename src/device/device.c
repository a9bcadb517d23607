// SPDX-License-Identifier: BSD-3-Clause
/* The list of backends, and the GPU module. */
#include "device/device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/algorithm_choices.h"

/* Referenced by the module: this links algorithm_choices.c into every program that may open it. */
struct choices *(*const module_needs_open)(const char *, const char *) = choices_open;

static const char module_file[] = "vittrain-cuda.so";

/* Set path to "" if the module is not found. */
static void module_path(char *path, size_t size)
{
    const char *named = getenv("VITTRAIN_CUDA_MODULE");
    if (named != NULL && named[0] != '\0') {
        snprintf(path, size, "%s", named);
        return;
    }
    char program[1024];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(program, '/');
    if (slash != NULL)
        *slash = '\0';
    snprintf(path, size, "%s/%s", program, module_file);
    if (access(path, R_OK) != 0)
        snprintf(path, size, "%s/%s", VITTRAIN_LIBRARY_DIR, module_file);
    if (access(path, R_OK) != 0)
        path[0] = '\0';
}

static bool driver_exists(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (driver != NULL)
        dlclose(driver);
    return driver != NULL;
}

/* Return NULL and an error if the module cannot be opened. */
static void *module_open(struct error *error)
{
    static void *module;
    char path[1200];
    if (module != NULL)
        return module;
    module_path(path, sizeof path);
    if (path[0] == '\0') {
        error_set(error, ERROR_USAGE,
                  "no GPU module (%s): configure with --with-cuda=yes, or use "
                  "run.backend=cpu",
                  module_file);
        return NULL;
    }
    if (getenv("VITTRAIN_CUDA_MODULE") == NULL && !driver_exists()) {
        error_set(error, ERROR_USAGE,
                  "no NVIDIA driver (libcuda.so.1 not found): use run.backend=cpu, or a "
                  "machine with a GPU");
        return NULL;
    }
    module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (module == NULL)
        error_set(error, ERROR_USAGE,
                  "cannot open the GPU module: %s: add the CUDA libraries to "
                  "LD_LIBRARY_PATH",
                  dlerror());
    return module;
}

void *device_module_symbol(const char *name, struct error *error)
{
    void *module = module_open(error);
    if (module == NULL)
        return NULL;
    void *symbol = dlsym(module, name);
    if (symbol == NULL)
        error_set(error, ERROR_USAGE,
                  "the GPU module has no symbol %s: its version differs from the program; "
                  "reinstall both",
                  name);
    return symbol;
}

const struct device_backend *device_find(const char *name, struct error *error)
{
    if (strcmp(name, "cpu") == 0)
        return &device_cpu;
    if (strcmp(name, "cuda") == 0)
        return device_module_symbol("vittrain_device_cuda", error);
    error_set(error, ERROR_USAGE, "unknown backend %s: use cpu or cuda", name);
    return NULL;
}
