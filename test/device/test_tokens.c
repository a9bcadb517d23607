// SPDX-License-Identifier: BSD-3-Clause
// devices: cpu gpu
/* Operations on tokens against their definitions in double precision, with gradients: patches,
 * class and register tokens, pooling, rotation of queries and keys, SwiGLU, LayerScale with dropout
 * and drop path, and these alone: for every step, sample and instruction set (test_grains draws the
 * masks of parts). Copies have the same bits. */
#include "device_test.h"

static void check_near(struct device_test *test, const char *what, enum data_type type,
                       const void *tensor, const double *expected)
{
    device_test_near(test, what, tensor, expected, device_test_rounding(type),
                     type == TYPE_FP32 ? 1 : 1e-3);
}

/* first: rows of a sample before its patches. */
static void check_patches(enum data_type type, enum pad_choice pad, int64_t batch, int64_t channels,
                          int64_t height, int64_t width, int64_t patch, int64_t first)
{
    const int64_t across = (width + patch - 1) / patch, row_width = channels * patch * patch;
    const int64_t rows_per_sample = first + (height + patch - 1) / patch * across;
    const int64_t count = batch * channels * height * width;
    const int64_t row_count = batch * rows_per_sample * row_width;
    DEVICE_TEST(test, 2);
    void *images = device_test_random(&test, type, count, 1, 1);
    void *rows = device_test_random(&test, type, row_count, 1, 2);
    void *back = device_test_random(&test, type, count, 1, 3);
    DEVICE_RUN(&test, patches, type, pad, batch, channels, height, width, patch, first, images,
               rows, false);
    DEVICE_RUN(&test, patches, type, pad, batch, channels, height, width, patch, first, back, rows,
               true);
    device_test_wait(&test);
    for (int64_t i = 0; i < row_count; i++) {
        const int64_t sample = i / row_width / rows_per_sample, column = i % row_width;
        const int64_t number = i / row_width % rows_per_sample - first;
        const int64_t c = column / patch / patch;
        int64_t y = number / across * patch + column / patch % patch;
        int64_t x = number % across * patch + column % patch;
        const bool outside = y >= height || x >= width;
        y = y < height ? y : height - 1;
        x = x < width ? x : pad == PAD_WRAP ? x % width : width - 1;
        const int64_t from = ((sample * channels + c) * height + y) * width + x;
        const bool is_zero = number < 0 || (outside && pad == PAD_NONE);
        assert_true(device_test_value(type, rows, i) ==
                    (is_zero ? 0 : device_test_value(type, images, from)));
    }
    device_test_same("images", type, images, back, count);
}

/* batch, channels, height, width, patch, first; the first six for the emulated GPU. Images that the
 * patch does not divide are padded in each way, also those smaller than a patch. */
static const int64_t patch_cases[][6] = {
    {3, 2, 8, 16, 8, 5},  {2, 1, 6, 9, 3, 0},    {3, 3, 32, 32, 4, 0},  {2, 2, 13, 16, 8, 1},
    {2, 3, 9, 10, 4, 0},  {1, 2, 3, 5, 16, 2},   {2, 2, 4, 12, 1, 3},   {1, 3, 64, 32, 32, 0},
    {2, 3, 37, 49, 8, 0}, {1, 1, 33, 64, 16, 1}, {2, 3, 28, 28, 14, 1}, {1, 3, 64, 48, 16, 0},
    {0, 3, 8, 8, 4, 1}};

TEST(patches_are_cut_and_put_together)
{
    for (enum data_type type = TYPE_FP32; type <= TYPE_FP16; type++)
        for (int i = 0; i < device_test_cases(sizeof patch_cases / sizeof patch_cases[0], 6); i++) {
            const int64_t *c = patch_cases[i];
            const bool pads = c[2] % c[4] != 0 || c[3] % c[4] != 0;
            for (enum pad_choice pad = pads ? PAD_EDGE : PAD_NONE; pad <= PAD_NONE; pad++)
                check_patches(type, pad, c[0], c[1], c[2], c[3], c[4], c[5]);
        }
}

struct tokens_case {
    int64_t batch, tokens, width;
    bool class_token;
    int64_t registers, unplaced;
};

/* The first TOKEN_EMULATED ones are for the emulated GPU. Odd batches overwrite gradients. */
static const struct tokens_case token_cases[] = {
    {3, 21, 48, true, 4, 5},  {2, 9, 13, true, 3, 4},    {80, 5, 8, true, 0, 0},
    {3, 7, 16, true, 2, 7},   {7, 6, 24, false, 2, 2},   {0, 5, 8, true, 0, 0},
    {3, 65, 48, true, 0, 0},  {2, 16, 13, false, 0, 0},  {1, 2, 1, true, 0, 0},
    {201, 5, 33, true, 0, 0}, {130, 4, 64, false, 0, 0}, {300, 1, 100, true, 0, 0},
    {200, 6, 33, true, 1, 0},
};

