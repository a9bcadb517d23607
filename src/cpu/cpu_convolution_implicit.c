// SPDX-License-Identifier: BSD-3-Clause
#include "cpu/cpu_convolution_plan.h"

#include <string.h>

/* Pixels of a band, multiples of the rows of the kernels' tiles (kernels_implicit.c). Bands of the
 * weight's gradient are smaller because the cache also holds a copy of dy. */
enum { BAND_PIXELS = 252, WEIGHT_BAND_PIXELS = 126 };

/* Channels of a slice: they are copied at a time. */
enum { SLICE = 64, WEIGHT_SLICE = 32 };

/* The weight's gradient is divided into blocks of input and output channels. If there are few
 * blocks, the batch is divided into parts, whose sums are added in order. */
enum { BLOCK_CHANNELS = 64, LEAST_TASKS = 32 };

/* With fewer channels and with kernels of 1 x 1, oneDNN is faster. */
enum { LEAST_CHANNELS = 16, LEAST_KERNEL = 2 };

/* One correlation of an image with a rectangle of kernel taps. It is a forward pass, or it computes
 * the pixels of dx whose row and column have given remainders when divided by the stride. */
struct pass {
    int64_t batch, height, width, in; /* image that is read */
    int64_t top, left;                /* rows and columns of zeros above and left of it */
    int64_t step;                     /* rows or columns between pixels of the result */
    int64_t rows, columns;            /* taps */
    int64_t grid_height, grid_width;  /* pixels of the result */
    int64_t out, to_height, to_width; /* image that is written */
    int64_t to_step, to_top, to_left; /* step and first row and column of the result in it */
    int64_t slice, panel;             /* channels of a copy of the image; of a panel */
    /* Distances in the weight between channels of the result, channels of the image, and taps; and
     * the offset of the first tap. */
    int64_t weight_out, weight_in, weight_row, weight_column, weight_first;
};

/* Rows row..row+rows and columns column..column+columns of the result for samples
 * sample..sample+samples. */
struct band {
    int64_t sample, samples, row, rows, column, columns, pixels;
};

/* Division of the result into bands: samples, rows and columns of a band, bands per row, per image
 * and in all. */
struct bands {
    int64_t samples, rows, columns, per_row, per_image, count;
};

/* Divide rows into bands of this many columns. */
static void bands_cut(const struct pass *pass, int64_t columns, struct bands *bands)
{
    bands->columns = columns;
    bands->per_row = round_up_division(pass->grid_width, larger(1, columns));
    bands->per_image = round_up_division(pass->grid_height, bands->rows) * bands->per_row;
    bands->count = round_up_division(pass->batch, bands->samples) * bands->per_image;
}

static struct bands bands_of(const struct pass *pass, int64_t pixels)
{
    const int64_t image = larger(1, pass->grid_height * pass->grid_width);
    struct bands bands = {.samples = smaller(larger(1, pixels / image), larger(1, pass->batch)),
                          .rows = larger(1, pixels / larger(1, pass->grid_width))};

    bands.samples = round_up_division(pass->batch, round_up_division(pass->batch, bands.samples));
    bands.rows = smaller(bands.rows, larger(1, pass->grid_height));
    bands_cut(pass, pass->grid_width, &bands);
    return bands;
}

static struct band band_of(const struct pass *pass, const struct bands *bands, int64_t number)
{
    const int64_t within = number % bands->per_image;
    struct band band = {.sample = number / bands->per_image * bands->samples,
                        .row = within / bands->per_row * bands->rows,
                        .column = within % bands->per_row * bands->columns};

    band.samples = smaller(bands->samples, pass->batch - band.sample);
    band.rows = smaller(bands->rows, pass->grid_height - band.row);
    band.columns = smaller(bands->columns, pass->grid_width - band.column);
    band.pixels = band.samples * band.rows * band.columns;
    return band;
}

/* Return the rows of the copy that `rows` rows of the result read. */
static int64_t copy_height(const struct pass *pass, int64_t rows)
{
    return (rows - 1) * pass->step + pass->rows;
}

/* Return the columns of the copy that `columns` columns of the result read. */
static int64_t copy_width(const struct pass *pass, int64_t columns)
{
    return larger(0, (columns - 1) * pass->step + pass->columns);
}

static int64_t copy_floats(const struct pass *pass, const struct bands *bands)
{
    return bands->samples * copy_height(pass, bands->rows) * copy_width(pass, bands->columns) *
           smaller(pass->slice, pass->in);
}

