// SPDX-License-Identifier: BSD-3-Clause
// devices: cpu gpu
/* Grains (device/grains.h): the outputs of operations and the gradients of parameters have the same
 * bits however the samples are divided into passes, and on any number of threads. They equal those
 * without grains up to rounding. Operations whose grains are calls of their own are tested in
 * models (test_grains_model). */
#include "base/base.h"
#include "base/sum_tree.h"
#include "device/grains.h"
#include "device_test.h"
#include "test.h"

enum { SAMPLES = 43, GRAIN = 8, GRAINS = 6, TENSORS = 8, SLOTS = 12 };

/* Ends of passes, in grains. Some passes are empty. */
static const int layouts[][4] = {{6}, {4, 6}, {0, 3, 6}, {1, 4, 6}, {3, 3, 5, 6}};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

/* Operations with their tensors. `run` runs them for samples first..first + count - 1. */
struct work {
    struct device_test test;
    struct grains *grains; /* NULL: the operations run without grains */
    enum data_type type;
    const int64_t *size;
    int64_t samples; /* of the global batch */
    bool watched;    /* calls have one grain */
    void *in[TENSORS], *out[TENSORS];
    int64_t in_sample[TENSORS];  /* elements of a sample; 0: the samples share the input */
    int64_t out_sample[TENSORS]; /* elements of a sample; 0: no output */
    float *sums;                 /* partial sums: [SLOTS][stride] */
    int64_t stride, largest;
    void *workspace;
    struct step_params *params;
    void (*run)(struct work *work, int64_t first, int64_t count);
    int64_t first; /* of the pass */
    /* Batch norm: each pass is that of a rank, which needs the sums of all ranks. So all passes run
     * in several phases. Phase 0 collects the sums of the forward pass, phase 1 those of the
     * backward pass, and phase 2 computes the results. */
    int phases, phase;
    int64_t channels;
    double *sums_forward, *sums_backward; /* of all passes: [GRAINS][2 * channels + 1] */
};

typedef void prepare_work(struct work *work);

/* The values of sample `first` on. */
static void *in_at(const struct work *work, int tensor, int64_t first)
{
    return element_to_write(work->type, work->in[tensor], first * work->in_sample[tensor]);
}

static void *out_at(const struct work *work, int tensor, int64_t first)
{
    return element_to_write(work->type, work->out[tensor], first * work->out_sample[tensor]);
}

/* Make random inputs and the outputs. in, out: elements of each per sample, ended by 0; -N: N
 * elements that all samples share. */
static void tensors_make(struct work *work, const int64_t *in, const int64_t *out)
{
    for (int i = 0; in[i] != 0; i++) {
        work->in_sample[i] = in[i] > 0 ? in[i] : 0;
        work->in[i] =
            device_test_random(&work->test, work->type, in[i] > 0 ? work->samples * in[i] : -in[i],
                               1, (uint64_t)i + 1);
    }
    for (int i = 0; out[i] != 0; i++) {
        work->out_sample[i] = out[i];
        work->out[i] = device_test_zeros(&work->test, work->type, work->samples * out[i]);
    }
}

#define LIST(...) ((const int64_t[]){__VA_ARGS__, 0})

/* Return the dropout of the pass that begins at sample work->first. */
static struct dropout drop(const struct work *work, float rate, uint32_t layer)
{
    work->params->position = (uint32_t)work->first;
    return (struct dropout){.rate = rate, .seed = 9, .layer = layer, .params = work->params};
}

/* ---- linear layers: size = {rows of a sample, in, out} */
static void linear_run(struct work *work, int64_t first, int64_t count)
{
    const int64_t rows = work->size[0], in = work->size[1], out = work->size[2];

    DEVICE_RUN(&work->test, linear_forward, .type = work->type, .rows = count * rows, .in = in,
               .out = out, .rows_per_sample = rows, .x = in_at(work, 0, first),
               .weight = work->in[1], .bias = work->in[2], .residual = in_at(work, 3, first),
               .y = out_at(work, 0, first), .dropout = drop(work, 0.2f, 1),
               .drop_path = drop(work, 0.4f, 2));
    DEVICE_RUN(&work->test, linear_backward, .type = work->type, .rows = count * rows, .in = in,
               .out = out, .rows_per_sample = rows, .x = in_at(work, 0, first),
               .weight = work->in[1], .dy = in_at(work, 3, first), .pre = in_at(work, 0, first),
               .dx = out_at(work, 1, first), .dweight = work->sums, .dbias = work->sums + out * in,
               .overwrite = true, .dropout = drop(work, 0.1f, 3));
}

