// SPDX-License-Identifier: BSD-3-Clause
/* Mixup and CutMix. A thread processes eight elements of both samples of a pair, so each image is
 * read and written once; threads outside the rectangle of CutMix exit at once. Targets are a
 * separate kernel, one block per sample. */
#include "cuda.h"
#include "kernel.h"

enum { THREADS = 256 };

/* `count` (at most 8) elements from `first` of an image on. */
template <typename number>
__device__ static inline void octet_exchange(const struct images_mix &args,
                                             const struct mix_plan &plan, int64_t first, int count,
                                             number *own, number *partner)
{
    for (int i = 0; i < count; i++) {
        int x = (int)((first + i) % args.width), y = (int)((first + i) / args.width % args.height);
        if (x < plan.x || x >= plan.x + plan.width || y < plan.y || y >= plan.y + plan.height)
            continue;
        number between = own[i];
        own[i] = partner[i];
        partner[i] = between;
    }
}

template <typename number>
__global__ static void mix_kernel(struct images_mix args, unsigned chunks, bool fits)
{
    kernel_begin();
    const int64_t elements = args.channels * args.height * args.width, pair = blockIdx.x / chunks;
    const int64_t first = ((int64_t)(blockIdx.x % chunks) * THREADS + threadIdx.x) * 8;
    const struct mix_plan plan = args.plans[pair];
    number *own = (number *)args.images + 2 * pair * elements + first, *partner = own + elements;
    const int64_t left = elements - first;
    if (left <= 0)
        return;
    if (plan.cut) {
        octet_exchange(args, plan, first, left < 8 ? (int)left : 8, own, partner);
        return;
    }
    struct eight a = eight_load_some(own, left, fits), b = eight_load_some(partner, left, fits);
    struct eight mixed_a, mixed_b;
    for (int i = 0; i < 8; i++) {
        mixed_a.value[i] = plan.share * a.value[i] + (1 - plan.share) * b.value[i];
        mixed_b.value[i] = plan.share * b.value[i] + (1 - plan.share) * a.value[i];
    }
    eight_store_some(own, mixed_a, left, fits);
    eight_store_some(partner, mixed_b, left, fits);
}

/* Return class c's part of a target that has `share` of a label; NaN if the label is invalid. */
__device__ static inline float label_share(int32_t label, int64_t classes, int64_t c, float share)
{
    if (label < 0 || label >= classes)
        return NAN;
    return label == c ? share : 0;
}

__global__ static void targets_kernel(struct images_mix args)
{
    kernel_begin();
    const int64_t sample = blockIdx.x, partner = sample ^ 1;
    const float smooth = args.smoothing / (float)args.classes, sure = 1 - args.smoothing;
    const bool alone = partner >= args.batch;
    const float share = alone ? 1 : args.plans[sample / 2].share;
    for (int64_t c = threadIdx.x; c < args.classes; c += blockDim.x) {
        float target = smooth + label_share(args.labels[sample], args.classes, c, sure * share);
        if (!alone)
            target += label_share(args.labels[partner], args.classes, c, sure * (1 - share));
        args.targets[sample * args.classes + c] = target;
    }
}

template <typename number> static void mix_launch(struct stream *stream, struct images_mix args)
{
    const int64_t elements = args.channels * args.height * args.width;
    const unsigned chunks = blocks_for(elements, THREADS * 8);
    KERNEL_LAUNCH(mix_kernel<number>, (unsigned)(args.batch / 2) * chunks, THREADS, 0,
                  stream->handle, args, chunks, eight_fits(args.images, elements));
}

void cuda_images_mix(struct stream *stream, const struct images_mix *args)
{
    if (args->batch > 1 && args->channels * args->height * args->width > 0)
        NUMBER_SWITCH(args->type, mix_launch, stream, *args);
    if (args->batch > 0)
        KERNEL_LAUNCH(targets_kernel, (unsigned)args->batch, THREADS, 0, stream->handle, *args);
}
