/* Linear layers and attention of a backend at the sizes of vit_cifar (batch 64),
 * vit_base_patch32_224 (batch 32) and, on GPUs, vit_base_patch16_224 (batch 256). Each layer, with
 * all that is fused into it, is measured in turn with oneDNN doing just its products on all
 * threads: the ratio is what counts. Prints rows of the common CSV (README.md); the best of some
 * rounds. On GPUs there is nothing beside them but the peak.
 *
 *   bench_device [THREADS [fp32|bf16 [cpu|cuda [WHAT]]]]
 *
 * WHAT limits the measurement: product:SIDE is a copy and one square matrix product, the ceilings
 * of the device; attention:BATCH:TOKENS is attention with 12 heads of 64. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench_row.h"
#include "core/clock.h"
#include "device/cpu.h"
#include "device/cpu_product.h"

enum { ROUNDS = 12, HEADS = 12, HEAD_DIM = 64, TENSOR_BYTES = 50432 * 3072 * 4 };

static const size_t cpu_tensor_bytes = 4160 * 3072 * 4;

/* The last argument of the command. */
struct selection {
    long side;          /* of the product, or 0 */
    long batch, tokens; /* of attention, or 0 */
};

struct layer {
    const char *model, *name;
    int64_t rows, rows_per_sample, in, out;
    bool bias, gelu, residual; /* what is fused into forward */
    bool gelu_before;          /* backward goes on through the GELU that made x */
    float dropout;
};

static const struct layer layers[] = {
    {"vit_cifar", "qkv", 4160, 65, 192, 576, false, false, false, false, 0},
    {"vit_cifar", "proj", 4160, 65, 192, 192, true, false, true, false, 0.1f},
    {"vit_cifar", "fc1", 4160, 65, 192, 768, true, true, false, false, 0},
    {"vit_cifar", "fc2", 4160, 65, 768, 192, true, false, true, true, 0.19f},
    {"vit_base_patch32_224", "qkv", 1600, 50, 768, 2304, true, false, false, false, 0},
    {"vit_base_patch32_224", "proj", 1600, 50, 768, 768, true, false, true, false, 0},
    {"vit_base_patch32_224", "fc1", 1600, 50, 768, 3072, true, true, false, false, 0},
    {"vit_base_patch32_224", "fc2", 1600, 50, 3072, 768, true, false, true, true, 0},
    {"vit_base_patch16_224", "qkv", 50432, 197, 768, 2304, true, false, false, false, 0},
    {"vit_base_patch16_224", "proj", 50432, 197, 768, 768, true, false, true, false, 0},
    {"vit_base_patch16_224", "fc1", 50432, 197, 768, 3072, true, true, false, false, 0},
    {"vit_base_patch16_224", "fc2", 50432, 197, 3072, 768, true, false, true, true, 0},
};

enum { LAYERS_OF_CPU = 8 };

struct bench {
    struct bench_host host;
    struct device *device;
    const struct device_backend *backend;
    bool cpu;
    size_t tensor_bytes;
    struct stream *stream;
    struct device_limits limits;
    enum data_type type;
    struct product_cache *alone; /* oneDNN's products without us */
    char *x, *y, *weight, *bias, *residual, *pre;
    float *gradient, *scratch;
    struct step_params *place;
};

/* A tensor of random numbers: GPUs multiply zeros faster. The bits are small numbers in each type,
 * as in `bench machine`. */
static char *tensor(const struct bench *bench)
{
    enum { COUNT = 1 << 20 };
    struct error error = {0};
    char *memory = bench->backend->allocate(bench->device, bench->tensor_bytes, &error);
    uint32_t *numbers = malloc(COUNT * sizeof *numbers);
    uint32_t state = 1;

    ENSURE(memory != NULL, "%s", error.text);
    ENSURE(numbers != NULL, "no memory for numbers");
    for (int i = 0; i < COUNT; i++) {
        state = state * 1664525 + 1013904223;
        numbers[i] = 0x3c003c00 | (state & 0x80ff80ff);
    }
    for (size_t at = 0; at < bench->tensor_bytes; at += COUNT * sizeof *numbers) {
        size_t left = bench->tensor_bytes - at, most = COUNT * sizeof *numbers;
        bench->backend->copy(bench->stream, memory + at, numbers, left < most ? left : most);
    }
    bench->backend->stream_synchronize(bench->stream);
    free(numbers);
    return memory;
}

