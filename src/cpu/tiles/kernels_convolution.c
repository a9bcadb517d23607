// SPDX-License-Identifier: BSD-3-Clause
/* Gradient of a convolution's weight as a matrix product over pixels: dy^T times x, shifted by each
 * kernel tap. oneDNN 2.6 reaches a tenth to a third of this speed. Threads process parts of the
 * weight and of the batch. The parts, and so the order of all sums, depend on the shape only.
 *
 * The pixels of a group of samples are numbered q = 0, 1, ..., row by row and image by image, with
 * enough zeros in between that a kernel tap is a constant shift of q: dweight[o, c, tap] = sum over
 * q of dy[q, o] * x[q + shift(tap), c]. With a stride, x is split into stride * stride images of
 * every stride-th row and column, each used by some of the taps.
 *
 * A tile product multiplies 16 rows of 32 pixels of dy with 16 columns of 32 pixels of x. It
 * requires dy as [o][q] and x as pairs of pixels, [q / 2][c][2]. If a shift may be odd, x is stored
 * twice: in pairs that start at even q and in pairs that start at odd q. A chunk of pixels is
 * packed in this layout into the thread's workspace and then multiplied for all channels of the
 * task while it is in the cache. */
#include "cpu/cpu.h"
#include "cpu/tiles/tile.h"
#include "cpu/tiles/tiles.h"

/* TASKS: target number of tasks. CHUNK: maximum pixels of a chunk, a multiple of 32, so that 32
 * channels of dy remain in the L1 cache. */
enum { TASKS = 32, CHUNK = 256 };
/* Maximum channels of dy and of x in a task. Its sums take 288 KiB with 3 x 3 taps and 256 KiB with
 * one tap. */
enum { TASK_OUT = 128, TASK_IN = 64, ONE_TAP_CHANNELS = 256 };
enum { MOST_TAPS = 64, MOST_STRIDE = 2 };

static int64_t tiles_of(int64_t channels)
{
    return round_up_division(channels, TILE);
}

/* The split of a shape into tasks and chunks. */
struct plan {
    const struct convolution_shape *shape;
    int64_t out_height, out_width;
    int64_t pitch, sample;         /* distance in q between rows, between samples */
    int64_t task_out, task_in;     /* maximum channels of dy and of x in a task */
    int64_t out_parts, in_parts;   /* parts into which the channels are split */
    int64_t groups, group_samples; /* tasks of group_samples samples */
    int64_t taps, images, reach;   /* images into which x is split; reach: largest shift */
    int64_t copies;                /* packed copies of x: 2 if shifts may be odd, else 1 */
    int64_t chunk;                 /* pixels */
    int64_t out_tiles, in_tiles;   /* of the largest task */
    int64_t pairs;                 /* pairs of x that a chunk needs */
    int64_t sums;                  /* floats of a task's gradient */
};

static void cut_task(struct plan *plan)
{
    const struct convolution_shape *s = plan->shape;
    const int64_t parts = plan->out_parts * plan->in_parts,
                  wanted = round_up_division(TASKS, parts);

    plan->group_samples = round_up_division(s->batch, wanted);
    plan->groups = round_up_division(s->batch, plan->group_samples);
    plan->out_tiles = tiles_of(smaller(s->out, plan->task_out));
    plan->in_tiles = tiles_of(smaller(s->in, plan->task_in));
    plan->sums = plan->taps * plan->out_tiles * plan->in_tiles * TILE_FLOATS;
    plan->chunk = smaller(CHUNK, round_up(plan->group_samples * plan->sample, TILE_INNER));
    plan->pairs = (plan->chunk + plan->reach + 3) / 2;
}

static struct plan plan_of(const struct convolution_shape *s)
{
    struct plan plan = {.shape = s,
                        .out_height = convolved_height(s),
                        .out_width = convolved_width(s),
                        .taps = s->kernel * s->kernel};
    const int64_t over = (s->kernel - 1) / s->stride, phases = smaller(s->stride, s->kernel);

    /* With stride 1 the zeros after a row are also those before the next one. */
    plan.pitch = s->stride == 1 ? s->width + s->padding : plan.out_width + over;
    plan.sample = plan.pitch * (s->stride == 1 ? s->height + s->padding : plan.out_height + over);
    plan.images = phases * phases;
    plan.reach = over * plan.pitch + over;
    plan.copies = plan.reach > 0 ? 2 : 1;
    plan.task_out = plan.taps > 1 ? TASK_OUT : ONE_TAP_CHANNELS;
    plan.task_in = plan.taps > 1 ? TASK_IN : ONE_TAP_CHANNELS;
    plan.out_parts = round_up_division(s->out, plan.task_out);
    plan.in_parts = round_up_division(s->in, plan.task_in);
    cut_task(&plan);
    return plan;
}