static int64_t panels_of(const struct pass *pass)
{
    return round_up_division(pass->out, pass->panel);
}

/* Floats of the weight in the kernels' layout. */
static int64_t packed_floats(const struct pass *pass)
{
    return pass->in * pass->rows * pass->columns * panels_of(pass) * pass->panel;
}

static struct pass forward_pass(const struct cpu_device *cpu, const struct convolution_shape *s,
                                int64_t slice)
{
    return (struct pass){.batch = s->batch,
                         .height = s->height,
                         .width = s->width,
                         .in = s->in,
                         .top = s->padding,
                         .left = s->padding,
                         .step = s->stride,
                         .rows = s->kernel,
                         .columns = s->kernel,
                         .grid_height = convolved_height(s),
                         .grid_width = convolved_width(s),
                         .out = s->out,
                         .to_height = convolved_height(s),
                         .to_width = convolved_width(s),
                         .to_step = 1,
                         .slice = slice,
                         .panel = cpu->kernels->implicit->panel,
                         .weight_out = s->in * s->kernel * s->kernel,
                         .weight_in = s->kernel * s->kernel,
                         .weight_row = s->kernel,
                         .weight_column = 1};
}

/* One dimension of the pixels of dx whose positions have the same remainder when divided by the
 * stride: number of pixels, and taps first, first + stride, ..., which contribute to them. Taps in
 * descending order read dy in ascending order. */
struct phase {
    int64_t first, count, padding, pixels;
};

static struct phase phase_of(const struct convolution_shape *s, int64_t size, int64_t remainder)
{
    struct phase phase = {.first = (remainder + s->padding) % s->stride};

    phase.count =
        phase.first < s->kernel ? round_up_division(s->kernel - phase.first, s->stride) : 0;
    phase.padding = phase.count - 1 - (remainder + s->padding) / s->stride;
    phase.pixels = remainder < size ? round_up_division(size - remainder, s->stride) : 0;
    return phase;
}

static struct pass input_pass(const struct cpu_device *cpu, const struct convolution_shape *s,
                              int64_t remainder_row, int64_t remainder_column)
{
    const struct phase rows = phase_of(s, s->height, remainder_row);
    const struct phase columns = phase_of(s, s->width, remainder_column);

    return (struct pass){.batch = s->batch,
                         .height = convolved_height(s),
                         .width = convolved_width(s),
                         .in = s->out,
                         .top = rows.padding,
                         .left = columns.padding,
                         .step = 1,
                         .rows = rows.count,
                         .columns = columns.count,
                         .grid_height = rows.pixels,
                         .grid_width = columns.pixels,
                         .out = s->in,
                         .to_height = s->height,
                         .to_width = s->width,
                         .to_step = s->stride,
                         .to_top = remainder_row,
                         .to_left = remainder_column,
                         .slice = SLICE,
                         .panel = cpu->kernels->implicit->panel,
                         .weight_out = s->kernel * s->kernel,
                         .weight_in = s->in * s->kernel * s->kernel,
                         .weight_row = -s->stride * s->kernel,
                         .weight_column = -s->stride,
                         .weight_first = (rows.first + (rows.count - 1) * s->stride) * s->kernel +
                                         columns.first + (columns.count - 1) * s->stride};
}

/* Copy channels first..first+count of the part of a row of the image that a band reads, with zeros
 * at both ends. */
static void copy_row(const struct pass *pass, const struct band *band, const float *row,
                     int64_t first, int64_t count, float *copy)
{
    const int64_t width = copy_width(pass, band->columns);
    const int64_t left =
        pass->left - band->column * pass->step; /* first column of the image, in the copy */
    const int64_t begin = smaller(larger(0, left), width);
    const int64_t end = larger(begin, smaller(width, pass->width + left));
    const float *from = row + (begin - left) * pass->in + first;

    memset(copy, 0, (size_t)(begin * count) * sizeof *copy);
    if (count == pass->in)
        memcpy(copy + begin * count, from, (size_t)((end - begin) * count) * sizeof *copy);
    else
        for (int64_t i = begin; i < end; i++, from += pass->in)
            memcpy(copy + i * count, from, (size_t)count * sizeof *copy);
    memset(copy + end * count, 0, (size_t)((width - end) * count) * sizeof *copy);
}