static size_t tensor_bytes(const struct bench *bench, const struct selection *selection)
{
    if (selection->side > 0)
        return (size_t)(selection->side * selection->side) * sizeof(float);
    if (selection->batch > 0)
        return (size_t)(selection->batch * selection->tokens * 3 * HEADS * HEAD_DIM) *
               sizeof(float);
    return bench->cpu ? cpu_tensor_bytes : TENSOR_BYTES;
}

static void bench_open(struct bench *bench, const char *backend, int threads, enum data_type type,
                       const struct selection *selection)
{
    struct error error = {0};

    bench->type = type;
    bench->cpu = strcmp(backend, "cpu") == 0;
    bench->tensor_bytes = tensor_bytes(bench, selection);
    bench->backend = device_find(backend, &error);
    ENSURE(bench->backend != NULL, "%s", error.text);
    bench->device = bench->backend->open(0, threads, &error);
    ENSURE(bench->device != NULL, "%s", error.text);
    const size_t bytes = bench->backend->workspace_bytes(bench->device);
    void *workspace = bench->backend->allocate(bench->device, bytes, &error);
    ENSURE(workspace != NULL, "%s", error.text);
    bench->backend->workspace_set(bench->device, workspace, bytes);
    bench->stream = bench->backend->stream_open(bench->device);
    bench->backend->limits(bench->device, &bench->limits);
    bench->alone = product_cache_open(1);
    bench->x = tensor(bench);
    bench->y = tensor(bench);
    bench->weight = tensor(bench);
    bench->bias = tensor(bench);
    bench->residual = tensor(bench);
    bench->pre = tensor(bench);
    bench->gradient = (float *)tensor(bench);
    bench->scratch = (float *)tensor(bench);
    bench->place = bench->backend->allocate(bench->device, sizeof *bench->place, &error);
    ENSURE(bench->place != NULL, "%s", error.text);
    bench->backend->zero(bench->stream, bench->place, sizeof *bench->place);
}

static void forward(const struct bench *bench, const struct layer *layer)
{
    bench->backend->linear_forward(
        bench->stream,
        &(struct linear_forward){.type = bench->type,
                                 .rows = layer->rows,
                                 .in = layer->in,
                                 .out = layer->out,
                                 .rows_per_sample = layer->rows_per_sample,
                                 .x = bench->x,
                                 .weight = bench->weight,
                                 .bias = layer->bias ? bench->bias : NULL,
                                 .residual = layer->residual ? bench->residual : NULL,
                                 .pre = layer->gelu ? bench->pre : NULL,
                                 .y = bench->y,
                                 .dropout = {.rate = layer->dropout, .params = bench->place}});
}

static void backward(const struct bench *bench, const struct layer *layer)
{
    bench->backend->linear_backward(
        bench->stream, &(struct linear_backward){.type = bench->type,
                                                 .rows = layer->rows,
                                                 .in = layer->in,
                                                 .out = layer->out,
                                                 .rows_per_sample = layer->rows_per_sample,
                                                 .x = bench->x,
                                                 .weight = bench->weight,
                                                 .dy = bench->y,
                                                 .pre = layer->gelu_before ? bench->pre : NULL,
                                                 .dx = bench->residual,
                                                 .dweight = bench->gradient,
                                                 .dbias = layer->bias ? bench->gradient : NULL});
}

/* What oneDNN multiplies: types that it has no instructions for are not measured against. */
static enum data_type product_type(const struct bench *bench)
{
    return bench->type == TYPE_BF16 && bench->limits.multiplies_bf16 ? TYPE_BF16 : TYPE_FP32;
}

