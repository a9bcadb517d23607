/* Convolutions of few channels (kernels_convolution.c) over threads, which take samples. All is
 * computed in fp32, in planes of the thread's workspace. A task's samples add up their gradients of
 * the weight, and the tasks' are added in order: how many samples a task has depends on the batch
 * alone. */
#include <string.h>

#include "device/cpu.h"

/* Samples a task of the weight's gradient has at least, and how many tasks there are at most. */
enum { TASK_SAMPLES = 2, MOST_TASKS = 64 };
enum { MOST_CHANNELS = 16, MOST_KERNEL = 7 };

static int64_t round_up(int64_t count, int64_t multiple)
{
    return (count + multiple - 1) / multiple * multiple;
}

static int64_t out_height(const struct convolution_shape *s)
{
    return convolved_size(s->height, s->kernel, s->stride, s->padding);
}

static int64_t out_width(const struct convolution_shape *s)
{
    return convolved_size(s->width, s->kernel, s->stride, s->padding);
}

static int64_t weight_count(const struct convolution_shape *s)
{
    return round_up(s->out, NARROW_BLOCK) * s->in * s->kernel * s->kernel;
}

/* An image with `padding` around it, as it is read. */
static struct narrow_image padded_image(int64_t channels, int64_t height, int64_t width,
                                        int64_t padding)
{
    const int64_t pitch = width + 2 * padding, rows = height + 2 * padding;

    return (struct narrow_image){channels, height, width, pitch,
                                 round_up(rows * pitch + 2 * NARROW_PIXELS, NARROW_PIXELS)};
}

/* An image whose rows are whole vectors, as it is written. */
static struct narrow_image whole_image(int64_t channels, int64_t height, int64_t width)
{
    const int64_t pitch = round_up(width, NARROW_PIXELS);

    return (struct narrow_image){channels, height, width, pitch, height * pitch};
}

static struct narrow_image x_image(const struct convolution_shape *s)
{
    return padded_image(s->in, s->height, s->width, s->padding);
}

static struct narrow_image y_image(const struct convolution_shape *s)
{
    return whole_image(s->out, out_height(s), out_width(s));
}

/* dx is the convolution of dy, with that much around it, with the weight turned round. */
static int64_t dy_padding(const struct convolution_shape *s)
{
    return s->kernel - 1 - s->padding;
}

static struct narrow_image dy_image(const struct convolution_shape *s)
{
    return padded_image(s->out, out_height(s), out_width(s), dy_padding(s));
}

static struct narrow_image dx_image(const struct convolution_shape *s)
{
    return whole_image(s->in, s->height, s->width);
}

/* Floats of an image's planes, of whole blocks of channels. */
static int64_t image_floats(const struct narrow_image *image)
{
    return round_up(image->channels, NARROW_BLOCK) * image->plane;
}

