// SPDX-License-Identifier: BSD-3-Clause
/* Properties of models: the gradient is the slope of the loss, also with dropout; invalid shapes
 * are refused. */
#include "base/random.h"
#include "options/options.h"
#include "test.h"
#include "vit_fixture.h"

enum { BATCH = 5, DEPTH = 2, SEED = 11 };

static void fill_normal(float *values, int64_t count, uint32_t index, float scale, float shift)
{
    for (int64_t i = 0; i < count; i += 2) {
        float pair[2];
        struct random_block block =
            random_block_at(SEED, RANDOM_SYNTHETIC, 0, 0, index, (uint32_t)i);
        random_normal_pair(block.word[0], block.word[1], pair);
        values[i] = scale * pair[0] + shift;
        if (i + 1 < count)
            values[i + 1] = scale * pair[1] + shift;
    }
}

/* Weights far from their initialisation, so that no part of the gradient is small. */
static void scatter_weights(struct vit_fixture *fixture)
{
    for (int u = 0; u < fixture->model->unit_count; u++)
        for (int t = 0; t < fixture->model->units[u].tensor_count; t++) {
            const struct unit_tensor *tensor = &fixture->model->units[u].tensors[t];
            OWNED float *values = allocate((size_t)tensor->count, sizeof *values);
            float shift = tensor->initial == INITIAL_ONE ? 1 : 0;
            int64_t fan_in = tensor->dimensions >= 2 ? tensor->count / tensor->shape[0] : 16;
            fill_normal(values, tensor->count, tensor->index + 1, 1 / sqrtf((float)fan_in), shift);
            vit_fixture_set_weight(fixture, u, t, values);
        }
}

static void open_scattered(struct vit_fixture *fixture, struct vit_shape shape,
                           enum data_type compute)
{
    vit_fixture_open(fixture, &shape, compute, BATCH, "");
    scatter_weights(fixture);
}

static double loss_of_batch(struct vit_fixture *fixture)
{
    vit_fixture_zero(fixture);
    vit_fixture_run(fixture, 0, BATCH, 0.1, false);
    return vit_fixture_loss(fixture) / BATCH;
}

static double norm_of(const float *values, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)values[i] * (double)values[i];
    return sqrt(sum);
}

/* Move a tensor along its gradient: the loss must rise by the gradient's norm. It rises less if a
 * dropout mask of the backward pass is wrong. */
static void check_slope(struct vit_fixture *fixture, int unit, int number)
{
    const double distance = 4e-3;
    const struct unit_tensor *tensor = &fixture->model->units[unit].tensors[number];
    OWNED float *weight = vit_fixture_weight(fixture, unit, number);
    OWNED float *moved = vit_fixture_weight(fixture, unit, number);
    OWNED float *gradient = vit_fixture_gradient(fixture, unit, number);
    double norm = norm_of(gradient, tensor->count), loss[2];
    assert_true(norm > 1e-3);
    for (int side = 0; side < 2; side++) {
        double step = (side == 0 ? -distance : distance) / norm;
        for (int64_t i = 0; i < tensor->count; i++)
            moved[i] = (float)(weight[i] + step * gradient[i]);
        vit_fixture_set_weight(fixture, unit, number, moved);
        loss[side] = loss_of_batch(fixture);
    }
    double slope = (loss[1] - loss[0]) / (2 * distance);
    if (!(fabs(slope - norm) <= 1e-2 * norm))
        fail_msg("%s: the loss rises by %g, the gradient says %g", tensor->name, slope, norm);
    vit_fixture_set_weight(fixture, unit, number, weight);
}

TEST(test_slopes)
{
    for (int i = 0; i < SHAPE_KINDS; i++) {
        struct vit_fixture fixture;
        open_scattered(&fixture, vit_fixture_shape_of((enum vit_fixture_kind)i, DEPTH), TYPE_FP32);
        for (int u = 0; u < fixture.model->unit_count; u++)
            for (int t = 0; t < fixture.model->units[u].tensor_count; t++) {
                vit_fixture_train(&fixture, 0.1);
                check_slope(&fixture, u, t);
            }
        vit_fixture_close(&fixture);
    }
}

/* Another step draws other masks; evaluation draws none. */
TEST(test_dropout_follows_the_step)
{
    struct vit_fixture fixture;
    open_scattered(&fixture, vit_fixture_shape_of(SHAPE_TOKEN, DEPTH), TYPE_FP32);
    double first = loss_of_batch(&fixture);
    assert_true(first == loss_of_batch(&fixture));
    fixture.step = 1;
    assert_true(first != loss_of_batch(&fixture));
    fixture.training = false;
    double evaluated = loss_of_batch(&fixture);
    assert_true(first != evaluated);
    fixture.step = 2;
    assert_true(evaluated == loss_of_batch(&fixture));
    vit_fixture_close(&fixture);
}