static void alone_run(const struct bench *bench, struct product product, const void *a,
                      const void *b)
{
    product.type = product_type(bench);
    product.threads = bench->limits.threads;
    product_run(product_plan(bench->alone, &product), 0, a, b, bench->gradient, bench->scratch);
}

static void forward_alone(const struct bench *bench, const struct layer *layer)
{
    alone_run(bench,
              (struct product){.m = layer->rows,
                               .n = layer->out,
                               .k = layer->in,
                               .a_stride = layer->in,
                               .b_stride = layer->in,
                               .c_stride = layer->out,
                               .b_transposed = true},
              bench->x, bench->weight);
}

static void backward_alone(const struct bench *bench, const struct layer *layer)
{
    alone_run(bench,
              (struct product){.m = layer->rows,
                               .n = layer->in,
                               .k = layer->out,
                               .a_stride = layer->out,
                               .b_stride = layer->in,
                               .c_stride = layer->in},
              bench->y, bench->weight);
    alone_run(bench,
              (struct product){.m = layer->out,
                               .n = layer->in,
                               .k = layer->rows,
                               .a_stride = layer->out,
                               .b_stride = layer->in,
                               .c_stride = layer->in,
                               .a_transposed = true,
                               .accumulate = true},
              bench->y, bench->x);
}

typedef void step(const struct bench *bench, const struct layer *layer);

static double seconds_of(step *run, const struct bench *bench, const struct layer *layer)
{
    const double begin = clock_now();

    run(bench, layer);
    bench->backend->stream_synchronize(bench->stream);
    return clock_now() - begin;
}

/* What was measured: the operation's arithmetic, and the bytes that it must at least read and
 * write, each once, by which the roofline knows it. */
struct measured {
    const char *model, *operation, *shape;
    double flops, bytes, seconds, alone; /* alone: seconds of oneDNN's products, or 0 */
};

static void print_rows(const struct bench *bench, const struct measured *it)
{
    static const char *const types[] = {"fp32", "bf16", "fp16"};
    const struct {
        const char *metric, *unit;
        double value;
    } values[] = {{"time", "s", it->seconds},
                  {"intensity", "FLOP/B", it->flops / it->bytes},
                  {"speed", "GFLOP/s", it->flops / it->seconds * 1e-9},
                  {"products alone", "GFLOP/s", it->flops / it->alone * 1e-9}};
    char work[96];

    snprintf(work, sizeof work, "%s %s", it->operation, it->shape);
    struct bench_row row = {.work = work,
                            .model = it->model,
                            .precision = types[bench->type],
                            .strategy = "none",
                            .threads = bench->limits.threads,
                            .gpu = bench->cpu ? NULL : bench->limits.name};
    for (int i = 0; i < (it->alone > 0 ? 4 : 3); i++) {
        row.metric = values[i].metric;
        row.unit = values[i].unit;
        row.value = values[i].value;
        bench_row_print(&bench->host, &row);
    }
}

/* Forward reads x and the weights and writes y; backward reads all of them (dy for y), writes dx,
 * and the gradient of the weights in fp32. */
static double layer_bytes(const struct bench *bench, const struct layer *layer, bool backward)
{
    const double x = (double)(layer->rows * layer->in), y = (double)(layer->rows * layer->out);
    const double weight = (double)(layer->in * layer->out);
    const double size = bench->type == TYPE_FP32 ? 4 : 2;

    return backward ? size * (2 * x + y + weight) + 4 * weight : size * (x + weight + y);
}