/* Copy channels first..first+count of the pixels that a band reads. */
static void copy_band(const struct pass *pass, const struct band *band, const float *x,
                      int64_t first, int64_t count, float *copy)
{
    const int64_t height = copy_height(pass, band->rows),
                  pitch = copy_width(pass, band->columns) * count;

    for (int64_t i = 0; i < band->samples * height; i++, copy += pitch) {
        const int64_t row = band->row * pass->step + i % height - pass->top;
        const int64_t sample = band->sample + i / height;
        if (row < 0 || row >= pass->height)
            memset(copy, 0, (size_t)pitch * sizeof *copy);
        else
            copy_row(pass, band, x + (sample * pass->height + row) * pass->width * pass->in, first,
                     count, copy);
    }
}

/* Offset of each pixel of a band in its copy of `count` channels. */
static void copy_offsets(const struct pass *pass, const struct band *band, int64_t count,
                         int32_t *offsets)
{
    const int64_t height = copy_height(pass, band->rows), width = copy_width(pass, band->columns);

    for (int64_t sample = 0; sample < band->samples; sample++)
        for (int64_t i = 0; i < band->rows; i++)
            for (int64_t j = 0; j < band->columns; j++)
                *offsets++ =
                    (int32_t)(((sample * height + i * pass->step) * width + j * pass->step) *
                              count);
}

/* Offset of each pixel of a band in the image that is written, from the band's first sample. */
static void result_offsets(const struct pass *pass, const struct band *band, int32_t *offsets)
{
    for (int64_t sample = 0; sample < band->samples; sample++)
        for (int64_t i = 0; i < band->rows; i++) {
            const int64_t row = (band->row + i) * pass->to_step + pass->to_top;
            for (int64_t j = 0; j < band->columns; j++)
                *offsets++ = (int32_t)(((sample * pass->to_height + row) * pass->to_width +
                                        (band->column + j) * pass->to_step + pass->to_left) *
                                       pass->out);
        }
}

static int64_t sample_floats(const struct pass *pass)
{
    return pass->to_height * pass->to_width * pass->out;
}

/* A thread's workspace. */
struct task {
    float *copy, *dy;
    int32_t *x_offset, *y_offset;
};

/* Bytes of a thread's workspace. panels: number of panels of dy in it. */
static size_t task_bytes(const struct pass *pass, const struct bands *bands, int64_t panels)
{
    const int64_t pixels = bands->samples * bands->rows * bands->columns;

    return (size_t)(round_up(copy_floats(pass, bands), IMPLICIT_PANEL_MOST) +
                    pixels * panels * pass->panel) *
               sizeof(float) +
           2 * (size_t)pixels * sizeof(int32_t);
}

static struct task task_open(const struct cpu_device *cpu, const struct pass *pass,
                             const struct bands *bands, int64_t panels)
{
    const int64_t pixels = bands->samples * bands->rows * bands->columns;
    struct task task = {.copy = cpu_workspace_thread(cpu, task_bytes(pass, bands, panels))};

    task.dy = task.copy + round_up(copy_floats(pass, bands), IMPLICIT_PANEL_MOST);
    task.x_offset = (int32_t *)(task.dy + pixels * panels * pass->panel);
    task.y_offset = task.x_offset + pixels;
    return task;
}

/* Panels of a block of the weight's gradient. */
static int64_t block_panels(const struct pass *pass)
{
    return smaller(panels_of(pass), BLOCK_CHANNELS / pass->panel);
}

static int64_t blocks_of(const struct pass *pass)
{
    return round_up_division(pass->in, BLOCK_CHANNELS) *
           round_up_division(panels_of(pass), block_panels(pass));
}

/* Return the bands for the gradient of the weight. In wide images, a band has a part of a row. */
static struct bands weight_bands(const struct pass *pass)
{
    struct bands bands = bands_of(pass, WEIGHT_BAND_PIXELS);

    while (bands.columns > 1 && task_bytes(pass, &bands, block_panels(pass)) > WORKSPACE_THREAD)
        bands_cut(pass, round_up_division(bands.columns, 2), &bands);
    return bands;
}

static int64_t parts_of(const struct pass *pass)
{
    const struct bands bands = weight_bands(pass);

    return larger(1, smaller(bands.count, round_up_division(LEAST_TASKS, blocks_of(pass))));
}

static bool pass_fits(const struct pass *pass)
{
    const struct bands bands = bands_of(pass, BAND_PIXELS);

    return task_bytes(pass, &bands, 0) <= WORKSPACE_THREAD &&
           bands.samples * sample_floats(pass) <= INT32_MAX;
}

