// SPDX-License-Identifier: BSD-3-Clause
/* The backend "cuda": opening a device, memory, streams, events, graphs, and the table of
 * operations. The operations are in the other files of this folder. */
#include "cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "convolution.h"
#include "nvml.h"
#include "product.h"
#include "watch.h"

extern "C" {
#include "base/status.h"
}

#ifdef WITH_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

/* ---- Memory */
static void *cuda_allocate(struct device *device, size_t bytes, struct error *error)
{
    const struct cuda_device *cuda = (struct cuda_device *)device;
    void *memory = NULL;
    size_t free_bytes = 0, total_bytes = 0;
    cudaError_t result = cudaMalloc(&memory, bytes > 0 ? bytes : 1);
    if (result == cudaSuccess)
        return memory;
    (void)cudaGetLastError(); /* clears the error */
    CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    error_set(error, ERROR_MEMORY,
              "no %.1f MiB of memory on GPU %d (%s): %.1f of %.1f MiB are free; `vittrain find "
              "batch` finds one that fits; or use more ranks with mesh.strategy=fsdp",
              mib(bytes), cuda->number, cuda->limits.name, mib(free_bytes), mib(total_bytes));
    return NULL;
}

static void cuda_release(struct device *, void *memory)
{
    CUDA_CHECK(cudaFree(memory));
}

static void *cuda_allocate_pinned(struct device *, size_t bytes, struct error *error)
{
    void *memory = NULL;
    if (cudaHostAlloc(&memory, bytes > 0 ? bytes : 1, cudaHostAllocDefault) == cudaSuccess)
        return memory;
    (void)cudaGetLastError();
    error_set(error, ERROR_MEMORY,
              "no %.1f MiB of pinned memory: raise the limit of locked memory (ulimit -l), or use "
              "a smaller train.batch",
              mib(bytes));
    return NULL;
}

static void cuda_release_pinned(struct device *, void *memory)
{
    CUDA_CHECK(cudaFreeHost(memory));
}

static size_t cuda_memory_free(struct device *)
{
    size_t free_bytes = 0, total_bytes = 0;
    CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    return free_bytes;
}

static size_t cuda_workspace_bytes(struct device *)
{
    return (size_t)WORKSPACE_PRODUCTS + WORKSPACE_SUMS;
}

static void cuda_workspace_set(struct device *device, void *memory, size_t bytes)
{
    struct cuda_device *cuda = (struct cuda_device *)device;
    ENSURE(bytes >= cuda_workspace_bytes(device), "workspace of %zu bytes is too small", bytes);
    cuda->workspace = (unsigned char *)memory;
}

void *cuda_workspace_products(const struct cuda_device *cuda)
{
    ENSURE(cuda->workspace != NULL, "operation before workspace_set");
    return cuda->workspace;
}

void *cuda_workspace_sums(const struct cuda_device *cuda, size_t bytes)
{
    ENSURE(cuda->workspace != NULL, "operation before workspace_set");
    ENSURE(bytes <= WORKSPACE_SUMS, "%zu bytes exceed the workspace for sums", bytes);
    return cuda->workspace + WORKSPACE_PRODUCTS;
}

bool kernel_dependent;

static void cuda_settings_set(struct device *device, const struct device_settings *settings)
{
    struct cuda_device *cuda = (struct cuda_device *)device;
    cuda->limits.peak_flops[TYPE_FP32] = settings->tf32 ? cuda->peak_tf32 : cuda->peak_fp32;
    cuda->tf32 = settings->tf32;
    kernel_dependent = settings->dependent_launch && cuda->capability >= 90;
    products_set(cuda->products, settings->tf32, settings->cache);
}

static char *cuda_choices_export(struct device *device)
{
    return products_export(((struct cuda_device *)device)->products);
}

static bool cuda_choices_are_new(struct device *device)
{
    return products_are_new(((struct cuda_device *)device)->products);
}

