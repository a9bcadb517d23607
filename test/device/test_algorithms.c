// SPDX-License-Identifier: BSD-3-Clause
// devices: cpu gpu
/* Algorithms of matrix products: a device measures them, and replaces those that fail. Processes
 * that adopt them: test_gpu_algorithms.sh. */
#include "device_test.h"

enum { ROWS = 64, IN = 200, OUT = 24 };

struct layer {
    struct linear_forward forward;
    struct linear_backward backward;
};

static struct layer layer_make(struct device_test *test)
{
    const void *x = device_test_random(test, TYPE_FP32, ROWS * IN, 1, 1);
    const void *weight = device_test_random(test, TYPE_FP32, OUT * IN, 1, 2);
    return (struct layer){DEVICE_ARGS(linear_forward, .rows = ROWS, .in = IN, .out = OUT,
                                      .rows_per_sample = 1, .x = x, .weight = weight,
                                      .bias = device_test_random(test, TYPE_FP32, OUT, 1, 3),
                                      .y = device_test_zeros(test, TYPE_FP32, ROWS * OUT)),
                          DEVICE_ARGS(linear_backward, .rows = ROWS, .in = IN, .out = OUT,
                                      .rows_per_sample = 1, .x = x, .weight = weight,
                                      .dy = device_test_random(test, TYPE_FP32, ROWS * OUT, 1, 4),
                                      .dweight = device_test_zeros(test, TYPE_FP32, OUT * IN),
                                      .dbias = device_test_zeros(test, TYPE_FP32, OUT))};
}

static void layer_queue(struct device_test *test, const struct layer *layer)
{
    DEVICE_QUEUE(test, linear_forward, &layer->forward);
    DEVICE_QUEUE(test, linear_backward, &layer->backward);
}

/* A recorded step measures nothing. */
static struct layer layer_run(struct device_test *test, bool recorded)
{
    const struct device_backend *backend = test->device->backend;
    const struct layer layer = layer_make(test);
    if (recorded)
        backend->graph_begin(test->stream);
    layer_queue(test, &layer);
    struct graph *graph = recorded ? backend->graph_end(test->stream) : NULL;
    if (recorded)
        backend->graph_run(graph, test->stream);
    device_test_wait(test);
    if (recorded)
        backend->graph_close(graph);
    return layer;
}

/* Opens a device. On the emulated GPU this algorithm is the fastest one. */
static void open_preferring(struct device_test *test, const char *algorithm)
{
    setenv("VITTRAIN_EMULATION_PRODUCT", algorithm, 1);
    device_test_open(test, 1);
    if (test->device->backend != &device_cpu)
        return;
    device_test_close(test);
    SKIP_BECAUSE("needs a GPU or the emulated one");
}

/* Column sums are computed in the product or separately, whichever is faster. */
TEST(sums_are_timed)
{
    for (int apart = 0; apart < 2; apart++) {
        struct device_test test;
        open_preferring(&test, apart ? "0apart" : "0");
        layer_run(&test, false);
        OWNED char *text = test.device->backend->choices_export(test.device);
        const char *choice = strstr(text, " sums align");
        assert_non_null(choice);
        choice = strstr(choice, " = ");
        assert_non_null(choice);
        if (device_test_is_emulated(&test))
            assert_int_equal(strncmp(choice, " = ffffffffffffffff ", 20) == 0, apart);
        device_test_close(&test);
    }
}

/* A single fast run does not make an algorithm the fastest one. */
TEST(medians_are_compared)
{
    struct device_test test;
    open_preferring(&test, "0varying");
    layer_run(&test, false);
    OWNED char *text = test.device->backend->choices_export(test.device);
    if (device_test_is_emulated(&test)) {
        assert_has(text, " = 0000000070726f64 0000000000000000 ");
        assert_null(strstr(text, " = 0000000070726f64 0000000000000001 "));
    }
    device_test_close(&test);
}

