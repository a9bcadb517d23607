// SPDX-License-Identifier: BSD-3-Clause
/* Dropout and drop path on the CPU. */
#include "base/random.h"
#include "cpu/cpu.h"

static struct step_params params_of(const struct dropout *dropout)
{
    ENSURE(dropout->params != NULL, "dropout without step parameters");
    return *dropout->params;
}

/* Return the index in the global batch of an operation's sample. */
static uint32_t index_of(const struct dropout *dropout, int64_t sample)
{
    return params_of(dropout).position + dropout->first + (uint32_t)sample;
}

struct mask_source cpu_mask_source(const struct dropout *dropout, int64_t sample)
{
    const uint32_t all = 65536;
    const uint32_t threshold = (uint32_t)(dropout->rate * (float)all + 0.5f);

    return (struct mask_source){.threshold = threshold,
                                .scale =
                                    threshold < all ? (float)all / (float)(all - threshold) : 0,
                                .key = {(uint32_t)dropout->seed, (uint32_t)(dropout->seed >> 32)},
                                .counter = {index_of(dropout, sample), params_of(dropout).step,
                                            RANDOM_DROPOUT + (dropout->layer << 8)}};
}

float cpu_path_scale(const struct dropout *drop_path, int64_t sample)
{
    if (drop_path->rate == 0)
        return 1;
    const struct step_params params = params_of(drop_path);
    const struct random_block drawn =
        random_block_at(drop_path->seed, RANDOM_DROP_PATH, drop_path->layer, params.step,
                        index_of(drop_path, sample), 0);
    return random_uniform(drawn.word[0]) < drop_path->rate ? 0 : 1 / (1 - drop_path->rate);
}

void cpu_dropout_apply(struct stream *stream, const struct dropout_apply *args)
{
    const struct cpu_device *cpu = stream->cpu;
    const struct cpu_kernels *kernels = cpu->kernels;
    const int64_t padded = (args->width + 7) / 8 * 8;

    if (dropout_is_idle(args))
        return;
#pragma omp parallel for num_threads(cpu_threads_for(cpu, args->rows * args->width))
    for (int64_t r = 0; r < args->rows; r++) {
        const int64_t sample = r / args->rows_per_sample;
        const size_t offset = (size_t)(r * args->width) * type_size(args->type);
        float *mask = NULL;
        if (args->dropout.rate > 0) {
            const struct mask_source source = cpu_mask_source(&args->dropout, sample);
            mask = cpu_workspace_thread(cpu, (size_t)padded * sizeof(float));
            kernels->random->mask(&source, r % args->rows_per_sample * (padded / 8), padded, mask);
        }
        kernels->linear->drop(
            &(struct linear_row){.type = args->type,
                                 .count = args->width,
                                 .mask = mask,
                                 .residual = (const char *)args->x + offset,
                                 .path_scale = cpu_path_scale(&args->drop_path, sample),
                                 .y = (char *)args->y + offset});
    }
}
