/* What is done with flat buffers: the optimizer's step, the scale of the loss, sums of squares, the
 * search for values that are not finite, zeroing, conversion, addition. Memory-bound: blocks of a
 * fixed size go over the threads. */
#include "device/cpu.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 1 << 14 };

static inline int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The numbers of one segment for this step. */
static struct update_coefficients coefficients_of(const struct update *args, float clip,
                                                  const struct update_segment *segment)
{
    const struct run_place *place = args->place;
    double rate = place->rate * segment->rate_scale, decay = segment->weight_decay;
    bool adam = args->rule == UPDATE_ADAM || args->rule == UPDATE_ADAMW;
    bool decoupled = args->rule == UPDATE_ADAMW;
    double keep1 = adam ? place->beta1 : place->momentum, keep2 = adam ? args->beta2 : args->alpha;
    double updates = (double)(place->update - (args->scaler != NULL ? args->scaler->skipped : 0));
    double correction1 = adam ? 1 - pow(place->beta1, updates) : 1;
    double correction2 = adam ? 1 - pow(args->beta2, updates) : 1;
    return (struct update_coefficients){.clip = clip,
                                        .decay = decoupled ? 0 : (float)decay,
                                        .shrink = decoupled ? (float)(1 - rate * decay) : 1,
                                        .rate = (float)(rate / correction1),
                                        .keep1 = (float)keep1,
                                        .new1 = (float)(1 - keep1),
                                        .keep2 = (float)keep2,
                                        .new2 = (float)(1 - keep2),
                                        .root_scale = (float)(1 / sqrt(correction2)),
                                        .epsilon = (float)args->epsilon,
                                        .average_new = (float)(1 - args->average_decay)};
}

/* What the gradient is multiplied by: clipping, and back from the scale of the loss. */
static float clip_of(const struct update *args)
{
    double scale = args->scaler != NULL ? (double)args->scaler->scale : 1;
    if (args->max_norm <= 0)
        return (float)(1 / scale);
    double clip = args->max_norm / (sqrt(*args->norm_squared) / scale + 1e-6);
    return (float)((clip < 1 ? clip : 1) / scale);
}

static void check_moments(const struct update *args)
{
    ENSURE(args->place != NULL, "an update without a place in the run");
    bool adam = args->rule == UPDATE_ADAM || args->rule == UPDATE_ADAMW;
    ENSURE(args->moment1 != NULL || (!adam && args->place->momentum == 0),
           "an update without moment1");
    ENSURE(args->moment2 != NULL || args->rule == UPDATE_SGD, "an update without moment2");
}

/* One stretch, over the threads. */
static void segment_update(const struct cpu_device *cpu, const struct update *args,
                           const struct update_coefficients *coefficients,
                           const struct update_segment *segment)
{
    int64_t count = segment->end - segment->begin;
#pragma omp parallel for schedule(static) num_threads(cpu_threads_for(cpu, count))
    for (int64_t i = segment->begin; i < segment->end; i += BLOCK)
        cpu->kernels->update->update(args, coefficients, i, smaller(i + BLOCK, segment->end));
}

/* Running statistics follow as by a step of plain SGD that shrinks weights and has the rate -1. */
static void running_update(const struct cpu_device *cpu, const struct update *args,
                           const struct update_segment *segment)
{
    const struct update_coefficients coefficients = {.clip = 1,
                                                     .shrink = segment->keep,
                                                     .rate = -1,
                                                     .average_new =
                                                         (float)(1 - args->average_decay)};
    struct update plain = *args;
    plain.rule = UPDATE_SGD;
    plain.moment1 = plain.moment2 = NULL;
    segment_update(cpu, &plain, &coefficients, segment);
}

void cpu_update(struct stream *stream, const struct update *args)
{
    const struct cpu_device *cpu = stream->cpu;
    check_moments(args);
    if (args->norm_squared != NULL && !isfinite(*args->norm_squared))
        return;
    float clip = clip_of(args);
    for (int s = 0; s < args->segment_count; s++) {
        const struct update_segment *segment = &args->segments[s];
        if (segment->rate_scale == 0)
            continue;
        if (segment->running) {
            running_update(cpu, args, segment);
            continue;
        }
        const struct update_coefficients coefficients = coefficients_of(args, clip, segment);
        segment_update(cpu, args, &coefficients, segment);
    }
}