/* Bytes of a thread's workspace: tiles of dy, pairs of x, and the address of each pixel. */
static size_t thread_bytes(const struct plan *plan)
{
    const int64_t dy = plan->out_tiles * plan->chunk * TILE * 2;
    const int64_t x = plan->copies * plan->in_tiles * plan->pairs * TILE * 4;
    const int64_t pixels = (2 * plan->pairs + 2) * (int64_t)sizeof(void *);

    return (size_t)(dy + x + pixels);
}

static size_t workspace_bytes(const struct convolution_shape *s)
{
    if (s->batch == 0 || s->kernel * s->kernel > MOST_TAPS || s->stride > MOST_STRIDE ||
        s->padding >= s->kernel || (s->stride > 1 && s->kernel == 1 && s->padding > 0))
        return 0;
    const struct plan plan = plan_of(s);
    if (thread_bytes(&plan) > WORKSPACE_THREAD)
        return 0;
    return (size_t)(plan.groups * plan.out_parts * plan.in_parts * plan.sums) * sizeof(float);
}

/* A task: a range of samples and of channels of dy and x. */
struct task {
    const struct plan *plan;
    const struct convolution_backward *args;
    int64_t first_sample, samples, out, out_count, in, in_count;
    float *sums;           /* [taps, out tiles * 16, in tiles * 16] */
    uint16_t *dy;          /* [out tiles, chunk / 32, 16, 32] */
    uint32_t *x;           /* [copies, in tiles, pairs, 16] of one image */
    const uint16_t **from; /* [pixels] */
};

static const uint16_t zeros[ONE_TAP_CHANNELS] = {0}; /* a pixel of the padding */

/* The pixels of an image: every `stride`-th pixel of height x width, starting at row `top` and
 * column `left` (negative: padding). */
struct pixels {
    const uint16_t *tensor; /* at the first sample and channel of the task */
    int64_t height, width, channels, stride, top, left;
};

static void locate_pixels(const struct task *task, const struct pixels *it, int64_t begin,
                          int64_t count)
{
    const int64_t pitch = task->plan->pitch, sample = task->plan->sample;

    for (int64_t i = 0; i < count;) {
        const int64_t q = begin + i, b = q / sample, row = q % sample / pitch;
        const int64_t y = row * it->stride + it->top;
        const bool inside = b < task->samples && y >= 0 && y < it->height;
        const uint16_t *line =
            it->tensor + (b * it->height + y) * it->width * it->channels * inside;
        for (int64_t column = q % pitch; column < pitch && i < count; column++, i++) {
            const int64_t x = column * it->stride + it->left;
            task->from[i] = inside && x >= 0 && x < it->width ? line + x * it->channels : zeros;
        }
    }
}

/* Pack the pixels in task->from as pairs that start at even q and, unless `odd` is NULL, also as
 * pairs that start at odd q. Two tiles (32 channels) are packed at a time. */
static void pack_x(const struct task *task, uint32_t *even, uint32_t *odd)
{
    const int64_t pairs = task->plan->pairs, tiles = tiles_of(task->in_count);
    const int64_t step = pairs * TILE_INNER;
    uint16_t discarded[TILE_INNER]; /* second tile if the number of tiles is odd */

    for (int64_t i = 0; i < pairs; i++) {
        const uint16_t *const *from = task->from + 2 * i;
        for (int64_t tile = 0; tile < tiles; tile += 2) {
            const int64_t channel = tile * TILE, left = task->in_count - channel;
            const int64_t first = tile * step + i * TILE_INNER;
            const bool has_second = tile + 1 < tiles;
            const vector_word pixel_0 = row_spread(row_load(from[0] + channel, left));
            const vector_word pixel_1 = row_spread(row_load(from[1] + channel, left));
            uint16_t *to = (uint16_t *)even + first;
            pairs_store(pixel_0, pixel_1, to, has_second ? to + step : discarded);
            if (odd == NULL)
                continue;
            to = (uint16_t *)odd + first;
            pairs_store(pixel_1, row_spread(row_load(from[2] + channel, left)), to,
                        has_second ? to + step : discarded);
        }
    }
}

/* Pack the pixels in task->from into tiles. All channels of 32 pixels are first copied to squares,
 * which reads memory in order, so that the hardware prefetches it. */