static bool cuda_choices_adopt(struct device *device, const char *choices)
{
    return products_adopt(((struct cuda_device *)device)->products, choices);
}

/* ---- Streams and events */
static struct stream *cuda_stream_open(struct device *device)
{
    struct stream *stream = (struct stream *)allocate(1, sizeof *stream);
    stream->cuda = (struct cuda_device *)device;
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream->handle, cudaStreamNonBlocking));
    return stream;
}

static void cuda_stream_close(struct stream *stream)
{
    CUDA_CHECK(cudaStreamDestroy(stream->handle));
    free(stream);
}

static void cuda_stream_wait(struct stream *stream, struct event *event)
{
    CUDA_CHECK(cudaStreamWaitEvent(stream->handle, event->handle, 0));
}

enum { QUICK_TURNS = 200 };

/* Pause between two polls: short at first, for work that is nearly complete. Then the GPU may wait
 * for other ranks. */
static void wait_turn(int *turns)
{
    enum { PAUSE_NANOSECONDS = 20000 };
    const struct timespec pause = {0, PAUSE_NANOSECONDS};
    if (++*turns == 1)
        watch_begin();
    if (*turns == QUICK_TURNS)
        status_set_waiting(true);
    if (*turns > QUICK_TURNS)
        nanosleep(&pause, NULL);
    watch_turn();
}

static void wait_end(int turns)
{
    if (turns >= QUICK_TURNS)
        status_set_waiting(false);
}

static void cuda_stream_synchronize(struct stream *stream)
{
    cudaError_t result;
    int turns = 0;
    choice_enter_thread();
    while ((result = cudaStreamQuery(stream->handle)) == cudaErrorNotReady)
        wait_turn(&turns);
    wait_end(turns);
    cuda_check(result, "the stream's work", __FILE__, __LINE__);
}

static struct event *cuda_event_open(struct device *)
{
    struct event *event = (struct event *)allocate(1, sizeof *event);
    CUDA_CHECK(cudaEventCreateWithFlags(&event->handle, cudaEventDisableTiming));
    return event;
}

static void cuda_event_close(struct event *event)
{
    CUDA_CHECK(cudaEventDestroy(event->handle));
    free(event);
}

static void cuda_event_record(struct event *event, struct stream *stream)
{
    CUDA_CHECK(cudaEventRecord(event->handle, stream->handle));
}

void cuda_wait_for(cudaEvent_t event)
{
    cudaError_t result;
    int turns = 0;
    choice_enter_thread();
    while ((result = cudaEventQuery(event)) == cudaErrorNotReady)
        wait_turn(&turns);
    wait_end(turns);
    cuda_check(result, "the stream's work", __FILE__, __LINE__);
}

static void cuda_event_synchronize(struct event *event)
{
    cuda_wait_for(event->handle);
}

void cuda_copy(struct stream *stream, void *to, const void *from, size_t bytes)
{
    if (bytes > 0)
        CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream->handle));
}

/* ---- Graphs */
struct graph {
    cudaGraphExec_t executable;
};

static void cuda_graph_begin(struct stream *stream)
{
    CUDA_CHECK(cudaStreamBeginCapture(stream->handle, cudaStreamCaptureModeThreadLocal));
}

static struct graph *cuda_graph_end(struct stream *stream)
{
    struct graph *graph = (struct graph *)allocate(1, sizeof *graph);
    cudaGraph_t recorded = NULL;
    CUDA_CHECK(cudaStreamEndCapture(stream->handle, &recorded));
    CUDA_CHECK(cudaGraphInstantiate(&graph->executable, recorded, 0));
    CUDA_CHECK(cudaGraphDestroy(recorded));
    return graph;
}

static void cuda_graph_run(struct graph *graph, struct stream *stream)
{
    CUDA_CHECK(cudaGraphLaunch(graph->executable, stream->handle));
}

