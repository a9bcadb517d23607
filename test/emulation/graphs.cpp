// SPDX-License-Identifier: BSD-3-Clause
/* Captures and graphs of the emulated GPU. A graph holds the operations that were queued while its
 * streams were captured, in that order. Calls that CUDA prohibits during a capture are faults. */
#include "internal.h"

/* ---- Captures */
void stream_must_not_capture(cudaStream_t stream, const char *call)
{
    if (stream == NULL)
        emulated_fault("%s on the legacy default stream", call);
    device_must_be(stream->device, call);
    if (stream->capture != NULL)
        emulated_fault("%s on a stream that is being captured", call);
}

void thread_must_not_capture(const char *call)
{
    EMULATED_CALL;
    for (cudaStream_t stream : streams_all())
        if (stream->capture != NULL && stream->capture->thread == std::this_thread::get_id())
            emulated_fault("%s during a stream capture", call);
}

void capture_push(cudaStream_t stream, const struct operation &operation)
{
    stream->capture->graph->operations.push_back(operation);
    stream->before[stream]++;
}

/* A stream that waits for a captured event joins the capture. This counts as an operation: the
 * stream must be joined to the origin again. */
void capture_wait(cudaStream_t stream, const struct emulated_event *event)
{
    if (event->capture->origin == NULL)
        emulated_fault("a stream waits for an event of a capture that has ended");
    if (stream->capture == NULL) {
        stream->capture = event->capture;
        stream->before.clear();
        stream->before[stream] = 1;
    }
    for (const auto &entry : event->before)
        if (stream->before[entry.first] < entry.second)
            stream->before[entry.first] = entry.second;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode)
{
    RUNTIME_CALL;
    stream_must_not_capture(stream, "cudaStreamBeginCapture");
    stream->capture = std::make_shared<struct capture>();
    stream->capture->origin = stream;
    stream->capture->thread = std::this_thread::get_id();
    stream->capture->graph = new emulated_graph();
    stream->before.clear();
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    RUNTIME_CALL;
    std::shared_ptr<struct capture> capture = stream->capture;
    if (capture == NULL || capture->origin != stream)
        emulated_fault("cudaStreamEndCapture on a stream that is not captured");
    for (cudaStream_t other : streams_all()) {
        if (other->capture != capture)
            continue;
        if (other != stream && stream->before[other] < other->before[other])
            emulated_fault("a capture ends before all of its streams are joined to its origin");
        other->capture = NULL;
    }
    capture->origin = NULL;
    *graph = capture->graph;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    RUNTIME_CALL;
    *status = stream->capture != NULL ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

/* ---- Graphs */
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long)
{
    RUNTIME_CALL;
    *executable = new emulated_graph(*graph);
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream)
{
    RUNTIME_CALL;
    stream_must_not_capture(stream, "cudaGraphLaunch");
    for (const struct operation &operation : executable->operations)
        stream_push(stream, operation);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable)
{
    RUNTIME_CALL;
    delete executable;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    RUNTIME_CALL;
    delete graph;
    return cudaSuccess;
}