enum { TOKEN_CASES = sizeof token_cases / sizeof token_cases[0], TOKEN_EMULATED = 6 };

static void check_tokens_forward(enum data_type type, const struct tokens_case *it)
{
    const int64_t classes = it->class_token ? 1 : 0, first = classes + it->registers;
    const int64_t patches = it->tokens - first, width = it->width;
    DEVICE_TEST(test, 2);
    const struct tokens_forward args =
        DEVICE_ARGS(tokens_forward, type, it->batch, it->tokens, width, it->registers, it->unplaced,
                    device_test_random(&test, type, it->batch * patches * width, 1, 1),
                    it->class_token ? device_test_random(&test, type, width, 1, 2) : NULL,
                    device_test_random(&test, type, it->registers * width, 1, 7),
                    device_test_random(&test, type, (it->tokens - it->unplaced) * width, 1, 3),
                    device_test_zeros(&test, type, it->batch * it->tokens * width));
    double *expected = device_test_expected(&test, it->batch * it->tokens * width);
    DEVICE_QUEUE(&test, tokens_forward, &args);
    device_test_wait(&test);
    for (int64_t i = 0; i < it->batch * it->tokens * width; i++) {
        const int64_t sample = i / width / it->tokens, token = i / width % it->tokens;
        const int64_t j = i % width;
        if (token < classes)
            expected[i] = device_test_value(type, args.class_token, j);
        else if (token < first)
            expected[i] =
                device_test_value(type, args.register_tokens, (token - classes) * width + j);
        else
            expected[i] = device_test_value(type, args.patches,
                                            (sample * patches + token - first) * width + j);
        if (token >= it->unplaced)
            expected[i] +=
                device_test_value(type, args.position, (token - it->unplaced) * width + j);
    }
    check_near(&test, "x", type, args.x, expected);
}

static struct tokens_backward run_tokens_backward(struct device_test *test, enum data_type type,
                                                  const struct tokens_case *it, bool parameters)
{
    const int64_t width = it->width, classes = it->class_token ? 1 : 0;
    const int64_t patches = it->tokens - it->registers - classes;
    const bool overwrite = it->batch % 2 == 1, written = overwrite && parameters;
    struct tokens_backward args = DEVICE_ARGS(
        tokens_backward, type, it->batch, it->tokens, width, it->registers, it->unplaced,
        it->class_token, device_test_random(test, type, it->batch * it->tokens * width, 1, 4),
        device_test_zeros(test, type, it->batch * patches * width), NULL, NULL, NULL, overwrite);
    if (parameters) {
        args.dclass_token = device_test_gradient(test, written && it->class_token, width, 5);
        args.dregister_tokens = device_test_gradient(test, written, it->registers * width, 8);
        args.dposition =
            device_test_gradient(test, written, (it->tokens - it->unplaced) * width, 6);
    }
    DEVICE_QUEUE(test, tokens_backward, &args);
    device_test_wait(test);
    return args;
}

/* Compare the gradient of tokens first..first + count - 1 with what it was given plus the sum over
 * samples. */
static void check_sums(struct device_test *test, const struct tokens_backward *args, int64_t first,
                       int64_t count, const float *gradient)
{
    const double *dx = device_test_given(test, args->dx);
    const double *before = device_test_given(test, gradient);
    for (int64_t i = 0; i < count * args->width; i++) {
        double sum = before[i];
        for (int64_t b = 0; b < args->batch; b++)
            sum += dx[(b * args->tokens + first) * args->width + i];
        assert_true(fabs((double)gradient[i] - sum) <= 1e-6 * (1 + (double)args->batch));
    }
}

