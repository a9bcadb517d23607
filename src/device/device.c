/* The list of backends. */
#include "device/device.h"

#include <string.h>

#include "device/module.h"

const struct device_backend *device_find(const char *name, struct error *error)
{
    if (strcmp(name, "cpu") == 0)
        return &device_cpu;
    if (strcmp(name, "cuda") == 0)
        return module_symbol("vittrain_device_cuda", error);
    error_set(error, ERROR_USAGE, "unknown backend %s: use cpu or cuda", name);
    return NULL;
}