static void linear_prepare(struct work *work)
{
    const int64_t rows = work->size[0], in = work->size[1], out = work->size[2];

    tensors_make(work, LIST(rows * in, -out * in, -out, rows * out), LIST(rows * out, rows * in));
    work->largest = out * in;
    work->stride = out * in + out;
    work->run = linear_run;
}

/* ---- convolutions: size = {height, width, in, out, kernel, stride, padding} */
static struct convolution_shape shape_of(const struct work *work, int64_t batch)
{
    const int64_t *size = work->size;

    return (struct convolution_shape){batch,   size[0], size[1], size[2],
                                      size[3], size[4], size[5], size[6]};
}

static void convolution_run(struct work *work, int64_t first, int64_t count)
{
    const struct convolution_shape shape = shape_of(work, count);

    DEVICE_RUN(&work->test, convolution_forward, .type = work->type, .shape = shape,
               .x = in_at(work, 0, first), .weight = work->in[1], .bias = work->in[2], .relu = true,
               .y = out_at(work, 0, first), .workspace = work->workspace);
    DEVICE_RUN(&work->test, convolution_backward, .type = work->type, .shape = shape,
               .x = in_at(work, 0, first), .weight = work->in[1], .dy = in_at(work, 3, first),
               .dx = out_at(work, 1, first), .dweight = work->sums,
               .dbias = work->sums + convolution_weights(&shape), .overwrite = true,
               .workspace = work->workspace);
}

static void convolution_prepare(struct work *work)
{
    const struct convolution_shape shape = shape_of(work, SAMPLES);
    const struct device_backend *backend = work->test.device->backend;
    const struct convolution_shape one = shape_of(work, 1);
    const int64_t x = convolution_pixels(&one) * one.in, y = convolved_pixels(&one) * one.out;

    work->largest = convolution_weights(&one);
    work->stride = work->largest + shape.out;
    tensors_make(work, LIST(x, -work->largest, -shape.out, y), LIST(y, x));
    work->workspace = device_test_scratch(
        &work->test, backend->convolution_workspace(work->test.device, work->type, &shape));
    work->run = convolution_run;
}

/* ---- batch norm: size = {pixels of a sample, channels} */
/* Collect the rows of this pass in `all`, or replace them by those of all passes; add them. */
static void add_sums(struct work *work, double *all, bool collects, double *sums)
{
    const int64_t count = 2 * work->channels + 1;
    int64_t rows;

    if (work->grains == NULL)
        return;
    double *of_pass = grains_rows(work->grains, count, &rows);
    device_test_wait(&work->test);
    for (int64_t i = 0; i < rows * count && collects; i++)
        all[i] += of_pass[i];
    if (!collects)
        memcpy(of_pass, all, (size_t)(rows * count) * sizeof *all);
    DEVICE_RUN(&work->test, tree_sums, rows, count, of_pass, sums);
}

static void batch_norm_run(struct work *work, int64_t first, int64_t count)
{
    const struct device_backend *backend = work->test.device->backend;
    const int64_t rows = count * work->size[0], channels = work->size[1];
    double *sums = work->in[4], *dsums = work->in[5];
    float *statistics = work->in[6], *gradient = work->sums;
    void *dy = out_at(work, 2, first);

    backend->copy(work->test.stream, dy, in_at(work, 3, first),
                  (size_t)(rows * channels) * type_size(work->type));
    DEVICE_RUN(&work->test, batch_norm_sums, work->type, rows, channels, in_at(work, 0, first),
               sums);
    add_sums(work, work->sums_forward, work->phase == 0, sums);
    DEVICE_RUN(&work->test, batch_norm_forward, .type = work->type, .rows = rows,
               .channels = channels, .epsilon = 1e-5f, .x = in_at(work, 0, first),
               .gamma = work->in[1], .beta = work->in[2], .sums = sums, .relu = true,
               .y = out_at(work, 0, first), .statistics = statistics);
    DEVICE_RUN(&work->test, batch_norm_backward_sums, .type = work->type, .rows = rows,
               .channels = channels, .x = in_at(work, 0, first), .gamma = work->in[1],
               .beta = work->in[2], .statistics = statistics, .forward_sums = sums,
               .running_weight = 0.1f, .dy = dy, .sums = dsums, .dgamma = gradient,
               .dbeta = gradient + channels, .drunning_mean = gradient + 2 * channels,
               .drunning_variance = gradient + 3 * channels, .overwrite = true);
    add_sums(work, work->sums_backward, work->phase == 1, dsums);
    DEVICE_RUN(&work->test, batch_norm_backward, .type = work->type, .rows = rows,
               .channels = channels, .x = in_at(work, 0, first), .gamma = work->in[1],
               .statistics = statistics, .sums = dsums, .beta = work->in[2], .dy = dy,
               .dx = out_at(work, 1, first));
}