static void check_tokens_backward(enum data_type type, const struct tokens_case *it)
{
    const int64_t classes = it->class_token ? 1 : 0, first = classes + it->registers;
    const int64_t patches = it->tokens - first, width = it->width;
    DEVICE_TEST(test, 1);
    const struct tokens_backward args = run_tokens_backward(&test, type, it, true);
    DEVICE_TEST_AGAIN(&test, other, run_tokens_backward(&other, type, it, true))
    const struct tokens_backward frozen = run_tokens_backward(&test, type, it, false);
    for (int64_t i = 0; i < it->batch * patches * width; i++) {
        const int64_t row = i / width, from = row / patches * it->tokens + row % patches + first;
        assert_true(device_test_value(type, args.dpatches, i) ==
                    device_test_value(type, args.dx, from * width + i % width));
    }
    check_sums(&test, &args, it->unplaced, it->tokens - it->unplaced, args.dposition);
    check_sums(&test, &args, classes, it->registers, args.dregister_tokens);
    if (it->class_token)
        check_sums(&test, &args, 0, 1, args.dclass_token);
    else
        device_test_near(&test, "no class token", args.dclass_token,
                         device_test_given(&test, args.dclass_token), 0, 0);
    device_test_same("dpatches", type, frozen.dpatches, args.dpatches, it->batch * patches * width);
}

TEST_KERNELS(tokens_are_right)
{
    for (enum data_type type = TYPE_FP32; type <= TYPE_FP16; type++)
        for (int i = 0; i < device_test_cases(TOKEN_CASES, TOKEN_EMULATED); i++) {
            check_tokens_forward(type, &token_cases[i]);
            check_tokens_backward(type, &token_cases[i]);
        }
}

struct pool_case {
    int64_t batch, tokens, width, first;
    bool mean;
};

/* The first four are for the emulated GPU. */
static const struct pool_case pool_cases[] = {
    {3, 65, 48, 1, true},  {2, 5, 6, 2, false},    {5, 4, 7, 3, true},     {0, 4, 8, 0, true},
    {3, 65, 48, 0, false}, {2, 197, 133, 0, true}, {70, 10, 300, 2, true}, {4, 1, 9, 0, false},
};

static void check_pool(enum data_type type, const struct pool_case *it)
{
    int64_t width = it->width, count = it->batch * it->tokens * width;
    int64_t begin = it->mean ? it->first : 0, end = it->mean ? it->tokens : 1;
    DEVICE_TEST(test, 2);
    const void *x = device_test_random(&test, type, count, 1, 1);
    const void *dy = device_test_random(&test, type, it->batch * width, 1, 2);
    void *y = device_test_zeros(&test, type, it->batch * width);
    void *dx = device_test_random(&test, type, count, 1, 3);
    double *expected = device_test_expected(&test, count);
    DEVICE_RUN(&test, pool_forward, type, it->batch, it->tokens, width, it->first, it->mean, x, y);
    DEVICE_RUN(&test, pool_backward, type, it->batch, it->tokens, width, it->first, it->mean, dy,
               dx);
    device_test_wait(&test);
    for (int64_t i = 0; i < it->batch * width; i++)
        for (int64_t token = begin; token < end; token++)
            expected[i] +=
                device_test_value(type, x, (i / width * it->tokens + token) * width + i % width) /
                (double)(end - begin);
    check_near(&test, "y", type, y, expected);
    for (int64_t i = 0; i < count; i++) {
        int64_t token = i / width % it->tokens, sample = i / width / it->tokens;
        expected[i] =
            token < begin || token >= end
                ? 0
                : device_test_value(type, dy, sample * width + i % width) / (double)(end - begin);
    }
    check_near(&test, "dx", type, dx, expected);
}

TEST_KERNELS(pooling_is_right)
{
    for (enum data_type type = TYPE_FP32; type <= TYPE_FP16; type++)
        for (int i = 0; i < device_test_cases(8, 4); i++)
            check_pool(type, &pool_cases[i]);
}

/* ---- SwiGLU */

static void check_glu(enum data_type type, int64_t rows, int64_t width, bool in_place)
{
    const double tolerance = type == TYPE_FP32 ? 2e-6 : 1.001 * device_test_precision(type);
    const int64_t count = rows * width;
    DEVICE_TEST(test, 2);
    void *x = device_test_random(&test, type, 2 * count, 3, 1);
    const double *given = device_test_given(&test, x);
    void *dy = device_test_random(&test, type, count, 1, 2);
    void *y = device_test_random(&test, type, count, 1, 3);
    void *dx = in_place ? x : device_test_random(&test, type, 2 * count, 1, 4);
    double *expected = device_test_expected(&test, count);
    double *slope = device_test_expected(&test, 2 * count);
    DEVICE_RUN(&test, glu_forward, type, rows, width, x, y);
    DEVICE_RUN(&test, glu_backward, type, rows, width, x, dy, dx);
    device_test_wait(&test);
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = i / width * 2 * width + i % width;
        const double a = given[at], s = 1 / (1 + exp(-a)), b = given[at + width];
        const double g = device_test_value(type, dy, i);
        expected[i] = a * s * b;
        slope[at] = g * b * s * (1 + a * (1 - s));
        slope[at + width] = g * a * s;
    }
    device_test_near(&test, "y", y, expected, tolerance, 1);
    device_test_near(&test, "dx", dx, slope, tolerance, 1);
}

