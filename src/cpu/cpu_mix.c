// SPDX-License-Identifier: BSD-3-Clause
/* Mixup and CutMix over threads: one plane of a pair per task, then the targets. */
#include "cpu/cpu.h"

#include <string.h>

/* Swap `count` bytes. */
static void bytes_swap(char *a, char *b, size_t count)
{
    char between[256];
    for (size_t done = 0; done < count;) {
        size_t some = count - done < sizeof between ? count - done : sizeof between;
        memcpy(between, a + done, some);
        memcpy(a + done, b + done, some);
        memcpy(b + done, between, some);
        done += some;
    }
}

static void plane_mix(const struct images_mix *args, const struct element_kernels *kernels,
                      int64_t pair, int64_t channel)
{
    const struct mix_plan *plan = &args->plans[pair];
    const size_t size = type_size(args->type), plane = (size_t)(args->height * args->width) * size;
    const size_t channels = (size_t)args->channels;
    char *image = (char *)args->images + ((size_t)(2 * pair) * channels + (size_t)channel) * plane;
    char *partner = image + channels * plane;
    if (!plan->cut) {
        kernels->mix(args->type, image, partner, plan->share, args->height * args->width);
        return;
    }
    for (int64_t y = plan->y; y < plan->y + plan->height; y++) {
        size_t at = (size_t)(y * args->width + plan->x) * size;
        bytes_swap(image + at, partner + at, (size_t)plan->width * size);
    }
}

static void target_make(const struct images_mix *args, int64_t sample)
{
    const float smooth = args->smoothing / (float)args->classes, sure = 1 - args->smoothing;
    const int64_t partner = sample ^ 1;
    const float share = partner < args->batch ? args->plans[sample / 2].share : 1;
    float *target = args->targets + sample * args->classes;
    for (int64_t c = 0; c < args->classes; c++)
        target[c] = smooth;
    target[args->labels[sample]] += sure * share;
    if (partner < args->batch)
        target[args->labels[partner]] += sure * (1 - share);
}

void cpu_images_mix(struct stream *stream, const struct images_mix *args)
{
    const struct cpu_device *cpu = stream->cpu;
    const int64_t planes = args->batch / 2 * args->channels;
    cpu_labels_check(args->labels, args->batch, args->classes);
#pragma omp parallel for schedule(static)                                                          \
    num_threads(cpu_threads_for(cpu, 2 * planes * args->height * args->width))
    for (int64_t plane = 0; plane < planes; plane++)
        plane_mix(args, cpu->kernels->elements, plane / args->channels, plane % args->channels);
#pragma omp parallel for schedule(static)                                                          \
    num_threads(cpu_threads_for(cpu, args->batch * args->classes))
    for (int64_t sample = 0; sample < args->batch; sample++)
        target_make(args, sample);
}