/* If an algorithm cannot be found or run, the product uses another one or no epilogue. */
TEST(refused_algorithms_are_replaced)
{
    const char *const refused[] = {"find-bias", "find-sums", "run-bias",
                                   "run-sums",  "run-0",     "run-bias run-sums run-0"};
    struct device_test first, second;
    open_preferring(&first, "0");
    const struct layer reference = layer_run(&first, false);
    const size_t count = device_test_is_emulated(&first) ? sizeof refused / sizeof refused[0] : 0;
    for (size_t i = 0; i < count; i++)
        for (int recorded = 0; recorded < 2; recorded++) {
            setenv("VITTRAIN_EMULATION_REFUSE", refused[i], 1);
            open_preferring(&second, "0");
            const struct layer layer = layer_run(&second, recorded);
            device_test_near_in_norm("y", TYPE_FP32, reference.forward.y, layer.forward.y,
                                     ROWS * OUT, 1e-6);
            device_test_near_in_norm("dweight", TYPE_FP32, reference.backward.dweight,
                                     layer.backward.dweight, OUT * IN, 1e-6);
            device_test_near_in_norm("dbias", TYPE_FP32, reference.backward.dbias,
                                     layer.backward.dbias, OUT, 1e-6);
            device_test_close(&second);
        }
    unsetenv("VITTRAIN_EMULATION_REFUSE");
    device_test_close(&first);
}

/* A layer with GELU, and the gradient through it, added to earlier column sums. The tensors of
 * hidden units are larger than the emulated L2 cache. */
enum { GELU_ROWS = 700, GELU_IN = 24, GELU_OUT = 80, GELU_COUNT = GELU_ROWS * GELU_OUT };

struct gelu_layer {
    uint16_t *pre, *y, *dx;
    float *sums;
};

static struct gelu_layer gelu_layer_run(struct device_test *test, bool drops)
{
    const struct gelu_layer layer = {device_test_zeros(test, TYPE_BF16, GELU_COUNT),
                                     device_test_zeros(test, TYPE_BF16, GELU_COUNT),
                                     device_test_zeros(test, TYPE_BF16, GELU_COUNT),
                                     device_test_random(test, TYPE_FP32, GELU_OUT, 1, 5)};
    const void *x = device_test_random(test, TYPE_BF16, GELU_ROWS * GELU_IN, 1, 1);
    const void *weight = device_test_random(test, TYPE_BF16, GELU_OUT * GELU_IN, 0.3f, 2);
    const struct dropout dropout = {.rate = drops ? 0.3f : 0,
                                    .params = device_test_params(test, 3, 0, 0, 0)};
    DEVICE_RUN(test, linear_forward, .type = TYPE_BF16, .rows = GELU_ROWS, .in = GELU_IN,
               .out = GELU_OUT, .rows_per_sample = 7, .x = x, .weight = weight, .pre = layer.pre,
               .y = layer.y, .dropout = dropout);
    DEVICE_RUN(test, linear_backward, .type = TYPE_BF16, .rows = GELU_ROWS, .in = GELU_OUT,
               .out = GELU_IN, .rows_per_sample = 7, .x = layer.y, .weight = weight, .dy = x,
               .pre = layer.pre, .dx = layer.dx, .dx_sums = layer.sums, .dropout = dropout);
    device_test_wait(test);
    return layer;
}

/* A GPU may compute products of chunks by other algorithms, so the bits are compared on the
 * emulated one. */
TEST(chunks_of_gelu_change_no_bit)
{
    for (int drops = 0; drops < 2; drops++) {
        struct device_test test;
        open_preferring(&test, "0");
        const struct gelu_layer whole = gelu_layer_run(&test, drops);
        for (int variant = 1; variant < 3 && device_test_is_emulated(&test); variant++) {
            assert_true(device_test_choose(&test, "gelu ", variant));
            const struct gelu_layer layer = gelu_layer_run(&test, drops);
            device_test_same("pre", TYPE_BF16, whole.pre, layer.pre, GELU_COUNT);
            device_test_same("y", TYPE_BF16, whole.y, layer.y, GELU_COUNT);
            device_test_same("dx", TYPE_BF16, whole.dx, layer.dx, GELU_COUNT);
            device_test_same("sums", TYPE_FP32, whole.sums, layer.sums, GELU_OUT);
        }
        device_test_close(&test);
    }
}

TEST_MAIN()
