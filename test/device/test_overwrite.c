// SPDX-License-Identifier: BSD-3-Clause
// devices: cpu gpu
/* Operations that overwrite gradients: memory that contained NaN gets the same bits as zeros to
 * which an operation adds; on a GPU, products only the same values up to rounding, because another
 * algorithm may be faster. Adding is tested with each operation. */
#include "device_test.h"
#include "test.h"

static const enum data_type types[] = {TYPE_FP32, TYPE_BF16, TYPE_FP16};
enum { TYPES = sizeof types / sizeof types[0] };

/* A gradient of `count` elements: zeros, or NaN if it is overwritten. */
static float *gradient_of(struct device_test *test, bool overwrite, int64_t count)
{
    float *gradient = device_test_zeros(test, TYPE_FP32, count);
    for (int64_t i = 0; i < count && overwrite; i++)
        gradient[i] = NAN;
    return gradient;
}

static void check_same(const char *what, const float *added, const float *overwritten,
                       int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (isnan(added[i]))
            fail_msg("%s: element %lld is NaN when it is added", what, (long long)i);
    device_test_same(what, TYPE_FP32, added, overwritten, count);
}

static void check_product(const struct device_test *test, const char *what, const float *added,
                          const float *overwritten, int64_t count)
{
    if (test->device->backend == &device_cpu)
        check_same(what, added, overwritten, count);
    else
        device_test_near_in_norm(what, TYPE_FP32, added, overwritten, count, 1e-5);
}

/* Aligned and unaligned sizes, many rows, and operands that the CPU copies. */
TEST(linear_gradients_are_overwritten)
{
    static const int64_t sizes[][3] = {{3, 16, 8}, {70, 33, 7}, {600, 40, 24}, {40, 1024, 16}};
    for (int i = 0; i < TYPES * 4; i++) {
        const int64_t rows = sizes[i % 4][0], in = sizes[i % 4][1], out = sizes[i % 4][2];
        const enum data_type type = types[i / 4];
        float *dweight[2], *dbias[2];
        DEVICE_TEST(test, 2);
        for (int overwrite = 0; overwrite < 2; overwrite++) {
            dweight[overwrite] = gradient_of(&test, overwrite, in * out);
            dbias[overwrite] = gradient_of(&test, overwrite, out);
            DEVICE_RUN(&test, linear_backward, .type = type, .rows = rows, .in = in, .out = out,
                       .rows_per_sample = 1, .x = device_test_random(&test, type, rows * in, 1, 1),
                       .dy = device_test_random(&test, type, rows * out, 1, 2),
                       .dweight = dweight[overwrite], .dbias = dbias[overwrite],
                       .overwrite = overwrite);
        }
        device_test_wait(&test);
        check_product(&test, "dweight", dweight[0], dweight[1], in * out);
        check_product(&test, "dbias", dbias[0], dbias[1], out);
    }
}