static void pack_dy(const struct task *task, int64_t blocks)
{
    const int64_t step = task->plan->chunk * TILE, tiles = tiles_of(task->out_count);
    uint16_t squares[ONE_TAP_CHANNELS / TILE_INNER][SQUARE_NUMBERS];
    uint16_t discarded[TILE_NUMBERS]; /* second tile if the number of tiles is odd */

    for (int64_t block = 0; block < blocks; block++) {
        const uint16_t *const *from = task->from + block * TILE_INNER;
        for (int64_t i = 0; i < TILE_INNER; i++)
            for (int64_t channel = 0; channel < task->out_count; channel += TILE_INNER)
                square_row_store(squares[channel / TILE_INNER], i,
                                 row_load(from[i] + channel, task->out_count - channel));
        for (int64_t tile = 0; tile < tiles; tile += 2) {
            uint16_t *to = task->dy + tile * step + block * TILE_NUMBERS;
            square_transpose(squares[tile / 2], to, tile + 1 < tiles ? to + step : discarded);
        }
    }
}

/* c += a . b as in tile_product_kernels, for one strip of b and, if `two`, two strips of a. */
static void multiply_strip(const struct tile_block *it, bool two)
{
    const size_t stride = (size_t)it->c_stride * sizeof *it->c;
    float *c_1 = it->c + TILE * it->c_stride;

    if (it->begin) {
        tile_zero(0);
        tile_zero(2);
    } else {
        tile_load(0, it->c, stride);
        if (two)
            tile_load(2, c_1, stride);
    }
    for (int64_t i = 0; i < it->tiles * TILE_NUMBERS; i += TILE_NUMBERS) {
        tile_load(6, it->b + i, TILE_ROW);
        tile_load(4, it->a + i, TILE_ROW);
        tile_multiply(0, 4, 6);
        if (two) {
            tile_load(5, it->a + it->a_step + i, TILE_ROW);
            tile_multiply(2, 5, 6);
        }
    }
    tile_store(0, it->c, stride);
    if (two)
        tile_store(2, c_1, stride);
}

/* Multiply all tiles of one kernel tap; x is already shifted. */
static void multiply_tap(const struct task *task, const uint32_t *x, float *sums, int64_t blocks,
                         bool begin)
{
    const struct plan *plan = task->plan;
    const int64_t out_tiles = tiles_of(task->out_count), in_tiles = tiles_of(task->in_count);

    for (int64_t o = 0; o < out_tiles; o += 2) {
        struct tile_block it = {.a = task->dy + o * plan->chunk * TILE,
                                .b = (const uint16_t *)x,
                                .c = sums + o * TILE * plan->in_tiles * TILE,
                                .a_step = plan->chunk * TILE,
                                .b_step = plan->pairs * TILE_INNER,
                                .c_stride = plan->in_tiles * TILE,
                                .pairs = in_tiles / 2,
                                .tiles = blocks,
                                .begin = begin};
        const bool two = o + 1 < out_tiles;
        const int64_t done = two ? 2 * it.pairs : 0;
        if (two)
            KERNEL(tile_product_kernels).multiply(&it);
        it.b += done * it.b_step;
        it.c += done * TILE;
        for (int64_t c = done; c < in_tiles; c++) {
            multiply_strip(&it, two);
            it.b += it.b_step;
            it.c += TILE;
        }
    }
}

/* Process pixels begin .. begin + 32 * blocks of the task. */
static void run_chunk(const struct task *task, int64_t begin, int64_t blocks)
{
    const struct plan *plan = task->plan;
    const struct convolution_shape *s = plan->shape;
    const int64_t phases = smaller(s->stride, s->kernel);
    const int64_t image_numbers = plan->in_tiles * plan->pairs * TILE;
    const uint16_t *x = (const uint16_t *)task->args->x + task->in;
    const uint16_t *dy = (const uint16_t *)task->args->dy + task->out;
    const int64_t y_sample = plan->out_height * plan->out_width * s->out;
    const struct pixels dy_image = {.tensor = dy + task->first_sample * y_sample,
                                    .height = plan->out_height,
                                    .width = plan->out_width,
                                    .channels = s->out,
                                    .stride = 1};

    locate_pixels(task, &dy_image, begin, blocks * TILE_INNER);
    pack_dy(task, blocks);
    for (int64_t image = 0; image < plan->images; image++) {
        const int64_t top = image / phases, left = image % phases;
        const struct pixels x_image = {.tensor =
                                           x + task->first_sample * s->height * s->width * s->in,
                                       .height = s->height,
                                       .width = s->width,
                                       .channels = s->in,
                                       .stride = s->stride,
                                       .top = top - s->padding,
                                       .left = left - s->padding};
        locate_pixels(task, &x_image, begin, 2 * plan->pairs + 2);
        pack_x(task, task->x, plan->copies > 1 ? task->x + image_numbers : NULL);
        for (int64_t row = top; row < s->kernel; row += s->stride)
            for (int64_t column = left; column < s->kernel; column += s->stride) {
                const int64_t shift = row / s->stride * plan->pitch + column / s->stride;
                multiply_tap(task, task->x + shift % 2 * image_numbers + shift / 2 * TILE,
                             task->sums + (row * s->kernel + column) * plan->out_tiles *
                                              plan->in_tiles * TILE_FLOATS,
                             blocks, begin == 0);
            }
    }
}