void cpu_scaler_update(struct stream *stream, struct loss_scaler *scaler,
                       const double *norm_squared)
{
    (void)stream;
    if (!isfinite(*norm_squared)) {
        scaler->skipped++;
        scaler->good_steps = 0;
        if (scaler->scale > LOSS_SCALE_LEAST)
            scaler->scale /= 2;
    } else if (++scaler->good_steps >= LOSS_SCALER_GOOD_STEPS) {
        scaler->good_steps = 0;
        if (scaler->scale < LOSS_SCALE_MOST)
            scaler->scale *= 2;
    }
}

/* Each block's sum, added in order of the blocks: groups of blocks, as the workspace holds them. */
void cpu_sum_squares(struct stream *stream, const float *values, int64_t count, double *sum)
{
    const struct cpu_device *cpu = stream->cpu;
    const int64_t most = WORKSPACE_SHARED / (int64_t)sizeof(double);
    double *sums = cpu_workspace_shared(cpu, WORKSPACE_SHARED);
    for (int64_t first = 0; first < count; first += most * BLOCK) {
        int64_t end = smaller(first + most * BLOCK, count);
        int64_t blocks = (end - first + BLOCK - 1) / BLOCK;
#pragma omp parallel for schedule(static) num_threads(cpu_threads_for(cpu, end - first))
        for (int64_t block = 0; block < blocks; block++) {
            int64_t i = first + block * BLOCK;
            sums[block] = cpu->kernels->elements->sum_squares(values + i, smaller(BLOCK, end - i));
        }
        for (int64_t block = 0; block < blocks; block++)
            *sum += sums[block];
    }
}

void cpu_nonfinite(struct stream *stream, const struct nonfinite *args)
{
    *args->index =
        stream->cpu->kernels->elements->find_nonfinite(args->type, args->values, args->count);
}

void cpu_zero(struct stream *stream, void *memory, size_t bytes)
{
    const struct cpu_device *cpu = stream->cpu;
    const int64_t count = (int64_t)bytes, block = BLOCK * (int64_t)sizeof(float);
#pragma omp parallel for schedule(static) num_threads(cpu_threads_for(cpu, count / 4))
    for (int64_t i = 0; i < count; i += block)
        memset((char *)memory + i, 0, (size_t)smaller(block, count - i));
}

void cpu_convert(struct stream *stream, enum data_type to_type, void *to, enum data_type from_type,
                 const void *from, int64_t count)
{
    const struct cpu_device *cpu = stream->cpu;
    const struct convert_kernels *convert = cpu->kernels->convert;
    ENSURE(to_type == TYPE_FP32 || from_type == TYPE_FP32 || to_type == from_type,
           "a conversion between two 16-bit types");
    if (to_type == from_type) {
        if (count > 0)
            memcpy(to, from, (size_t)count * type_size(to_type));
        return;
    }
#pragma omp parallel for schedule(static) num_threads(cpu_threads_for(cpu, count))
    for (int64_t i = 0; i < count; i += BLOCK) {
        int64_t some = smaller(BLOCK, count - i);
        if (to_type == TYPE_FP32)
            convert->to_fp32((float *)to + i, from_type, (const uint16_t *)from + i, some);
        else
            convert->from_fp32(to_type, (uint16_t *)to + i, (const float *)from + i, some);
    }
}

void cpu_add(struct stream *stream, float *sum, const float *addend, int64_t count)
{
    const struct cpu_device *cpu = stream->cpu;
#pragma omp parallel for schedule(static) num_threads(cpu_threads_for(cpu, count))
    for (int64_t i = 0; i < count; i += BLOCK)
        cpu->kernels->elements->add(TYPE_FP32, sum + i, sum + i, addend + i,
                                    smaller(BLOCK, count - i));
}
