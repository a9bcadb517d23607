// SPDX-License-Identifier: BSD-3-Clause
/* Direct convolution for few channels (kernels_convolution.c): threads process samples. Everything
 * is computed in fp32, in channel planes in the thread's workspace. A task accumulates the weight's
 * gradient over its samples, and tasks are added in order. The number of samples per task depends
 * on the batch only. */
#include <string.h>

#include "cpu/cpu.h"

/* Minimum samples per task of the weight's gradient, and maximum number of tasks. */
enum { TASK_SAMPLES = 2, MOST_TASKS = 64 };
enum { MOST_CHANNELS = 16, MOST_KERNEL = 7 };

/* Layout of an input image with `padding` on all sides. */
static struct plane_layout padded_image(int64_t channels, int64_t height, int64_t width,
                                        int64_t padding)
{
    const int64_t pitch = width + 2 * padding, rows = height + 2 * padding;

    return (struct plane_layout){channels, height, width, pitch,
                                 round_up(rows * pitch + 2 * DIRECT_PIXELS, DIRECT_PIXELS)};
}

/* Layout of an output image whose rows are whole vectors. */
static struct plane_layout whole_image(int64_t channels, int64_t height, int64_t width)
{
    const int64_t pitch = round_up(width, DIRECT_PIXELS);

    return (struct plane_layout){channels, height, width, pitch, height * pitch};
}

/* Floats of an image's planes, rounded up to whole blocks of channels. */
static int64_t image_floats(const struct plane_layout *image)
{
    return round_up(image->channels, DIRECT_BLOCK) * image->plane;
}

static int64_t sample_floats(const struct plane_layout *image)
{
    return image->channels * image->height * image->width;
}

/* Images of a convolution; dx is the convolution of dy, padded by dy_padding, with the flipped
 * weight. A thread's workspace has input planes, output planes, one fp32 sample, and partial sums
 * of the gradients of weight and bias; the last three begin at `written`, `sample` and `sums`. */
struct direct_layout {
    struct plane_layout x, y, dx, dy;
    int64_t dy_padding, weights, totals; /* totals: weights and biases */
    int64_t written, sample, sums, floats;
};

static struct direct_layout layout_of(const struct convolution_shape *s)
{
    const int64_t height = convolved_height(s), width = convolved_width(s);
    const int64_t out = round_up(s->out, DIRECT_BLOCK), dy_padding = s->kernel - 1 - s->padding;
    struct direct_layout l = {.x = padded_image(s->in, s->height, s->width, s->padding),
                              .y = whole_image(s->out, height, width),
                              .dx = whole_image(s->in, s->height, s->width),
                              .dy = padded_image(s->out, height, width, dy_padding),
                              .dy_padding = dy_padding,
                              .weights = out * s->in * s->kernel * s->kernel};

    l.totals = l.weights + out;
    l.written = larger(image_floats(&l.x), image_floats(&l.dy));
    l.sample = l.written + larger(image_floats(&l.y), image_floats(&l.dx));
    l.sums = l.sample + round_up(larger(sample_floats(&l.x), sample_floats(&l.y)), DIRECT_PIXELS);
    l.floats = l.sums + l.totals * DIRECT_PIXELS;
    return l;
}

bool cpu_convolution_is_direct(const struct convolution_shape *s)
{
    return s->in <= MOST_CHANNELS && s->out <= MOST_CHANNELS && s->kernel <= MOST_KERNEL &&
           s->stride == 1 && s->padding < s->kernel && s->height + 2 * s->padding >= s->kernel &&
           s->width + 2 * s->padding >= s->kernel &&
           layout_of(s).floats * (int64_t)sizeof(float) <= WORKSPACE_THREAD;
}

static struct direct_convolution direct_convolution(const struct convolution_shape *s,
                                                    const struct plane_layout *from,
                                                    const struct plane_layout *to)
{
    return (struct direct_convolution){.in = from->channels,
                                       .out = round_up(to->channels, DIRECT_BLOCK),
                                       .kernel = s->kernel,
                                       .height = to->height,
                                       .width = to->width,
                                       .x_pitch = from->pitch,
                                       .x_plane = from->plane,
                                       .y_pitch = to->pitch,
                                       .y_plane = to->plane};
}

static int threads_for(const struct cpu_device *cpu, const struct convolution_shape *s)
{
    return cpu_threads_for_product(cpu, convolved_pixels(s) * layout_of(s).weights);
}

/* Workspace of a task. */
struct direct_task {
    const struct cpu_device *cpu;
    enum data_type type;
    float *read, *written, *sample, *sums; /* parts of the thread's workspace */
};