/* Return the largest packed weight of dx, or -1 if a part of dx does not fit. */
static int64_t input_floats(const struct cpu_device *cpu, const struct convolution_shape *s)
{
    int64_t most = 0;

    for (int64_t i = 0; i < s->stride * s->stride; i++) {
        const struct pass pass = input_pass(cpu, s, i / s->stride, i % s->stride);
        if (!pass_fits(&pass))
            return -1;
        most = larger(most, packed_floats(&pass));
    }
    return most;
}

/* With AVX2, oneDNN 2.6 computes a wrong gradient of the weight for kernels of 1 x 1 with a stride
 * if the input channels are not a multiple of 8. oneDNN's instruction set need not be that of the
 * kernels (VITTRAIN_CPU, ONEDNN_MAX_CPU_ISA). */
static bool onednn_fails(const struct convolution_shape *s)
{
    return s->kernel == 1 && s->stride > 1 && s->in % 8 != 0;
}

static int64_t weight_floats(const struct pass *weight)
{
    return parts_of(weight) * packed_floats(weight);
}

size_t convolution_implicit_workspace(const struct cpu_device *cpu,
                                      const struct convolution_shape *shape)
{
    const struct pass forward = forward_pass(cpu, shape, SLICE);
    const struct pass weight = forward_pass(cpu, shape, WEIGHT_SLICE);
    const int64_t input = input_floats(cpu, shape);
    const bool is_small = shape->in < LEAST_CHANNELS || shape->kernel < LEAST_KERNEL;

    if ((!cpu->kernels->implicit->preferred || is_small) && !onednn_fails(shape))
        return 0;
    if (input < 0 || !pass_fits(&forward))
        return 0;
    return (size_t)larger(larger(input, packed_floats(&forward)), weight_floats(&weight)) *
           sizeof(float);
}

size_t convolution_implicit_weight_workspace(const struct cpu_device *cpu,
                                             const struct convolution_shape *shape)
{
    const struct pass weight = forward_pass(cpu, shape, WEIGHT_SLICE);

    return (size_t)weight_floats(&weight) * sizeof(float);
}

/* Pack one panel of one slice of the weight in the kernels' layout: per slice of input channels
 * [panel, row, column, channel of the slice, channel of the panel]. */
static void pack_panel(const struct pass *pass, const float *weight, int64_t first, int64_t panel,
                       float *packed)
{
    const int64_t count = smaller(pass->slice, pass->in - first);
    const int64_t width = smaller(pass->panel, pass->out - panel * pass->panel);

    memset(packed, 0, (size_t)(pass->rows * pass->columns * count * pass->panel) * sizeof *packed);
    for (int64_t c = 0; c < count; c++)
        for (int64_t row = 0; row < pass->rows; row++)
            for (int64_t column = 0; column < pass->columns; column++) {
                const float *from = weight + pass->weight_first +
                                    panel * pass->panel * pass->weight_out +
                                    (first + c) * pass->weight_in + row * pass->weight_row +
                                    column * pass->weight_column;
                float *to = packed + ((row * pass->columns + column) * count + c) * pass->panel;
                for (int64_t o = 0; o < width; o++)
                    to[o] = from[o * pass->weight_out];
            }
}

/* Offset of a panel in the packed weight. first: first channel of the slice. */
static int64_t packed_offset(const struct pass *pass, int64_t first, int64_t panel)
{
    const int64_t taps = pass->rows * pass->columns;
    const int64_t count = smaller(pass->slice, pass->in - first);

    return (first * panels_of(pass) + count * panel) * taps * pass->panel;
}

static void pack_weight(const struct cpu_device *cpu, const struct pass *pass, const float *weight,
                        float *packed)
{
    const int64_t panels = panels_of(pass);
    const int64_t tasks = round_up_division(pass->in, pass->slice) * panels;

#pragma omp parallel for schedule(static) num_threads(cpu_threads_for(cpu, packed_floats(pass)))
    for (int64_t task = 0; task < tasks; task++) {
        const int64_t first = task / panels * pass->slice, panel = task % panels;
        pack_panel(pass, weight, first, panel, packed + packed_offset(pass, first, panel));
    }
}

/* Operands of a pass. */
struct operands {
    const float *x, *weight, *bias;
    float *y;
    bool relu;
};

