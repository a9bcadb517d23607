/* Softmax cross-entropy of a row of logits, with what is counted besides. Rows are short (classes):
 * they are copied to fp32 once and stay in the first-level cache. */
#include <math.h>

#include "device/kernels.h"
#include "device/vector.h"

/* The row as fp32, the lanes behind it at -infinity so that they change nothing. */
static float row_read(const struct cross_entropy *args, int64_t row, float *logits)
{
    int64_t classes = args->classes, stride = loss_stride(classes);
    float largest = -INFINITY;
    for (int64_t c = 0; c < classes; c += VECTOR_WIDTH)
        vector_store(logits + c, typed_load_row(args->type, args->logits, row * classes + c,
                                                (row + 1) * classes));
    for (int64_t c = classes; c < stride; c++)
        logits[c] = -INFINITY;
    for (int64_t c = 0; c < classes; c++)
        largest = logits[c] > largest || isnan(logits[c]) ? logits[c] : largest;
    return largest;
}

/* Probabilities in `exponentials` (not yet divided); returns their sum. */
static double row_exponentials(const float *logits, int64_t stride, float largest,
                               float *exponentials)
{
    double sum = 0;
    for (int64_t c = 0; c < stride; c += VECTOR_WIDTH) {
        vector_float e = vector_exp(vector_load(logits + c) - largest);
        vector_store(exponentials + c, e);
        sum += (double)vector_sum(e);
    }
    return sum;
}

static int64_t row_largest(const float *values, int64_t count)
{
    int64_t best = 0;
    for (int64_t c = 1; c < count; c++)
        if (values[c] > values[best])
            best = c;
    return best;
}

static int64_t row_label(const struct cross_entropy *args, int64_t row)
{
    if (args->labels != NULL)
        return args->labels[row];
    return row_largest(args->targets + row * args->classes, args->classes);
}

/* How many classes beat the label. NaN is beaten by all. */
static int64_t row_rank(const float *logits, int64_t classes, int64_t label)
{
    int64_t rank = 0;
    for (int64_t c = 0; c < classes; c++)
        rank += logits[c] > logits[label] || (c < label && logits[c] == logits[label]);
    return isnan(logits[label]) ? classes : rank;
}

static float target_of(const struct cross_entropy *args, int64_t row, int64_t label, int64_t c)
{
    if (args->targets != NULL)
        return args->targets[row * args->classes + c];
    float spread = args->smoothing / (float)args->classes;
    return c == label ? 1 - args->smoothing + spread : spread;
}

/* The sum over classes of target * (log of the sum - logit). */
static double row_loss(const struct cross_entropy *args, int64_t row, int64_t label,
                       const float *logits, double log_sum)
{
    if (args->targets == NULL && args->smoothing == 0)
        return log_sum - (double)logits[label];
    double loss = 0;
    for (int64_t c = 0; c < args->classes; c++) {
        float target = target_of(args, row, label, c);
        if (target != 0)
            loss += (double)target * (log_sum - (double)logits[c]);
    }
    return loss;
}

/* scale * (weight of the targets * probability - target), written over the exponentials. */
static void row_gradient(const struct cross_entropy *args, int64_t row, int64_t label,
                         float *probabilities)
{
    float weight = 0;
    for (int64_t c = 0; args->targets != NULL && c < args->classes; c++)
        weight += args->targets[row * args->classes + c];
    if (args->targets == NULL)
        weight = 1;
    for (int64_t c = 0; c < args->classes; c++)
        probabilities[c] =
            args->scale * (weight * probabilities[c] - target_of(args, row, label, c));
    for (int64_t c = 0; c < args->classes; c += VECTOR_WIDTH)
        typed_store_row(args->type, args->dlogits, row * args->classes + c,
                        (row + 1) * args->classes, vector_load(probabilities + c));
}

static void cross_entropy(const struct cross_entropy *args, int64_t begin, int64_t end,
                          float *buffer, struct loss_sums *sums)
{
    int64_t classes = args->classes, stride = loss_stride(classes);
    float *logits = buffer, *probabilities = buffer + stride;
    for (int64_t row = begin; row < end; row++) {
        float largest = row_read(args, row, logits);
        double sum = row_exponentials(logits, stride, largest, probabilities);
        int64_t label = row_label(args, row), rank = row_rank(logits, classes, label);
        double loss = row_loss(args, row, label, logits, (double)largest + log(sum));
        float inverse = (float)(1 / sum);
        for (int64_t c = 0; c < stride; c += VECTOR_WIDTH)
            vector_store(probabilities + c, vector_load(probabilities + c) * inverse);
        sums->loss += loss;
        sums->top1 += rank < 1;
        sums->top5 += rank < 5;
        sums->samples += 1;
        if (args->losses != NULL)
            args->losses[row] = (float)loss;
        if (args->predicted != NULL)
            args->predicted[row] = (int32_t)row_largest(logits, classes);
        if (args->probabilities != NULL)
            memcpy(args->probabilities + row * classes, probabilities,
                   (size_t)classes * sizeof(float));
        if (args->dlogits != NULL)
            row_gradient(args, row, label, probabilities);
    }
}

extern const struct loss_kernels KERNEL(loss_kernels);
const struct loss_kernels KERNEL(loss_kernels) = {.cross_entropy = cross_entropy};