static void batch_norm_prepare(struct work *work)
{
    const int64_t sample = work->size[0] * work->size[1], channels = work->size[1];
    const int64_t all = GRAINS * (2 * channels + 1);

    work->channels = channels;
    tensors_make(work, LIST(sample, -channels, -channels, sample), LIST(sample, sample, sample));
    work->in[4] = device_test_zeros(&work->test, TYPE_FP32, 2 * (2 * channels + 1));
    work->in[5] = device_test_zeros(&work->test, TYPE_FP32, 2 * (2 * channels + 1));
    work->in[6] = device_test_zeros(&work->test, TYPE_FP32, 3 * channels);
    work->sums_forward = device_test_zeros(&work->test, TYPE_FP32, 2 * all);
    work->sums_backward = device_test_zeros(&work->test, TYPE_FP32, 2 * all);
    work->largest = 2 * channels;
    work->stride = 4 * channels;
    work->phases = 3;
    work->run = batch_norm_run;
}

/* ---- the harness */
static int64_t grains_of(const struct work *work)
{
    return round_up_division(work->samples, GRAIN);
}

static void grains_prepare(struct work *work)
{
    struct arena arena;

    arena_measure(&arena);
    grains_allocate(work->grains, &arena, work->samples, grains_of(work), work->largest,
                    work->channels);
    const size_t bytes = arena.peak;
    void *memory = device_test_scratch(&work->test, bytes + 256);
    memory = (char *)memory + (256 - (uintptr_t)memory % 256) % 256;
    arena_begin(&arena, memory, bytes);
    grains_allocate(work->grains, &arena, work->samples, grains_of(work), work->largest,
                    work->channels);
}

static void work_open(struct work *work, prepare_work *prepare, enum data_type type,
                      const int64_t *size, int64_t samples, int threads, bool grains)
{
    *work = (struct work){.type = type, .size = size, .samples = samples, .phases = 1};
    device_test_open(&work->test, threads);
    work->grains = grains ? grains_open(work->test.device, GRAIN) : NULL;
    work->params = device_test_params(&work->test, 7, 0, 0, 1);
    prepare(work);
    if (grains)
        grains_prepare(work);
    work->sums = device_test_zeros(&work->test, TYPE_FP32, SLOTS * work->stride);
}

static void work_close(struct work *work)
{
    grains_close(work->grains);
    device_test_close(&work->test);
}

static void merge(void *context, int into, int from)
{
    const struct work *work = context;

    work->test.device->backend->add(work->test.stream, work->sums + into * work->stride,
                                    work->sums + from * work->stride, work->stride);
}

/* Run one pass and add its partial sums to the pool. */
static void run_pass(struct work *work, struct tree_pool *pool, int *slots, int64_t begin,
                     int64_t end)
{
    const int64_t first = begin * GRAIN, left = work->samples - first, most = (end - begin) * GRAIN;
    struct subtree parts[TREE_PARTS];
    const int count = tree_cut(begin, end, grains_of(work), parts);
    int slot[TREE_PARTS];

    for (int part = 0; part < count; part++)
        slot[part] = (*slots)++;
    assert_true(*slots <= SLOTS);
    work->first = first;
    grains_begin(work->grains, first, left < most ? left : most, work->samples);
    if (work->watched)
        grains_watch(work->grains, work->test.stream, begin, FLIP_OFF, 0);
    grains_unit(work->grains, work->stride, slot);
    work->run(work, first, left < most ? left : most);
    grains_end(work->grains);
    device_test_wait(&work->test);
    for (int part = 0; part < count; part++)
        tree_pool_insert(pool, parts[part], slot[part], merge, work);
}

