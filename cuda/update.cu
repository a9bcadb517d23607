/* One step of an optimizer: everything that happens to an element - clip, decay, moments, weight,
 * moving average, compute copy - in one pass over memory, whose bandwidth is the limit. Formulas
 * and their order are those of src/device/kernels_update.c. */
#include "cuda.h"
#include "device/update_rule.h"
#include "kernel.h"

/* A block takes TILE neighbouring elements of one segment: enough that it does not matter that its
 * first thread makes the segment's coefficients before. */
enum { THREADS = 256, ROUNDS = 4, TILE = THREADS * ROUNDS * 8, SEGMENTS = 64 };

/* The segments of one launch; blocks blocks[i] and on are segment i's. */
struct segments {
    int count;
    unsigned blocks[SEGMENTS];
    struct update_segment segment[SEGMENTS];
};

/* Addresses at which the buffer's eights are vectors. */
struct update_fits {
    bool numbers, copy;
};

/* Eight elements from `first` on, of which low..high - 1 are the segment's. */
struct octet {
    int64_t first;
    int low, high;
};

/* An element on its way through the rule. */
struct element {
    float weight, gradient, moment1, moment2;
};

/* ---- The rules. */
__device__ static inline void apply_sgd(struct element *e, const struct update_coefficients &c,
                                        bool momentum, bool nesterov)
{
    float direction = e->gradient;
    if (momentum) {
        e->moment1 = e->moment1 * c.keep1 + e->gradient;
        direction = nesterov ? e->gradient + e->moment1 * c.keep1 : e->moment1;
    }
    e->weight -= direction * c.rate;
}

__device__ static inline void apply_adam(struct element *e, const struct update_coefficients &c)
{
    e->moment1 = e->moment1 * c.keep1 + e->gradient * c.new1;
    e->moment2 = e->moment2 * c.keep2 + e->gradient * e->gradient * c.new2;
    e->weight -= e->moment1 * c.rate / (sqrtf(e->moment2) * c.root_scale + c.epsilon);
}

__device__ static inline void apply_rmsprop(struct element *e, const struct update_coefficients &c,
                                            bool momentum)
{
    e->moment2 = e->moment2 * c.keep2 + e->gradient * e->gradient * c.new2;
    float direction = e->gradient / (sqrtf(e->moment2) + c.epsilon);
    if (momentum) {
        e->moment1 = e->moment1 * c.keep1 + direction;
        direction = e->moment1;
    }
    e->weight -= direction * c.rate;
}

__device__ static inline void apply(struct element *e, const struct update_coefficients &c,
                                    const struct update &args, bool running)
{
    bool momentum = args.moment1 != NULL;
    e->gradient = e->gradient * c.clip + e->weight * c.decay;
    e->weight *= c.shrink;
    if (running)
        apply_sgd(e, c, false, false);
    else if (args.rule == UPDATE_SGD)
        apply_sgd(e, c, momentum, args.nesterov);
    else if (args.rule == UPDATE_RMSPROP)
        apply_rmsprop(e, c, momentum);
    else
        apply_adam(e, c);
}

/* ---- An octet; tensors that are not there are zeros and go nowhere. */
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
        eight_store(to + octet.first, eight);
        return;
    }
    for (int i = 0; i < 8; i++)
        if (i >= octet.low && i < octet.high)
            number_store(to + octet.first + i, eight.value[i]);
}

template <typename number>
__device__ static inline void octet_update(const struct update &args, const struct update_coefficients &c,
                                           const struct octet &octet,
                                           const struct update_fits &fits, bool running)
{
    struct eight weights = octet_load(args.weights, octet, fits.numbers);
    struct eight gradient = octet_load(args.gradient, octet, fits.numbers);
    struct eight moment1 = octet_load(args.moment1, octet, fits.numbers);
    struct eight moment2 = octet_load(args.moment2, octet, fits.numbers);
    struct eight average = octet_load(args.average, octet, fits.numbers);
    for (int i = 0; i < 8; i++) {
        struct element e = {weights.value[i], gradient.value[i], moment1.value[i],
                            moment2.value[i]};
        apply(&e, c, args, running);
        weights.value[i] = e.weight;
        moment1.value[i] = e.moment1;
        moment2.value[i] = e.moment2;
        average.value[i] += (e.weight - average.value[i]) * c.average_new;
    }
    octet_store(args.weights, octet, weights, fits.numbers);
    octet_store(args.moment1, octet, moment1, fits.numbers);
    octet_store(args.moment2, octet, moment2, fits.numbers);
    octet_store(args.average, octet, average, fits.numbers);
    octet_store((number *)args.copy, octet, weights, fits.copy);
}

