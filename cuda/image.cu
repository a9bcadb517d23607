// SPDX-License-Identifier: BSD-3-Clause
/* Convert stored pixels to a batch of images, bit-identical to the CPU (src/cpu/cpu_image.c):
 * the weights of the resize, its horizontal pass, then one kernel that traces each output pixel
 * back, computes the vertical pass for that pixel only, and looks up its value. fp32 has no table.
 */
#include "cuda.h"
#include "kernel.h"

extern "C" {
#include "device/image.h"
}

enum { THREADS = 256, LEVELS = 256, ROUNDS = 8, ROWS = 4 };

/* One axis of a resize: output i is the sum of count[i] inputs from first[i] on, with weights[i *
 * taps ...] in units of 1 / 2^22. */
struct axis {
    int size, source, taps;
    double scale, reach;
    int32_t *first, *count, *weights;
};

static struct axis axis_of(int64_t source, int64_t size, int64_t taps, uint8_t *memory)
{
    struct axis axis = {};
    axis.size = (int)size;
    axis.source = (int)source;
    axis.taps = (int)taps;
    axis.scale = (double)source / (double)size;
    axis.reach = image_support(source, size);
    axis.first = (int32_t *)(void *)memory;
    axis.count = axis.first + size;
    axis.weights = axis.count + size;
    return axis;
}

/* ---- Weights, one thread per output. Products are rounded before they are added, as in Pillow. */
__device__ static inline double triangle(double center, double reach, int64_t i)
{
    double distance = fabs(__dmul_rn((double)i - center + 0.5, 1 / reach));
    return distance < 1 ? 1 - distance : 0;
}

__device__ static inline void axis_weigh(const struct axis &axis, int64_t output)
{
    double center = __dmul_rn((double)output + 0.5, axis.scale);
    int64_t first = (int64_t)(center - axis.reach + 0.5);
    int64_t end = (int64_t)(center + axis.reach + 0.5);
    double sum = 0;
    first = first < 0 ? 0 : first;
    end = end > axis.source ? axis.source : end;
    axis.first[output] = (int32_t)first;
    axis.count[output] = (int32_t)(end - first);
    for (int64_t i = first; i < end; i++)
        sum += triangle(center, axis.reach, i);
    for (int64_t i = first; i < end; i++)
        axis.weights[output * axis.taps + i - first] =
            (int32_t)(0.5 + triangle(center, axis.reach, i) / sum * (1 << IMAGE_RESIZE_BITS));
}

__global__ static void axes_kernel(struct axis across, struct axis down)
{
    kernel_begin();
    int output = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (output < across.size)
        axis_weigh(across, output);
    else if (output - across.size < down.size)
        axis_weigh(down, output - across.size);
}

__device__ static inline uint8_t level_of(int32_t sum)
{
    int32_t value = sum >> IMAGE_RESIZE_BITS;
    value = value < 0 ? 0 : value;
    return (uint8_t)(value > 255 ? 255 : value);
}

/* ---- The weighted sum of an output: of levels, or of fp32 values (operations.h), of which NaN is
 * left out. */
__device__ static inline void sum_begin(int32_t *sum)
{
    *sum = 1 << (IMAGE_RESIZE_BITS - 1);
}

__device__ static inline void sum_add(int32_t *sum, uint8_t level, int32_t weight)
{
    *sum += level * weight;
}

__device__ static inline uint8_t sum_value(int32_t sum)
{
    return level_of(sum);
}

struct value_sum {
    float sum, weights;
};

__device__ static inline void sum_begin(struct value_sum *sum)
{
    *sum = {};
}

__device__ static inline void sum_add(struct value_sum *sum, float value, int32_t weight)
{
    float share = (float)weight * (1.0f / (1 << IMAGE_RESIZE_BITS));
    sum->sum += isnan(value) ? 0 : share * value;
    sum->weights += isnan(value) ? 0 : share;
}

__device__ static inline float sum_value(const struct value_sum &sum)
{
    return sum.weights >= 0.5f ? sum.sum / sum.weights : NAN;
}

template <typename source> struct sum_of {
    typedef int32_t type;
};
template <> struct sum_of<float> {
    typedef struct value_sum type;
};

/* ---- The horizontal pass over rows of samples that are from_sample and to_sample bytes apart. A
 * warp processes 32 neighbouring columns of ROWS rows, so that a weight is read once for ROWS
 * multiplications. */
struct lines {
    const uint8_t *from;
    uint8_t *to;
    int64_t from_sample, to_sample;
    int count, of_sample; /* per sample: channels * height */
};

