/* Streams, events and graphs of the emulated GPU. What is put on a stream runs when somebody waits
 * for it: when the host synchronises, or when another stream that waits for its event runs. So work
 * comes as late as the rules allow, and a wait that is missing gives wrong results each time, not
 * once a month. VITTRAIN_EMULATION=eager runs everything at once instead. */
#include "internal.h"

#include <deque>
#include <stdlib.h>
#include <time.h>
#include <vector>

struct operation {
    const char *what;
    std::function<bool(void)> body; /* is it over? empty: a wait */
    cudaStream_t waits_for;         /* then: for so many operations of that stream */
    uint64_t until;
};

struct emulated_graph {
    std::vector<struct operation> operations;
    cudaStream_t origin;
};

struct emulated_stream {
    std::deque<struct operation> queue;
    uint64_t done, queued; /* operations since it was opened; queue holds the difference */
    bool running;
    struct emulated_graph *capture; /* operations go there */
};

struct emulated_event {
    cudaStream_t stream; /* on which it was recorded last, NULL: nowhere yet */
    uint64_t position;
    struct emulated_graph *capture; /* recorded into a graph */
};

std::recursive_mutex emulated_mutex;

static bool is_eager(void)
{
    const char *wanted = getenv("VITTRAIN_EMULATION");
    return wanted != NULL && strcmp(wanted, "eager") == 0;
}

/* Runs what comes before `until`; where that waits for other processes: false, unless patient. */
static bool stream_run(cudaStream_t stream, uint64_t until, bool patient)
{
    const struct timespec pause = {0, 50 * 1000};
    if (stream->running)
        emulated_fault("streams wait for each other in a circle");
    while (stream->done < until) {
        struct operation next = stream->queue.front();
        bool over = true;
        stream->running = true;
        if (next.waits_for != NULL && next.waits_for->done < next.until)
            over = stream_run(next.waits_for, next.until, patient);
        if (next.body)
            over = next.body();
        stream->running = false;
        if (over) {
            stream->queue.pop_front();
            stream->done++;
        } else if (patient) {
            nanosleep(&pause, NULL);
        } else {
            return false;
        }
    }
    return true;
}

static void stream_push(cudaStream_t stream, const struct operation &operation)
{
    if (stream->capture != NULL) {
        stream->capture->operations.push_back(operation);
        return;
    }
    stream->queue.push_back(operation);
    stream->queued++;
    if (is_eager())
        stream_run(stream, stream->queued, true);
}

void emulated_enqueue(cudaStream_t stream, const char *what, std::function<void(void)> body)
{
    emulated_enqueue_turns(stream, what, [=]() {
        body();
        return true;
    });
}

void emulated_enqueue_turns(cudaStream_t stream, const char *what, std::function<bool(void)> turn)
{
    EMULATED_CALL;
    stream_push(stream, (struct operation){what, turn, NULL, 0});
}

static void must_not_capture(cudaStream_t stream, const char *what)
{
    if (stream != NULL && stream->capture != NULL)
        emulated_fault("%s while the stream is recorded", what);
}

/* Freed memory that queued work may still use is a fault that a GPU shows rarely: as the runtime
 * library does, freeing waits for everything. Which streams there are: */
static std::vector<cudaStream_t> streams;

void streams_forget(const void *)
{
    EMULATED_CALL;
    for (cudaStream_t stream : streams)
        if (!stream->running)
            stream_run(stream, stream->queued, true);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    EMULATED_CALL;
    *stream = new emulated_stream();
    streams.push_back(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int)
{
    return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    EMULATED_CALL;
    *status = stream->capture != NULL ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    EMULATED_CALL;
    stream_run(stream, stream->queued, true);
    for (size_t i = 0; i < streams.size(); i++)
        if (streams[i] == stream)
            streams.erase(streams.begin() + (long)i);
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    EMULATED_CALL;
    must_not_capture(stream, "cudaStreamSynchronize");
    stream_run(stream, stream->queued, true);
    return cudaSuccess;
}

/* Each question brings the stream one operation on, so that who polls comes to an end. */
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    EMULATED_CALL;
    must_not_capture(stream, "cudaStreamQuery");
    if (stream->done == stream->queued)
        return cudaSuccess;
    stream_run(stream, stream->done + 1, false);
    return cudaErrorNotReady;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    EMULATED_CALL;
    *event = new emulated_event();
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    EMULATED_CALL;
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    EMULATED_CALL;
    event->capture = stream->capture;
    event->stream = stream;
    event->position = stream->queued;
    return cudaSuccess;
}