TEST_KERNELS(swiglu_is_right)
{
    static const int64_t sizes[][2] = {{0, 8}, {1, 1}, {3, 7}, {5, 24}, {65, 40}, {130, 33}};
    for (enum data_type type = TYPE_FP32; type <= TYPE_FP16; type++)
        for (int i = 0; i < device_test_cases(6, 4); i++)
            check_glu(type, sizes[i][0], sizes[i][1], i % 2 == 0);
}

/* ---- Rotation of queries and keys, and its inverse */

static void check_rotary(enum data_type type, int64_t batch, const int64_t *size, bool inverse)
{
    const double tolerance = type == TYPE_FP32 ? 4e-6 : 1.001 * device_test_precision(type);
    const int64_t tokens = size[0], heads = size[3], width = size[4];
    const int64_t patches = size[1] * size[2];
    const int64_t count = batch * tokens * 3 * heads * width, half = width / 2;
    DEVICE_TEST(test, 2);
    void *qkv = device_test_random(&test, type, count, 3, 1);
    const double *given = device_test_given(&test, qkv);
    double *expected = device_test_expected(&test, count);
    DEVICE_RUN(&test, rotary, .type = type, .batch = batch, .tokens = tokens,
               .grid = {size[1], size[2]}, .heads = heads, .head_dim = width, .temperature = 100,
               .inverse = inverse, .qkv = qkv);
    device_test_wait(&test);
    for (int64_t e = 0; e < count; e++) {
        const int64_t row = e / (heads * width), i = e % width % half, quarter = half / 2;
        const int64_t patch = row / 3 % tokens - (tokens - patches);
        const bool second = e % width >= half;
        expected[e] = given[e];
        if (row % 3 == 2 || patch < 0)
            continue;
        const int axis = i >= quarter;
        const double place = (double)(axis == 0 ? patch / size[2] : patch % size[2]);
        const double angle = 2 * acos(-1) * ((2 * place + 1) / (double)size[1 + axis] - 1) *
                             pow(100, -(double)(i % quarter) / (double)quarter);
        const double other = given[second ? e - half : e + half];
        expected[e] = expected[e] * cos(angle) + (second != inverse ? 1 : -1) * sin(angle) * other;
    }
    device_test_near(&test, "qkv", qkv, expected, tolerance, 1);
}

TEST_KERNELS(rotation_is_right)
{
    /* tokens, rows and columns of patches, heads, head_dim */
    static const int64_t sizes[][5] = {
        {5, 2, 2, 3, 64}, {9, 2, 3, 2, 24}, {4, 1, 4, 1, 4}, {3, 0, 0, 2, 8}, {69, 4, 16, 3, 32}};
    for (enum data_type type = TYPE_FP32; type <= TYPE_FP16; type++)
        for (int i = 0; i < device_test_cases(5, 4); i++)
            for (int64_t batch = 0; batch < 3; batch++)
                check_rotary(type, batch, sizes[i], ((int)type + i + batch) % 2 == 0);
}

/* ---- The gradient of LayerScale */

struct scale_case {
    enum data_type type;
    int64_t samples, rows_per_sample, width;
    float dropout, drop_path;
    bool in_place, overwrite, frozen;
};

/* The first SCALE_EMULATED ones are for the emulated GPU. */
static const struct scale_case scale_cases[] = {
    {TYPE_FP32, 2, 7, 13, 0.2f, 0, true, true, false},
    {TYPE_FP32, 5, 1, 264, 0.1f, 0.4f, false, true, false},
    {TYPE_FP32, 4, 3, 24, 0.5f, 0, false, false, true},
    {TYPE_BF16, 2, 9, 7, 0, 0, false, true, false},
    {TYPE_BF16, 2, 50, 96, 0.1f, 0.25f, false, false, false},
    {TYPE_FP16, 3, 33, 96, 0.3f, 0, true, false, false},
    {TYPE_FP32, 0, 5, 8, 0.1f, 0, false, true, false},
    {TYPE_FP32, 3, 65, 48, 0, 0, false, false, false},
    {TYPE_FP32, 90, 70, 33, 0, 0.3f, true, false, false},
    {TYPE_BF16, 4, 50, 300, 0.1f, 0.25f, false, false, false},
};

enum { SCALE_CASES = sizeof scale_cases / sizeof scale_cases[0], SCALE_EMULATED = 7 };

