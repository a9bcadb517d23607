// SPDX-License-Identifier: BSD-3-Clause
/* Convolutions on the CPU. kernels_convolution.c computes those with few channels,
 * cpu_convolution_implicit.c most of those in fp32 without AVX-512, and oneDNN all others. Types
 * that the processor cannot multiply are converted to fp32, a few samples at a time. On processors
 * with AMX, cpu_convolution_linear.c computes bf16 convolutions of 1 x 1 with many weights, and
 * tiles/kernels_convolution.c the weight's gradient of other bf16 convolutions. Where oneDNN
 * computes a weight's gradient, the order of its sums depends on the number of threads; these are
 * the only results whose bits may differ between numbers of threads. If results must be
 * reproducible, it is computed by cpu_convolution_implicit.c instead. */
#include <string.h>

#include "cpu/cpu.h"
#include "cpu/cpu_convolution_plan.h"

/* Maximum number of elements of x in an fp32 copy, but at least one sample. */
enum { COPIED_ELEMENTS = 4 << 20 };

static int64_t x_elements(const struct convolution_shape *s)
{
    return convolution_pixels(s) * s->in;
}

static int64_t y_elements(const struct convolution_shape *s)
{
    return convolved_pixels(s) * s->out;
}

/* True if operands are multiplied in this type, not as fp32 copies. oneDNN 2.6 computes a wrong
 * gradient of the weight in bf16 for images that are one pixel wide with a stride above 1. */
static bool type_is_multiplied(const struct cpu_device *cpu, enum data_type type,
                               const struct convolution_shape *shape)
{
    return is_native(cpu, type) && (type == TYPE_FP32 || shape->width > 1 || shape->stride == 1);
}

/* Return the workspace for the weight's gradient on tiles; 0 if it is computed without them. */
static size_t tiles_bytes(const struct cpu_device *cpu, enum data_type type,
                          const struct convolution_shape *shape)
{
    return has_tiles(cpu, type) ? cpu->tiles->convolution->workspace(shape) : 0;
}

/* True if oneDNN must not compute the weight's gradient. */
static bool replaces_onednn(const struct cpu_device *cpu, enum data_type type,
                            const struct convolution_shape *shape)
{
    return cpu->device.reproducible && tiles_bytes(cpu, type, shape) == 0;
}

/* True if some operands are copied in fp32. */
static bool copies_operands(const struct cpu_device *cpu, enum data_type type,
                            const struct convolution_shape *shape)
{
    return !type_is_multiplied(cpu, type, shape) ||
           (type != TYPE_FP32 && replaces_onednn(cpu, type, shape));
}

/* Return the number of samples that are processed at a time. */
static int64_t samples_at_a_time(const struct cpu_device *cpu, enum data_type type,
                                 const struct convolution_shape *shape)
{
    const int64_t sample = shape->batch == 0 ? 1 : x_elements(shape) / shape->batch;
    const int64_t fit = sample == 0 ? 1 : COPIED_ELEMENTS / sample;

    if (!copies_operands(cpu, type, shape) || fit >= shape->batch)
        return shape->batch;
    return fit > 0 ? fit : 1;
}

/* fp32 copies of operands that the processor cannot multiply, at the start of the workspace. */
struct copies {
    float *x, *weight, *bias, *y;
    size_t bytes;
};

/* Return the next `elements` of the workspace; NULL if it is only measured. */
static float *copy_next(struct copies *copies, char *workspace, int64_t elements)
{
    void *copy = workspace == NULL ? NULL : workspace + copies->bytes;

    copies->bytes += (size_t)round_up(elements * (int64_t)sizeof(float), 4096);
    return copy;
}