static void cuda_graph_close(struct graph *graph)
{
    CUDA_CHECK(cudaGraphExecDestroy(graph->executable));
    free(graph);
}

/* ---- Ranges on the timeline of Nsight (configure --with-nvtx) */
#ifdef WITH_NVTX
static void cuda_range_begin(const char *name)
{
    nvtxRangePushA(name);
}

static void cuda_range_end(void)
{
    nvtxRangePop();
}
#else
static void (*const cuda_range_begin)(const char *name) = NULL;
static void (*const cuda_range_end)(void) = NULL;
#endif

static void cuda_capture(bool on)
{
    CUDA_CHECK(on ? cudaProfilerStart() : cudaProfilerStop());
}

/* ---- The device */
static void cuda_limits(struct device *device, struct device_limits *limits)
{
    *limits = ((struct cuda_device *)device)->limits;
}

static void cuda_survey(struct device *device, struct device_survey *survey)
{
    choice_survey((struct cuda_device *)device, survey);
}

/* NVML takes long to open, so it is opened here, in the thread that reads sensors. */
static void cuda_sensors(struct device *device, struct sensor_reading *reading)
{
    struct cuda_device *cuda = (struct cuda_device *)device;
    if (cuda->nvml == NULL)
        cuda->nvml = nvml_open(NULL, cuda->limits.identity);
    nvml_read(cuda->nvml, reading);
}

static void cuda_close(struct device *device)
{
    struct cuda_device *cuda = (struct cuda_device *)device;
    products_close(cuda->products);
    engines_close(cuda->engines);
    nvml_close(cuda->nvml);
    free(cuda);
}

static struct device *cuda_open(int number, int threads, struct error *error);

/* clang-format off */
#define ENTRY(name, ...) .name = cuda_##name,
extern "C" const struct device_backend vittrain_device_cuda = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .limits = cuda_limits,
    .survey = cuda_survey,
    .sensors = cuda_sensors,
    .attention_fits = cuda_attention_fits,
    .sums_gradients = true,
    .convolution_reads_images = convolution_folds,
    .convolution_workspace = cuda_convolution_workspace,
    .allocate = cuda_allocate,
    .release = cuda_release,
    .allocate_pinned = cuda_allocate_pinned,
    .release_pinned = cuda_release_pinned,
    .memory_free = cuda_memory_free,
    .comm_open = nccl_open,
    .comm_keep_order = nccl_keep_order,
    .workspace_bytes = cuda_workspace_bytes,
    .workspace_set = cuda_workspace_set,
    .settings_set = cuda_settings_set,
    .choices_export = cuda_choices_export,
    .choices_are_new = cuda_choices_are_new,
    .choices_adopt = cuda_choices_adopt,
    .stream_open = cuda_stream_open,
    .stream_close = cuda_stream_close,
    .stream_wait = cuda_stream_wait,
    .stream_synchronize = cuda_stream_synchronize,
    .event_open = cuda_event_open,
    .event_close = cuda_event_close,
    .event_record = cuda_event_record,
    .event_synchronize = cuda_event_synchronize,
    .graph_begin = cuda_graph_begin,
    .graph_end = cuda_graph_end,
    .graph_run = cuda_graph_run,
    .graph_close = cuda_graph_close,
    .range_begin = cuda_range_begin,
    .range_end = cuda_range_end,
    .capture = cuda_capture,
    DEVICE_OPERATIONS(ENTRY)
};
/* clang-format on */

static struct device *cuda_open(int number, int threads, struct error *error)
{
    struct cuda_device *cuda = (struct cuda_device *)allocate(1, sizeof *cuda);
    cuda->device.backend = &vittrain_device_cuda;
    cuda->limits.threads = threads > 0 ? threads : 1;
    if (!choice_open(cuda, number, error)) {
        free(cuda);
        return NULL;
    }
    cuda->products = products_open(cuda);
    return &cuda->device;
}
