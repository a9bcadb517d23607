// SPDX-License-Identifier: BSD-3-Clause
// devices: cpu gpu
/* Grains (device/grains.h) of linear layers: outputs and gradients of parameters have the same bits
 * however the samples are divided into passes and the grains into calls, and on any number of
 * threads. They equal those without grains up to rounding. Operations whose grains are calls of
 * their own are tested in models (test_grains_model, test_exact). */
#include "base/sum_tree.h"
#include "device/grains.h"
#include "device_test.h"

/* Not a power of two; the last grain is short. */
enum { SAMPLES = 85, GRAIN = 8, GRAINS = 11, SLOTS = 12 };

/* A linear layer with its tensors. */
struct work {
    struct device_test test;
    struct grains *grains;
    enum data_type type;
    int64_t rows, in, out; /* rows of a sample */
    const void *x, *weight, *bias, *dy;
    void *y, *dx;
    float *sums; /* partial sums: [SLOTS][stride] */
    int64_t stride;
    const float *gradient; /* the sum of all */
    struct step_params *params;
};

static struct dropout drop(const struct work *work, float rate, uint32_t layer)
{
    return (struct dropout){.rate = rate, .seed = 9, .layer = layer, .params = work->params};
}

static void run_samples(struct work *work, int64_t first, int64_t count)
{
    const enum data_type type = work->type;
    const int64_t in = work->in, out = work->out, row = first * work->rows;
    const void *x = element(type, work->x, row * in), *dy = element(type, work->dy, row * out);

    work->params->position = (uint32_t)first;
    DEVICE_RUN(&work->test, linear_forward, .type = type, .rows = count * work->rows, .in = in,
               .out = out, .rows_per_sample = work->rows, .x = x, .weight = work->weight,
               .bias = work->bias, .residual = dy, .y = element_to_write(type, work->y, row * out),
               .dropout = drop(work, 0.2f, 1), .drop_path = drop(work, 0.4f, 2));
    DEVICE_RUN(&work->test, linear_backward, .type = type, .rows = count * work->rows, .in = in,
               .out = out, .rows_per_sample = work->rows, .x = x, .weight = work->weight, .dy = dy,
               .pre = x, .dx = element_to_write(type, work->dx, row * in), .dweight = work->sums,
               .dbias = work->sums + out * in, .overwrite = true, .dropout = drop(work, 0.1f, 3));
    device_test_wait(&work->test);
}

static void grains_prepare(struct work *work)
{
    struct arena arena;

    arena_measure(&arena);
    grains_allocate(work->grains, &arena, SAMPLES, GRAINS, work->out * work->in, 0);
    const size_t bytes = arena.peak;
    void *memory = device_test_scratch(&work->test, bytes + ARENA_ALIGNMENT);
    memory = (char *)memory + (ARENA_ALIGNMENT - (uintptr_t)memory % ARENA_ALIGNMENT);
    arena_begin(&arena, memory, bytes);
    grains_allocate(work->grains, &arena, SAMPLES, GRAINS, work->out * work->in, 0);
}

static void merge(void *context, int into, int from)
{
    const struct work *work = context;

    work->test.device->backend->add(work->test.stream, work->sums + into * work->stride,
                                    work->sums + from * work->stride, work->stride);
}

/* Run one pass and add its partial sums to the pool. watched: calls have one grain. */
static void run_pass(struct work *work, struct tree_pool *pool, int *slots, int64_t begin,
                     int64_t end, bool watched)
{
    const int64_t first = begin * GRAIN, last = end * GRAIN < SAMPLES ? end * GRAIN : SAMPLES;
    struct subtree parts[TREE_PARTS];
    const int count = tree_cut(begin, end, GRAINS, parts);
    int slot[TREE_PARTS];

    for (int part = 0; part < count; part++)
        slot[part] = (*slots)++;
    assert_true(*slots <= SLOTS);
    grains_begin(work->grains, first, last - first, SAMPLES);
    if (watched)
        grains_watch(work->grains, work->test.stream, begin, FLIP_OFF, 0);
    grains_unit(work->grains, work->stride, slot);
    run_samples(work, first, last - first);
    grains_end(work->grains);
    for (int part = 0; part < count; part++)
        tree_pool_insert(pool, parts[part], slot[part], merge, work);
}