static struct direct_task task_open(const struct cpu_device *cpu, enum data_type type,
                                    const struct direct_layout *l)
{
    float *memory = cpu_workspace_thread(cpu, (size_t)l->floats * sizeof *memory);

    return (struct direct_task){
        cpu, type, memory, memory + l->written, memory + l->sample, memory + l->sums};
}

/* Convert sample b of a tensor to planes with zeros around it: `padding` rows and columns come
 * before it. */
static void split_sample(const struct direct_task *task, const struct plane_layout *image,
                         const void *tensor, int64_t b, float *planes, int64_t padding)
{
    const int64_t count = sample_floats(image);
    const void *from = element(task->type, tensor, b * count);

    memset(planes, 0, (size_t)image_floats(image) * sizeof *planes);
    if (task->type != TYPE_FP32) {
        task->cpu->kernels->convert->to_fp32(task->sample, task->type, from, count);
        from = task->sample;
    }
    task->cpu->kernels->convolution->split(image, from, planes + padding * (image->pitch + 1));
}

static void join_sample(const struct direct_task *task, const struct plane_layout *image,
                        const float *planes, void *tensor, int64_t b)
{
    const int64_t count = sample_floats(image);
    void *to = element_to_write(task->type, tensor, b * count);
    float *sample = task->type == TYPE_FP32 ? to : task->sample;

    task->cpu->kernels->convolution->join(image, planes, sample);
    if (task->type != TYPE_FP32)
        task->cpu->kernels->convert->from_fp32(task->type, to, sample, count);
}

/* Layout of the shared workspace. */
struct direct_memory {
    float *weight;  /* in the kernels' layout */
    float *bias;    /* [MOST_CHANNELS] */
    float *plain;   /* fp32 copy of the weight */
    float *partial; /* [tasks, weights and biases] */
};

static struct direct_memory memory_layout(const struct cpu_device *cpu,
                                          const struct convolution_shape *s)
{
    const int64_t padded = MOST_CHANNELS * MOST_CHANNELS * s->kernel * s->kernel;
    struct direct_memory memory = {
        .weight = cpu_workspace_shared(
            cpu, (size_t)((2 + MOST_TASKS) * padded + (1 + MOST_TASKS) * MOST_CHANNELS) *
                     sizeof(float))};

    memory.bias = memory.weight + padded;
    memory.plain = memory.bias + MOST_CHANNELS;
    memory.partial = memory.plain + padded;
    return memory;
}

/* Return the index of the weight from channel c of x to channel o of y in the kernels' layout. */
static int64_t weight_index(int64_t in, int64_t taps, int64_t o, int64_t c, int64_t tap)
{
    return ((o / DIRECT_BLOCK * in + c) * taps + tap) * DIRECT_BLOCK + o % DIRECT_BLOCK;
}

/* Convert [out, in, kernel, kernel] to memory->weight. flipped: taps are reversed, and input and
 * output channels are swapped. */
static void reorder_weight(const struct cpu_device *cpu, enum data_type type,
                           const struct convolution_shape *s, const void *weight, bool flipped,
                           const struct direct_memory *memory)
{
    const int64_t taps = s->kernel * s->kernel, to = flipped ? s->in : s->out;
    const int64_t from = flipped ? s->out : s->in;

    cpu->kernels->convert->to_fp32(memory->plain, type, weight, s->out * s->in * taps);
    memset(memory->weight, 0,
           (size_t)(round_up(to, DIRECT_BLOCK) * from * taps) * sizeof *memory->weight);
    for (int64_t i = 0; i < s->out * s->in * taps; i++) {
        const int64_t o = i / taps / s->in, c = i / taps % s->in, tap = i % taps;
        const int64_t index = flipped ? weight_index(s->out, taps, c, o, taps - 1 - tap)
                                      : weight_index(s->in, taps, o, c, tap);
        memory->weight[index] = memory->plain[i];
    }
}

void cpu_convolution_direct_forward(const struct cpu_device *cpu,
                                    const struct convolution_forward *args)
{
    const struct convolution_shape *s = &args->shape;
    const struct direct_layout l = layout_of(s);
    const struct direct_memory memory = memory_layout(cpu, s);
    struct direct_convolution convolution = direct_convolution(s, &l.x, &l.y);

    convolution.relu = args->relu;
    reorder_weight(cpu, args->type, s, args->weight, false, &memory);
    memset(memory.bias, 0, MOST_CHANNELS * sizeof *memory.bias);
    if (args->bias != NULL)
        cpu->kernels->convert->to_fp32(memory.bias, args->type, args->bias, s->out);
#pragma omp parallel for schedule(static) num_threads(threads_for(cpu, s))
    for (int64_t b = 0; b < s->batch; b++) {
        const struct direct_task task = task_open(cpu, args->type, &l);
        split_sample(&task, &l.x, args->x, b, task.read, s->padding);
        cpu->kernels->convolution->forward(&convolution, task.read, memory.weight, memory.bias,
                                           task.written);
        join_sample(&task, &l.y, task.written, args->y, b);
    }
}