/* Compute panels panel..panel+panels of a band. */
static void band_product(const struct cpu_device *cpu, const struct pass *pass,
                         const struct operands *operands, const struct bands *bands, int64_t number,
                         int64_t panel, int64_t panels)
{
    const struct band band = band_of(pass, bands, number);
    const struct task task = task_open(cpu, pass, bands, 0);
    const int64_t column = panel * pass->panel;

    result_offsets(pass, &band, task.y_offset);
    for (int64_t first = 0; first < pass->in; first += pass->slice) {
        const int64_t count = smaller(pass->slice, pass->in - first);
        const struct implicit_product product = {
            .pixels = band.pixels,
            .rows = pass->rows,
            .span = pass->columns * count,
            .row_pitch = copy_width(pass, band.columns) * count,
            .out = smaller(panels * pass->panel, pass->out - column),
            .x = task.copy,
            .x_offset = task.x_offset,
            .weight = operands->weight + packed_offset(pass, first, panel),
            .bias = operands->bias == NULL ? NULL : operands->bias + column,
            .y = operands->y + band.sample * sample_floats(pass) + column,
            .y_offset = task.y_offset,
            .accumulate = first > 0,
            .relu = operands->relu && first + count == pass->in};
        copy_band(pass, &band, operands->x, first, count, task.copy);
        copy_offsets(pass, &band, count, task.x_offset);
        cpu->kernels->implicit->product(&product);
    }
}

/* Tasks are bands, or panels of them if there are few bands. The division into tasks does not
 * affect the order of sums, so it may depend on the number of threads. */
static void run_pass(const struct cpu_device *cpu, const struct pass *pass,
                     const struct operands *operands)
{
    enum { TASKS_PER_THREAD = 4 };
    const struct bands bands = bands_of(pass, BAND_PIXELS);
    const int64_t panels = panels_of(pass);
    const int64_t wanted =
        round_up_division(cpu->threads * TASKS_PER_THREAD, larger(1, bands.count));
    const int64_t step = round_up_division(panels, smaller(panels, wanted));
    const int64_t groups = round_up_division(panels, step);

#pragma omp parallel for schedule(dynamic)                                                         \
    num_threads(cpu_threads_for(cpu, bands.count *BAND_PIXELS * pass->out))
    for (int64_t i = 0; i < bands.count * groups; i++)
        band_product(cpu, pass, operands, &bands, i / groups, i % groups * step,
                     smaller(step, panels - i % groups * step));
}

void convolution_implicit_forward(const struct cpu_device *cpu,
                                  const struct convolution_forward *args, void *workspace)
{
    const struct pass pass = forward_pass(cpu, &args->shape, SLICE);
    const struct operands operands = {
        .x = args->x, .weight = workspace, .bias = args->bias, .y = args->y, .relu = args->relu};

    pack_weight(cpu, &pass, args->weight, workspace);
    run_pass(cpu, &pass, &operands);
}

void convolution_implicit_input(const struct cpu_device *cpu,
                                const struct convolution_backward *args, void *workspace)
{
    const int64_t stride = args->shape.stride;
    const struct operands operands = {.x = args->dy, .weight = workspace, .y = args->dx};

    for (int64_t i = 0; i < stride * stride; i++) {
        const struct pass pass = input_pass(cpu, &args->shape, i / stride, i % stride);
        pack_weight(cpu, &pass, args->weight, workspace);
        run_pass(cpu, &pass, &operands);
    }
}

/* Copy panels panel..panel+panels of a band of dy to [panel, pixel, channel]. A band with several
 * samples has whole images, so its rows are consecutive in dy. */
static void copy_gradient(const struct pass *pass, const struct band *band, const float *dy,
                          int64_t panel, int64_t panels, float *copy)
{
    const int64_t first = band->sample * pass->grid_height + band->row;

    for (int64_t p = panel; p < panel + panels; p++) {
        const int64_t width = smaller(pass->panel, pass->out - p * pass->panel);
        for (int64_t row = 0; row < band->samples * band->rows; row++) {
            const float *from = dy + ((first + row) * pass->grid_width + band->column) * pass->out +
                                p * pass->panel;
            for (int64_t i = 0; i < band->columns; i++, copy += pass->panel, from += pass->out) {
                memcpy(copy, from, (size_t)width * sizeof *copy);
                memset(copy + width, 0, (size_t)(pass->panel - width) * sizeof *copy);
            }
        }
    }
}

/* A block of the weight's gradient: channels first..end of x, panels panel..panel+panels of dy. */
struct block {
    int64_t first, end, panel, panels;
};