static void measure_layer(const struct bench *bench, const struct layer *layer)
{
    step *const runs[2][2] = {{forward, forward_alone}, {backward, backward_alone}};
    const double flops = 2.0 * (double)(layer->rows * layer->in * layer->out);

    for (int pass = 0; pass < 2; pass++) {
        double best[2] = {INFINITY, INFINITY};
        char operation[32], shape[64];
        for (int round = 0; round < ROUNDS; round++)
            for (int who = 0; who < (bench->cpu ? 2 : 1); who++)
                best[who] = fmin(best[who], seconds_of(runs[pass][who], bench, layer));
        snprintf(operation, sizeof operation, "%s_%s", layer->name,
                 pass == 0 ? "forward" : "backward");
        snprintf(shape, sizeof shape, "%lldx%lldx%lld", (long long)layer->rows,
                 (long long)layer->in, (long long)layer->out);
        print_rows(bench, &(struct measured){.model = layer->model,
                                             .operation = operation,
                                             .shape = shape,
                                             .flops = flops * (pass + 1),
                                             .bytes = layer_bytes(bench, layer, pass == 1),
                                             .seconds = best[0],
                                             .alone = bench->cpu ? best[1] : 0});
    }
}

/* Launches of a round: so many on a GPU that waiting for it counts little. */
static int launches_choose(const struct bench *bench, const struct attention_forward *args)
{
    if (bench->cpu)
        return 1;
    bench->backend->attention_forward(bench->stream, args);
    bench->backend->stream_synchronize(bench->stream);
    const double begin = clock_now();
    bench->backend->attention_forward(bench->stream, args);
    bench->backend->stream_synchronize(bench->stream);
    return (int)fmax(1, fmin(20, 5e-3 / (clock_now() - begin)));
}

static void measure_attention(const struct bench *bench, const char *model, int64_t batch,
                              int64_t tokens, int64_t heads, float dropout)
{
    const struct attention_forward forward_args = {
        .type = bench->type,
        .batch = batch,
        .tokens = tokens,
        .queries = tokens,
        .heads = heads,
        .head_dim = HEAD_DIM,
        .scale = 0.125f,
        .qkv = bench->x,
        .out = bench->y,
        .lse = bench->gradient,
        .dropout = {.rate = dropout, .params = bench->place}};
    const struct attention_backward backward_args = {
        .type = bench->type,
        .batch = batch,
        .tokens = tokens,
        .queries = tokens,
        .heads = heads,
        .head_dim = HEAD_DIM,
        .scale = 0.125f,
        .qkv = bench->x,
        .out = bench->y,
        .dout = bench->residual,
        .lse = bench->gradient,
        .dqkv = bench->pre,
        .dropout = {.rate = dropout, .params = bench->place}};
    const double product = 2.0 * (double)(batch * heads * tokens * tokens * HEAD_DIM);
    const int launches = launches_choose(bench, &forward_args);
    double best[2] = {INFINITY, INFINITY};
    char shape[64];

    for (int round = 0; round < ROUNDS; round++) {
        const double begin = clock_now();
        for (int i = 0; i < launches; i++)
            bench->backend->attention_forward(bench->stream, &forward_args);
        bench->backend->stream_synchronize(bench->stream);
        const double middle = clock_now();
        for (int i = 0; i < launches; i++)
            bench->backend->attention_backward(bench->stream, &backward_args);
        bench->backend->stream_synchronize(bench->stream);
        best[0] = fmin(best[0], (middle - begin) / launches);
        best[1] = fmin(best[1], (clock_now() - middle) / launches);
    }
    snprintf(shape, sizeof shape, "%lldx%lldx%lldx%d", (long long)batch, (long long)heads,
             (long long)tokens, HEAD_DIM);
    /* Forward: queries, keys, values in, one tensor out. Backward: those, the output, its gradient
     * in, three gradients out. */
    const double tensor =
        (double)(batch * heads * tokens * HEAD_DIM) * (double)type_size(bench->type);
    print_rows(bench, &(struct measured){.model = model,
                                         .operation = "attention_forward",
                                         .shape = shape,
                                         .flops = 2 * product,
                                         .bytes = 4 * tensor,
                                         .seconds = best[0]});
    print_rows(bench, &(struct measured){.model = model,
                                         .operation = "attention_backward",
                                         .shape = shape,
                                         .flops = 5 * product,
                                         .bytes = 8 * tensor,
                                         .seconds = best[1]});
}

/* The roof over what computes little: adding one large tensor to another on all threads, two reads
 * and a write of each number. */