template <typename source>
__global__ static void __launch_bounds__(THREADS)
    across_kernel(struct lines lines, struct axis axis, int columns)
{
    kernel_begin(THREADS);
    int x = (int)(blockIdx.x % (unsigned)columns) * WARP + (int)threadIdx.x % WARP;
    int line =
        ((int)(blockIdx.x / (unsigned)columns) * (THREADS / WARP) + (int)threadIdx.x / WARP) * ROWS;
    const source *from[ROWS];
    typename sum_of<source>::type sums[ROWS];
    if (x >= axis.size)
        return;
    int32_t first = axis.first[x], count = axis.count[x];
    for (int i = 0; i < ROWS; i++) {
        int row = line + i < lines.count ? line + i : lines.count - 1;
        from[i] = (const source *)(lines.from + row / lines.of_sample * lines.from_sample) +
                  (int64_t)(row % lines.of_sample) * axis.source + first;
        sum_begin(&sums[i]);
    }
    for (int32_t tap = 0; tap < count; tap++) {
        int32_t weight = axis.weights[(int64_t)x * axis.taps + tap];
        for (int i = 0; i < ROWS; i++)
            sum_add(&sums[i], from[i][tap], weight);
    }
    for (int i = 0; i < ROWS; i++) {
        source *to = (source *)(lines.to + (line + i) / lines.of_sample * lines.to_sample);
        if (line + i < lines.count)
            to[(int64_t)((line + i) % lines.of_sample) * axis.size + x] = sum_value(sums[i]);
    }
}

/* ---- Pixels */
struct levels {
    float mean[IMAGE_GROUP], std[IMAGE_GROUP];
};

/* Input of the last kernel for a group of samples and of channels; planes are as wide as the
 * output. */
struct pixels {
    int64_t first_sample;
    const uint8_t *planes; /* of the first sample */
    int64_t sample_bytes;  /* distance between samples */
    int channels, first_channel, all_channels, height, width;
    int plane_height; /* the source height if `down` is still to be applied */
    bool resize;
    unsigned chunks; /* blocks per sample */
    struct axis down;
    const struct pixel_plan *plans;
    float missing;
    bool is_target;
    struct levels levels;
};

struct point {
    int x, y; /* x < 0: zero */
};

__device__ static inline bool is_inside(int x, int y, const struct pixels &pixels)
{
    return x >= 0 && x < pixels.width && y >= 0 && y < pixels.height;
}

/* Trace a pixel back from the output, stage by stage (operations.h, struct pixel_plan). */
__device__ static inline struct point point_follow(const struct pixel_plan &plan,
                                                   const struct pixels &pixels, int x, int y)
{
    const int32_t *m = plan.matrix;
    if (x >= plan.erase_x && x < plan.erase_x + plan.erase_width && y >= plan.erase_y &&
        y < plan.erase_y + plan.erase_height)
        return {-1, 0};
    x -= plan.translate_x;
    y -= plan.translate_y;
    if (!is_inside(x, y, pixels))
        return {-1, 0};
    if (plan.rotate) {
        int rotated_x = (m[0] * x + m[1] * y + m[2]) >> 16;
        y = (m[3] * x + m[4] * y + m[5]) >> 16;
        x = rotated_x;
        if (!is_inside(x, y, pixels))
            return {-1, 0};
    }
    struct point from = {plan.transpose ? y : x, plan.transpose ? x : y};
    x = (plan.flip ? pixels.width - 1 - from.x : from.x) + plan.shift_x;
    y = (plan.vflip ? pixels.height - 1 - from.y : from.y) + plan.shift_y;
    if (!is_inside(x, y, pixels))
        return {-1, 0};
    x -= plan.roll_x;
    y -= plan.roll_y;
    return {x < 0 ? x + pixels.width : x, y < 0 ? y + pixels.height : y};
}

/* Return a pixel of the resized image: a sum over its column if the vertical pass is still to be
 * applied. */
template <typename source>
__device__ static inline source pixel_of(const struct pixels &pixels, const source *plane,
                                         const struct point &point)
{
    const struct axis &down = pixels.down;
    if (!pixels.resize)
        return plane[(int64_t)point.y * pixels.width + point.x];
    const source *from = plane + (int64_t)down.first[point.y] * pixels.width + point.x;
    const int32_t *weights = down.weights + (int64_t)point.y * down.taps;
    typename sum_of<source>::type sum;
    sum_begin(&sum);
    for (int32_t tap = 0; tap < down.count[point.y]; tap++)
        sum_add(&sum, from[(int64_t)tap * pixels.width], weights[tap]);
    return sum_value(sum);
}