static void gradient_of_x(const struct cpu_device *cpu, const struct convolution_backward *args)
{
    const struct convolution_shape *s = &args->shape;
    const struct direct_layout l = layout_of(s);
    const struct direct_memory memory = memory_layout(cpu, s);
    const struct direct_convolution convolution = direct_convolution(s, &l.dy, &l.dx);
    const int64_t count = sample_floats(&l.dx);

    reorder_weight(cpu, args->type, s, args->weight, true, &memory);
    memset(memory.bias, 0, MOST_CHANNELS * sizeof *memory.bias);
#pragma omp parallel for schedule(static) num_threads(threads_for(cpu, s))
    for (int64_t b = 0; b < s->batch; b++) {
        const struct direct_task task = task_open(cpu, args->type, &l);
        split_sample(&task, &l.dy, args->dy, b, task.read, l.dy_padding);
        cpu->kernels->convolution->forward(&convolution, task.read, memory.weight, memory.bias,
                                           task.written);
        join_sample(&task, &l.dx, task.written, args->dx, b);
        if (args->x_relu)
            cpu->kernels->elements->relu_backward(args->type,
                                                  element_to_write(args->type, args->dx, b * count),
                                                  element(args->type, args->x, b * count), count);
    }
}

/* Compute the gradients of weight and bias for samples begin..end into `totals`. */
static void weight_task(const struct cpu_device *cpu, const struct convolution_backward *args,
                        int64_t begin, int64_t end, float *totals)
{
    const struct convolution_shape *s = &args->shape;
    const struct direct_layout l = layout_of(s);
    const struct direct_convolution convolution = direct_convolution(s, &l.x, &l.y);
    const struct convolution_kernels *kernels = cpu->kernels->convolution;
    const struct direct_task task = task_open(cpu, args->type, &l);
    const int64_t weights = l.weights;

    memset(task.sums, 0, (size_t)(l.totals * DIRECT_PIXELS) * sizeof *task.sums);
    for (int64_t b = begin; b < end; b++) {
        split_sample(&task, &l.x, args->x, b, task.read, s->padding);
        split_sample(&task, &l.y, args->dy, b, task.written, 0);
        kernels->weight(&convolution, task.read, task.written, task.sums);
        kernels->bias(&convolution, task.written, task.sums + weights * DIRECT_PIXELS);
    }
    kernels->fold(weights, task.sums, totals);
    kernels->fold(convolution.out, task.sums + weights * DIRECT_PIXELS, totals + weights);
}

/* Add the tasks' totals to the gradients in order. */
static void add_totals(const struct convolution_backward *args, int64_t tasks, const float *partial)
{
    const struct convolution_shape *s = &args->shape;
    const struct direct_layout l = layout_of(s);
    const int64_t taps = s->kernel * s->kernel, weights = l.weights, count = l.totals;

    for (int64_t i = 0; args->dweight != NULL && i < s->out * s->in * taps; i++) {
        const int64_t index =
            weight_index(s->in, taps, i / taps / s->in, i / taps % s->in, i % taps);
        float sum = 0;
        for (int64_t task = 0; task < tasks; task++)
            sum += partial[task * count + index];
        args->dweight[i] += sum;
    }
    for (int64_t o = 0; args->dbias != NULL && o < s->out; o++) {
        float sum = 0;
        for (int64_t task = 0; task < tasks; task++)
            sum += partial[task * count + weights + o];
        args->dbias[o] += sum;
    }
}

static void gradient_of_weight(const struct cpu_device *cpu,
                               const struct convolution_backward *args)
{
    const struct convolution_shape *s = &args->shape;
    const struct direct_memory memory = memory_layout(cpu, s);
    const int64_t step = larger(TASK_SAMPLES, (s->batch + MOST_TASKS - 1) / MOST_TASKS);
    const int64_t tasks = (s->batch + step - 1) / step;
    const int64_t count = layout_of(s).totals;

#pragma omp parallel for schedule(static) num_threads(threads_for(cpu, s))
    for (int64_t task = 0; task < tasks; task++) {
        weight_task(cpu, args, task * step, smaller((task + 1) * step, s->batch),
                    memory.partial + task * count);
    }
    add_totals(args, tasks, memory.partial);
}

void cpu_convolution_direct_backward(const struct cpu_device *cpu,
                                     const struct convolution_backward *args)
{
    if (args->dweight != NULL || args->dbias != NULL)
        gradient_of_weight(cpu, args);
    if (args->dx != NULL)
        gradient_of_x(cpu, args);
}
