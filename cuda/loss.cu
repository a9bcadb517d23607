// SPDX-License-Identifier: BSD-3-Clause
/* Losses. Softmax, cross-entropy and binary cross-entropy: one block per row. A row is read three
 * times (maximum, sums, gradient), the second and third time from the caches: 21,843 classes take
 * at most 85 KiB. The formulas are those of src/cpu/kernels_loss.c. */
#include "cuda.h"
#include "device/exact_sum.h"
#include "kernel.h"

/* Short rows use one warp. */
enum { WARPS = 8, SHORT_ROW = 256 };

/* Results of the first pass over a row. */
struct peak {
    float logit;  /* maximum; NaN may be ignored */
    float target; /* largest target */
    int label;    /* lowest class with the largest target */
};

/* Results of the second pass. */
struct row_sums {
    double weight;  /* sum of targets */
    double product; /* sum of target * (logit - maximum), with labels of logit - maximum; for binary
                       cross-entropy, the sum of the losses of all classes */
    float sum;      /* sum of exponentials */
    int rank;       /* number of classes that beat the label */
    int predicted;  /* lowest class with the maximum logit */
};

/* Loss and counters of a row. */
struct row_result {
    double loss, weight;
    int64_t rank;
};

/* ---- Reductions over the lanes of a warp, then over the warps of the block: `join` in a fixed
 * order, and every thread gets the result. `room` holds one value per warp. */
__device__ static inline void sums_join(struct peak *a, const struct peak &b)
{
    a->logit = fmaxf(a->logit, b.logit);
    if (b.target > a->target || (b.target == a->target && b.label < a->label)) {
        a->target = b.target;
        a->label = b.label;
    }
}

__device__ static inline void sums_join(struct row_sums *a, const struct row_sums &b)
{
    a->weight += b.weight;
    a->product += b.product;
    a->sum += b.sum;
    a->rank += b.rank;
    a->predicted = b.predicted < a->predicted ? b.predicted : a->predicted;
}

__device__ static inline struct peak lane_of(const struct peak &own, int distance)
{
    const unsigned all = 0xffffffffu;
    return {__shfl_xor_sync(all, own.logit, distance), __shfl_xor_sync(all, own.target, distance),
            __shfl_xor_sync(all, own.label, distance)};
}

__device__ static inline struct row_sums lane_of(const struct row_sums &own, int distance)
{
    const unsigned all = 0xffffffffu;
    return {__shfl_xor_sync(all, own.weight, distance), __shfl_xor_sync(all, own.product, distance),
            __shfl_xor_sync(all, own.sum, distance), __shfl_xor_sync(all, own.rank, distance),
            __shfl_xor_sync(all, own.predicted, distance)};
}

template <typename joined> __device__ static inline void block_join(joined *own, joined *room)
{
    int warps = (int)blockDim.x / WARP;
    for (int distance = WARP / 2; distance > 0; distance /= 2)
        sums_join(own, lane_of(*own, distance));
    if (threadIdx.x % WARP == 0)
        room[threadIdx.x / WARP] = *own;
    __syncthreads();
    *own = room[0];
    for (int warp = 1; warp < warps; warp++)
        sums_join(own, room[warp]);
}

/* ---- One row */
struct row {
    int classes, label;
    float value;          /* logit of the label; NaN for an invalid label */
    const float *targets; /* or NULL */
    bool is_spread;       /* several classes may have targets, whose sum need not be 1 */
    float largest;        /* maximum logit */
};

template <typename number>
__device__ static inline struct peak peak_find(const number *logits, const struct row &row)
{
    struct peak peak = {-INFINITY, -INFINITY, 0x7fffffff};
    for (int i = (int)threadIdx.x; i < row.classes; i += (int)blockDim.x)
        sums_join(&peak,
                  {number_load(logits[i]), row.targets != NULL ? row.targets[i] : -INFINITY, i});
    return peak;
}