/* Run passes that end at these grains. Return the gradient, in the memory of a partial sum. */
static const float *run_layout(struct work *work, const int *ends)
{
    struct tree_pool pool;

    for (work->phase = 0; work->phase < work->phases; work->phase++) {
        int slots = 0;
        pool = (struct tree_pool){.total = grains_of(work)};
        memset(work->sums, 0xff, SLOTS * (size_t)work->stride * sizeof *work->sums);
        for (int64_t pass = 0, begin = 0; begin < grains_of(work); begin = ends[pass++])
            run_pass(work, &pool, &slots, begin, ends[pass]);
        assert_int_equal(pool.count, 1);
    }
    device_test_wait(&work->test);
    return work->sums + pool.waiting[0].slot * work->stride;
}

static void check_outputs(const struct work *expected, const struct work *work)
{
    for (int i = 0; i < TENSORS; i++)
        device_test_same("output", work->type, expected->out[i], work->out[i],
                         work->samples * work->out_sample[i]);
}

/* Compare with the results without grains. */
static void check_without(const struct work *work, const float *gradient, prepare_work *prepare)
{
    struct work plain;
    const double rounding = device_test_precision(work->type) + 1e-6;

    work_open(&plain, prepare, work->type, work->size, SAMPLES, 2, false);
    plain.run(&plain, 0, SAMPLES);
    device_test_wait(&plain.test);
    for (int i = 0; i < TENSORS; i++)
        device_test_near_in_norm("output", work->type, plain.out[i], work->out[i],
                                 SAMPLES * work->out_sample[i], rounding);
    /* GPUs round the gradient of a convolution's weight to the type of the operands. */
    device_test_near_in_norm("gradient", TYPE_FP32, plain.sums, gradient, work->stride,
                             rounding + 1e-5);
    work_close(&plain);
}

/* Emulated GPUs are slow: they get fewer layouts, sizes and types. */
static bool on_gpu(void)
{
    return getenv("VITTRAIN_TEST_DEVICE") != NULL;
}

static void check_type(prepare_work *prepare, enum data_type type, const int64_t *size)
{
    struct work once;

    work_open(&once, prepare, type, size, SAMPLES, 1, true);
    const float *gradient = run_layout(&once, layouts[0]);
    grains_close(once.grains); /* grains are closed in reverse order */
    once.grains = NULL;
    for (int layout = 0; layout < LAYOUTS; layout += on_gpu() ? 3 : 1) {
        struct work work;
        work_open(&work, prepare, type, size, SAMPLES, 1 + layout % 3, true);
        const float *other = run_layout(&work, layouts[layout]);
        check_outputs(&once, &work);
        device_test_same("gradient", TYPE_FP32, gradient, other, work.stride);
        work_close(&work);
    }
    check_without(&once, gradient, prepare);
    work_close(&once);
}

/* All types. On a GPU: the first size of an operation with one type. */
static void check(prepare_work *prepare, const int64_t *size)
{
    static prepare_work *last;
    static int calls;
    const bool gpu = on_gpu();
    if (gpu && prepare == last)
        return;
    for (int type = TYPE_FP32; type <= TYPE_FP16; type++)
        if (!gpu || type == calls % 3)
            check_type(prepare, (enum data_type)type, size);
    last = prepare;
    calls++;
}

#define CHECK(prepare, ...) check(prepare, (const int64_t[]){__VA_ARGS__})

TEST(linear_layers)
{
    CHECK(linear_prepare, 3, 48, 40);
    CHECK(linear_prepare, 65, 48, 40);
    CHECK(linear_prepare, 1, 70, 10);
    CHECK(linear_prepare, 50, 96, 200);
    CHECK(linear_prepare, 3, 7, 5);
}

/* Compare linear layers in calls with several grains with those in calls with one. */
static void check_calls(enum data_type type, const int64_t *size, int64_t samples)
{
    const int all[] = {(int)round_up_division(samples, GRAIN)};
    struct work several, single;

    work_open(&several, linear_prepare, type, size, samples, 2, true);
    const float *gradient = run_layout(&several, all);
    grains_close(several.grains);
    several.grains = NULL;
    work_open(&single, linear_prepare, type, size, samples, 1, true);
    single.watched = true;
    const float *other = run_layout(&single, all);
    check_outputs(&several, &single);
    device_test_same("gradient", TYPE_FP32, gradient, other, single.stride);
    work_close(&single);
    work_close(&several);
}