static void run_task(struct task *task)
{
    const struct plan *plan = task->plan;
    const int64_t pixels = round_up(task->samples * plan->sample, TILE_INNER);
    const struct tile_configuration before = tiles_begin();

    for (int64_t q = 0; q < pixels; q += plan->chunk)
        run_chunk(task, q, smaller(plan->chunk, pixels - q) / TILE_INNER);
    tiles_end(&before);
}

static struct task task_open(const struct cpu_device *cpu, const struct plan *plan,
                             const struct convolution_backward *args, float *sums, int64_t number)
{
    const struct convolution_shape *s = plan->shape;
    const int64_t group = number % plan->groups, part = number / plan->groups;
    struct task task = {.plan = plan,
                        .args = args,
                        .first_sample = group * plan->group_samples,
                        .out = part % plan->out_parts * plan->task_out,
                        .in = part / plan->out_parts * plan->task_in,
                        .sums = sums + number * plan->sums};
    char *memory = cpu_workspace_thread(cpu, thread_bytes(plan));

    task.samples = smaller(plan->group_samples, s->batch - task.first_sample);
    task.out_count = smaller(plan->task_out, s->out - task.out);
    task.in_count = smaller(plan->task_in, s->in - task.in);
    task.dy = (uint16_t *)memory;
    memory += plan->out_tiles * plan->chunk * TILE * 2;
    task.x = (uint32_t *)memory;
    memory += plan->copies * plan->in_tiles * plan->pairs * TILE * 4;
    task.from = (const uint16_t **)memory;
    return task;
}

/* Floats that a thread adds at a time. */
enum { SLICE = 4096 };

/* Add all groups' sums to those of the first group, for one slice of one task's sums. */
static void add_groups(const struct cpu_device *cpu, const struct plan *plan, float *sums,
                       int64_t number)
{
    const int64_t slices = round_up_division(plan->sums, SLICE), begin = number % slices * SLICE;
    const int64_t count = smaller(SLICE, plan->sums - begin);
    float *first = sums + number / slices * plan->groups * plan->sums + begin;

    for (int64_t group = 1; group < plan->groups; group++)
        cpu->kernels->elements->add(TYPE_FP32, first, first, first + group * plan->sums, count);
}

/* Add the sums of channel o of dy and of one block of x's channels to the gradient. */
static void add_channel(const struct cpu_device *cpu, const struct plan *plan, const float *sums,
                        int64_t o, int64_t in_part, float *dweight)
{
    const struct convolution_shape *s = plan->shape;
    const int64_t part = in_part * plan->out_parts + o / plan->task_out;
    const int64_t row = plan->in_tiles * TILE;
    const int64_t count = smaller(plan->task_in, s->in - in_part * plan->task_in);
    const float *from = sums + part * plan->groups * plan->sums + o % plan->task_out * row;
    float *to = dweight + (o * s->in + in_part * plan->task_in) * plan->taps;

    if (plan->taps == 1) {
        cpu->kernels->elements->add(TYPE_FP32, to, to, from, count);
        return;
    }
    for (int64_t tap = 0; tap < plan->taps; tap++, from += plan->out_tiles * TILE * row)
        for (int64_t c = 0; c < count; c++)
            to[c * plan->taps + tap] += from[c];
}

static void weight(const struct cpu_device *cpu, const struct convolution_backward *args,
                   void *workspace)
{
    const struct plan plan = plan_of(&args->shape);
    const int64_t parts = plan.out_parts * plan.in_parts;

#pragma omp parallel num_threads(cpu->threads)
    {
#pragma omp for schedule(dynamic)
        for (int64_t number = 0; number < parts * plan.groups; number++) {
            struct task task = task_open(cpu, &plan, args, workspace, number);
            run_task(&task);
        }
#pragma omp for schedule(static)
        for (int64_t i = 0; i < parts * round_up_division(plan.sums, SLICE); i++)
            add_groups(cpu, &plan, workspace, i);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < args->shape.out * plan.in_parts; i++)
            add_channel(cpu, &plan, workspace, i / plan.in_parts, i % plan.in_parts, args->dweight);
    }
}

const struct tile_convolution_kernels KERNEL(tile_convolution_kernels) = {workspace_bytes, weight};