static const struct convolution_shape shapes[] = {
    {.batch = 3,
     .height = 6,
     .width = 5,
     .in = 8,
     .out = 12,
     .kernel = 3,
     .stride = 1,
     .padding = 1},
    {.batch = 2, .height = 7, .width = 7, .in = 16, .out = 24, .kernel = 1, .stride = 1},
    {.batch = 5, .height = 8, .width = 8, .in = 3, .out = 6, .kernel = 5, .stride = 1},
    {.batch = 2,
     .height = 12,
     .width = 12,
     .in = 40,
     .out = 20,
     .kernel = 3,
     .stride = 2,
     .padding = 1}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

TEST(convolution_gradients_are_overwritten)
{
    for (int i = 0; i < TYPES * SHAPES; i++) {
        const struct convolution_shape *s = &shapes[i % SHAPES];
        const enum data_type type = types[i / SHAPES];
        const int64_t x = s->batch * s->height * s->width * s->in;
        const int64_t y = s->batch * s->out *
                          convolved_size(s->height, s->kernel, s->stride, s->padding) *
                          convolved_size(s->width, s->kernel, s->stride, s->padding);
        const int64_t weights = s->out * s->in * s->kernel * s->kernel;
        float *dweight[2], *dbias[2];
        DEVICE_TEST(test, 2);
        const struct device_backend *backend = test.device->backend;
        const size_t bytes = backend->convolution_workspace(test.device, type, s);
        for (int overwrite = 0; overwrite < 2; overwrite++) {
            dweight[overwrite] = gradient_of(&test, overwrite, weights);
            dbias[overwrite] = gradient_of(&test, overwrite, s->out);
            DEVICE_RUN(&test, convolution_backward, .type = type, .shape = *s,
                       .x = device_test_random(&test, type, x, 1, 1),
                       .dy = device_test_random(&test, type, y, 1, 2),
                       .weight = device_test_random(&test, type, weights, 1, 3),
                       .dweight = dweight[overwrite], .dbias = dbias[overwrite],
                       .overwrite = overwrite,
                       .workspace = device_test_zeros(&test, TYPE_FP32, (int64_t)bytes / 4 + 1));
        }
        device_test_wait(&test);
        check_product(&test, "dweight", dweight[0], dweight[1], weights);
        check_product(&test, "dbias", dbias[0], dbias[1], s->out);
    }
}

/* One and several chunks of rows; rows that fit registers and vectors, and others. */
TEST(norm_gradients_are_overwritten)
{
    static const int64_t sizes[][2] = {{5, 64}, {90, 192}, {7, 33}, {100, 33}};
    for (int i = 0; i < TYPES * 4; i++) {
        const int64_t rows = sizes[i % 4][0], width = sizes[i % 4][1];
        const enum data_type type = types[i / 4];
        float *dgamma[2], *dbeta[2];
        DEVICE_TEST(test, 2);
        for (int overwrite = 0; overwrite < 2; overwrite++) {
            dgamma[overwrite] = gradient_of(&test, overwrite, width);
            dbeta[overwrite] = gradient_of(&test, overwrite, width);
            DEVICE_RUN(&test, norm_backward, .type = type, .rows = rows, .width = width,
                       .x = device_test_random(&test, type, rows * width, 1, 1),
                       .gamma = device_test_random(&test, type, width, 1, 2),
                       .dy = device_test_random(&test, type, rows * width, 1, 3),
                       .mean = device_test_random(&test, TYPE_FP32, rows, 1, 4),
                       .rstd = device_test_random(&test, TYPE_FP32, rows, 1, 5),
                       .dx = device_test_zeros(&test, type, rows * width),
                       .dgamma = dgamma[overwrite], .dbeta = dbeta[overwrite],
                       .overwrite = overwrite);
        }
        device_test_wait(&test);
        check_same("dgamma", dgamma[0], dgamma[1], width);
        check_same("dbeta", dbeta[0], dbeta[1], width);
    }
}

TEST(token_gradients_are_overwritten)
{
    enum { TOKENS = 5, WIDTH = 24, ALL = TOKENS * WIDTH };
    for (int i = 0; i < TYPES * 2; i++) {
        const enum data_type type = types[i / 2];
        const int64_t batch = i % 2 == 0 ? 3 : 80;
        float *dclass_token[2], *dregisters[2], *dposition[2];
        DEVICE_TEST(test, 2);
        for (int overwrite = 0; overwrite < 2; overwrite++) {
            dclass_token[overwrite] = gradient_of(&test, overwrite, WIDTH);
            dregisters[overwrite] = gradient_of(&test, overwrite, 2 * WIDTH);
            dposition[overwrite] = gradient_of(&test, overwrite, ALL);
            DEVICE_RUN(&test, tokens_backward, .type = type, .batch = batch, .tokens = TOKENS,
                       .width = WIDTH, .registers = 2, .class_token = true,
                       .dx = device_test_random(&test, type, batch * ALL, 1, 1),
                       .dpatches = device_test_zeros(&test, type, batch * ALL),
                       .dclass_token = dclass_token[overwrite],
                       .dregister_tokens = dregisters[overwrite], .dposition = dposition[overwrite],
                       .overwrite = overwrite);
        }
        device_test_wait(&test);
        check_same("dclass_token", dclass_token[0], dclass_token[1], WIDTH);
        check_same("dregister_tokens", dregisters[0], dregisters[1], 2 * WIDTH);
        check_same("dposition", dposition[0], dposition[1], ALL);
    }
}

TEST(batch_norm_gradients_are_overwritten)
{
    enum { ROWS = 300, CHANNELS = 24, GRADIENTS = 4 };
    for (int i = 0; i < TYPES; i++) {
        float *gradients[2][GRADIENTS];
        DEVICE_TEST(test, 2);
        double *forward_sums = device_test_zeros(&test, TYPE_FP32, 2 * (2 * CHANNELS + 1));
        forward_sums[2 * CHANNELS] = ROWS;
        for (int overwrite = 0; overwrite < 2; overwrite++) {
            float **own = gradients[overwrite];
            for (int j = 0; j < GRADIENTS; j++)
                own[j] = gradient_of(&test, overwrite, CHANNELS);
            DEVICE_RUN(&test, batch_norm_backward_sums, .type = types[i], .rows = ROWS,
                       .channels = CHANNELS,
                       .x = device_test_random(&test, types[i], ROWS * CHANNELS, 1, 1),
                       .statistics = device_test_random(&test, TYPE_FP32, 3 * CHANNELS, 1, 2),
                       .forward_sums = forward_sums, .running_weight = 0.1f,
                       .dy = device_test_random(&test, types[i], ROWS * CHANNELS, 1, 3),
                       .sums = device_test_zeros(&test, TYPE_FP32, 2 * (2 * CHANNELS + 1)),
                       .dgamma = own[0], .dbeta = own[1], .drunning_mean = own[2],
                       .drunning_variance = own[3], .overwrite = overwrite);
        }
        device_test_wait(&test);
        for (int j = 0; j < GRADIENTS; j++)
            check_same("gradient", gradients[0][j], gradients[1][j], CHANNELS);
    }
}

TEST_MAIN()