static void measure_memory(const struct bench *bench)
{
    const int64_t count = (int64_t)(bench->tensor_bytes / sizeof(float));
    double best = INFINITY;

    for (int round = 0; round < ROUNDS; round++) {
        const double begin = clock_now();
        bench->backend->add(bench->stream, (float *)bench->x, (const float *)bench->y, count);
        bench->backend->stream_synchronize(bench->stream);
        best = fmin(best, clock_now() - begin);
    }
    bench_row_print(&bench->host, &(struct bench_row){.work = "memory: adding tensors",
                                                      .strategy = "none",
                                                      .threads = bench->limits.threads,
                                                      .gpu = bench->cpu ? NULL : bench->limits.name,
                                                      .metric = "bandwidth",
                                                      .value = 12e-9 * (double)count / best,
                                                      .unit = "GB/s"});
}

static void measure_copy(const struct bench *bench)
{
    double best = INFINITY;

    for (int round = 0; round < ROUNDS; round++) {
        const double begin = clock_now();
        bench->backend->copy(bench->stream, bench->x, bench->y, bench->tensor_bytes);
        bench->backend->stream_synchronize(bench->stream);
        best = fmin(best, clock_now() - begin);
    }
    bench_row_print(&bench->host,
                    &(struct bench_row){.work = "ceiling: copy",
                                        .strategy = "none",
                                        .threads = bench->limits.threads,
                                        .gpu = bench->cpu ? NULL : bench->limits.name,
                                        .metric = "bandwidth",
                                        .value = 2e-9 * (double)bench->tensor_bytes / best,
                                        .unit = "GB/s"});
}

static void measure_product(const struct bench *bench, int64_t side)
{
    const struct layer square = {.rows = side, .rows_per_sample = 1, .in = side, .out = side};
    const double count = (double)side * (double)side;
    double best = INFINITY;
    char shape[64];

    for (int round = 0; round < ROUNDS; round++)
        best = fmin(best, seconds_of(forward, bench, &square));
    snprintf(shape, sizeof shape, "%lldx%lldx%lld", (long long)side, (long long)side,
             (long long)side);
    print_rows(bench, &(struct measured){.model = "",
                                         .operation = "ceiling: product",
                                         .shape = shape,
                                         .flops = 2 * count * (double)side,
                                         .bytes = 3 * count * (double)type_size(bench->type),
                                         .seconds = best});
}

static void measure_models(const struct bench *bench)
{
    measure_memory(bench);
    for (size_t i = 0; i < (bench->cpu ? LAYERS_OF_CPU : sizeof layers / sizeof layers[0]); i++)
        measure_layer(bench, &layers[i]);
    measure_attention(bench, "vit_cifar", 64, 65, 3, 0.1f);
    measure_attention(bench, "vit_base_patch32_224", 32, 50, HEADS, 0);
    measure_attention(bench, "vit_base_patch16_224", bench->cpu ? 8 : 256, 197, HEADS, 0);
}

int main(int argc, char **argv)
{
    struct bench bench = {0};
    struct selection selection = {0};
    const int threads = argc > 1 ? atoi(argv[1]) : 0;
    const char *backend = argc > 3 ? argv[3] : "cpu";

    if (argc > 4 && sscanf(argv[4], "product:%ld", &selection.side) != 1 &&
        sscanf(argv[4], "attention:%ld:%ld", &selection.batch, &selection.tokens) != 2) {
        fprintf(stderr, "bench_device: %s is neither product:SIDE nor attention:BATCH:TOKENS\n",
                argv[4]);
        return 2;
    }
    bench_open(&bench, backend, threads,
               argc > 2 && strcmp(argv[2], "bf16") == 0 ? TYPE_BF16 : TYPE_FP32, &selection);
    bench_host_look(&bench.host);
    bench_header_print();
    if (selection.side > 0) {
        measure_copy(&bench);
        measure_product(&bench, selection.side);
    } else if (selection.batch > 0) {
        measure_attention(&bench, "", selection.batch, selection.tokens, HEADS, 0);
    } else {
        measure_models(&bench);
    }
    return 0;
}
