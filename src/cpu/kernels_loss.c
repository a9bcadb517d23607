// SPDX-License-Identifier: BSD-3-Clause
/* Softmax and losses of one row at a time in fp32. A row's logits are converted into a
 * buffer that is padded to whole vectors, so that loops need no remainder. */
#include <math.h>

#include "cpu/kernels.h"
#include "cpu/vector.h"
#include "device/exact_sum.h"

/* State of a row between passes. */
struct loss_row {
    int64_t classes, stride;
    const float *logits; /* [stride], padded with -infinity */
    float *exponentials; /* [stride]: of logits - maximum */
    float maximum, sum;
};

/* Return the largest value. NaN may be ignored here: the loss detects it. */
static float row_maximum(const float *values, int64_t stride)
{
    vector_float most = vector_load(values);
    float maximum;

    for (int64_t i = VECTOR_WIDTH; i < stride; i += VECTOR_WIDTH)
        most = vector_max(most, vector_load(values + i));
    maximum = most[0];
    for (int lane = 1; lane < VECTOR_WIDTH; lane++)
        maximum = most[lane] > maximum ? most[lane] : maximum;
    return maximum;
}

/* Return the lowest index of `value`; 0 if it does not occur. */
static int64_t row_find(const float *values, int64_t count, float value)
{
    for (int64_t i = 0; i < count; i++)
        if (values[i] == value)
            return i;
    return 0;
}

static void row_exponentials(struct loss_row *row)
{
    vector_float sums = {0};

    row->maximum = row_maximum(row->logits, row->stride);
    for (int64_t i = 0; i < row->stride; i += VECTOR_WIDTH) {
        vector_float e = vector_exp(vector_load(row->logits + i) - row->maximum);
        vector_store(row->exponentials + i, e);
        sums += e;
    }
    row->sum = vector_sum(sums);
}

/* Count the classes that beat `label`: larger, or equal with a lower index. NaN loses to all. */
static int64_t row_rank(const struct loss_row *row, int64_t label)
{
    float value = row->logits[label];
    int64_t rank = 0;

    for (int64_t i = 0; i < row->classes; i++)
        rank += i < label ? !(row->logits[i] < value) : !(row->logits[i] <= value);
    return rank;
}

/* -sum of targets * log(probabilities); targets are smoothed labels or a distribution. */
static double row_loss(const struct loss_row *row, const struct cross_entropy *args, int64_t label,
                       const float *targets)
{
    double log_sum = log((double)row->sum), loss = 0;

    if (targets != NULL) {
        for (int64_t i = 0; i < row->classes; i++)
            if (targets[i] != 0)
                loss += (double)targets[i] * (log_sum - (double)(row->logits[i] - row->maximum));
        return loss;
    }
    double smoothing = (double)args->smoothing;
    loss = log_sum - (1 - smoothing) * (double)(row->logits[label] - row->maximum);
    if (smoothing != 0) {
        double sum = 0;
        for (int64_t i = 0; i < row->classes; i++)
            sum += (double)(row->logits[i] - row->maximum);
        loss -= smoothing / (double)row->classes * sum;
    }
    return loss;
}

static float row_target(const struct loss_row *row, const struct cross_entropy *args, int64_t label,
                        const float *targets, int64_t i)
{
    if (targets != NULL)
        return targets[i];
    return args->smoothing / (float)row->classes + (i == label ? 1 - args->smoothing : 0);
}

/* Return the factor of a sum over the classes: 1 / classes for the mean. */
static double binary_factor(const struct cross_entropy *args)
{
    return args->kind == CROSS_ENTROPY_BINARY ? 1 / (double)args->classes : 1;
}

/* Return the sum or mean over the classes of -target * log(sigmoid(x)) - (1 - target) *
 * log(1 - sigmoid(x)). */
static double row_loss_binary(const struct loss_row *row, const struct cross_entropy *args,
                              int64_t label, const float *targets)
{
    double loss = 0;

    for (int64_t i = 0; i < row->classes; i++) {
        double x = (double)row->logits[i];
        double target = (double)row_target(row, args, label, targets, i);
        loss += (x > 0 ? x : 0) - x * target + (double)log1pf(expf((float)-fabs(x)));
    }
    return binary_factor(args) * loss;
}