static int64_t sample_floats(const struct narrow_image *image)
{
    return image->channels * image->height * image->width;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Floats of a thread's workspace: an image that is read, one that is written, a sample as it comes
 * or goes, sums of the weight's and the bias' gradients. */
static int64_t thread_floats(const struct convolution_shape *s)
{
    const struct narrow_image x = x_image(s), y = y_image(s), dx = dx_image(s), dy = dy_image(s);
    const int64_t sums = (weight_count(s) + round_up(s->out, NARROW_BLOCK)) * NARROW_PIXELS;

    return most(image_floats(&x), image_floats(&dy)) + most(image_floats(&y), image_floats(&dx)) +
           round_up(most(sample_floats(&x), sample_floats(&y)), NARROW_PIXELS) + sums;
}

bool cpu_convolution_is_narrow(const struct convolution_shape *s)
{
    return s->in <= MOST_CHANNELS && s->out <= MOST_CHANNELS && s->kernel <= MOST_KERNEL &&
           s->stride == 1 && s->padding < s->kernel && s->height + 2 * s->padding >= s->kernel &&
           s->width + 2 * s->padding >= s->kernel &&
           thread_floats(s) * (int64_t)sizeof(float) <= WORKSPACE_THREAD;
}

static struct narrow_convolution narrow_convolution(const struct convolution_shape *s,
                                                    const struct narrow_image *from,
                                                    const struct narrow_image *to)
{
    return (struct narrow_convolution){.in = from->channels,
                                       .out = round_up(to->channels, NARROW_BLOCK),
                                       .kernel = s->kernel,
                                       .height = to->height,
                                       .width = to->width,
                                       .x_pitch = from->pitch,
                                       .x_plane = from->plane,
                                       .y_pitch = to->pitch,
                                       .y_plane = to->plane};
}

/* For starting threads: a multiplication is much less than an element elsewhere. */
static int threads_for(const struct cpu_device *cpu, const struct convolution_shape *s)
{
    enum { PRODUCTS_AN_ELEMENT = 32 };
    return cpu_threads_for(cpu, s->batch * out_height(s) * out_width(s) * weight_count(s) /
                                    PRODUCTS_AN_ELEMENT);
}

/* What a task works with. */
struct narrow_task {
    const struct cpu_device *cpu;
    enum data_type type;
    float *read, *written, *sample, *sums; /* of the thread's workspace */
};

static struct narrow_task task_open(const struct cpu_device *cpu, enum data_type type,
                                    const struct convolution_shape *s)
{
    const struct narrow_image x = x_image(s), y = y_image(s), dx = dx_image(s), dy = dy_image(s);
    struct narrow_task task = {.cpu = cpu, .type = type};

    task.read = cpu_workspace_thread(cpu, (size_t)thread_floats(s) * sizeof(float));
    task.written = task.read + most(image_floats(&x), image_floats(&dy));
    task.sample = task.written + most(image_floats(&y), image_floats(&dx));
    task.sums = task.sample + round_up(most(sample_floats(&x), sample_floats(&y)), NARROW_PIXELS);
    return task;
}

/* Splits sample b of a tensor into planes with zeros around, from `first` on. */
static void split_sample(const struct narrow_task *task, const struct narrow_image *image,
                         const void *tensor, int64_t b, float *planes, int64_t first)
{
    const int64_t count = sample_floats(image);
    const char *from = (const char *)tensor + (size_t)(b * count) * type_size(task->type);

    memset(planes, 0, (size_t)image_floats(image) * sizeof *planes);
    if (task->type == TYPE_FP32) {
        task->cpu->kernels->convolution->split(image, (const float *)tensor + b * count,
                                               planes + first);
        return;
    }
    task->cpu->kernels->convert->to_fp32(task->sample, task->type, from, count);
    task->cpu->kernels->convolution->split(image, task->sample, planes + first);
}

static void join_sample(const struct narrow_task *task, const struct narrow_image *image,
                        const float *planes, void *tensor, int64_t b)
{
    const int64_t count = sample_floats(image);
    char *to = (char *)tensor + (size_t)(b * count) * type_size(task->type);

    if (task->type == TYPE_FP32) {
        task->cpu->kernels->convolution->join(image, planes, (float *)tensor + b * count);
        return;
    }
    task->cpu->kernels->convolution->join(image, planes, task->sample);
    task->cpu->kernels->convert->from_fp32(task->type, to, task->sample, count);
}

static int64_t first_pixel(const struct narrow_image *image, int64_t padding)
{
    return padding * image->pitch + padding;
}

/* Where things lie in the shared workspace. */
struct narrow_memory {
    float *weight;  /* as the kernels take it */
    float *bias;    /* [MOST_CHANNELS] */
    float *plain;   /* the weight as it is, in fp32 */
    float *partial; /* [tasks, weights and biases] */
};

static struct narrow_memory memory_place(const struct cpu_device *cpu,
                                         const struct convolution_shape *s)
{
    const int64_t padded = MOST_CHANNELS * MOST_CHANNELS * s->kernel * s->kernel;
    struct narrow_memory memory = {
        .weight = cpu_workspace_shared(
            cpu, (size_t)((2 + MOST_TASKS) * padded + (1 + MOST_TASKS) * MOST_CHANNELS) *
                     sizeof(float))};

    memory.bias = memory.weight + padded;
    memory.plain = memory.bias + MOST_CHANNELS;
    memory.partial = memory.plain + padded;
    return memory;
}

/* Index of the weight between channels o of y and c of x as the kernels take it. */
static int64_t weight_index(int64_t in, int64_t places, int64_t o, int64_t c, int64_t place)
{
    return ((o / NARROW_BLOCK * in + c) * places + place) * NARROW_BLOCK + o % NARROW_BLOCK;
}

/* memory->weight of [out, in, kernel, kernel]; where it is turned round, from y's channels to x's.
 */
static void order_weight(const struct cpu_device *cpu, enum data_type type,
                         const struct convolution_shape *s, const void *weight, bool turned,
                         const struct narrow_memory *memory)
{
    const int64_t places = s->kernel * s->kernel, to = turned ? s->in : s->out;
    const int64_t from = turned ? s->out : s->in;

    cpu->kernels->convert->to_fp32(memory->plain, type, weight, s->out * s->in * places);
    memset(memory->weight, 0,
           (size_t)(round_up(to, NARROW_BLOCK) * from * places) * sizeof *memory->weight);
    for (int64_t i = 0; i < s->out * s->in * places; i++) {
        const int64_t o = i / places / s->in, c = i / places % s->in, place = i % places;
        const int64_t index = turned ? weight_index(s->out, places, c, o, places - 1 - place)
                                     : weight_index(s->in, places, o, c, place);
        memory->weight[index] = memory->plain[i];
    }
}

void cpu_convolution_narrow_forward(const struct cpu_device *cpu,
                                    const struct convolution_forward *args)
{
    const struct convolution_shape *s = &args->shape;
    const struct narrow_image x = x_image(s), y = y_image(s);
    const struct narrow_memory memory = memory_place(cpu, s);
    struct narrow_convolution convolution = narrow_convolution(s, &x, &y);

    convolution.relu = args->relu;
    order_weight(cpu, args->type, s, args->weight, false, &memory);
    memset(memory.bias, 0, MOST_CHANNELS * sizeof *memory.bias);
    if (args->bias != NULL)
        cpu->kernels->convert->to_fp32(memory.bias, args->type, args->bias, s->out);
#pragma omp parallel for schedule(static) num_threads(threads_for(cpu, s))
    for (int64_t b = 0; b < s->batch; b++) {
        const struct narrow_task task = task_open(cpu, args->type, s);
        split_sample(&task, &x, args->x, b, task.read, first_pixel(&x, s->padding));
        cpu->kernels->convolution->forward(&convolution, task.read, memory.weight, memory.bias,
                                           task.written);
        join_sample(&task, &y, task.written, args->y, b);
    }
}

static void gradient_of_x(const struct cpu_device *cpu, const struct convolution_backward *args)
{
    const struct convolution_shape *s = &args->shape;
    const struct narrow_image dy = dy_image(s), dx = dx_image(s);
    const struct narrow_memory memory = memory_place(cpu, s);
    const struct narrow_convolution convolution = narrow_convolution(s, &dy, &dx);
    const int64_t count = sample_floats(&dx);

    order_weight(cpu, args->type, s, args->weight, true, &memory);
    memset(memory.bias, 0, MOST_CHANNELS * sizeof *memory.bias);
#pragma omp parallel for schedule(static) num_threads(threads_for(cpu, s))
    for (int64_t b = 0; b < s->batch; b++) {
        const struct narrow_task task = task_open(cpu, args->type, s);
        const size_t first = (size_t)(b * count) * type_size(args->type);
        split_sample(&task, &dy, args->dy, b, task.read, first_pixel(&dy, dy_padding(s)));
        cpu->kernels->convolution->forward(&convolution, task.read, memory.weight, memory.bias,
                                           task.written);
        join_sample(&task, &dx, task.written, args->dx, b);
        if (args->x_relu)
            cpu->kernels->elements->relu_backward(args->type, (char *)args->dx + first,
                                                  (const char *)args->x + first, count);
    }
}

/* Gradients of weight and bias from samples begin..end, at `totals`. */
static void weight_task(const struct cpu_device *cpu, const struct convolution_backward *args,
                        int64_t begin, int64_t end, float *totals)
{
    const struct convolution_shape *s = &args->shape;
    const struct narrow_image x = x_image(s), y = y_image(s);
    const struct narrow_convolution convolution = narrow_convolution(s, &x, &y);
    const struct convolution_kernels *kernels = cpu->kernels->convolution;
    const struct narrow_task task = task_open(cpu, args->type, s);
    const int64_t weights = weight_count(s), count = weights + convolution.out;

    memset(task.sums, 0, (size_t)(count * NARROW_PIXELS) * sizeof *task.sums);
    for (int64_t b = begin; b < end; b++) {
        split_sample(&task, &x, args->x, b, task.read, first_pixel(&x, s->padding));
        split_sample(&task, &y, args->dy, b, task.written, 0);
        kernels->weight(&convolution, task.read, task.written, task.sums);
        kernels->bias(&convolution, task.written, task.sums + weights * NARROW_PIXELS);
    }
    kernels->fold(weights, task.sums, totals);
    kernels->fold(convolution.out, task.sums + weights * NARROW_PIXELS, totals + weights);
}

/* Adds the tasks' totals to the gradients. */
static void add_totals(const struct convolution_backward *args, int64_t tasks, const float *partial)
{
    const struct convolution_shape *s = &args->shape;
    const int64_t places = s->kernel * s->kernel, weights = weight_count(s);
    const int64_t count = weights + round_up(s->out, NARROW_BLOCK);

    for (int64_t i = 0; args->dweight != NULL && i < s->out * s->in * places; i++) {
        const int64_t index =
            weight_index(s->in, places, i / places / s->in, i / places % s->in, i % places);
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
    const struct narrow_memory memory = memory_place(cpu, s);
    const int64_t step = most(TASK_SAMPLES, (s->batch + MOST_TASKS - 1) / MOST_TASKS);
    const int64_t tasks = (s->batch + step - 1) / step;
    const int64_t count = weight_count(s) + round_up(s->out, NARROW_BLOCK);

#pragma omp parallel for schedule(static) num_threads(threads_for(cpu, s))
    for (int64_t task = 0; task < tasks; task++) {
        const int64_t end = (task + 1) * step;
        weight_task(cpu, args, task * step, end < s->batch ? end : s->batch,
                    memory.partial + task * count);
    }
    add_totals(args, tasks, memory.partial);
}

void cpu_convolution_narrow_backward(const struct cpu_device *cpu,
                                     const struct convolution_backward *args)
{
    if (args->dweight != NULL || args->dbias != NULL)
        gradient_of_weight(cpu, args);
    if (args->dx != NULL)
        gradient_of_x(cpu, args);
}