/* Run passes that end at these grains; NULL: one pass without grains. size: rows of a sample, in,
 * out. The caller closes the device. */
static void run(struct work *work, enum data_type type, const int64_t *size, int threads,
                const int *ends, bool watched)
{
    const int64_t rows = size[0], in = size[1], out = size[2];
    struct tree_pool pool = {.total = GRAINS};
    int slots = 0;

    *work = (struct work){.type = type, .rows = rows, .in = in, .out = out};
    device_test_open(&work->test, threads);
    work->params = device_test_params(&work->test, 7, 0, 0, 1);
    work->x = device_test_random(&work->test, type, SAMPLES * rows * in, 1, 1);
    work->weight = device_test_random(&work->test, type, out * in, 1, 2);
    work->bias = device_test_random(&work->test, type, out, 1, 3);
    work->dy = device_test_random(&work->test, type, SAMPLES * rows * out, 1, 4);
    work->y = device_test_zeros(&work->test, type, SAMPLES * rows * out);
    work->dx = device_test_zeros(&work->test, type, SAMPLES * rows * in);
    work->stride = out * in + out;
    work->gradient = work->sums = device_test_zeros(&work->test, TYPE_FP32, SLOTS * work->stride);
    if (ends == NULL) {
        run_samples(work, 0, SAMPLES);
        return;
    }
    memset(work->sums, 0xff, SLOTS * (size_t)work->stride * sizeof *work->sums);
    work->grains = grains_open(work->test.device, GRAIN);
    grains_prepare(work);
    for (int64_t pass = 0, begin = 0; begin < GRAINS; begin = ends[pass++])
        run_pass(work, &pool, &slots, begin, ends[pass], watched);
    assert_int_equal(pool.count, 1);
    device_test_wait(&work->test);
    work->gradient += pool.waiting[0].slot * work->stride;
    grains_close(work->grains);
}

static void check(enum data_type type, const int64_t *size)
{
    /* Some passes are empty. The first layout is watched, the first two are for emulated GPUs. */
    static const int layouts[][5] = {{11}, {0, 3, 3, 5, 11}, {8, 11}, {1, 4, 11}, {0, 3, 11}};
    const int64_t rows = SAMPLES * size[0], x = rows * size[1], y = rows * size[2];
    const double rounding = device_test_precision(type) + 1e-6;
    struct work once, plain;

    run(&once, type, size, 1, (const int[]){GRAINS}, false);
    for (int layout = 0; layout < device_test_cases(5, 2); layout++) {
        struct work other;
        run(&other, type, size, 1 + layout % 3, layouts[layout], layout == 0);
        device_test_same("y", type, once.y, other.y, y);
        device_test_same("dx", type, once.dx, other.dx, x);
        device_test_same("gradient", TYPE_FP32, once.gradient, other.gradient, once.stride);
        device_test_close(&other.test);
    }
    run(&plain, type, size, 2, NULL, false);
    device_test_near_in_norm("y", type, plain.y, once.y, y, rounding);
    device_test_near_in_norm("dx", type, plain.dx, once.dx, x, rounding);
    device_test_near_in_norm("gradient", TYPE_FP32, plain.gradient, once.gradient, once.stride,
                             1e-5);
    device_test_close(&plain.test);
    device_test_close(&once.test);
}

/* Sizes with several blocks of rows, columns and outputs, and with slow strides. */
TEST(linear_layers)
{
    static const int64_t sizes[][3] = {{3, 7, 5},     {3, 48, 40},   {65, 48, 40},   {1, 70, 10},
                                       {50, 96, 200}, {21, 800, 24}, {1, 388, 2304}, {2, 1024, 12}};

    for (int i = 0; i < device_test_cases(8, 2); i++)
        for (enum data_type type = TYPE_FP32; type <= TYPE_FP16; type++)
            check(type, sizes[i]);
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

TEST_ENDS(accumulation_in_grains_ends, "written, not accumulated")
{
    float *gradient = device_test_zeros(test, TYPE_FP32, 8);
    grains_begin(grains_open(test->device, GRAIN), 0, GRAIN, GRAIN);
    DEVICE_RUN(test, scale_backward, .rows = GRAIN, .width = 8, .dscale = gradient);
}

TEST_MAIN()