enum { ROWS = 37, COLUMNS = 49, PATCH = 8, PADDED_ROWS = 40, PADDED_COLUMNS = 56 };

/* Set planes of the padded size; wrap < 0: padding is NAN. */
static void planes_pad(const float *planes, int64_t count, int wrap, float *padded)
{
    for (int64_t i = 0; i < count * PADDED_ROWS * PADDED_COLUMNS; i++) {
        const int64_t plane = i / PADDED_COLUMNS / PADDED_ROWS, x = i % PADDED_COLUMNS;
        const int64_t y = i / PADDED_COLUMNS % PADDED_ROWS;
        const int64_t row = y < ROWS ? y : ROWS - 1;
        const int64_t column = x < COLUMNS ? x : wrap > 0 ? x - COLUMNS : COLUMNS - 1;
        const bool outside = y >= ROWS || x >= COLUMNS;
        padded[i] = outside && wrap < 0 ? NAN : planes[(plane * ROWS + row) * COLUMNS + column];
    }
}

static void padding_check(struct vit_shape shape, enum pad_choice pad)
{
    struct vit_fixture inside, outside;
    static const int32_t labels[BATCH] = {0, 5, 2, 1, 3};
    const int64_t pixels = BATCH * PADDED_ROWS * PADDED_COLUMNS;
    OWNED float *planes = allocate((size_t)(pixels * shape.classes), sizeof *planes);
    OWNED float *padded = allocate((size_t)(pixels * shape.classes), sizeof *padded);
    OWNED float *targets = allocate((size_t)(pixels * shape.classes), sizeof *targets);
    shape.patch = PATCH;
    shape.pad = pad;
    shape.image = ROWS;
    shape.image_width = COLUMNS;
    open_scattered(&inside, shape, TYPE_FP32);
    shape.pad = PAD_NONE;
    shape.image = PADDED_ROWS;
    shape.image_width = PADDED_COLUMNS;
    open_scattered(&outside, shape, TYPE_FP32);
    assert_true(inside.model->pads && !outside.model->pads);
    fill_normal(planes, pixels * shape.classes, 0, 1, 0);
    planes_pad(planes, BATCH * shape.channels, pad == PAD_WRAP, padded);
    vit_fixture_set_batch(&inside, planes, labels);
    vit_fixture_set_batch(&outside, padded, labels);
    if (shape.dense) {
        inside.targets = planes;
        planes_pad(planes, BATCH * shape.classes, -1, targets);
        outside.targets = targets;
    }
    vit_fixture_train(&inside, 0.1);
    vit_fixture_train(&outside, 0.1);
    const double expected = vit_fixture_loss(&outside);
    assert_true(fabs(vit_fixture_loss(&inside) - expected) <= 1e-12 * expected);
    int64_t count, other;
    OWNED float *found = vit_fixture_gradients(&inside, &count);
    OWNED float *gradients = vit_fixture_gradients(&outside, &other);
    assert_int_equal(count, other);
    for (int64_t i = 0; i < count; i++)
        assert_true(found[i] == gradients[i]);
    vit_fixture_close(&inside);
    vit_fixture_close(&outside);
}

/* A model that pads images has the loss and the gradients of one that reads padded images, whose
 * targets in the padding are missing. */
TEST(test_padding)
{
    for (int i = 0; i < SHAPE_KINDS; i++)
        for (enum pad_choice pad = PAD_EDGE; pad <= PAD_WRAP; pad++)
            padding_check(vit_fixture_shape_of((enum vit_fixture_kind)i, DEPTH), pad);
}

/* Options of models whose shape is invalid, unknown names, and lists that match nothing. */
TEST(test_bad_options)
{
    static const char *const rows[][2] = {
        {"model.name=vit_cifra", "did you mean vit_cifar"},
        {"optim.freeze=blocks.99", "blocks.99"},
        {"optim.freeze=stem,head,blocks", "nothing to train"},
        {"model.patch=5 model.pad=none", "model.pad=none: model.patch=5"},
        {"model.name=cnn_a model.head=dense model.classes=3", "does not support"},
        {"model.heads=7", "model.heads=7"},
        {"model.class_token=off model.pool=token", "model.class_token"},
        {"model.mlp_ratio=0.001", "model.mlp_ratio"},
        {"model.pool=map model.class_token=on", "model.class_token=off"},
        {"model.pool=map model.class_token=off model.registers=1", "model.registers=0"},
        {"model.pool=map model.class_token=off model.mlp=swiglu", "model.mlp=gelu"},
        {"model.position=rotary model.dim=12 model.heads=2", "change model.dim or model.heads"},
        {"model.position=sincos model.dim=6 model.heads=2", "model.dim=6"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct options options;
        error_clear(&error);
        settings_set(&options, rows[i][0]);
        assert_null(model_open(&options, NULL, TYPE_FP32, &error));
        assert_error(&error, ERROR_USAGE, rows[i][1]);
    }
}

TEST_MAIN()