__device__ static inline float row_target(const struct cross_entropy &args, const struct row &row,
                                          int i)
{
    const float target = row.targets != NULL ? row.targets[i]
                                             : args.smoothing / (float)row.classes +
                                                   (i == row.label ? 1 - args.smoothing : 0);
    return args.weights != NULL ? args.weights[i] * target : target;
}

/* Return the factor of a sum over the classes: 1 / classes for the mean. */
__device__ static inline double binary_factor(const struct cross_entropy &args)
{
    return args.kind == CROSS_ENTROPY_BINARY ? 1 / (double)args.classes : 1;
}

/* Return -target * log(sigmoid(x)) - (1 - target) * log(1 - sigmoid(x)) */
__device__ static inline double binary_loss(float x, float target)
{
    return (double)((x > 0 ? x : 0) - x * target) + (double)log1pf(expf(-fabsf(x)));
}

template <typename number>
__device__ static inline struct row_sums sums_make(const struct cross_entropy &args,
                                                   const number *logits, const struct row &row)
{
    bool binary = args.kind != CROSS_ENTROPY_SOFTMAX;
    struct row_sums sums = {0, 0, 0, 0, row.classes};
    for (int i = (int)threadIdx.x; i < row.classes; i += (int)blockDim.x) {
        float logit = number_load(logits[i]), below = logit - row.largest;
        float target = row.is_spread ? row_target(args, row, i) : 1;
        sums.weight += (double)target;
        if (binary)
            sums.product += binary_loss(logit, row_target(args, row, i));
        else if (target != 0)
            sums.product += (double)target * (double)below;
        sums.sum += expf(below);
        /* Larger, or equal with a lower index. NaN loses to all. */
        sums.rank += i < row.label ? !(logit < row.value) : !(logit <= row.value);
        if (logit == row.largest && i < sums.predicted)
            sums.predicted = i;
    }
    return sums;
}

/* Return the loss of a row. Softmax: -sum of targets * log(probabilities), where targets are
 * smoothed labels or a distribution. */
__device__ static inline double row_loss(const struct cross_entropy &args, const struct row &row,
                                         const struct row_sums &sums)
{
    double log_sum = log((double)sums.sum), smoothing = (double)args.smoothing;
    if (args.kind != CROSS_ENTROPY_SOFTMAX)
        return binary_factor(args) * sums.product;
    if (row.is_spread)
        return isnan(row.value) ? NAN : sums.weight * log_sum - sums.product;
    double loss = log_sum - (1 - smoothing) * (double)(row.value - row.largest);
    return smoothing != 0 ? loss - smoothing / row.classes * sums.product : loss;
}

/* gradient = scale * (probability * sum of targets - target); for binary cross-entropy
 * scale * (sigmoid(logit) - target). Each thread overwrites only elements that it alone reads,
 * because dlogits may be logits. */
template <typename number>
__device__ static inline void row_write(const struct cross_entropy &args, const struct row &row,
                                        const struct row_sums &sums)
{
    int64_t offset = (int64_t)blockIdx.x * args.classes;
    const number *logits = (const number *)args.logits + offset;
    float scale = args.scale * (args.scaler != NULL ? args.scaler->scale : 1);
    float smooth = args.smoothing / (float)row.classes;
    bool binary = args.kind != CROSS_ENTROPY_SOFTMAX;
    float factor = (row.is_spread ? (float)sums.weight : 1) / sums.sum;
    if (binary)
        factor = (float)binary_factor(args);
    if (row.targets == NULL && (row.label < 0 || row.label >= row.classes))
        factor = NAN;
    for (int i = (int)threadIdx.x; i < row.classes; i += (int)blockDim.x) {
        float logit = number_load(logits[i]), exponential = expf(logit - row.largest);
        float target = row.is_spread ? row_target(args, row, i) : smooth;
        float gradient = exponential * factor - target;
        if (binary)
            gradient = (1 / (1 + expf(-logit)) - row_target(args, row, i)) * factor;
        else if (!row.is_spread && i == row.label)
            gradient = exponential * factor - (1 - args.smoothing) - smooth;
        if (args.probabilities != NULL)
            args.probabilities[offset + i] = exponential / sums.sum;
        if (args.dlogits != NULL)
            number_store((number *)args.dlogits + offset + i, scale * gradient);
    }
}