/* Up to eight grains, and more than a call adds; sizes with several blocks of rows, columns and
 * outputs, and with slow strides. */
TEST(calls_with_several_grains)
{
    static const int64_t sizes[][3] = {
        {1, 7, 5}, {65, 48, 40}, {21, 800, 24}, {1, 388, 2304}, {2, 1024, 12}};
    const int last = on_gpu() ? 1 : 5;

    for (int i = 0; i < last; i++)
        for (enum data_type type = TYPE_FP32; type <= TYPE_FP16; type++) {
            check_calls(type, sizes[i], 64);
            check_calls(type, sizes[i], 11 * GRAIN - 3);
        }
}

TEST(convolutions)
{
    CHECK(convolution_prepare, 9, 7, 3, 4, 3, 1, 1);
    CHECK(convolution_prepare, 8, 8, 32, 48, 3, 1, 1);
    CHECK(convolution_prepare, 9, 9, 40, 24, 3, 2, 1);
    CHECK(convolution_prepare, 6, 5, 64, 32, 1, 1, 0);
    CHECK(convolution_prepare, 6, 6, 16, 32, 1, 2, 0);
}

TEST(batch_norms)
{
    CHECK(batch_norm_prepare, 36, 24);
    CHECK(batch_norm_prepare, 1, 13);
}

static void add_number(void *context, int into, int from)
{
    double *numbers = context;
    numbers[into] += numbers[from];
}

/* Return the sum of one column in the order of tree_pool_insert. */
static double pool_sum(const double *values, int64_t rows, int64_t stride)
{
    struct tree_pool pool = {.total = rows};
    double numbers[300];

    for (int64_t i = 0; i < rows; i++) {
        numbers[i] = values[i * stride];
        tree_pool_insert(&pool, (struct subtree){i, 0}, (int)i, add_number, numbers);
    }
    assert_int_equal(pool.count, 1);
    return numbers[pool.waiting[0].slot];
}

TEST(sums_of_rows)
{
    static const int64_t rows[] = {1, 2, 3, 5, 6, 7, 8, 11, 16, 21, 100, 255, 300};
    enum { COLUMNS = 37, MOST = 300 };

    DEVICE_TEST(test, 2);
    const float *random = device_test_random(&test, TYPE_FP32, MOST * COLUMNS, 1, 1);
    double *from = device_test_zeros(&test, TYPE_FP32, 2 * MOST * COLUMNS);
    double *sums = device_test_zeros(&test, TYPE_FP32, 2 * COLUMNS);
    for (int64_t i = 0; i < MOST * COLUMNS; i++)
        from[i] = (double)random[i] / 3; /* sums are rounded */
    for (size_t n = 0; n < sizeof rows / sizeof rows[0]; n++) {
        DEVICE_RUN(&test, tree_sums, rows[n], COLUMNS, from, sums);
        device_test_wait(&test);
        for (int64_t j = 0; j < COLUMNS; j++)
            assert_true(sums[j] == pool_sum(from + j, rows[n], COLUMNS));
    }
}

TEST_ENDS(beginning_inside_a_grain_ends, "not whole grains")
{
    grains_begin(grains_open(test->device, GRAIN), GRAIN + 1, GRAIN, SAMPLES);
}

TEST_ENDS(ending_inside_a_grain_ends, "not whole grains")
{
    grains_begin(grains_open(test->device, GRAIN), 0, GRAIN + 1, SAMPLES);
}

TEST_ENDS(unaligned_grains_end, "are not aligned")
{
    grains_open(test->device, 4);
}

TEST_ENDS(accumulation_in_grains_ends, "written, not accumulated")
{
    float *gradient = device_test_zeros(test, TYPE_FP32, 8);
    grains_begin(grains_open(test->device, GRAIN), 0, GRAIN, GRAIN);
    DEVICE_RUN(test, scale_backward, .rows = GRAIN, .width = 8, .dscale = gradient);
}

TEST_MAIN()