static struct scale_backward run_scale(struct device_test *test, const struct scale_case *it)
{
    const int64_t rows = it->samples * it->rows_per_sample, count = rows * it->width;
    void *dx = device_test_random(test, it->type, count, 1, 2);
    const struct scale_backward args = DEVICE_ARGS(
        scale_backward, it->type, rows, it->width, it->rows_per_sample,
        device_test_random(test, it->type, count, 1, 1),
        it->in_place ? dx : device_test_random(test, it->type, count, 1, 2),
        device_test_random(test, it->type, it->width, 1, 3), dx,
        it->frozen ? NULL : device_test_gradient(test, it->overwrite && rows > 0, it->width, 4),
        it->overwrite, device_test_drops(test, it->dropout, 7),
        device_test_drops(test, it->drop_path, 8));
    DEVICE_QUEUE(test, scale_backward, &args);
    device_test_wait(test);
    return args;
}

static void check_scale(const struct scale_case *it)
{
    const int64_t width = it->width, count = it->samples * it->rows_per_sample * width;
    const double tolerance = device_test_rounding(it->type);
    DEVICE_TEST(test, 1);
    const struct scale_backward args = run_scale(&test, it);
    DEVICE_TEST_AGAIN(&test, other, run_scale(&other, it))
    const double *dy = device_test_given(&test, args.dy), *pre = device_test_given(&test, args.pre);
    double *dx = device_test_expected(&test, count);
    double *products = device_test_expected(&test, count);
    for (int64_t i = 0; i < count; i++) {
        const int64_t row = i / width, column = i % width, sample = row / it->rows_per_sample;
        const double g =
            dy[i] * device_test_dropout_at(&args.dropout, it->rows_per_sample, row, column, width) *
            device_test_drop_path(&args.drop_path, sample);
        dx[i] = g * device_test_value(it->type, args.scale, column);
        products[i] = g * pre[i];
    }
    device_test_near(&test, "dx", args.dx, dx, tolerance, 1e-6 / tolerance);
    device_test_column_sums(&test, "dscale", products, args.rows, width, args.dscale, 1e-6);
}

TEST_KERNELS(layer_scales_are_right)
{
    for (int i = 0; i < device_test_cases(SCALE_CASES, SCALE_EMULATED); i++)
        check_scale(&scale_cases[i]);
}

/* ---- Dropout and drop path by the definition in device/types.h */

struct dropout_case {
    enum data_type type;
    int64_t samples, rows_per_sample, width;
    float rate, path_rate;
};

static const struct dropout_case cases[] = {
    {TYPE_FP32, 3, 5, 8, 0.5f, 0},     {TYPE_FP32, 2, 7, 13, 0.1f, 0},
    {TYPE_FP32, 5, 1, 1000, 0.9f, 0},  {TYPE_FP32, 4, 3, 100, 0.1f, 0.5f},
    {TYPE_FP32, 40, 2, 6, 0, 0.3f},    {TYPE_FP32, 2, 2, 5, 0, 0},
    {TYPE_FP32, 2, 2, 20, 1, 0},       {TYPE_FP32, 2, 2, 20, 1e-6f, 0}, /* a threshold of 0 */
    {TYPE_FP32, 0, 2, 20, 0.1f, 0.1f}, {TYPE_BF16, 2, 3, 37, 0.4f, 0},
    {TYPE_FP16, 2, 3, 37, 0.4f, 0},
};

TEST_KERNELS(factors_are_the_definition)
{
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        const struct dropout_case *it = &cases[n];
        const int64_t rows = it->samples * it->rows_per_sample, count = rows * it->width;
        DEVICE_TEST(test, 2);
        void *x = device_test_random(&test, it->type, count, 1, 4);
        void *y = device_test_zeros(&test, it->type, count);
        const double *given = device_test_given(&test, x);
        double *expected = device_test_expected(&test, count);
        const struct dropout dropout = device_test_drops(&test, it->rate, 9);
        const struct dropout path = device_test_drops(&test, it->path_rate, 10);
        DEVICE_RUN(&test, dropout_apply, it->type, rows, it->width, it->rows_per_sample, x, y,
                   dropout, path);
        device_test_wait(&test);
        for (int64_t i = 0; i < count; i++) {
            const int64_t row = i / it->width;
            expected[i] = given[i] *
                          device_test_dropout_at(&dropout, it->rows_per_sample, row, i % it->width,
                                                 it->width) *
                          device_test_drop_path(&path, row / it->rows_per_sample);
        }
        device_test_near(&test, "y", y, expected, device_test_rounding(it->type), 1e-6);
    }
}

TEST_MAIN()
