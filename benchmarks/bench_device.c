/* Linear layers and attention of a backend at the sizes of vit_cifar (batch 64),
 * vit_base_patch32_224 (batch 32) and, on GPUs, vit_base_patch16_224 (batch 256). Each layer, with
 * all that is fused into it, is measured in turn with oneDNN doing just its products on all
 * threads: the ratio is what counts. Prints rows of the common CSV (README.md); the best of some
 * rounds. On GPUs there is nothing beside them but the peak. bench_device [THREADS [fp32|bf16
 * [cpu|cuda]]] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/bench_row.h"
#include "core/clock.h"
#include "device/cpu.h"
#include "device/cpu_product.h"

enum { ROUNDS = 12, TENSOR_BYTES = 50432 * 3072 * 4 };

static const size_t cpu_tensor_bytes = 4160 * 3072 * 4;

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
    struct stream *stream;
    struct device_limits limits;
    enum data_type type;
    struct product_cache *alone; /* oneDNN's products without us */
    char *x, *y, *weight, *bias, *residual, *pre;
    float *gradient, *scratch;
    struct run_place *place;
};

static char *tensor(const struct bench *bench)
{
    struct error error = {0};
    const size_t bytes = bench->cpu ? cpu_tensor_bytes : TENSOR_BYTES;
    char *memory = bench->backend->allocate(bench->device, bytes, &error);

    ENSURE(memory != NULL, "%s", error.text);
    bench->backend->zero(bench->stream, memory, bytes);
    return memory;
}

static void bench_open(struct bench *bench, const char *backend, int threads, enum data_type type)
{
    struct error error = {0};

    bench->type = type;
    bench->cpu = strcmp(backend, "cpu") == 0;
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
    bench->place = (struct run_place *)tensor(bench);
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
                                 .dropout = {.rate = layer->dropout, .place = bench->place}});
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

static void measure_attention(const struct bench *bench, const char *model, int64_t batch,
                              int64_t tokens, int64_t heads, float dropout)
{
    enum { HEAD_DIM = 64 };
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
        .dropout = {.rate = dropout, .place = bench->place}};
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
        .dropout = {.rate = dropout, .place = bench->place}};
    const double product = 2.0 * (double)(batch * heads * tokens * tokens * HEAD_DIM);
    double best[2] = {INFINITY, INFINITY};
    char shape[64];

    for (int round = 0; round < ROUNDS; round++) {
        const double begin = clock_now();
        bench->backend->attention_forward(bench->stream, &forward_args);
        bench->backend->stream_synchronize(bench->stream);
        const double middle = clock_now();
        bench->backend->attention_backward(bench->stream, &backward_args);
        bench->backend->stream_synchronize(bench->stream);
        best[0] = fmin(best[0], middle - begin);
        best[1] = fmin(best[1], clock_now() - middle);
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
    const int64_t count = (bench->cpu ? (int64_t)cpu_tensor_bytes : TENSOR_BYTES) / 4;
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

int main(int argc, char **argv)
{
    struct bench bench = {0};
    const int threads = argc > 1 ? atoi(argv[1]) : 0;
    const char *backend = argc > 3 ? argv[3] : "cpu";

    bench_open(&bench, backend, threads,
               argc > 2 && strcmp(argv[2], "bf16") == 0 ? TYPE_BF16 : TYPE_FP32);
    bench_host_look(&bench.host);
    bench_header_print();
    measure_memory(&bench);
    for (size_t i = 0; i < (bench.cpu ? LAYERS_OF_CPU : sizeof layers / sizeof layers[0]); i++)
        measure_layer(&bench, &layers[i]);
    measure_attention(&bench, "vit_cifar", 64, 65, 3, 0.1f);
    measure_attention(&bench, "vit_base_patch32_224", 32, 50, 12, 0);
    measure_attention(&bench, "vit_base_patch16_224", bench.cpu ? 8 : 256, 197, 12, 0);
    return 0;
}
