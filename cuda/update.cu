// SPDX-License-Identifier: BSD-3-Clause
/* One optimizer step: clipping, weight decay, moments, weight, moving average and compute copy in
 * one pass over memory, whose bandwidth is the limit. Formulas and their order are those of
 * src/cpu/kernels_update.c. */
#include "cuda.h"
#include "exact.h"
#include "kernel.h"

__device__ static inline float float_sign(float x)
{
    return (float)((x > 0) - (x < 0));
}

#define UPDATE_NUMBER float
#define UPDATE_ROOT sqrtf
#define UPDATE_SIGN float_sign
#include "device/update_rule.h"

/* A block updates TILE consecutive elements of one segment. */
enum { THREADS = 256, ROUNDS = 4, TILE = THREADS * ROUNDS * 8, SEGMENTS = 48, BUFFERS = 20 };

/* The tensors of one struct update. */
struct buffer {
    float *weights;
    const float *gradient;
    float *moment1, *moment2, *average;
    void *copy, *direction;
    bool numbers_fit; /* octets of the fp32 tensors are aligned vectors */
    bool copy_fits;   /* octets of copy and direction are aligned vectors */
};

struct launch_segment {
    struct update_segment segment;
    unsigned block; /* index of its first block */
    int buffer;
};

/* The segments of one launch, from any number of buffers. */
struct segment_list {
    int count, buffer_count;
    struct buffer buffer[BUFFERS];
    struct launch_segment entries[SEGMENTS];
};

static_assert(sizeof(struct update) + sizeof(struct segment_list) + sizeof(void *) <= 4096,
              "the parameters of a kernel are 4 KB at most");

/* Eight elements from `first` on, of which low..high - 1 belong to the segment. */
struct octet {
    int64_t first;
    int low, high;
};

/* ---- One octet; absent tensors are read as zeros and not written. */
template <typename number>
__device__ static inline struct eight octet_load(const number *from, const struct octet &octet,
                                                 bool fits)
{
    struct eight eight = {};
    if (from == NULL)
        return eight;
    if (fits && octet.low == 0 && octet.high == 8)
        return eight_load(from + octet.first);
    for (int i = 0; i < 8; i++)
        if (i >= octet.low && i < octet.high)
            eight.value[i] = number_load(from[octet.first + i]);
    return eight;
}

template <typename number>
__device__ static inline void octet_store(number *to, const struct octet &octet,
                                          const struct eight &eight, bool fits)
{
    if (to == NULL)
        return;
    if (fits && octet.low == 0 && octet.high == 8) {
        eight_store_global(to + octet.first, eight);
        return;
    }
    for (int i = 0; i < 8; i++)
        if (i >= octet.low && i < octet.high)
            number_store(to + octet.first + i, eight.value[i]);
}

/* The type that direction_type returns for a compute type. */
template <typename number> struct direction_of {
    typedef number type;
};
template <> struct direction_of<struct fp16> {
    typedef float type;
};

/* Update Muon's momentum and write the direction of matrices. */
template <typename number>
__device__ static inline void
octet_direction(const struct update &args, const struct buffer &buffer,
                const struct update_coefficients &c, const struct octet &octet)
{
    struct eight gradient = octet_load(buffer.gradient, octet, buffer.numbers_fit);
    struct eight moment = octet_load(buffer.moment1, octet, buffer.numbers_fit), direction;
    for (int i = 0; i < 8; i++) {
        float added = gradient.value[i] * c.clip * c.new1;
        moment.value[i] = moment.value[i] * c.keep1 + added;
        direction.value[i] = args.nesterov ? moment.value[i] * c.keep1 + added : moment.value[i];
    }
    octet_store(buffer.moment1, octet, moment, buffer.numbers_fit);
    octet_store((typename direction_of<number>::type *)buffer.direction, octet, direction,
                buffer.copy_fits);
}

