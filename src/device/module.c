/* Finds and opens the module for GPUs. */
#include "device/module.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/choices.h"

/* What the module calls of the program: so it is linked into every program that may open one. */
struct choices *(*const module_needs_open)(const char *, const char *) = choices_open;

static const char module_file[] = "vittrain-cuda.so";

/* "" where there is none. */
static void module_path(char *path, size_t size)
{
    const char *wanted = getenv("VITTRAIN_CUDA_MODULE");
    if (wanted != NULL && wanted[0] != '\0') {
        snprintf(path, size, "%s", wanted);
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

static bool driver_is_there(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (driver != NULL)
        dlclose(driver);
    return driver != NULL;
}

/* NULL: not opened, the error says why. */
static void *module_open(struct error *error)
{
    static void *module;
    char path[1200];
    if (module != NULL)
        return module;
    module_path(path, sizeof path);
    if (path[0] == '\0') {
        error_set(error, ERROR_USAGE,
                  "this program has no module for GPUs (%s): build it --with-cuda=yes, or use "
                  "run.backend=cpu",
                  module_file);
        return NULL;
    }
    if (getenv("VITTRAIN_CUDA_MODULE") == NULL && !driver_is_there()) {
        error_set(error, ERROR_USAGE,
                  "no NVIDIA driver here (libcuda.so.1 is missing): use run.backend=cpu, or a "
                  "machine with a GPU");
        return NULL;
    }
    module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (module == NULL)
        error_set(error, ERROR_USAGE,
                  "the module for GPUs cannot be opened: %s: put CUDA's libraries on "
                  "LD_LIBRARY_PATH",
                  dlerror());
    return module;
}

void *module_symbol(const char *name, struct error *error)
{
    void *module = module_open(error);
    if (module == NULL)
        return NULL;
    void *symbol = dlsym(module, name);
    if (symbol == NULL)
        error_set(error, ERROR_USAGE,
                  "the module for GPUs lacks %s: it is of another version than the program; "
                  "install both anew",
                  name);
    return symbol;
}
