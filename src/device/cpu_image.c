/* uint8 images to normalised images of the model's size. Resizing is bit for bit PIL's bilinear
 * filter with antialiasing (two passes of integer arithmetic, rounded in between), so that a model
 * sees the same pixels as with torchvision. */
#include "device/cpu.h"

#include <math.h>
#include <string.h>

enum { WEIGHT_BITS = 22, ALIGNMENT = 64, ROW_PIXELS = 256, MOST_CHANNELS = 4 };

/* Where an axis' tables and the images between the passes lie in the scratch. */
struct scratch_layout {
    size_t horizontal, vertical, between, resized, total;
};

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* How many inputs an output is made of at the most. */
static int64_t axis_taps(int64_t source, int64_t size)
{
    double scale = (double)source / (double)size;
    return 2 * (int64_t)ceil(scale > 1 ? scale : 1) + 1;
}

static size_t axis_bytes(int64_t source, int64_t size)
{
    return aligned((size_t)size * (size_t)(2 + axis_taps(source, size)) * sizeof(int32_t));
}

static struct scratch_layout layout_of(const struct image_transform *args)
{
    struct scratch_layout layout = {0};
    size_t planes = (size_t)(args->batch * args->channels);
    if (args->source_width == args->width && args->source_height == args->height)
        return layout;
    layout.vertical = layout.horizontal + axis_bytes(args->source_width, args->width);
    layout.between = layout.vertical + axis_bytes(args->source_height, args->height);
    layout.resized = layout.between + aligned(planes * (size_t)(args->source_height * args->width));
    layout.total = layout.resized + aligned(planes * (size_t)(args->height * args->width));
    return layout;
}

size_t image_transform_scratch(const struct image_transform *transform)
{
    return layout_of(transform).total;
}

/* The triangle filter's weights around each output's centre, as integers. */
static struct resize_axis axis_make(int64_t source, int64_t size, uint8_t *memory)
{
    struct resize_axis axis = {.source = source, .size = size, .taps = axis_taps(source, size)};
    double scale = (double)source / (double)size, support = scale > 1 ? scale : 1;
    axis.first = (int32_t *)(void *)memory;
    axis.count = axis.first + size;
    axis.weights = axis.count + size;
    for (int64_t i = 0; i < size; i++) {
        double centre = ((double)i + 0.5) * scale, sum = 0;
        int64_t first = (int64_t)(centre - support + 0.5), end = (int64_t)(centre + support + 0.5);
        first = first < 0 ? 0 : first;
        end = end > source ? source : end;
        int32_t *weights = axis.weights + i * axis.taps;
        for (int pass = 0; pass < 2; pass++)
            for (int64_t k = first; k < end; k++) {
                double far = fabs(((double)k - centre + 0.5) / support);
                double weight = far < 1 ? 1 - far : 0;
                if (pass == 0)
                    sum += weight;
                else
                    weights[k - first] = (int32_t)(0.5 + weight / sum * (1 << WEIGHT_BITS));
            }
        axis.first[i] = (int32_t)first;
        axis.count[i] = (int32_t)(end - first);
    }
    return axis;
}

/* All planes of the batch, resized; the source itself when it has the size already. */
static const uint8_t *planes_resize(const struct cpu_device *cpu,
                                    const struct image_transform *args)
{
    const struct scratch_layout layout = layout_of(args);
    if (layout.total == 0)
        return args->source;
    const struct image_kernels *image = cpu->kernels->image;
    const int64_t source_size = args->source_height * args->source_width;
    const int64_t between_size = args->source_height * args->width;
    const int64_t size = args->height * args->width;
    const struct resize_axis across =
        axis_make(args->source_width, args->width, args->scratch + layout.horizontal);
    const struct resize_axis down =
        axis_make(args->source_height, args->height, args->scratch + layout.vertical);
    uint8_t *between = args->scratch + layout.between, *resized = args->scratch + layout.resized;
#pragma omp parallel for schedule(static)                                                          \
    num_threads(cpu_threads_for(cpu, args->batch * args->channels * size))
    for (int64_t plane = 0; plane < args->batch * args->channels; plane++) {
        const uint8_t *from = args->source + plane * source_size;
        uint8_t *middle = between + plane * between_size, *to = resized + plane * size;
        if (args->source_width != args->width)
            image->resize_horizontal(&across, args->source_height, from, middle);
        else
            memcpy(middle, from, (size_t)source_size);
        if (args->source_height != args->height)
            image->resize_vertical(&down, args->width, middle, to);
        else
            memcpy(to, middle, (size_t)size);
    }
    return resized;
}

/* (level / 255 - mean) / std in the images' type, in fp32 as torchvision computes it. */
static void table_make(const struct cpu_device *cpu, const struct image_transform *args,
                       int64_t channel, union pixel_table *table)
{
    float values[256];
    for (int level = 0; level < 256; level++)
        values[level] = ((float)level / 255 - args->mean[channel]) / args->std[channel];
    if (args->type == TYPE_FP32)
        memcpy(table->fp32, values, sizeof values);
    else
        cpu->kernels->convert->from_fp32(args->type, table->half, values, 256);
}

/* All channels of one sample, row by row: the way back of a pixel is the same for all. */
static void sample_transform(const struct cpu_device *cpu, const struct image_transform *args,
                             const union pixel_table *tables, const uint8_t *planes, int64_t b)
{
    const struct image_kernels *image = cpu->kernels->image;
    const int64_t size = args->height * args->width;
    const size_t bytes = type_size(args->type);
    int32_t origin[ROW_PIXELS];
    for (int64_t y = 0; y < args->height; y++)
        for (int64_t x = 0; x < args->width; x += ROW_PIXELS) {
            int64_t count = args->width - x < ROW_PIXELS ? args->width - x : ROW_PIXELS;
            if (args->plans != NULL)
                image->follow(&args->plans[b], (int32_t)args->width, (int32_t)args->height,
                              (int32_t)x, (int32_t)y, (int32_t)count, origin);
            for (int64_t c = 0; c < args->channels; c++) {
                const int64_t plane = (b * args->channels + c) * size, row = y * args->width + x;
                image->look_up(args->type, &tables[c],
                               planes + plane + (args->plans != NULL ? 0 : row),
                               args->plans != NULL ? origin : NULL, count,
                               (char *)args->images + (size_t)(plane + row) * bytes);
            }
        }
}

void cpu_image_transform(struct stream *stream, const struct image_transform *args)
{
    const struct cpu_device *cpu = stream->cpu;
    union pixel_table tables[MOST_CHANNELS];
    ENSURE(args->channels <= MOST_CHANNELS, "%lld channels", (long long)args->channels);
    for (int64_t c = 0; c < args->channels; c++)
        table_make(cpu, args, c, &tables[c]);
    const uint8_t *planes = planes_resize(cpu, args);
#pragma omp parallel for schedule(static)                                                          \
    num_threads(cpu_threads_for(cpu, args->batch * args->channels * args->height * args->width))
    for (int64_t b = 0; b < args->batch; b++)
        sample_transform(cpu, args, tables, planes, b);
}