/* gradient = scale * (sigmoid(logit) - target); overwrites the exponentials. */
static void row_gradient_binary(struct loss_row *row, const struct cross_entropy *args,
                                int64_t label, const float *targets)
{
    float scale = args->scale * (args->scaler != NULL ? args->scaler->scale : 1);
    float *gradient = row->exponentials;

    scale = (float)((double)scale * binary_factor(args));
    for (int64_t i = 0; i < row->stride; i += VECTOR_WIDTH)
        vector_store(gradient + i, 1.0f / (1.0f + vector_exp(-vector_load(row->logits + i))));
    for (int64_t i = 0; i < row->classes; i++)
        gradient[i] = scale * (gradient[i] - row_target(row, args, label, targets, i));
}

/* gradient = scale * (probability * sum of targets - target); overwrites the exponentials. */
static void row_gradient(struct loss_row *row, const struct cross_entropy *args, int64_t label,
                         const float *targets)
{
    float total = 1, scale = args->scale * (args->scaler != NULL ? args->scaler->scale : 1);
    float smooth = args->smoothing / (float)row->classes;
    float *gradient = row->exponentials;

    if (targets != NULL) {
        double sum = 0;
        for (int64_t i = 0; i < row->classes; i++)
            sum += (double)targets[i];
        total = (float)sum;
    }
    float factor = total / row->sum;
    if (targets != NULL) {
        for (int64_t i = 0; i < row->classes; i++)
            gradient[i] = scale * (gradient[i] * factor - targets[i]);
        return;
    }
    float right = gradient[label] * factor - (1 - args->smoothing) - smooth;
    for (int64_t i = 0; i < row->classes; i++)
        gradient[i] = scale * (gradient[i] * factor - smooth);
    gradient[label] = scale * right;
}

static void row_write(struct loss_row *row, const struct cross_entropy *args, int64_t number,
                      int64_t label, const float *targets)
{
    int64_t offset = number * row->classes;

    if (args->probabilities != NULL)
        for (int64_t i = 0; i < row->classes; i++)
            args->probabilities[offset + i] = row->exponentials[i] / row->sum;
    if (args->predicted != NULL)
        args->predicted[number] = (int32_t)row_find(row->logits, row->classes, row->maximum);
    if (args->dlogits != NULL) {
        (args->kind == CROSS_ENTROPY_SOFTMAX ? row_gradient : row_gradient_binary)(row, args, label,
                                                                                   targets);
        KERNEL(convert_kernels)
            .from_fp32(args->type, (char *)args->dlogits + (size_t)offset * type_size(args->type),
                       row->exponentials, row->classes);
    }
}

static void cross_entropy(const struct cross_entropy *args, int64_t begin, int64_t end,
                          float *buffer, struct loss_sums *sums)
{
    int64_t classes = args->classes, stride = loss_stride(classes);
    struct loss_row row = {classes, stride, buffer, buffer + stride, 0, 0};

    for (int64_t i = classes; i < stride; i++)
        buffer[i] = -INFINITY;
    for (int64_t number = begin; number < end; number++) {
        const float *targets = args->targets != NULL ? args->targets + number * classes : NULL;
        int64_t label = 0;
        KERNEL(convert_kernels)
            .to_fp32(buffer, args->type,
                     (const char *)args->logits +
                         (size_t)(number * classes) * type_size(args->type),
                     classes);
        if (targets == NULL)
            label = args->labels[number];
        else
            for (int64_t i = 1; i < classes; i++)
                label = targets[i] > targets[label] ? i : label;
        row_exponentials(&row);
        double loss = (args->kind == CROSS_ENTROPY_SOFTMAX ? row_loss : row_loss_binary)(
            &row, args, label, targets);
        int64_t rank = row_rank(&row, label);
        sums->loss += loss_round(loss);
        sums->top1 += rank < 1;
        sums->top5 += rank < 5;
        sums->samples += 1;
        if (args->losses != NULL)
            args->losses[number] = (float)loss;
        row_write(&row, args, number, label, targets);
    }
}

const struct loss_kernels KERNEL(loss_kernels) = {cross_entropy};