/* Write the values of the levels: ToTensor, then Normalize, in fp32. */
template <typename number>
__device__ static inline void table_fill(const struct pixels &pixels, const uint8_t *planes,
                                         number *table)
{
    (void)planes;
    for (int i = (int)threadIdx.x; i < pixels.channels * LEVELS; i += THREADS) {
        float value = (float)(i % LEVELS) / 255.0f - pixels.levels.mean[i / LEVELS];
        number_store(&table[i], value / pixels.levels.std[i / LEVELS]);
    }
    __syncthreads();
}

template <typename number>
__device__ static inline void table_fill(const struct pixels &pixels, const float *planes,
                                         number *table)
{
    (void)pixels, (void)planes, (void)table;
}

/* Return a number of random_normal_pair of src/base/random.h. */
__device__ static inline float normal_of(uint32_t first, uint32_t second, int number)
{
    double radius = sqrt(-2.0 * log(((double)first + 1.0) * 0x1p-32));
    double angle = (double)second * 0x1p-31 - 0.5 * (double)number;
    return (float)(radius * cospi(angle)); /* unlike cos, it uses no local memory */
}

/* Return word i of a block. An array with a variable index would be in local memory. */
__device__ static inline uint32_t word_of(const struct random_block &block, int i)
{
    uint32_t low = i == 0 ? block.word[0] : block.word[1];
    uint32_t high = i == 2 ? block.word[2] : block.word[3];
    return i < 2 ? low : high;
}

/* Apply noise and channel dropout to the value of the output's pixel `at`. */
__device__ static inline float value_change(const struct pixel_plan &plan, int channel, int at,
                                            float value)
{
    if (plan.channel_dropout > 0) {
        struct random_block drawn = block_draw(plan.seed, RANDOM_CHANNELS, 0, plan.epoch,
                                               plan.sample, (uint32_t)channel / 4);
        if ((float)(word_of(drawn, channel % 4) >> 8) * 0x1p-24f < plan.channel_dropout)
            return 0;
    }
    if (plan.noise > 0) {
        struct random_block drawn = block_draw(plan.seed, RANDOM_NOISE, (uint32_t)channel,
                                               plan.epoch, plan.sample, (uint32_t)at / 4);
        int pair = at % 4 / 2 * 2;
        value = fmaf(plan.noise, normal_of(word_of(drawn, pair), word_of(drawn, pair + 1), at % 2),
                     value);
    }
    return value;
}

template <typename number>
__device__ static inline void
pixel_store(const struct pixels &pixels, const number *table, const struct pixel_plan *plan,
            int channel, const uint8_t *plane, const struct point &point, int at, number *image)
{
    (void)plan;
    int level = point.x < 0 ? 0 : pixel_of(pixels, plane, point);
    image[at] = table[channel * LEVELS + level];
}

template <typename number>
__device__ static inline void
pixel_store(const struct pixels &pixels, const number *table, const struct pixel_plan *plan,
            int channel, const float *plane, const struct point &point, int at, number *image)
{
    (void)table;
    float value = point.x < 0 ? NAN : pixel_of(pixels, plane, point);
    value = isnan(value) ? pixels.missing
                         : (value - pixels.levels.mean[channel]) / pixels.levels.std[channel];
    if (plan != NULL && !pixels.is_target)
        value = value_change(*plan, pixels.first_channel + channel, at, value);
    number_store(&image[at], value);
}

template <typename number, typename source>
__global__ static void __launch_bounds__(THREADS)
    pixels_kernel(struct pixels pixels, number *images)
{
    kernel_begin(THREADS);
    SHARED_MEMORY(shared);
    number *table = (number *)shared; /* [channels][LEVELS] for uint8 */
    int plane = pixels.height * pixels.width;
    int64_t sample = blockIdx.x / pixels.chunks;
    const source *planes = (const source *)(pixels.planes + sample * pixels.sample_bytes) +
                           (int64_t)pixels.first_channel * pixels.plane_height * pixels.width;
    table_fill(pixels, planes, table);
    sample += pixels.first_sample;
    images += (sample * pixels.all_channels + pixels.first_channel) * plane;
    const struct pixel_plan *plan = pixels.plans == NULL ? NULL : &pixels.plans[sample];
    int at = (int)(blockIdx.x % pixels.chunks) * (THREADS * ROUNDS) + (int)threadIdx.x;
    for (int round = 0; round < ROUNDS; round++, at += THREADS) {
        if (at >= plane)
            return;
        struct point point = {at % pixels.width, at / pixels.width};
        if (plan != NULL)
            point = point_follow(*plan, pixels, point.x, point.y);
        for (int channel = 0; channel < pixels.channels; channel++)
            pixel_store(pixels, table, plan, channel,
                        planes + (int64_t)channel * pixels.plane_height * pixels.width, point, at,
                        &images[(int64_t)channel * plane]);
    }
}

