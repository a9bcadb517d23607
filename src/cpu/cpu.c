// SPDX-License-Identifier: BSD-3-Clause
/* The CPU backend: opening a device, memory, and the table of operations, which are implemented in
 * cpu_*.c. */
#define _GNU_SOURCE /* sched_getaffinity, syscall */
#include "cpu/cpu.h"

#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef __aarch64__
#include <sys/auxv.h>
#endif

#include "base/allocate.h"
#include "base/text.h"
#include "config.h"
#include "device/algorithm_choices.h"
#ifdef HAVE_KERNELS_AMX
#include <cpuid.h>
#endif

/* The compiled kernels, the widest first. configure tests the compiler. */
static const struct cpu_kernels *const levels[] = {
#ifdef HAVE_KERNELS_AVX512
    &cpu_kernels_avx512,
#endif
#ifdef HAVE_KERNELS_AVX2
    &cpu_kernels_avx2,
#endif
#ifdef HAVE_KERNELS_NEON_BF16
    &cpu_kernels_neon_bf16,
#endif
    &cpu_kernels_baseline,
};
enum { LEVELS = sizeof levels / sizeof levels[0] };

static bool is_supported(const struct cpu_kernels *kernels)
{
#ifdef HAVE_KERNELS_AVX512
    if (kernels == &cpu_kernels_avx512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512cd");
#endif
#ifdef HAVE_KERNELS_AVX2
    if (kernels == &cpu_kernels_avx2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
               __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
#endif
#ifdef HAVE_KERNELS_NEON_BF16
    if (kernels == &cpu_kernels_neon_bf16)
        return (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;
#endif
    return kernels == &cpu_kernels_baseline;
}

#ifdef HAVE_KERNELS_AMX
/* Linux grants a process the tile registers on request; threads inherit the permission. */
static bool tiles_granted(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    unsigned a = 0, b = 0, c = 0, d = 0;

    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return false;
    const bool has = (d >> 22 & 1) && (d >> 24 & 1); /* AMX-BF16, AMX-TILE */
    return has && __builtin_cpu_supports("avx512bf16") &&
           syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
#endif

/* Return NULL if the tiles are not compiled in or this processor does not support them. */
static const struct tile_kernels *tiles_by_name(const char *name)
{
    if (strcmp(name, tile_kernels_amx_emulated.name) == 0)
        return &tile_kernels_amx_emulated;
#ifdef HAVE_KERNELS_AMX
    if (strcmp(name, tile_kernels_amx.name) == 0 && is_supported(levels[0]) && tiles_granted())
        return &tile_kernels_amx;
#endif
    return NULL;
}

/* Return the value of VITTRAIN_CPU; NULL if it is unset or empty. */
static const char *kernels_wanted(void)
{
    const char *name = getenv("VITTRAIN_CPU");

    return name != NULL && name[0] != '\0' ? name : NULL;
}

const struct cpu_kernels *cpu_kernels_choose(struct error *error)
{
    const char *name = kernels_wanted();
    const bool any = name == NULL || tiles_by_name(name) != NULL;

    for (int i = 0; i < LEVELS; i++)
        if ((any || strcmp(name, levels[i]->name) == 0) && is_supported(levels[i]))
            return levels[i];
    error_set(error, ERROR_USAGE,
              "VITTRAIN_CPU=%s: this processor cannot run these kernels; use baseline, avx2, "
              "avx512 or amx (x86-64), neon_bf16 (Arm), or unset it",
              name);
    return NULL;
}

/* Count the processors that this process may use: those that mpirun or taskset assigned. */
static int threads_allowed(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return omp_get_num_procs();
    return CPU_COUNT(&set);
}

static void limits_find(struct cpu_device *cpu)
{
    struct device_limits *limits = &cpu->limits;
    char line[256], processor[96] = "CPU"; /* "AMD EPYC 9354 32-Core Processor" */
    FILE *file = fopen("/proc/cpuinfo", "r");

    while (file != NULL && fgets(line, sizeof line, file) != NULL &&
           sscanf(line, "model name : %80[^\n]", processor) != 1)
        continue;
    if (file != NULL)
        fclose(file);
    snprintf(limits->instructions, sizeof limits->instructions, "%s%s%s", cpu->kernels->name,
             cpu->tiles != NULL ? "+" : "", cpu->tiles != NULL ? cpu->tiles->name : "");
    snprintf(limits->name, sizeof limits->name, "%s, %s, %d thread%s", processor,
             limits->instructions, cpu->threads, cpu->threads == 1 ? "" : "s");
    limits->threads = cpu->threads;
    product_library(limits->library, sizeof limits->library);
    limits->library_bytes = PRODUCT_LIBRARY_BYTES;
    limits->multiplies_bf16 = product_multiplies_bf16() || cpu->tiles != NULL;
}

static bool team_starts;

/* Called at exit. libgomp ends the process if it cannot start a thread. */
static void team_check(void)
{
    ENSURE_MEMORY(!team_starts, "no thread for computing (run.threads)");
}

/* Start the threads of OpenMP, which keeps them for later parallel regions. Regions without a
 * number of threads, as in the initial weights and in libraries, use as many. */
static void team_start(int threads)
{
    static bool registered;

    registered = registered || atexit(team_check) == 0;
    team_starts = true;
    omp_set_num_threads(threads);
#pragma omp parallel num_threads(threads)
#pragma omp single
    team_starts = false;
}

static struct device *cpu_open(int number, int threads, struct error *error)
{
    struct cpu_device *cpu = allocate(1, sizeof *cpu);
    const struct cpu_kernels *kernels = cpu_kernels_choose(error);

    (void)number;
    if (kernels == NULL || !product_library_check(error)) {
        free(cpu);
        return NULL;
    }
    cpu->device.backend = &device_cpu;
    cpu->kernels = kernels;
    cpu->tiles = tiles_by_name(kernels_wanted() != NULL ? kernels_wanted() : "amx");
    cpu->threads = threads > 0 ? threads : threads_allowed();
    team_start(cpu->threads);
    cpu->onednn = onednn_open(cpu->threads);
    limits_find(cpu);
    /* At least the caches of processors with AMX; the system may report 0. */
    cpu->l1_bytes = larger(sysconf(_SC_LEVEL1_DCACHE_SIZE), 32 << 10);
    cpu->l2_bytes = larger(sysconf(_SC_LEVEL2_CACHE_SIZE), 512 << 10);
    /* No algorithm is chosen by measurement; the text of the choices only identifies the kernels,
     * whose bits differ. It has no number of threads, the end of the name. */
    const int length = (int)(strrchr(cpu->limits.name, ',') - cpu->limits.name);
    OWNED char *of = allocate_text("%.*s, %s", length, cpu->limits.name, cpu->limits.library);
    cpu->choices = choices_open("", of);
    return &cpu->device;
}

static void cpu_close(struct device *device)
{
    struct cpu_device *cpu = (struct cpu_device *)device;

    onednn_close(cpu->onednn);
    choices_close(cpu->choices);
    free(cpu);
}

static char *cpu_choices_export(struct device *device)
{
    return choices_export(((struct cpu_device *)device)->choices);
}

static bool cpu_choices_adopt(struct device *device, const char *text)
{
    return choices_adopt(((struct cpu_device *)device)->choices, text);
}

static void cpu_limits(struct device *device, struct device_limits *limits)
{
    *limits = ((struct cpu_device *)device)->limits;
}

/* The arena uses huge pages if the system provides them: the first touch is faster, and messages
 * between ranks of a node, which the kernel copies page by page, are three times as fast. */
static void *cpu_allocate(struct device *device, size_t bytes, struct error *error)
{
    const size_t page = 4096, huge_page = (size_t)2 << 20;
    bool large = bytes >= 2 * huge_page;
    void *memory = NULL;

    (void)device;
    if (posix_memalign(&memory, large ? huge_page : page, bytes > 0 ? bytes : 1) != 0) {
        error_set(error, ERROR_MEMORY,
                  "no %.1f MiB of memory: use a smaller train.batch or model, or more ranks",
                  mib(bytes));
        return NULL;
    }
    if (large)
        madvise(memory, bytes, MADV_HUGEPAGE); /* only advice: failure is harmless */
    return memory;
}

static void cpu_release(struct device *device, void *memory)
{
    (void)device;
    free(memory);
}

static size_t cpu_workspace_bytes(struct device *device)
{
    return WORKSPACE_SHARED + (size_t)((struct cpu_device *)device)->threads * WORKSPACE_THREAD;
}

static void cpu_workspace_set(struct device *device, void *memory, size_t bytes)
{
    ENSURE(bytes >= cpu_workspace_bytes(device), "workspace of %zu bytes is too small", bytes);
    ((struct cpu_device *)device)->workspace = memory;
}

void *cpu_workspace_shared(const struct cpu_device *cpu, size_t bytes)
{
    ENSURE(cpu->workspace != NULL, "operation before workspace_set");
    ENSURE(bytes <= WORKSPACE_SHARED, "%zu bytes exceed the shared workspace", bytes);
    return cpu->workspace;
}

void *cpu_workspace_thread(const struct cpu_device *cpu, size_t bytes)
{
    ENSURE(cpu->workspace != NULL, "operation before workspace_set");
    ENSURE(bytes <= WORKSPACE_THREAD, "%zu bytes exceed a thread's workspace", bytes);
    return cpu->workspace + WORKSPACE_SHARED + (size_t)omp_get_thread_num() * WORKSPACE_THREAD;
}

static struct stream *cpu_stream_open(struct device *device)
{
    struct stream *stream = allocate(1, sizeof *stream);

    stream->cpu = (struct cpu_device *)device;
    return stream;
}

static void cpu_stream_close(struct stream *stream)
{
    free(stream);
}

/* Work queued on the other stream has already completed. */
static void cpu_stream_wait(struct stream *stream, struct event *event)
{
    (void)stream;
    (void)event;
}

static void cpu_stream_synchronize(struct stream *stream)
{
    (void)stream;
}

/* All work is complete when event_record returns: an event is only an address. */
static struct event *cpu_event_open(struct device *device)
{
    return (struct event *)device;
}

static void cpu_event_ignore(struct event *event)
{
    (void)event;
}

static void cpu_event_record(struct event *event, struct stream *stream)
{
    (void)event;
    (void)stream;
}

void cpu_copy(struct stream *stream, void *to, const void *from, size_t bytes)
{
    (void)stream;
    if (bytes > 0)
        memcpy(to, from, bytes);
}

/* clang-format off */
#define ENTRY(name, ...) .name = cpu_##name,
const struct device_backend device_cpu = {
    DEVICE_OPERATIONS(ENTRY)
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .limits = cpu_limits,
    .measure_peak = cpu_measure_peak,
    .choices_export = cpu_choices_export,
    .choices_adopt = cpu_choices_adopt,
    .attention_fits = cpu_attention_fits,
    .linear_grains = true,
    .convolution_workspace = cpu_convolution_workspace,
    .allocate = cpu_allocate,
    .release = cpu_release,
    .allocate_pinned = cpu_allocate,
    .release_pinned = cpu_release,
    .workspace_bytes = cpu_workspace_bytes,
    .workspace_set = cpu_workspace_set,
    .stream_open = cpu_stream_open,
    .stream_close = cpu_stream_close,
    .stream_wait = cpu_stream_wait,
    .stream_synchronize = cpu_stream_synchronize,
    .event_open = cpu_event_open,
    .event_close = cpu_event_ignore,
    .event_record = cpu_event_record,
    .event_synchronize = cpu_event_ignore,
};
/* clang-format on */
