// SPDX-License-Identifier: BSD-3-Clause
#include "variant.h"

#include <math.h>

#include "product.h"
#include "watch.h"

/* Time of the warm-up and of the measurement in seconds, as far as the numbers of runs allow it. */
static const double period = 10e-3;
enum { WARM_UPS_MOST = 100, RUNS_LEAST = 3, RUNS_MOST = 10 };

/* Queue a variant `count` times and return the median of the seconds of a run. The device does not
 * wait for the host in between. */
static double runs_time(struct stream *stream, variant_queue *queue, void *context, int variant,
                        int count)
{
    cudaEvent_t events[RUNS_MOST + 1];
    float sorted[RUNS_MOST], milliseconds;
    bool runs = true;
    for (int i = 0; i <= count; i++)
        CUDA_CHECK(cudaEventCreate(&events[i]));
    CUDA_CHECK(cudaEventRecord(events[0], stream->handle));
    for (int i = 0; i < count && runs; i++) {
        runs = queue(context, variant);
        CUDA_CHECK(cudaEventRecord(events[i + 1], stream->handle));
    }
    CUDA_CHECK(cudaEventSynchronize(events[count]));
    for (int i = 0; i < count && runs; i++) {
        int at = i;
        CUDA_CHECK(cudaEventElapsedTime(&milliseconds, events[i], events[i + 1]));
        for (; at > 0 && sorted[at - 1] > milliseconds; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = milliseconds;
    }
    for (int i = 0; i <= count; i++)
        CUDA_CHECK(cudaEventDestroy(events[i]));
    return runs ? sorted[count / 2] * 1e-3 : INFINITY;
}

double variant_time(struct stream *stream, variant_queue *queue, void *context, int variant)
{
    if (runs_time(stream, queue, context, variant, 1) == INFINITY)
        return INFINITY;
    const double fitting = period / runs_time(stream, queue, context, variant, 1);
    const int warm_ups = variant == 0 ? (int)fmin(fitting, WARM_UPS_MOST) : 0;
    for (int i = 0; i < warm_ups; i++)
        (void)queue(context, variant);
    return runs_time(stream, queue, context, variant,
                     (int)fmax(fmin(fitting, RUNS_MOST), RUNS_LEAST));
}

void variant_settle(struct stream *stream)
{
    stream->cuda->device.backend->stream_synchronize(stream);
    watch_drain();
}

bool stream_is_recorded(struct stream *stream)
{
    enum cudaStreamCaptureStatus status;
    CUDA_CHECK(cudaStreamIsCapturing(stream->handle, &status));
    return status != cudaStreamCaptureStatusNone;
}

struct variants {
    struct stream *stream;
    int count;
    variant_queue *queue;
    void *context;
};

static double candidate_time(void *context, int candidate)
{
    const struct variants *variants = (const struct variants *)context;
    return variant_time(variants->stream, variants->queue, variants->context, candidate);
}

static bool candidate_usable(void *context, const struct choice *choice)
{
    return choice->words[0] < (uint64_t)((const struct variants *)context)->count;
}

static int variant_choose(struct variants *variants, const char *key)
{
    struct stream *stream = variants->stream;
    struct choices *choices = products_choices(stream->cuda->products);
    struct choice candidates[VARIANTS_MOST] = {}, chosen;
    for (int i = 0; i < variants->count; i++)
        candidates[i].words[0] = (uint64_t)i;
    if (choices_find(choices, key, candidate_usable, variants, &chosen))
        return (int)chosen.words[0];
    if (!stream_is_recorded(stream) && !stream->cuda->device.reproducible) {
        variant_settle(stream);
        if (choices_make(choices, key, candidates, variants->count, candidate_time,
                         candidate_usable, variants, &chosen))
            return (int)chosen.words[0];
    }
    choices_put(choices, key, &candidates[0]);
    return 0;
}

void variant_run(struct stream *stream, const char *key, int count, variant_queue *queue,
                 void *context)
{
    struct variants variants = {stream, count, queue, context};
    int variant = count > 1 ? variant_choose(&variants, key) : 0;
    ENSURE(queue(context, variant) || queue(context, 0), "no variant of '%s' can run", key);
}