static struct copies copies_layout(const struct cpu_device *cpu, enum data_type type,
                                   const struct convolution_shape *shape, void *workspace)
{
    struct convolution_shape part = *shape;
    struct copies copies = {.bytes = 0};

    if (!copies_operands(cpu, type, shape))
        return copies;
    part.batch = samples_at_a_time(cpu, type, shape);
    copies.x = copy_next(&copies, workspace, x_elements(&part));
    copies.weight = copy_next(&copies, workspace, convolution_weights(&part));
    copies.bias = copy_next(&copies, workspace, part.out);
    copies.y = copy_next(&copies, workspace, y_elements(&part));
    return copies;
}

/* Return the type in which convolutions of a type are computed. */
static enum data_type computed_type(const struct cpu_device *cpu, enum data_type type,
                                    const struct convolution_shape *shape)
{
    return type_is_multiplied(cpu, type, shape) ? type : TYPE_FP32;
}

/* Return the bytes of workspace of cpu_convolution_implicit.c; 0 if it does not compute this block
 * of the batch. */
static size_t implicit_bytes(const struct cpu_device *cpu, enum data_type type,
                             const struct convolution_shape *part)
{
    return computed_type(cpu, type, part) == TYPE_FP32 ? convolution_implicit_workspace(cpu, part)
                                                       : 0;
}