template <typename number>
__global__ static void __launch_bounds__(THREADS)
    update_kernel(struct update args, struct segments segments, struct update_fits fits)
{
    SHARED_MEMORY(shared);
    struct update_coefficients *made = (struct update_coefficients *)shared;
    int s = 0;
    while (s + 1 < segments.count && segments.blocks[s + 1] <= blockIdx.x)
        s++;
    const struct update_segment &segment = segments.segment[s];
    if (update_skips(&args)) /* all threads see the same */
        return;
    if (threadIdx.x == 0)
        update_coefficients_make(made, &args, &segment);
    __syncthreads();
    struct update_coefficients c = *made;
    int64_t begin = segment.begin, end = segment.end;
    int64_t tile = begin / 8 * 8 + (int64_t)(blockIdx.x - segments.blocks[s]) * TILE;
    for (int round = 0; round < ROUNDS; round++) {
        struct octet octet = {tile + ((int64_t)round * THREADS + threadIdx.x) * 8, 0, 8};
        if (octet.first >= end)
            return;
        if (octet.first < begin)
            octet.low = (int)(begin - octet.first);
        if (octet.first + 8 > end)
            octet.high = (int)(end - octet.first);
        octet_update<number>(args, c, octet, fits, segment.running);
    }
}

template <typename number>
static void update_launch(struct stream *stream, const struct update *args,
                          const struct segments &segments, unsigned blocks)
{
    const void *const numbers[] = {args->weights, args->gradient, args->moment1, args->moment2,
                                   args->average};
    struct update_fits fits = {true, eight_fits(args->copy, 8)};
    for (int i = 0; i < 5; i++)
        fits.numbers = fits.numbers && eight_fits(numbers[i], 8);
    KERNEL_LAUNCH(update_kernel<number>, blocks, THREADS, sizeof(struct update_coefficients),
                  stream->handle, *args, segments, fits);
}

/* As many segments as one launch takes, from *next on. */
static unsigned segments_take(const struct update *args, int *next, struct segments *segments)
{
    unsigned blocks = 0;
    segments->count = 0;
    for (; *next < args->segment_count && segments->count < SEGMENTS; ++*next) {
        const struct update_segment *segment = &args->segments[*next];
        if (segment->rate_scale == 0 || segment->begin >= segment->end)
            continue;
        segments->blocks[segments->count] = blocks;
        segments->segment[segments->count++] = *segment;
        blocks += blocks_for(segment->end - segment->begin / 8 * 8, TILE);
    }
    return blocks;
}

void cuda_update(struct stream *stream, const struct update *args)
{
    bool adam = args->rule == UPDATE_ADAM || args->rule == UPDATE_ADAMW;
    ENSURE(args->place != NULL, "an update without a place in the run");
    ENSURE(args->moment1 != NULL || !adam, "an update without moment1");
    ENSURE(args->moment2 != NULL || args->rule == UPDATE_SGD, "an update without moment2");
    for (int next = 0; next < args->segment_count;) {
        struct segments segments = {};
        unsigned blocks = segments_take(args, &next, &segments);
        if (blocks > 0)
            NUMBER_SWITCH(args->copy_type, update_launch, stream, args, segments, blocks);
    }
}

/* ---- The scale of the loss. */
__global__ static void scaler_kernel(struct loss_scaler *scaler, const double *norm_squared)
{
    loss_scaler_follow(scaler, *norm_squared);
}

void cuda_scaler_update(struct stream *stream, struct loss_scaler *scaler,
                        const double *norm_squared)
{
    KERNEL_LAUNCH(scaler_kernel, 1, 1, 0, stream->handle, scaler, norm_squared);
}
