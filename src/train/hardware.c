// SPDX-License-Identifier: BSD-3-Clause
/* Opens the device; reads its memory from the device or the kernel; finds its peak rate. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "train/hardware.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "base/log.h"
#include "base/sensors.h"
#include "options/options.h"

int hardware_threads(const struct options *options, const struct comm *node)
{
    if (options->run.threads > 0)
        return (int)options->run.threads;
    cpu_set_t allowed;
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    int mine = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : cores;
    int share = cores / node->size;
    int threads = mine < share ? mine : share;
    return threads > 0 ? threads : 1;
}

static struct device *backend_open(const char *name, const struct options *options,
                                   const struct comm *node, struct error *error)
{
    const char *cache = strcmp(options->cuda.cache, "none") == 0 ? "" : options->cuda.cache;
    char folder[1024];
    const struct device_backend *backend = device_find(name, error);
    const int threads = hardware_threads(options, node);
    struct device *device = backend == NULL ? NULL : backend->open(node->rank, threads, error);
    if (device == NULL)
        return NULL;
    if (strcmp(cache, "auto") == 0)
        folder_cache(folder, sizeof folder);
    const struct device_settings settings = {.tf32 = options->cuda.tf32,
                                             .dependent_launch = options->cuda.dependent_launch,
                                             .cache = strcmp(cache, "auto") == 0 ? folder : cache};
    if (backend->settings_set != NULL)
        backend->settings_set(device, &settings);
    return device;
}

struct device *hardware_open(const struct options *options, const struct comm *node,
                             struct error *error)
{
    static bool logged; /* once: planning opens many sessions */
    struct error why = {0};
    if (options->run.backend == BACKEND_CUDA)
        return backend_open("cuda", options, node, error);
    if (options->run.backend == BACKEND_AUTO) {
        struct device *device = backend_open("cuda", options, node, &why);
        if (device != NULL)
            return device;
        if (!logged)
            log_info("no GPU, computing on the CPU: %s (options of section cuda have no effect)",
                     why.text);
        logged = true;
    }
    return backend_open("cpu", options, node, error);
}

bool hardware_has_memory(const struct device *device)
{
    return device->backend->memory_free != NULL;
}

size_t hardware_memory(struct device *device, bool peak)
{
    struct device_limits limits;
    if (!hardware_has_memory(device))
        return process_memory(peak ? "VmHWM:" : "VmRSS:") - process_memory("RssFile:") -
               process_memory("RssShmem:");
    device->backend->limits(device, &limits);
    return limits.memory_bytes - device->backend->memory_free(device);
}

size_t hardware_memory_base(struct device *device)
{
    const size_t mebibyte = 1 << 20;
    struct device_limits limits;
    if (hardware_has_memory(device))
        return hardware_memory(device, false);
    device->backend->limits(device, &limits);
    return limits.library_bytes + (process_memory("RssAnon:") + mebibyte - 1) / mebibyte * mebibyte;
}

size_t hardware_memory_room(struct device *device, struct comm *node, const struct options *options,
                            size_t base)
{
    size_t memory = (size_t)options->plan.memory, room;
    if (memory > 0)
        return memory > base ? memory - base : 1;
    if (hardware_has_memory(device)) {
        room = device->backend->memory_free(device);
    } else {
        int64_t available = (int64_t)memory_available("");
        comm_all_reduce(node, &available, 1, COMM_INT64, COMM_MIN);
        room = (size_t)(available / node->size);
    }
    return room - (size_t)((double)room * RESERVE_PERCENT / 100);
}

bool hardware_check(const struct options *options, const struct device_limits *limits,
                    struct comm *node, struct comm *world, struct error *error)
{
    enum { SIZE = sizeof limits->identity };
    char first[sizeof limits->instructions], (*identity)[SIZE];
    memcpy(first, limits->instructions, sizeof first);
    comm_broadcast(world, first, sizeof first, COMM_BYTE, 0);
    identity = allocate((size_t)node->size, SIZE);
    memcpy(identity[node->rank], limits->identity, SIZE);
    comm_all_gather(node, identity, SIZE, COMM_BYTE);
    int same = 0;
    for (int rank = 0; rank < node->size && limits->identity[0] != '\0'; rank++)
        same += strcmp(identity[rank], limits->identity) == 0;
    free(identity);
    const bool gpus = limits->memory_bytes > 0 || strncmp(first, "sm_", 3) == 0;
    if (strcmp(first, limits->instructions) != 0) {
        error_set(error, ERROR_USAGE,
                  "this rank computes with %s instructions, rank 0 with %s, so their weights would "
                  "differ: %s",
                  limits->instructions, first,
                  gpus ? "use nodes with the same GPUs, or set run.backend=cpu"
                       : "set VITTRAIN_CPU to kernels that all nodes support on all ranks "
                         "(mpirun -x VITTRAIN_CPU=avx2)");
    } else if (same > 1 && options->cuda.share) {
        /* NCCL accepts two ranks on one GPU only if their host identifiers differ. */
        char host[96];
        snprintf(host, sizeof host, "%s-rank%d", comm_host(), world->rank);
        setenv("NCCL_HOSTID", host, 0);
    } else if (same > 1) {
        error_set(error, ERROR_USAGE,
                  "%d ranks of this node have the same GPU (%s, %s): start one rank per GPU of the "
                  "node (see also CUDA_VISIBLE_DEVICES), or set cuda.share=yes",
                  same, limits->name, limits->identity);
    }
    return comm_agree(world, error);
}

double peak_find(struct device *device, enum data_type type)
{
    struct device_limits limits;
    device->backend->limits(device, &limits);
    if (device->backend->measure_peak != NULL)
        return limits.threads * device->backend->measure_peak(device, type);
    return limits.peak_flops[type] > 0 ? limits.peak_flops[type] : (double)NAN;
}