/* Return the workspace that one block of the batch needs. */
static size_t plans_bytes(const struct cpu_device *cpu, enum data_type type,
                          const struct convolution_shape *part)
{
    static const struct convolution plans[] = {{.bias = false, .relu = false},
                                               {.bias = true},
                                               {.relu = true},
                                               {.bias = true, .relu = true},
                                               {.pass = CONVOLUTION_INPUT},
                                               {.pass = CONVOLUTION_WEIGHT}};
    const size_t implicit = implicit_bytes(cpu, type, part);
    size_t most = replaces_onednn(cpu, type, part)
                      ? convolution_implicit_weight_workspace(cpu, part)
                      : tiles_bytes(cpu, type, part);

    if (implicit > 0)
        return implicit > most ? implicit : most;
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        struct convolution convolution = plans[i];
        convolution.type = computed_type(cpu, type, part);
        convolution.shape = *part;
        const size_t bytes = convolution_plan_workspace(cpu->onednn, &convolution);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* The last block of the batch may be smaller than the others. */
size_t cpu_convolution_workspace(struct device *device, enum data_type type,
                                 const struct convolution_shape *shape)
{
    const struct cpu_device *cpu = (struct cpu_device *)device;
    struct convolution_shape part = *shape;
    size_t most;

    if (shape->batch == 0 || cpu_convolution_is_direct(shape))
        return 0;
    if (convolution_linear_supports(cpu, type, shape))
        return convolution_linear_workspace(shape);
    part.batch = samples_at_a_time(cpu, type, shape);
    most = plans_bytes(cpu, type, &part);
    part.batch = shape->batch % part.batch;
    if (part.batch > 0) {
        const size_t last = plans_bytes(cpu, type, &part);
        most = last > most ? last : most;
    }
    return copies_layout(cpu, type, shape, NULL).bytes + most;
}

/* Set dx to 0 where x, the output of a ReLU, is 0. */
static void mask_relu(const struct cpu_device *cpu, enum data_type type, void *dx, const void *x,
                      int64_t count)
{
#pragma omp parallel for schedule(static) num_threads(cpu_threads_for(cpu, count))
    for (int64_t i = 0; i < count; i += CPU_BLOCK)
        cpu->kernels->elements->relu_backward(type, element_to_write(type, dx, i),
                                              element(type, x, i), smaller(CPU_BLOCK, count - i));
}

static const struct convolution_plan *plan_of(const struct cpu_device *cpu, enum data_type type,
                                              const struct convolution_shape *shape,
                                              enum convolution_pass pass, bool bias, bool relu)
{
    const struct convolution convolution = {.pass = pass,
                                            .type = computed_type(cpu, type, shape),
                                            .shape = *shape,
                                            .bias = bias,
                                            .relu = relu};

    return convolution_plan(cpu->onednn, &convolution);
}

static void forward_native(const struct cpu_device *cpu, const struct convolution_forward *args,
                           void *workspace)
{
    if (implicit_bytes(cpu, args->type, &args->shape) > 0)
        convolution_implicit_forward(cpu, args, workspace);
    else
        convolution_plan_run(plan_of(cpu, args->type, &args->shape, CONVOLUTION_FORWARD,
                                     args->bias != NULL, args->relu),
                             args->x, args->weight, args->bias, args->y, workspace);
}

void cpu_convolution_forward(struct stream *stream, const struct convolution_forward *args)
{
    const struct cpu_device *cpu = stream->cpu;
    const struct convolution_shape *shape = &args->shape;
    const enum data_type type = args->type;

    if (shape->batch == 0)
        return;
    if (cpu_convolution_is_direct(shape)) {
        cpu_convolution_direct_forward(cpu, args);
        return;
    }
    if (convolution_linear_supports(cpu, type, shape)) {
        convolution_linear_forward(stream, args);
        return;
    }
    const bool native = type_is_multiplied(cpu, type, shape);
    const struct copies copies = copies_layout(cpu, type, shape, args->workspace);
    const int64_t step = samples_at_a_time(cpu, type, shape);
    for (int64_t sample = 0; sample < shape->batch; sample += step) {
        struct convolution_forward part = *args;
        part.shape.batch = smaller(step, shape->batch - sample);
        part.x = element(type, args->x, sample * (x_elements(shape) / shape->batch));
        void *y = element_to_write(type, args->y, sample * (y_elements(shape) / shape->batch));
        part.y = native ? y : copies.y;
        if (!native) {
            cpu_convert(stream, TYPE_FP32, copies.x, type, part.x, x_elements(&part.shape));
            cpu_convert(stream, TYPE_FP32, copies.weight, type, args->weight,
                        convolution_weights(shape));
            if (args->bias != NULL)
                cpu_convert(stream, TYPE_FP32, copies.bias, type, args->bias, shape->out);
            part.type = TYPE_FP32;
            part.x = copies.x;
            part.weight = copies.weight;
            part.bias = args->bias != NULL ? copies.bias : NULL;
        }
        forward_native(cpu, &part, (char *)args->workspace + copies.bytes);
        if (!native)
            cpu_convert(stream, type, y, TYPE_FP32, copies.y, y_elements(&part.shape));
    }
}

/* dbias += sums over pixels. Partial sums, whose number depends on the shape only, are added in
 * order. */
static void gradient_of_bias(const struct cpu_device *cpu, const struct convolution_backward *args)
{
    enum { MOST_PARTS = 64 };
    const int64_t out = args->shape.out, rows = y_elements(&args->shape) / out;
    const int64_t step = (rows + MOST_PARTS - 1) / MOST_PARTS, parts = (rows + step - 1) / step;
    const struct element_kernels *kernels = cpu->kernels->elements;
    float *sums = cpu_workspace_shared(cpu, (size_t)(MOST_PARTS * out) * sizeof *sums);

    memset(sums, 0, (size_t)(parts * out) * sizeof *sums);
#pragma omp parallel for schedule(static) num_threads(cpu_threads_for(cpu, rows *out))
    for (int64_t part = 0; part < parts; part++) {
        const int64_t left = rows - part * step;
        kernels->add_columns(args->type, sums + part * out,
                             element(args->type, args->dy, part * step * out),
                             left < step ? left : step, out, out);
    }
    kernels->add_columns(TYPE_FP32, args->dbias, sums, parts, out, out);
}

static void backward_native(const struct cpu_device *cpu, const struct convolution_backward *args,
                            void *workspace)
{
    const struct convolution_shape *shape = &args->shape;
    const bool implicit = implicit_bytes(cpu, args->type, shape) > 0;

    if (args->dbias != NULL)
        gradient_of_bias(cpu, args);
    if (args->dweight != NULL && (implicit || cpu->device.reproducible))
        convolution_implicit_weight(cpu, args, workspace);
    else if (args->dweight != NULL)
        convolution_plan_run(plan_of(cpu, args->type, shape, CONVOLUTION_WEIGHT, false, false),
                             args->x, args->dweight, NULL, args->dy, workspace);
    if (args->dx == NULL)
        return;
    if (implicit)
        convolution_implicit_input(cpu, args, workspace);
    else
        convolution_plan_run(plan_of(cpu, args->type, shape, CONVOLUTION_INPUT, false, false),
                             args->dx, args->weight, NULL, args->dy, workspace);
    if (args->x_relu)
        mask_relu(cpu, args->type, args->dx, args->x, x_elements(shape));
}

/* The copy of x is overwritten by dx after the weight's gradient is computed. */
static void backward_copied(struct stream *stream, const struct convolution_backward *args,
                            const struct copies *copies, void *workspace)
{
    const int64_t elements = x_elements(&args->shape);
    struct convolution_backward part = *args;

    cpu_convert(stream, TYPE_FP32, copies->x, args->type, args->x, elements);
    cpu_convert(stream, TYPE_FP32, copies->weight, args->type, args->weight,
                convolution_weights(&args->shape));
    cpu_convert(stream, TYPE_FP32, copies->y, args->type, args->dy, y_elements(&args->shape));
    part.type = TYPE_FP32;
    part.x = copies->x;
    part.weight = copies->weight;
    part.dy = copies->y;
    part.dx = args->dx != NULL ? copies->x : NULL;
    part.x_relu = false;
    backward_native(stream->cpu, &part, workspace);
    if (args->dx == NULL)
        return;
    cpu_convert(stream, args->type, args->dx, TYPE_FP32, copies->x, elements);
    if (args->x_relu)
        mask_relu(stream->cpu, args->type, args->dx, args->x, elements);
}

void cpu_convolution_backward(struct stream *stream, const struct convolution_backward *args)
{
    const struct cpu_device *cpu = stream->cpu;
    const struct convolution_shape *shape = &args->shape;
    const bool native = type_is_multiplied(cpu, args->type, shape);

    if (shape->batch == 0)
        return;
    if (convolution_linear_supports(cpu, args->type, shape)) {
        convolution_linear_backward(stream, args);
        return;
    }
    /* The functions below always accumulate, so overwriting starts from zero. */
    if (args->overwrite && args->dweight != NULL)
        cpu_zero(stream, args->dweight, (size_t)convolution_weights(shape) * sizeof *args->dweight);
    if (args->overwrite && args->dbias != NULL)
        cpu_zero(stream, args->dbias, (size_t)shape->out * sizeof *args->dbias);
    if (cpu_convolution_is_direct(shape)) {
        cpu_convolution_direct_backward(cpu, args);
        return;
    }
    const struct copies copies = copies_layout(cpu, args->type, shape, args->workspace);
    const int64_t step = samples_at_a_time(cpu, args->type, shape);
    void *workspace = (char *)args->workspace + copies.bytes;
    for (int64_t sample = 0; sample < shape->batch; sample += step) {
        const int64_t first_x = sample * (x_elements(shape) / shape->batch);
        struct convolution_backward part = *args;
        part.x = element(args->type, args->x, first_x);
        part.dx = element_to_write(args->type, args->dx, first_x);
        part.dy = element(args->type, args->dy, sample * (y_elements(shape) / shape->batch));
        part.shape.batch = smaller(step, shape->batch - sample);
        if (args->dweight != NULL && tiles_bytes(cpu, args->type, &part.shape) > 0) {
            cpu->tiles->convolution->weight(cpu, &part, workspace);
            part.dweight = NULL;
        }
        if (part.dweight != NULL && native && copies_operands(cpu, args->type, shape)) {
            struct convolution_backward weight = part;
            weight.dx = NULL;
            weight.dbias = NULL;
            backward_copied(stream, &weight, &copies, workspace);
            part.dweight = NULL;
        }
        if (native)
            backward_native(cpu, &part, workspace);
        else
            backward_copied(stream, &part, &copies, workspace);
    }
}