template <typename number>
__global__ static void loss_kernel(struct cross_entropy args, struct row_result *results)
{
    kernel_begin();
    SHARED_MEMORY(shared);
    struct row_sums *sums_room = (struct row_sums *)shared;
    struct peak *peak_room = (struct peak *)(sums_room + blockDim.x / WARP);
    int64_t sample = blockIdx.x;
    const number *logits = (const number *)args.logits + sample * args.classes;
    struct row row = {(int)args.classes, 0, NAN, NULL, false, 0};
    if (args.targets != NULL)
        row.targets = args.targets + sample * args.classes;
    row.is_spread = args.targets != NULL || args.weights != NULL;
    struct peak peak = peak_find(logits, row);
    block_join(&peak, peak_room);
    row.label = row.targets != NULL ? peak.label : args.labels[sample];
    if (row.label >= 0 && row.label < row.classes)
        row.value = number_load(logits[row.label]);
    row.largest = peak.logit;
    struct row_sums sums = sums_make(args, logits, row);
    block_join(&sums, sums_room);
    if (args.dlogits != NULL || args.probabilities != NULL)
        row_write<number>(args, row, sums);
    if (threadIdx.x != 0)
        return;
    double loss = row_loss(args, row, sums);
    double weight = args.weights == NULL                      ? 0
                    : row.targets != NULL || isnan(row.value) ? 1
                                                              : (double)args.weights[row.label];
    results[sample] = {loss, weight, sums.rank};
    if (args.losses != NULL)
        args.losses[sample] = (float)loss;
    if (args.predicted != NULL)
        args.predicted[sample] = sums.predicted < row.classes ? sums.predicted : 0;
}

/* One block adds the rows. */
__global__ static void loss_sum_kernel(const struct row_result *results, int64_t batch,
                                       struct loss_sums *sums)
{
    kernel_begin();
    SHARED_MEMORY(shared);
    double *room = (double *)shared, loss = 0, weight = 0, top1 = 0, top5 = 0;
    int warps = (int)blockDim.x / WARP;
    for (int64_t i = threadIdx.x; i < batch; i += blockDim.x) {
        loss += loss_round(results[i].loss);
        weight += results[i].weight;
        top1 += results[i].rank < 1;
        top5 += results[i].rank < 5;
    }
    loss = block_sum(loss, room);
    top1 = block_sum(top1, room + warps);
    top5 = block_sum(top5, room + 2 * warps);
    weight = block_sum(weight, room + 3 * warps);
    if (threadIdx.x != 0)
        return;
    sums->loss += loss;
    sums->top1 += top1;
    sums->top5 += top5;
    sums->samples += (double)batch;
    sums->weight += weight;
    sums->counted += weight;
}

template <typename number>
static void loss_launch(struct stream *stream, const struct cross_entropy *args,
                        struct row_result *results)
{
    unsigned warps = args->classes <= SHORT_ROW ? 1 : WARPS;
    size_t room = warps * (sizeof(struct row_sums) + sizeof(struct peak));
    KERNEL_LAUNCH(loss_kernel<number>, (unsigned)args->batch, warps * WARP, room, stream->handle,
                  *args, results);
}

void cuda_cross_entropy(struct stream *stream, const struct cross_entropy *args)
{
    if (args->batch == 0)
        return;
    ENSURE(args->classes > 0 && args->classes < 1 << 24, "%lld classes", (long long)args->classes);
    size_t bytes = (size_t)args->batch * sizeof(struct row_result);
    struct row_result *results = (struct row_result *)cuda_workspace_sums(stream->cuda, bytes);
    NUMBER_SWITCH(args->type, loss_launch, stream, args, results);
    if (args->sums != NULL)
        KERNEL_LAUNCH(loss_sum_kernel, 1, WARPS * WARP, 4 * WARPS * sizeof(double), stream->handle,
                      results, args->batch, args->sums);
}
