// SPDX-License-Identifier: BSD-3-Clause
#include "variant.h"

#include <math.h>

#include "product.h"
#include "watch.h"

enum { ROUNDS = 3 };

double variant_time(struct stream *stream, variant_queue *queue, void *context, int variant)
{
    cudaEvent_t begin, end;
    double least = INFINITY;
    bool runs = true;
    CUDA_CHECK(cudaEventCreate(&begin));
    CUDA_CHECK(cudaEventCreate(&end));
    for (int round = 0; round <= ROUNDS && runs; round++) { /* the first run is a warm-up */
        float milliseconds = 0;
        CUDA_CHECK(cudaEventRecord(begin, stream->handle));
        runs = queue(context, variant);
        CUDA_CHECK(cudaEventRecord(end, stream->handle));
        CUDA_CHECK(cudaEventSynchronize(end));
        CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
        if (round > 0 && milliseconds < least)
            least = milliseconds;
    }
    CUDA_CHECK(cudaEventDestroy(begin));
    CUDA_CHECK(cudaEventDestroy(end));
    return runs ? least * 1e-3 : INFINITY;
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
