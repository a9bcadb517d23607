// SPDX-License-Identifier: BSD-3-Clause
/* Attention on the CPU: a task is one head of one sample. */
#include "cpu/cpu.h"

/* Return the index of the first element of a sample's head. part: 0, 1, 2 for q, k, v. */
static int64_t head_begin(int64_t tokens, int64_t heads, int64_t head_dim, int64_t sample,
                          int64_t part, int64_t head)
{
    return ((sample * tokens * 3 + part) * heads + head) * head_dim;
}

static const struct attention_kernels *kernels_of(const struct cpu_device *cpu,
                                                  const struct attention_head *head)
{
    const bool tiles = has_tiles(cpu, head->type) && cpu->tiles->attention->memory(head, true) > 0;

    return tiles ? cpu->tiles->attention : cpu->kernels->attention;
}

/* Describe head number `task`. The calling thread's workspace is assigned to it. */
static struct attention_head head_of(const struct cpu_device *cpu,
                                     const struct attention_forward *args, int64_t task,
                                     bool backward)
{
    const int64_t sample = task / args->heads, head = task % args->heads;
    const int64_t dim = args->head_dim;
    const void *part[3];

    for (int p = 0; p < 3; p++)
        part[p] = element(args->type, args->qkv,
                          head_begin(args->tokens, args->heads, dim, sample, p, head));
    struct attention_head it = {.type = args->type,
                                .tokens = args->tokens,
                                .queries = args->queries,
                                .head_dim = dim,
                                .stride = 3 * args->heads * dim,
                                .out_stride = args->heads * dim,
                                .scale = args->scale,
                                .q = part[0],
                                .k = part[1],
                                .v = part[2],
                                .mask_block = head * args->queries * ((args->tokens + 7) / 8),
                                .random = cpu->kernels->random};
    if (args->lse != NULL)
        it.lse = args->lse + task * args->queries;
    if (args->dropout.rate > 0)
        it.mask = cpu_mask_source(&args->dropout, sample);
    const size_t needed = (size_t)kernels_of(cpu, &it)->memory(&it, backward) * sizeof(float);
    it.memory = cpu_workspace_thread(cpu, needed);
    return it;
}

/* The backward pass with all queries needs the most memory. */
bool cpu_attention_fits(struct device *device, int64_t tokens, int64_t head_dim)
{
    const struct cpu_device *cpu = (struct cpu_device *)device;
    const struct attention_head head = {.tokens = tokens, .queries = tokens, .head_dim = head_dim};

    int64_t floats = cpu->kernels->attention->memory(&head, true);
    if (cpu->tiles != NULL)
        floats = larger(floats, cpu->tiles->attention->memory(&head, true));
    return floats * (int64_t)sizeof(float) <= WORKSPACE_THREAD;
}

/* Run the forward pass or, if `backward` is not NULL, the backward pass of all heads. */
static void heads_run(const struct cpu_device *cpu, const struct attention_forward *args,
                      const struct attention_backward *backward)
{
#pragma omp parallel for num_threads(cpu->threads) schedule(dynamic)
    for (int64_t task = 0; task < args->batch * args->heads; task++) {
        const int64_t sample = task / args->heads, number = task % args->heads;
        const int64_t at = (sample * args->queries * args->heads + number) * args->head_dim;
        struct attention_head head = head_of(cpu, args, task, backward != NULL);
        void **gradient[3] = {&head.dq, &head.dk, &head.dv};
        if (backward == NULL) {
            head.out = element_to_write(args->type, args->out, at);
            kernels_of(cpu, &head)->forward(&head);
            continue;
        }
        for (int p = 0; p < 3; p++)
            *gradient[p] = element_to_write(
                args->type, backward->dqkv,
                head_begin(args->tokens, args->heads, args->head_dim, sample, p, number));
        head.dout = element(args->type, backward->dout, at);
        head.lse_read = backward->lse + task * args->queries;
        kernels_of(cpu, &head)->backward(&head);
    }
}

void cpu_attention_forward(struct stream *stream, const struct attention_forward *args)
{
    heads_run(stream->cpu, args, NULL);
}

void cpu_attention_backward(struct stream *stream, const struct attention_backward *args)
{
    heads_run(stream->cpu,
              &(struct attention_forward){.type = args->type,
                                          .batch = args->batch,
                                          .tokens = args->tokens,
                                          .queries = args->queries,
                                          .heads = args->heads,
                                          .head_dim = args->head_dim,
                                          .scale = args->scale,
                                          .qkv = args->qkv,
                                          .dropout = args->dropout},
              args);
}
