// SPDX-License-Identifier: BSD-3-Clause
/* Streams and events of the emulated GPU. An operation runs when the host waits for it, or when
 * another stream that waits for its event runs. Work is as late as the rules allow, and a
 * missing wait always gives wrong results. */
#include "internal.h"

#include <stdlib.h>
#include <time.h>

std::recursive_mutex emulated_mutex;

/* Time that the device has worked; unlike a clock's, identical in each run. An operation takes 5 ms
 * or more, so that measurements (cuda/variant.h) have few runs. */
static double emulated_seconds;

void emulated_time_pass(double seconds)
{
    emulated_seconds += seconds;
}

/* Run the operations before `until`. Return false if one waits for other processes, unless patient.
 */
static bool stream_run(cudaStream_t stream, uint64_t until, bool patient)
{
    const struct timespec pause = {0, 50 * 1000};
    if (stream->running)
        emulated_fault("streams wait for each other");
    while (stream->done < until) {
        struct operation next = stream->queue.front();
        bool over = true;
        stream->running = true;
        if (next.waits_for != NULL && next.waits_for->done < next.until)
            over = stream_run(next.waits_for, next.until, patient);
        if (next.body) {
            memory_begin();
            over = next.body();
            memory_end();
        }
        stream->running = false;
        if (over) {
            emulated_time_pass(5e-3);
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

void stream_push(cudaStream_t stream, const struct operation &operation)
{
    if (stream == NULL)
        emulated_fault("%s on the legacy default stream", operation.what);
    device_must_be(stream->device, operation.what);
    if (stream->capture != NULL) {
        capture_push(stream, operation);
        return;
    }
    stream->queue.push_back(operation);
    stream->queued++;
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

std::vector<cudaStream_t> &streams_all(void)
{
    static std::vector<cudaStream_t> streams;
    return streams;
}

void streams_finish(void)
{
    EMULATED_CALL;
    for (cudaStream_t stream : streams_all())
        if (!stream->running)
            stream_run(stream, stream->queued, true);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    RUNTIME_CALL;
    *stream = new emulated_stream();
    (*stream)->device = device_current();
    streams_all().push_back(*stream);
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

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    RUNTIME_CALL;
    std::vector<cudaStream_t> &streams = streams_all();
    stream_must_not_capture(stream, "cudaStreamDestroy");
    stream_run(stream, stream->queued, true);
    for (size_t i = 0; i < streams.size(); i++)
        if (streams[i] == stream)
            streams.erase(streams.begin() + (long)i);
    delete stream;
    return cudaSuccess;
}

/* Each query executes one operation of the stream, so that polling terminates. */
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    RUNTIME_CALL;
    stream_must_not_capture(stream, "cudaStreamQuery");
    thread_must_not_capture("cudaStreamQuery");
    if (stream->done == stream->queued)
        return cudaSuccess;
    stream_run(stream, stream->done + 1, false);
    return cudaErrorNotReady;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    RUNTIME_CALL;
    *event = new emulated_event();
    (*event)->device = device_current();
    (*event)->times = (flags & cudaEventDisableTiming) == 0;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, 0);
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end)
{
    RUNTIME_CALL;
    if (!begin->times || !end->times)
        emulated_fault("cudaEventElapsedTime of an event without times");
    *milliseconds = (float)((end->seconds - begin->seconds) * 1e3);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    RUNTIME_CALL;
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    RUNTIME_CALL;
    device_must_be(event->device, "cudaEventRecord");
    if (event->times)
        emulated_enqueue(stream, "time", [=]() { event->seconds = emulated_seconds; });
    event->capture = stream->capture;
    event->before = stream->before;
    event->stream = stream;
    event->position = stream->queued;
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    RUNTIME_CALL;
    device_must_be(event->device, "cudaStreamWaitEvent");
    if (event->capture != NULL) {
        capture_wait(stream, event);
        return cudaSuccess;
    }
    if (stream->capture != NULL)
        emulated_fault("a captured stream waits for an event from outside of the capture");
    if (event->stream != NULL && event->stream != stream)
        stream_push(stream, (struct operation){"wait", nullptr, event->stream, event->position});
    return cudaSuccess;
}

/* Checks shared by the two calls below. */
static void event_must_not_capture(const struct emulated_event *event, const char *call)
{
    device_must_be(event->device, call);
    if (event->capture != NULL)
        emulated_fault("%s on an event that was recorded in a capture", call);
    thread_must_not_capture(call);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    RUNTIME_CALL;
    event_must_not_capture(event, "cudaEventSynchronize");
    if (event->stream != NULL && event->stream->done < event->position)
        stream_run(event->stream, event->position, true);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    RUNTIME_CALL;
    event_must_not_capture(event, "cudaEventQuery");
    const cudaError_t fault = fault_of("cudaEventQuery");
    if (fault != cudaSuccess)
        return fault;
    if (event->stream == NULL || event->stream->done >= event->position)
        return cudaSuccess;
    stream_run(event->stream, event->stream->done + 1, false);
    return event->stream->done >= event->position ? cudaSuccess : cudaErrorNotReady;
}

/* ---- Copies. Pinned and device memory: when the stream executes the copy. Pageable host memory:
 * read at the call, and written when the call returns, as in the real library; with
 * VITTRAIN_EMULATION_ATS=1 also when the stream executes the copy, as a GPU may that accesses
 * pageable memory (address translation services of GH200, HMM). */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind,
                            cudaStream_t stream)
{
    RUNTIME_CALL;
    const char *setting = getenv("VITTRAIN_EMULATION_ATS");
    const bool late = setting != NULL && strcmp(setting, "1") == 0;
    if (bytes == 0)
        return cudaSuccess;
    if (!memory_is_known(from, bytes))
        stream_must_not_capture(stream, "a copy from pageable memory");
    if (!memory_is_known(to, bytes))
        stream_must_not_capture(stream, "a copy to pageable memory");
    if (!memory_is_known(from, bytes) && !late) {
        std::vector<unsigned char> kept((const unsigned char *)from,
                                        (const unsigned char *)from + bytes);
        emulated_enqueue(stream, "copy", [=]() { memcpy(to, kept.data(), bytes); });
    } else {
        emulated_enqueue(stream, "copy", [=]() { memcpy(to, from, bytes); });
    }
    if (!memory_is_known(to, bytes) && !late)
        stream_run(stream, stream->queued, true);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    RUNTIME_CALL;
    if (bytes > 0 && !memory_is_known(memory, bytes))
        emulated_fault("cudaMemsetAsync of %zu bytes outside of device memory", bytes);
    emulated_enqueue(stream, "set", [=]() { memset(memory, value, bytes); });
    return cudaSuccess;
}
