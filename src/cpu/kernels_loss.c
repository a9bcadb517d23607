// SPDX-License-Identifier: BSD-3-Clause
/* Softmax and losses of one row at a time in fp32. A row's logits are converted into a
 * buffer that is padded to whole vectors, so that loops need no remainder. Losses of targets that
 * are not one class are computed in blocks of targets. */
#include <math.h>
#include <string.h>

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
    vector_float most = vector_load(row->logits), sums = {0};

    for (int64_t i = VECTOR_WIDTH; i < row->stride; i += VECTOR_WIDTH)
        most = vector_max(most, vector_load(row->logits + i));
    row->maximum = vector_largest(most); /* may ignore NaN, which the loss detects */
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

/* True if several classes may have targets, whose sum need not be 1. */
static bool row_is_spread(const struct cross_entropy *args, const float *targets)
{
    return targets != NULL || args->weights != NULL;
}

static float row_target(const struct loss_row *row, const struct cross_entropy *args, int64_t label,
                        const float *targets, int64_t i)
{
    const float target = targets != NULL ? targets[i]
                                         : args->smoothing / (float)row->classes +
                                               (i == label ? 1 - args->smoothing : 0);
    return args->weights != NULL ? args->weights[i] * target : target;
}

/* -sum of targets * log(probabilities); targets are smoothed labels or a distribution. */
static double row_loss(const struct loss_row *row, const struct cross_entropy *args, int64_t label,
                       const float *targets)
{
    double log_sum = log((double)row->sum), loss = 0;

    for (int64_t i = 0; row_is_spread(args, targets) && i < row->classes; i++) {
        const float target = row_target(row, args, label, targets, i);
        if (target != 0)
            loss += (double)target * (log_sum - (double)(row->logits[i] - row->maximum));
    }
    if (row_is_spread(args, targets))
        return loss;
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

    if (row_is_spread(args, targets)) {
        double sum = 0;
        for (int64_t i = 0; i < row->classes; i++)
            sum += (double)row_target(row, args, label, targets, i);
        total = (float)sum;
    }
    float factor = total / row->sum;
    if (row_is_spread(args, targets)) {
        for (int64_t i = 0; i < row->classes; i++)
            gradient[i] = scale * (gradient[i] * factor - row_target(row, args, label, targets, i));
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
        if (args->weights != NULL)
            sums->weight += targets != NULL ? 1 : (double)args->weights[label];
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

/* ---- Regression, forecast, several labels, segmentation. A missing target has the weight 0, and
 * its prediction is not used. */

enum { BLOCK = 256 }; /* a multiple of VECTOR_WIDTH */

/* `count` targets of a sample, from target `first` on, padded to a whole vector. */
struct target_block {
    int64_t first, count;
    float targets[BLOCK]; /* padded with NaN */
    float weights[BLOCK]; /* padded with 0 */
};

/* Set the weights of outputs and rows. */
static void position_weights(const struct target_loss *args, int64_t sample,
                             struct target_block *block)
{
    const int32_t first_row = args->first_rows != NULL ? args->first_rows[sample] : 0;
    const float *outputs = args->kind == TARGET_CROSS_ENTROPY ? NULL : args->weights;
    int64_t row = block->first / args->width % args->height, column = block->first % args->width;
    int64_t output = block->first / args->width / args->height;

    for (int64_t i = 0; i < block->count;) {
        const int64_t row_end = i + args->width - column;
        const int64_t end = row_end < block->count ? row_end : block->count;
        const float weight = (outputs != NULL ? outputs[output] : 1) *
                             (args->row_weights != NULL ? args->row_weights[first_row + row] : 1);
        for (; i < end; i++)
            block->weights[i] = weight;
        column = 0;
        row = row + 1 < args->height ? row + 1 : 0;
        output += row == 0;
    }
}

/* Return the class of a target; -1 if it is not the number of an output. */
KERNEL_INLINE int64_t target_class(const struct target_loss *args, float target)
{
    if (!(target >= 0 && target < (float)args->outputs) || target != truncf(target))
        return -1;
    return (int64_t)target;
}

static void class_weights(const struct target_loss *args, struct target_block *block)
{
    for (int64_t i = 0; i < block->count; i++) {
        const int64_t class = target_class(args, block->targets[i]);
        if (class < 0)
            block->weights[i] = NAN;
        else if (args->weights != NULL)
            block->weights[i] *= args->weights[class];
    }
}

/* Load the block that begins at target `first`. */
static void block_load(const struct target_loss *args, int64_t sample, int64_t first, int64_t end,
                       struct target_block *block)
{
    const float *targets = args->targets + sample * target_count(args) + first;

    block->first = first;
    block->count = end - first < BLOCK ? end - first : BLOCK;
    memcpy(block->targets, targets, (size_t)block->count * sizeof *targets);
    for (int64_t i = block->count; i % VECTOR_WIDTH != 0; i++)
        block->targets[i] = NAN;
    for (int64_t i = 0; i < block->count; i += VECTOR_WIDTH)
        vector_store(block->weights + i, vector_all(1));
    if (args->weights != NULL || args->row_weights != NULL)
        position_weights(args, sample, block);
    if (args->kind == TARGET_CROSS_ENTROPY)
        class_weights(args, block);
    for (int64_t i = 0; i < block->count; i += VECTOR_WIDTH) {
        const vector_float target = vector_load(block->targets + i);
        const vector_float weight = vector_load(block->weights + i);
        vector_store(block->weights + i, vector_select(target == target, weight, vector_all(0)));
    }
}

/* The lanes of a vector_float in double. */
struct wide {
    vector_four_doubles part[VECTOR_WIDTH / 4];
};

KERNEL_INLINE void wide_set(struct wide *wide, vector_float vector)
{
    vector_four fours[VECTOR_WIDTH / 4];
    memcpy(fours, &vector, sizeof fours);
    for (int i = 0; i < VECTOR_WIDTH / 4; i++)
        vector_to_doubles(fours[i], &wide->part[i]);
}

/* Add weight * a * b. */
KERNEL_INLINE void wide_add(struct wide *sums, vector_float weight, vector_float a, vector_float b)
{
    struct wide w, x, y;
    wide_set(&w, weight);
    wide_set(&x, a);
    wide_set(&y, b);
    for (int i = 0; i < VECTOR_WIDTH / 4; i++)
        sums->part[i] += w.part[i] * (x.part[i] * y.part[i]);
}

KERNEL_INLINE double wide_sum(const struct wide *wide)
{
    double sum = 0;
    for (int lane = 0; lane < VECTOR_WIDTH; lane++)
        sum += wide->part[lane / 4][lane % 4];
    return sum;
}

/* Return log(1 + x) per lane. */
KERNEL_INLINE vector_float vector_log1p(vector_float vector)
{
    float lanes[VECTOR_WIDTH];
    vector_store(lanes, vector);
    for (int lane = 0; lane < VECTOR_WIDTH; lane++)
        lanes[lane] = log1pf(lanes[lane]);
    return vector_load(lanes);
}

/* Return the losses of predictions p with targets t, for TARGET_SQUARED their square roots, and set
 * their derivatives. NaN stays NaN. */
KERNEL_INLINE vector_float element_loss(enum target_loss_kind kind, vector_float p, vector_float t,
                                        vector_float *derivative)
{
    const vector_float error = p - t, zero = {0};
    const vector_float size = vector_select(error < zero, -error, error);

    if (kind == TARGET_SQUARED) {
        *derivative = 2.0f * error;
        return error;
    }
    if (kind == TARGET_ABSOLUTE) {
        const vector_float sign = vector_select(error > zero, vector_all(1), error);
        *derivative = vector_select(error < zero, vector_all(-1), sign);
        return size;
    }
    if (kind == TARGET_HUBER) {
        const vector_float small = vector_min(vector_all(1), size); /* the order preserves NaN */
        *derivative = vector_select(error < zero, -small, small);
        return small * (size - 0.5f * small);
    }
    const vector_float negative = vector_select(p < zero, p, -p);
    *derivative = 1.0f / (1.0f + vector_exp(-p)) - t;
    return vector_select(p < zero, zero, p) - p * t + vector_log1p(vector_exp(negative));
}

/* Return the sum of the weighted losses of a block and replace predictions by gradients. */
KERNEL_INLINE double block_errors(enum target_loss_kind kind, const struct target_block *block,
                                  float *predictions, float factor)
{
    struct wide sums = {0};

    for (int64_t i = 0; i < block->count; i += VECTOR_WIDTH) {
        const vector_float zero = {0}, weight = vector_load(block->weights + i);
        const vector_float target = vector_load(block->targets + i);
        const vector_float p = vector_select(target == target, vector_load(predictions + i), zero);
        const vector_float t = vector_select(target == target, target, zero);
        vector_float derivative;
        const vector_float loss = element_loss(kind, p, t, &derivative);
        wide_add(&sums, weight, loss, kind == TARGET_SQUARED ? loss : vector_all(1));
        vector_store(predictions + i, factor * (weight * derivative));
    }
    return wide_sum(&sums);
}

static double block_elements(const struct target_loss *args, int64_t sample,
                             const struct target_block *block, float factor)
{
    const int64_t first = sample * target_count(args) + block->first;
    float values[BLOCK] = {0};
    double sum = 0;

    KERNEL(convert_kernels)
        .to_fp32(values, args->type, element(args->type, args->predictions, first), block->count);
    if (args->kind == TARGET_SQUARED)
        sum = block_errors(TARGET_SQUARED, block, values, factor);
    else if (args->kind == TARGET_ABSOLUTE)
        sum = block_errors(TARGET_ABSOLUTE, block, values, factor);
    else if (args->kind == TARGET_HUBER)
        sum = block_errors(TARGET_HUBER, block, values, factor);
    else
        sum = block_errors(TARGET_BINARY, block, values, factor);
    if (args->dpredictions != NULL)
        KERNEL(convert_kernels)
            .from_fp32(args->type, element_to_write(args->type, args->dpredictions, first), values,
                       block->count);
    return sum;
}

/* Softmax over the outputs of the pixels of a block. */
struct block_softmax {
    float maximum[BLOCK], sum[BLOCK];
};

KERNEL_INLINE void softmax_typed(enum data_type type, const struct target_loss *args, int64_t pixel,
                                 int64_t count, struct block_softmax *softmax)
{
    const int64_t pixels = args->height * args->width;

    for (int64_t i = 0; i < count; i += VECTOR_WIDTH) {
        vector_float most = vector_all(-INFINITY), sum = {0};
        for (int64_t c = 0; c < args->outputs; c++) {
            const int64_t row = pixel + c * pixels;
            most = vector_max(typed_load_row(type, args->predictions, row + i, row + count), most);
        }
        for (int64_t c = 0; c < args->outputs; c++) {
            const int64_t row = pixel + c * pixels;
            sum += vector_exp(typed_load_row(type, args->predictions, row + i, row + count) - most);
        }
        vector_store(softmax->maximum + i, most);
        vector_store(softmax->sum + i, sum);
    }
}

KERNEL_INLINE void softmax_gradient_typed(enum data_type type, const struct target_loss *args,
                                          int64_t pixel, const struct target_block *block,
                                          const struct block_softmax *softmax, float factor)
{
    const int64_t pixels = args->height * args->width;

    for (int64_t i = 0; i < block->count; i += VECTOR_WIDTH) {
        const vector_float t = vector_load(block->targets + i), zero = {0};
        const vector_float most = vector_load(softmax->maximum + i);
        const vector_float scale = 1.0f / vector_load(softmax->sum + i);
        const vector_float weight = factor * vector_load(block->weights + i);
        for (int64_t c = 0; c < args->outputs; c++) {
            const int64_t row = pixel + c * pixels, end = row + block->count;
            const vector_float logit = typed_load_row(type, args->predictions, row + i, end);
            const vector_float label = vector_select(t == (float)c, vector_all(1), zero);
            const vector_float gradient = weight * (vector_exp(logit - most) * scale - label);
            typed_store_row(type, args->dpredictions, row + i, end,
                            vector_select(t == t, gradient, zero));
        }
    }
}

static double block_classes(const struct target_loss *args, int64_t sample,
                            const struct target_block *block, float factor)
{
    const int64_t pixels = args->height * args->width;
    const int64_t pixel = sample * args->outputs * pixels + block->first;
    struct block_softmax softmax;
    double sum = 0;

    TYPED_CALL(softmax_typed, args->type, args, pixel, block->count, &softmax);
    for (int64_t i = 0; i < block->count; i++) {
        const int64_t class = target_class(args, block->targets[i]);
        float logit = NAN;
        if (isnan(block->targets[i]))
            continue;
        if (class >= 0)
            KERNEL(convert_kernels)
                .to_fp32(&logit, args->type,
                         element(args->type, args->predictions, pixel + class * pixels + i), 1);
        sum += (double)block->weights[i] *
               (double)(logf(softmax.sum[i]) - (logit - softmax.maximum[i]));
    }
    if (args->dpredictions != NULL)
        TYPED_CALL(softmax_gradient_typed, args->type, args, pixel, block, &softmax, factor);
    return sum;
}

static double target_weights(const struct target_loss *args, int64_t sample, int64_t begin,
                             int64_t end)
{
    struct target_block block;
    double sum = 0;

    for (int64_t first = begin; first < end; first += BLOCK) {
        vector_float sums = {0};
        block_load(args, sample, first, end, &block);
        for (int64_t i = 0; i < block.count; i += VECTOR_WIDTH)
            sums += vector_load(block.weights + i);
        sum += (double)vector_sum(sums);
    }
    return sum;
}

static double target_losses(const struct target_loss *args, int64_t sample, int64_t begin,
                            int64_t end, float factor)
{
    struct target_block block;
    double sum = 0;

    for (int64_t first = begin; first < end; first += BLOCK) {
        block_load(args, sample, first, end, &block);
        sum += args->kind == TARGET_CROSS_ENTROPY ? block_classes(args, sample, &block, factor)
                                                  : block_elements(args, sample, &block, factor);
    }
    return sum;
}

const struct loss_kernels KERNEL(loss_kernels) = {cross_entropy, target_weights, target_losses};