static bool is_recording(const struct emulated_graph *graph)
{
    for (cudaStream_t stream : streams)
        if (stream->capture == graph)
            return true;
    return false;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    EMULATED_CALL;
    if (event->capture != NULL) { /* the waiting stream joins the recording */
        if (!is_recording(event->capture))
            emulated_fault("a stream waits for an event of a recording that has ended");
        stream->capture = event->capture;
        return cudaSuccess;
    }
    if (stream->capture != NULL)
        emulated_fault("a stream that is recorded waits for an event from outside");
    if (event->stream != NULL && event->stream != stream)
        stream_push(stream, (struct operation){"wait", nullptr, event->stream, event->position});
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    EMULATED_CALL;
    if (event->capture != NULL)
        emulated_fault("the host waits for an event of a recording");
    if (event->stream != NULL && event->stream->done < event->position)
        stream_run(event->stream, event->position, true);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    EMULATED_CALL;
    if (event->stream == NULL || event->stream->done >= event->position)
        return cudaSuccess;
    stream_run(event->stream, event->stream->done + 1, false);
    return event->stream->done >= event->position ? cudaSuccess : cudaErrorNotReady;
}

/* ---- Copies. Pinned and device memory: in the stream's turn. Other memory of the host: what is
 * read is read now, what is written is there when the call returns, as with the real library. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind,
                            cudaStream_t stream)
{
    EMULATED_CALL;
    if (bytes == 0)
        return cudaSuccess;
    if (!memory_is_known(from, bytes)) {
        must_not_capture(stream, "a copy from pageable memory");
        std::vector<unsigned char> kept((const unsigned char *)from,
                                        (const unsigned char *)from + bytes);
        emulated_enqueue(stream, "copy", [=]() { memcpy(to, kept.data(), bytes); });
    } else {
        emulated_enqueue(stream, "copy", [=]() { memcpy(to, from, bytes); });
    }
    if (!memory_is_known(to, bytes)) {
        must_not_capture(stream, "a copy to pageable memory");
        stream_run(stream, stream->queued, true);
    }
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    EMULATED_CALL;
    if (bytes > 0 && !memory_is_known(memory, bytes))
        emulated_fault("cudaMemsetAsync of %zu bytes outside of device memory", bytes);
    emulated_enqueue(stream, "set", [=]() { memset(memory, value, bytes); });
    return cudaSuccess;
}

/* ---- Graphs: what was pushed while the stream was recorded, in that order. */
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode)
{
    EMULATED_CALL;
    must_not_capture(stream, "cudaStreamBeginCapture");
    stream->capture = new emulated_graph();
    stream->capture->origin = stream;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    EMULATED_CALL;
    *graph = stream->capture;
    if (*graph == NULL || (*graph)->origin != stream)
        emulated_fault("a recording ends on a stream where none began");
    for (cudaStream_t other : streams)
        if (other->capture == *graph)
            other->capture = NULL;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long)
{
    EMULATED_CALL;
    *executable = new emulated_graph(*graph);
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream)
{
    EMULATED_CALL;
    must_not_capture(stream, "cudaGraphLaunch");
    for (const struct operation &operation : executable->operations)
        stream_push(stream, operation);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable)
{
    EMULATED_CALL;
    delete executable;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    EMULATED_CALL;
    delete graph;
    return cudaSuccess;
}