/* Launch the last kernel for each group of channels. */
template <typename number>
static void pixels_launch(struct stream *stream, const struct image_transform *args,
                          struct pixels pixels, int64_t samples)
{
    unsigned blocks = (unsigned)(samples * pixels.chunks);
    for (int first = 0; first < pixels.all_channels; first += IMAGE_GROUP) {
        int left = pixels.all_channels - first;
        pixels.first_channel = first;
        pixels.channels = left < IMAGE_GROUP ? left : IMAGE_GROUP;
        memcpy(pixels.levels.mean, args->mean + first, (size_t)pixels.channels * sizeof(float));
        memcpy(pixels.levels.std, args->std + first, (size_t)pixels.channels * sizeof(float));
        if (args->from_fp32)
            KERNEL_LAUNCH((pixels_kernel<number, float>), blocks, THREADS, 0, stream->handle,
                          pixels, (number *)args->images);
        else
            KERNEL_LAUNCH((pixels_kernel<number, uint8_t>), blocks, THREADS,
                          (size_t)pixels.channels * LEVELS * sizeof(number), stream->handle, pixels,
                          (number *)args->images);
    }
}

static struct pixels pixels_of(const struct image_transform *args)
{
    struct pixels pixels = {};
    pixels.planes = (const uint8_t *)args->source;
    pixels.sample_bytes = image_source_stride(args);
    pixels.all_channels = (int)args->channels;
    pixels.height = (int)args->height;
    pixels.width = (int)args->width;
    pixels.plane_height = (int)args->source_height;
    pixels.resize = args->source_height != args->height;
    pixels.chunks = blocks_for(args->height * args->width, THREADS * ROUNDS);
    pixels.plans = args->plans;
    pixels.missing = args->missing;
    pixels.is_target = args->is_target;
    return pixels;
}

/* Process the samples from `first` on, as many as there are slots. */
static void samples_transform(struct stream *stream, const struct image_transform *args,
                              const struct image_scratch *scratch, uint8_t *memory,
                              const struct axis &across, int64_t first, struct pixels *pixels)
{
    int64_t left = args->batch - first, source_bytes = pixels->sample_bytes;
    int64_t samples = left < scratch->slot_count ? left : scratch->slot_count;
    struct lines lines = {};
    pixels->first_sample = first;
    pixels->planes += first * source_bytes;
    if (args->source_width != args->width) {
        lines.from = pixels->planes;
        lines.to = memory + scratch->slots;
        lines.from_sample = source_bytes;
        lines.to_sample = (int64_t)scratch->slot_bytes;
        lines.of_sample = (int)(args->channels * args->source_height);
        lines.count = (int)samples * lines.of_sample;
        unsigned columns = blocks_for(args->width, WARP);
        unsigned blocks = columns * blocks_for(lines.count, THREADS / WARP * ROWS);
        if (args->from_fp32)
            KERNEL_LAUNCH(across_kernel<float>, blocks, THREADS, 0, stream->handle, lines, across,
                          (int)columns);
        else
            KERNEL_LAUNCH(across_kernel<uint8_t>, blocks, THREADS, 0, stream->handle, lines, across,
                          (int)columns);
        pixels->planes = lines.to;
        pixels->sample_bytes = lines.to_sample;
    }
    NUMBER_SWITCH(args->type, pixels_launch, stream, args, *pixels, samples);
}

void cuda_image_transform(struct stream *stream, const struct image_transform *args)
{
    if (args->batch * args->channels * args->height * args->width == 0)
        return;
    image_check(args);
    struct pixels pixels = pixels_of(args);
    if (!image_resizes(args)) {
        NUMBER_SWITCH(args->type, pixels_launch, stream, args, pixels, args->batch);
        return;
    }
    struct image_scratch scratch = image_scratch_of(args);
    uint8_t *memory = args->scratch + (-(uintptr_t)args->scratch % IMAGE_SCRATCH_ALIGN);
    struct axis across = axis_of(args->source_width, args->width, scratch.taps_across, memory);
    pixels.down =
        axis_of(args->source_height, args->height, scratch.taps_down, memory + scratch.down);
    KERNEL_LAUNCH(axes_kernel, blocks_for(args->width + args->height, THREADS), THREADS, 0,
                  stream->handle, across, pixels.down);
    for (int64_t first = 0; first < args->batch; first += scratch.slot_count) {
        struct pixels some = pixels;
        samples_transform(stream, args, &scratch, memory, across, first, &some);
    }
}