template <typename number>
__device__ static inline void octet_update(const struct update &args, const struct buffer &buffer,
                                           const struct update_coefficients &c,
                                           const struct octet &octet, bool running)
{
    bool fits = buffer.numbers_fit;
    struct eight weights = octet_load(buffer.weights, octet, fits);
    bool applies = args.rule == UPDATE_MUON_APPLY;
    struct eight gradient =
        applies ? octet_load((const typename direction_of<number>::type *)buffer.direction, octet,
                             buffer.copy_fits)
                : octet_load(buffer.gradient, octet, fits);
    struct eight moment1 = octet_load(applies ? NULL : buffer.moment1, octet, fits);
    struct eight moment2 = octet_load(applies ? NULL : buffer.moment2, octet, fits);
    struct eight average = octet_load(buffer.average, octet, fits);
    enum update_rule rule = running || applies ? UPDATE_SGD : args.rule;
    bool momentum = args.moment1 != NULL && !running && !applies; /* the same for all buffers */
    for (int i = 0; i < 8; i++) {
        struct update_element e = {weights.value[i], gradient.value[i], moment1.value[i],
                                   moment2.value[i]};
        update_apply(&e, &c, rule, momentum, args.nesterov);
        weights.value[i] = e.weight;
        moment1.value[i] = e.moment1;
        moment2.value[i] = e.moment2;
        average.value[i] += (e.weight - average.value[i]) * c.average_new;
    }
    octet_store(buffer.weights, octet, weights, fits);
    octet_store(applies ? NULL : buffer.moment1, octet, moment1, fits);
    octet_store(applies ? NULL : buffer.moment2, octet, moment2, fits);
    octet_store(buffer.average, octet, average, fits);
    octet_store((number *)buffer.copy, octet, weights, buffer.copy_fits);
}

/* Return the direction whose norm is part of the trust ratio; 0 outside the segment. */
__device__ static inline struct eight octet_measure(const struct update &args,
                                                    const struct buffer &buffer,
                                                    const struct update_coefficients &c,
                                                    const struct octet &octet, bool fits)
{
    struct eight weights = octet_load(buffer.weights, octet, fits);
    struct eight gradient = octet_load(buffer.gradient, octet, fits);
    struct eight moment1 = octet_load(buffer.moment1, octet, fits);
    struct eight moment2 = octet_load(buffer.moment2, octet, fits), direction = {};
    for (int i = 0; i < 8; i++) {
        struct update_element e = {weights.value[i], gradient.value[i], moment1.value[i],
                                   moment2.value[i]};
        float value = update_direction(&e, &c, args.rule);
        direction.value[i] = i < octet.high ? value : 0;
    }
    return direction;
}

/* Compute the coefficients of each segment with one thread; the update's blocks only read them. */
__global__ static void coefficients_kernel(struct update args, struct segment_list list,
                                           struct update_coefficients *coefficients)
{
    kernel_begin();
    if ((int)threadIdx.x < list.count)
        update_coefficients_make(&coefficients[threadIdx.x], &args,
                                 &list.entries[threadIdx.x].segment);
}

/* Return the last segment that begins at or before this block. */
__device__ static inline int segment_find(const struct segment_list &list, unsigned block)
{
    int low = 0, high = list.count;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (list.entries[middle].block <= block)
            low = middle;
        else
            high = middle;
    }
    return low;
}

template <typename number>
__global__ static void __launch_bounds__(THREADS)
    update_kernel(struct update args, struct segment_list list,
                  const struct update_coefficients *coefficients)
{
    kernel_begin(THREADS);
    int s = segment_find(list, blockIdx.x);
    const struct launch_segment &entry = list.entries[s];
    if (update_skips(&args))
        return;
    struct update_coefficients c = coefficients[s];
    int64_t begin = entry.segment.begin, end = entry.segment.end;
    int64_t tile = begin / 8 * 8 + (int64_t)(blockIdx.x - entry.block) * TILE;
    for (int round = 0; round < ROUNDS; round++) {
        struct octet octet = {tile + ((int64_t)round * THREADS + threadIdx.x) * 8, 0, 8};
        if (octet.first >= end)
            return;
        if (octet.first < begin)
            octet.low = (int)(begin - octet.first);
        if (octet.first + 8 > end)
            octet.high = (int)(end - octet.first);
        const struct buffer &buffer = list.buffer[entry.buffer];
        if (args.rule == UPDATE_MUON && entry.segment.matrix)
            octet_direction<number>(args, buffer, c, octet);
        else
            octet_update<number>(args, buffer, c, octet, entry.segment.running);
    }
}

/* ---- Norms of tensors: each block adds the sums of squares of its tile. A thread reads whole
 * blocks of elements, which begin with the segment. */