static struct block block_of(const struct pass *pass, int64_t number)
{
    const int64_t step = block_panels(pass), across = round_up_division(panels_of(pass), step);
    const int64_t first = number / across * BLOCK_CHANNELS, panel = number % across * step;

    return (struct block){first, smaller(first + BLOCK_CHANNELS, pass->in), panel,
                          smaller(step, panels_of(pass) - panel)};
}

static void band_weight(const struct cpu_device *cpu, const struct pass *pass,
                        const struct convolution_backward *args, const struct bands *bands,
                        int64_t number, const struct block *block, float *sums)
{
    const struct band band = band_of(pass, bands, number);
    const struct task task = task_open(cpu, pass, bands, block_panels(pass));

    copy_gradient(pass, &band, args->dy, block->panel, block->panels, task.dy);
    for (int64_t first = block->first; first < block->end; first += pass->slice) {
        const int64_t count = smaller(pass->slice, block->end - first);
        const struct implicit_weight weight = {.pixels = band.pixels,
                                               .rows = pass->rows,
                                               .span = pass->columns * count,
                                               .row_pitch = copy_width(pass, band.columns) * count,
                                               .panels = block->panels,
                                               .x = task.copy,
                                               .x_offset = task.x_offset,
                                               .dy = task.dy,
                                               .sums =
                                                   sums + packed_offset(pass, first, block->panel)};
        copy_band(pass, &band, args->x, first, count, task.copy);
        copy_offsets(pass, &band, count, task.x_offset);
        cpu->kernels->implicit->weight(&weight);
    }
}

/* Compute the sums of one part of the batch for a block. */
static void weight_task(const struct cpu_device *cpu, const struct pass *pass,
                        const struct convolution_backward *args, int64_t part,
                        const struct block *block, float *sums)
{
    const struct bands bands = weight_bands(pass);
    const int64_t parts = parts_of(pass), taps = pass->rows * pass->columns;

    for (int64_t first = block->first; first < block->end; first += pass->slice)
        memset(sums + packed_offset(pass, first, block->panel), 0,
               (size_t)(smaller(pass->slice, block->end - first) * taps * block->panels *
                        pass->panel) *
                   sizeof *sums);
    for (int64_t i = bands.count * part / parts; i < bands.count * (part + 1) / parts; i++)
        band_weight(cpu, pass, args, &bands, i, block, sums);
}

/* Add the sums of all parts for one panel of one slice to the gradient. */
static void add_panel(const struct cpu_device *cpu, const struct pass *pass, float *sums,
                      int64_t first, int64_t panel, float *dweight)
{
    const int64_t count = smaller(pass->slice, pass->in - first);
    const int64_t taps = pass->rows * pass->columns, floats = taps * count * pass->panel;
    const int64_t width = smaller(pass->panel, pass->out - panel * pass->panel);
    float *total = sums + packed_offset(pass, first, panel);

    cpu->kernels->elements->add_columns(TYPE_FP32, total, total + packed_floats(pass),
                                        parts_of(pass) - 1, packed_floats(pass), floats);
    for (int64_t o = 0; o < width; o++)
        for (int64_t c = 0; c < count; c++) {
            float *to = dweight + (panel * pass->panel + o) * pass->weight_out +
                        (first + c) * pass->weight_in;
            for (int64_t tap = 0; tap < taps; tap++)
                to[tap] += total[(tap * count + c) * pass->panel + o];
        }
}

void convolution_implicit_weight(const struct cpu_device *cpu,
                                 const struct convolution_backward *args, void *workspace)
{
    const struct pass pass = forward_pass(cpu, &args->shape, WEIGHT_SLICE);
    const int64_t blocks = blocks_of(&pass), parts = parts_of(&pass), panels = panels_of(&pass);
    const int64_t slices = round_up_division(pass.in, pass.slice);
    float *sums = workspace;

#pragma omp parallel for schedule(dynamic)                                                         \
    num_threads(cpu_threads_for(cpu, packed_floats(&pass) * pass.batch))
    for (int64_t i = 0; i < blocks * parts; i++) {
        const struct block block = block_of(&pass, i % blocks);
        weight_task(cpu, &pass, args, i / blocks, &block, sums + i / blocks * packed_floats(&pass));
    }
#pragma omp parallel for schedule(static) num_threads(cpu_threads_for(cpu, packed_floats(&pass)))
    for (int64_t i = 0; i < slices * panels; i++)
        add_panel(cpu, &pass, sums, i / panels * pass.slice, i % panels, args->dweight);
}
