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

void hardware_cache_folder(const struct options *options, char *folder, size_t size)
{
    if (strcmp(options->cuda.cache, "auto") == 0)
        folder_cache(folder, size);
    else
        snprintf(folder, size, "%s",
                 strcmp(options->cuda.cache, "none") == 0 ? "" : options->cuda.cache);
}

static struct device *backend_open(const char *name, const struct options *options,
                                   const struct comm *node, struct error *error)
{
    char folder[1024];
    const struct device_backend *backend = device_find(name, error);
    const int threads = hardware_threads(options, node);
    struct device *device = backend == NULL ? NULL : backend->open(node->rank, threads, error);
    if (device == NULL)
        return NULL;
    hardware_cache_folder(options, folder, sizeof folder);
    const struct device_settings settings = {.tf32 = options->cuda.tf32,
                                             .dependent_launch = options->cuda.dependent_launch,
                                             .cache = folder};
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

bool hardware_compare(const struct device_limits *limits, struct comm *world, struct error *error)
{
    char first[sizeof limits->instructions];
    memcpy(first, limits->instructions, sizeof first);
    comm_broadcast(world, first, sizeof first, COMM_BYTE, 0);
    bool gpus = limits->memory_bytes > 0 || strncmp(first, "sm_", 3) == 0;
    if (strcmp(first, limits->instructions) != 0)
        error_set(error, ERROR_USAGE,
                  "this rank computes with %s instructions, rank 0 with %s, so their weights would "
                  "differ: %s",
                  limits->instructions, first,
                  gpus ? "use nodes with the same GPUs, or set run.backend=cpu"
                       : "set VITTRAIN_CPU to kernels that all nodes support on all ranks "
                         "(mpirun -x VITTRAIN_CPU=avx2)");
    return comm_agree(world, error);
}

bool hardware_alone(const struct options *options, const struct device_limits *limits,
                    struct comm *node, struct comm *world, struct error *error)
{
    enum { SIZE = sizeof limits->identity };
    char(*identity)[SIZE] = allocate((size_t)node->size, SIZE);
    memcpy(identity[node->rank], limits->identity, SIZE);
    comm_all_gather(node, identity, SIZE, COMM_BYTE);
    int others = 0;
    for (int rank = 0; rank < node->size; rank++)
        others += rank != node->rank && strcmp(identity[rank], limits->identity) == 0;
    free(identity);
    bool shares = limits->identity[0] != '\0' && others > 0;
    if (shares && options->cuda.share) {
        /* NCCL accepts two ranks on one GPU only if their host identifiers differ. */
        char host[96];
        snprintf(host, sizeof host, "%s-rank%d", comm_host(), world->rank);
        setenv("NCCL_HOSTID", host, 0);
    } else if (shares)
        error_set(error, ERROR_USAGE,
                  "%d ranks of this node have the same GPU (%s, %s): start one rank per GPU of the "
                  "node (see also CUDA_VISIBLE_DEVICES), or set cuda.share=yes",
                  others + 1, limits->name, limits->identity);
    return comm_agree(world, error);
}

/* ---- The peak rate of matrix products. FOLDER/peaks has a line "RATE KEY" for each processor,
 * instruction set, type and version of the program. The rate is that of one thread, so that it is
 * measured once for any number of threads. Runs that write the file at the same time may lose a
 * line, which is then measured again. */

enum { KEY = 192 };
static const double rate_most = 1e15; /* of a thread; larger rates are damage */

/* Write "0.3.0 bf16 AMD EPYC, avx512": without the number of threads, the end of the name. */
static void key_write(const struct device_limits *limits, enum data_type type, char key[KEY])
{
    const char *end = strrchr(limits->name, ',');
    snprintf(key, KEY, "%s %s %.*s", version_number, type_name(type),
             end != NULL ? (int)(end - limits->name) : (int)strlen(limits->name), limits->name);
}

/* Return the rate of the first line with this key that is not damaged; NAN: there is none. */
static double rate_read(const char *path, const char *key)
{
    double found = NAN;
    char *rest = NULL, *text = text_file_read(path, NULL);
    for (char *line = text != NULL ? strtok_r(text, "\n", &rest) : NULL;
         line != NULL && isnan(found); line = strtok_r(NULL, "\n", &rest)) {
        char *end;
        const double rate = strtod(line, &end);
        if (end != line && *end == ' ' && strcmp(end + 1, key) == 0 && rate > 0 && rate < rate_most)
            found = rate;
    }
    free(text);
    return found;
}

/* Replace the line of the key; NAN: remove it. A folder that cannot be written is no error. */
static void rate_write(const char *folder, const char *path, const char *key, double rate)
{
    struct error ignored = {0};
    struct atomic_file file;
    char *rest = NULL, *text = text_file_read(path, NULL);
    if (folder_make(folder, "", &ignored) && atomic_file_open(&file, path, &ignored)) {
        for (char *line = text != NULL ? strtok_r(text, "\n", &rest) : NULL; line != NULL;
             line = strtok_r(NULL, "\n", &rest)) {
            const char *space = strchr(line, ' ');
            if (space != NULL && strcmp(space + 1, key) != 0)
                fprintf(file.stream, "%s\n", line);
        }
        if (!isnan(rate))
            fprintf(file.stream, "%.6g %s\n", rate, key);
        error_defer(atomic_file_commit(&file, &ignored));
    }
    free(text);
}

double peak_find(struct device *device, enum data_type type, const char *folder)
{
    struct device_limits limits;
    char key[KEY];
    device->backend->limits(device, &limits);
    if (device->backend->measure_peak == NULL)
        return limits.peak_flops[type] > 0 ? limits.peak_flops[type] : (double)NAN;
    key_write(&limits, type, key);
    OWNED char *path = allocate_text("%s/peaks", folder);
    double rate = folder[0] != '\0' ? rate_read(path, key) : (double)NAN;
    if (isnan(rate)) {
        rate = device->backend->measure_peak(device, type);
        if (folder[0] != '\0')
            rate_write(folder, path, key, rate);
    }
    return rate * limits.threads;
}

void peak_forget(struct device *device, enum data_type type, const char *folder)
{
    struct device_limits limits;
    char key[KEY];
    if (device->backend->measure_peak == NULL || folder[0] == '\0')
        return;
    device->backend->limits(device, &limits);
    key_write(&limits, type, key);
    OWNED char *path = allocate_text("%s/peaks", folder);
    rate_write(folder, path, key, NAN);
}