__global__ static void __launch_bounds__(THREADS)
    measure_kernel(struct update args, struct segment_list list,
                   const struct update_coefficients *coefficients)
{
    kernel_begin(THREADS);
    SHARED_MEMORY(shared);
    struct tensor_norms *sums = (struct tensor_norms *)shared;
    int s = segment_find(list, blockIdx.x);
    const struct launch_segment &entry = list.entries[s];
    const struct buffer &buffer = list.buffer[entry.buffer];
    if (update_skips(&args))
        return;
    int64_t begin = entry.segment.begin + (int64_t)(blockIdx.x - entry.block) * TILE;
    int64_t end = begin + TILE < entry.segment.end ? begin + TILE : entry.segment.end;
    bool fits = buffer.numbers_fit && begin % 8 == 0;
    struct window weights = {}, directions = {};
    exact_begin(&sums->weights);
    exact_begin(&sums->direction);
    __syncthreads();
    for (int64_t i = begin + (int64_t)threadIdx.x * EXACT_BLOCK; i < end;
         i += (int64_t)THREADS * EXACT_BLOCK) {
        struct block_squares weight = {}, direction = {};
        for (int64_t first = i; first < i + EXACT_BLOCK && first < end; first += 8) {
            struct octet octet = {first, 0, end - first < 8 ? (int)(end - first) : 8};
            squares_add(&weight, octet_load(buffer.weights, octet, fits));
            squares_add(&direction, octet_measure(args, buffer, coefficients[s], octet, fits));
        }
        window_add(&weights, weight, &sums->weights);
        window_add(&directions, direction, &sums->direction);
    }
    struct tensor_norms *norms = &args.norms[entry.segment.tensor];
    exact_end(weights, &sums->weights, &norms->weights);
    exact_end(directions, &sums->direction, &norms->direction);
}

template <typename number>
static void update_launch(struct stream *stream, const struct update *args,
                          const struct segment_list &list, unsigned blocks)
{
    struct update_coefficients *coefficients = (struct update_coefficients *)cuda_workspace_sums(
        stream->cuda, SEGMENTS * sizeof *coefficients);
    KERNEL_LAUNCH(coefficients_kernel, 1, SEGMENTS, 0, stream->handle, *args, list, coefficients);
    if (args->measure)
        KERNEL_LAUNCH(measure_kernel, blocks, THREADS, sizeof(struct tensor_norms), stream->handle,
                      *args, list, coefficients);
    else
        KERNEL_LAUNCH(update_kernel<number>, blocks, THREADS, 0, stream->handle, *args, list,
                      coefficients);
}

static struct buffer buffer_of(const struct update *update)
{
    const void *const numbers[] = {update->weights, update->gradient, update->moment1,
                                   update->moment2, update->average};
    struct buffer buffer = {update->weights,
                            update->gradient,
                            update->moment1,
                            update->moment2,
                            update->average,
                            update->copy,
                            update->direction,
                            true,
                            false};
    buffer.copy_fits = eight_fits(update->copy, 8) && eight_fits(update->direction, 8);
    for (int i = 0; i < 5; i++)
        buffer.numbers_fit = buffer.numbers_fit && eight_fits(numbers[i], 8);
    return buffer;
}

/* Fill a launch with segments starting at segment *next of *update, and advance both; NULL after
 * the last. Return the number of blocks. */
static unsigned segments_collect(const struct update **update, int *next, struct segment_list *list)
{
    unsigned blocks = 0;
    for (; *update != NULL; *update = (*update)->next, *next = 0) {
        if (list->buffer_count == BUFFERS)
            return blocks;
        list->buffer[list->buffer_count++] = buffer_of(*update);
        for (; *next < (*update)->segment_count; ++*next) {
            const struct update_segment *segment = &(*update)->segments[*next];
            if (segment_skips(*update, segment))
                continue;
            if (list->count == SEGMENTS)
                return blocks;
            list->entries[list->count++] = {*segment, blocks, list->buffer_count - 1};
            blocks += blocks_for(segment->end - segment->begin / 8 * 8, TILE);
        }
    }
    return blocks;
}

void cuda_update(struct stream *stream, const struct update *args)
{
    for (const struct update *update = args; update != NULL; update = update->next)
        update_check(update);
    const struct update *update = args;
    for (int next = 0; update != NULL;) {
        struct segment_list list = {};
        unsigned blocks = segments_collect(&update, &next, &list);
        if (blocks > 0)
            NUMBER_SWITCH(args->copy_type, update_launch, stream, args, list, blocks);
    }
}

/* ---- Loss scale */
__global__ static void scaler_kernel(struct loss_scaler *scaler, const double *norm_squared)
{
    kernel_begin();
    loss_scaler_adjust(scaler, *norm_squared);
}

void cuda_scaler_update(struct stream *stream, struct loss_scaler *scaler,
                        const double *norm_squared)
{
    KERNEL_LAUNCH(scaler_kernel, 1, 1, 0, stream->handle, scaler, norm_squared);
}
