// SPDX-License-Identifier: BSD-3-Clause
/* Linear layers on the CPU. Tiles multiply bf16 where the processor has them (takes_tiles). For
 * oneDNN, a matrix product is split into tasks: blocks of the result whose size depends on the
 * shape only. A thread computes its block and then the epilogue (bias, GELU, dropout, residual)
 * while the block is in its cache. Types that the processor cannot multiply are converted to fp32:
 * weights once per call, the rest per task. Operands with a slow stride are copied in the same
 * way. */
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cpu/cpu.h"
#include "cpu/kernels.h"

/* `total` rows or columns in `count` blocks of `size`; the last one may be shorter. */
struct cut {
    int64_t total, size, count;
};

static struct cut cut_by_size(int64_t total, int64_t count, int64_t multiple)
{
    const int64_t size = round_up(round_up_division(total, count), multiple);

    return (struct cut){total, size, round_up_division(total, size)};
}

static int64_t part_size(const struct cut *cut, int64_t part)
{
    return smaller(cut->size, cut->total - part * cut->size);
}

/* Target number of rows and maximum number of columns of a task: rows x columns x fp32 fit into the
 * L2 cache. The faster the multiplication, the more rows are needed to amortise packing the other
 * operand. The number of row blocks is a multiple of `parts`, so that tasks spread evenly over
 * threads. */
struct task_size {
    int64_t rows, columns, parts;
};

static const struct task_size task_size_fp32 = {96, 768, 8}, task_size_bf16 = {448, 384, 4};

enum { PANEL_COLUMNS = 768 }; /* the larger of both */

static struct cut cut_columns(int64_t columns, const struct task_size *size)
{
    return cut_by_size(columns, (columns + size->columns - 1) / size->columns, 16);
}

static struct cut cut_rows(int64_t rows, const struct task_size *size)
{
    const int64_t round = size->rows * size->parts;
    const int64_t whole_rounds = (rows + round / 2) / round, few = (rows + 15) / 16;
    int64_t count = whole_rounds * size->parts;

    if (count == 0)
        count = few < size->parts ? few : size->parts;
    return cut_by_size(rows, count, 4);
}

/* Cut all rows or, if grain_rows > 0, the rows of one grain. Grains of more than 16 rows have at
 * least two blocks, so that a pass of few grains has tasks for several threads. */
static struct cut cut_pass(int64_t rows, int64_t grain_rows, const struct task_size *size)
{
    const int64_t least = smaller(2, round_up_division(grain_rows, 16));
    const int64_t count = larger(least, round_up_division(grain_rows, size->rows));

    return grain_rows > 0 ? cut_by_size(grain_rows, count, 4) : cut_rows(rows, size);
}

/* y = epilogue(a . b): forward, or the gradient of x. */
struct linear_task {
    struct cpu_device *cpu;
    enum data_type type;
    bool native; /* operands are multiplied without conversion */
    const struct task_size *size;
    int64_t inner;            /* columns of a */
    int64_t row_count;        /* of a */
    struct cut rows, columns; /* rows: of each grain, or all */
    const void *a;
    const void *b; /* operand of oneDNN: fp32 if not native */
    int64_t b_stride;
    bool b_transposed;
    int64_t first_column, row_width; /* position of these columns in a full row of the result */
    int64_t rows_per_sample;
    struct dropout dropout, drop_path;
    struct linear_row operands; /* pointers to whole tensors */
    void (*epilogue)(const struct linear_row *row);
    const struct product_plan *plans[3][2]; /* [plan_of_rows][last columns] */
};

static const struct task_size *task_size_of(const struct cpu_device *cpu, enum data_type type)
{
    return type == TYPE_BF16 && is_native(cpu, type) ? &task_size_bf16 : &task_size_fp32;
}

/* For few rows oneDNN's fp32 product does not pack its operands. Columns of a matrix with a row
 * stride that is a multiple of 4 KiB map to few cache sets, which costs more than half the speed.
 */
static bool is_slow_stride(enum data_type type, int64_t stride)
{
    return type == TYPE_FP32 && stride % 1024 == 0;
}

/* Return the row stride of a copy of a matrix of this width. */
static int64_t copy_stride(int64_t width)
{
    return is_slow_stride(TYPE_FP32, width) ? width + 16 : width;
}

/* True if the product can be written directly to the result because its old contents are not
 * needed. */
static bool writes_in_place(const struct linear_task *task)
{
    return task->type == TYPE_FP32 && task->operands.residual == NULL;
}

/* Return the index of the plan for blocks of this many rows: most blocks, the last one of a grain,
 * the last one of a short grain. */
static int plan_of_rows(const struct linear_task *task, int64_t count)
{
    if (count == task->rows.size)
        return 0;
    return count == part_size(&task->rows, task->rows.count - 1) ? 1 : 2;
}

static void make_plans(struct linear_task *task)
{
    const struct cut *rows = &task->rows, *columns = &task->columns;
    const int64_t sizes[3] = {rows->size, part_size(rows, rows->count - 1),
                              task->row_count % rows->total % rows->size};

    for (int i = 0; i < 3; i++)
        for (int last_column = 0; sizes[i] > 0 && last_column < 2; last_column++) {
            struct product product = {.type = task->native ? task->type : TYPE_FP32,
                                      .m = sizes[i],
                                      .n = part_size(columns, last_column ? columns->count - 1 : 0),
                                      .k = task->inner,
                                      .a_stride = task->inner,
                                      .b_stride = task->b_stride,
                                      .b_transposed = task->b_transposed};
            product.c_stride = writes_in_place(task) ? task->row_width : product.n;
            task->plans[plan_of_rows(task, sizes[i])][last_column] =
                product_plan(task->cpu->onednn, &product);
        }
}

/* Parts of a thread's workspace. */
struct task_memory {
    void *scratch;
    float *mask, *sum, *a;
};

enum { MASK_BYTES = (PANEL_COLUMNS + 16) * sizeof(float) };

static size_t sum_bytes(const struct linear_task *task)
{
    const int64_t elements = task->rows.size * task->columns.size;

    return writes_in_place(task) ? 0 : (size_t)elements * sizeof(float);
}

static size_t task_bytes(const struct linear_task *task)
{
    const size_t a = (size_t)(task->rows.size * task->inner) * sizeof(float);

    return PRODUCT_SCRATCH + MASK_BYTES + sum_bytes(task) + (task->native ? 0 : a);
}

static struct task_memory task_memory(const struct linear_task *task)
{
    char *memory = cpu_workspace_thread(task->cpu, task_bytes(task));

    return (struct task_memory){
        .scratch = memory,
        .mask = (float *)(memory + PRODUCT_SCRATCH),
        .sum = (float *)(memory + PRODUCT_SCRATCH + MASK_BYTES),
        .a = (float *)(memory + PRODUCT_SCRATCH + MASK_BYTES + sum_bytes(task))};
}

/* Run the epilogue for `count` columns from `column` in row r of the result. context: the task. */
static void finish_row(const void *context, int64_t r, int64_t column, int64_t count,
                       const float *sum, float *mask)
{
    const struct linear_task *task = context;
    const int64_t first = r * task->row_width + column;
    const struct linear_row *whole = &task->operands;
    struct linear_row row = {.type = task->type,
                             .count = count,
                             .sum = sum,
                             .mask = cpu_row_mask(task->cpu, &task->dropout, task->rows_per_sample,
                                                  task->row_width, r, column, count, mask),
                             .bias = element(task->type, whole->bias, column),
                             .residual = element(task->type, whole->residual, first),
                             .scale = element(task->type, whole->scale, column),
                             .gelu_tanh = whole->gelu_tanh,
                             .path_scale = 1,
                             .relu = whole->relu,
                             .relu_x = element(task->type, whole->relu_x, first),
                             .pre = element_to_write(task->type, whole->pre, first),
                             .y = element_to_write(task->type, whole->y, first)};

    if (row.residual != NULL)
        row.path_scale = cpu_path_scale(&task->drop_path, r / task->rows_per_sample);
    task->epilogue(&row);
}

static bool needs_epilogue(const struct linear_task *task)
{
    return !writes_in_place(task) || task->operands.bias != NULL || task->operands.pre != NULL ||
           task->dropout.rate > 0 || task->operands.relu || task->operands.relu_x != NULL;
}

static void run_task(const struct linear_task *task, int64_t chunk, int64_t panel)
{
    const struct cut *rows = &task->rows, *columns = &task->columns;
    const struct task_memory memory = task_memory(task);
    const int64_t in_grain = chunk % rows->count;
    const int64_t row = chunk / rows->count * rows->total + in_grain * rows->size;
    const int64_t row_count = smaller(part_size(rows, in_grain), task->row_count - row);
    const int64_t panel_column = panel * columns->size, count = part_size(columns, panel);
    const int64_t column = task->first_column + panel_column;
    const void *a = element(task->type, task->a, row * task->inner);
    const enum data_type b_type = task->native ? task->type : TYPE_FP32;
    const int64_t b_first = task->b_transposed ? panel_column * task->b_stride : panel_column;
    const bool in_place = writes_in_place(task);
    float *sum = in_place ? (float *)task->operands.y + row * task->row_width + column : memory.sum;
    const int64_t sum_stride = in_place ? task->row_width : count;

    if (row_count <= 0) /* a short grain has fewer blocks */
        return;
    if (!task->native) {
        task->cpu->kernels->convert->to_fp32(memory.a, task->type, a, row_count * task->inner);
        a = memory.a;
    }
    product_run(task->plans[plan_of_rows(task, row_count)][panel == columns->count - 1],
                omp_get_thread_num(), a, element(b_type, task->b, b_first), sum, memory.scratch);
    if (needs_epilogue(task))
        for (int64_t r = 0; r < row_count; r++)
            finish_row(task, row + r, column, count, sum + r * sum_stride, memory.mask);
}

/* True if the weight must be copied (and converted) first. */
static bool copies_weight(const struct linear_task *task, int64_t weight_stride)
{
    return !task->native || (!task->b_transposed && is_slow_stride(task->type, weight_stride));
}

/* Run all tasks of a product with the part of the weight that starts at `weight`. */
static void run_tasks(struct linear_task *task, const void *weight, int64_t weight_stride)
{
    const struct cpu_device *cpu = task->cpu;
    const int64_t weight_rows = task->b_transposed ? task->columns.total : task->inner;
    const int64_t weight_columns = task->b_transposed ? task->inner : task->columns.total;
    const int64_t stride = copy_stride(weight_columns);
    float *copy = NULL;

    task->b = weight;
    task->b_stride = weight_stride;
    if (copies_weight(task, weight_stride)) {
        copy = cpu_workspace_shared(cpu, (size_t)(weight_rows * stride) * sizeof(float));
        task->b = copy;
        task->b_stride = stride;
    }
    /* For very wide layers, reduce the rows per task until a task fits into the workspace. */
    while (task_bytes(task) > WORKSPACE_THREAD && task->rows.size > 4)
        task->rows = cut_by_size(task->rows.total, 2 * task->rows.count, 4);
    make_plans(task);
    const int64_t chunks = round_up_division(task->row_count, task->rows.total) * task->rows.count;
#pragma omp parallel num_threads(                                                                  \
    cpu_threads_for_product(cpu, task->row_count * task->inner * task->columns.total))
    {
        if (copy != NULL) {
#pragma omp for
            for (int64_t r = 0; r < weight_rows; r++)
                cpu->kernels->convert->to_fp32(copy + r * stride, task->type,
                                               element(task->type, weight, r * weight_stride),
                                               weight_columns);
        }
#pragma omp for schedule(dynamic)
        for (int64_t t = 0; t < chunks * task->columns.count; t++)
            run_task(task, t % chunks, t / chunks);
    }
}

static void run_with_tiles(const struct linear_task *task, const void *weight,
                           int64_t weight_stride)
{
    tile_product_run(task->cpu, &(struct tile_product){.k = task->inner,
                                                       .a = {.from = task->a,
                                                             .lines = task->row_count,
                                                             .stride = task->inner,
                                                             .along_k = true},
                                                       .b = {.from = weight,
                                                             .lines = task->row_width,
                                                             .stride = weight_stride,
                                                             .along_k = task->b_transposed},
                                                       .finish = finish_row,
                                                       .context = task});
}

/* Run the product in blocks of columns whose converted weights fit into the workspace. */
static void run_with_onednn(struct linear_task *task, const void *weight, int64_t weight_stride)
{
    /* stride of the copy: up to 16 more than inner */
    const int64_t room = WORKSPACE_SHARED / (int64_t)sizeof(float);
    const int64_t fit = (room / (task->inner + 16) - 16) / 16 * 16;
    const bool whole = !copies_weight(task, weight_stride) || fit > task->row_width;
    const int64_t step = whole ? task->row_width : fit;

    ENSURE(step > 0, "linear layer: %lld inputs exceed the workspace", (long long)task->inner);
    for (int64_t column = 0; column < task->row_width; column += step) {
        const int64_t left = task->row_width - column;
        const int64_t first = task->b_transposed ? column * weight_stride : column;
        task->first_column = column;
        task->columns = cut_columns(left < step ? left : step, task->size);
        run_tasks(task, element(task->type, weight, first), weight_stride);
    }
}

/* True if tiles multiply operands of this type. The rule depends on the shape only, so that results
 * have the same bits in each run and on any number of threads. */
static bool takes_tiles(const struct cpu_device *cpu, enum data_type type, int64_t in, int64_t out)
{
    return has_tiles(cpu, type) && in + out <= TILE_PRODUCT_WIDEST;
}

static void run_product(struct linear_task *task, const void *weight, int64_t weight_stride)
{
    if (takes_tiles(task->cpu, task->type, task->inner, task->row_width))
        run_with_tiles(task, weight, weight_stride);
    else
        run_with_onednn(task, weight, weight_stride);
}

static void linear_forward_run(struct cpu_device *cpu, const struct linear_forward *args)
{
    struct linear_task task = {.cpu = cpu,
                               .type = args->type,
                               .native = is_native(cpu, args->type),
                               .size = task_size_of(cpu, args->type),
                               .inner = args->in,
                               .row_count = args->rows,
                               .a = args->x,
                               .b_transposed = true,
                               .row_width = args->out,
                               .rows_per_sample = args->rows_per_sample,
                               .dropout = args->dropout,
                               .drop_path = args->drop_path,
                               .operands = {.bias = args->bias,
                                            .residual = args->residual,
                                            .scale = args->scale,
                                            .gelu_tanh = args->gelu_tanh,
                                            .relu = args->relu,
                                            .pre = args->pre,
                                            .y = args->y},
                               .epilogue = cpu->kernels->linear->forward};

    task.rows = cut_pass(args->rows, args->grain_rows, task.size);
    run_product(&task, args->weight, args->in);
}

static void gradient_of_x(struct cpu_device *cpu, const struct linear_backward *args)
{
    struct linear_task task = {.cpu = cpu,
                               .type = args->type,
                               .native = is_native(cpu, args->type),
                               .size = task_size_of(cpu, args->type),
                               .inner = args->out,
                               .row_count = args->rows,
                               .a = args->dy,
                               .row_width = args->in,
                               .rows_per_sample = args->rows_per_sample,
                               .operands = {.relu_x = args->x_relu ? args->x : NULL,
                                            .gelu_tanh = args->gelu_tanh,
                                            .y = args->dx},
                               .epilogue = cpu->kernels->linear->backward};

    if (args->pre != NULL) {
        task.operands.pre_read = args->pre;
        task.dropout = args->dropout;
    }
    task.rows = cut_pass(args->rows, args->grain_rows, task.size);
    run_product(&task, args->weight, args->in);
}

/* dweight += or = dy^T . x over some rows of dy and x, in place or as fp32 copies. */
struct weight_task {
    struct cpu_device *cpu;
    enum data_type type; /* of x and dy */
    int64_t rows, in, out, x_stride, dy_stride;
    struct cut out_cut, in_cut;
    const void *x, *dy;
    float *dweight, *dbias;
    bool accumulate; /* into dweight; otherwise it is overwritten */
    const struct product_plan *plans[2][2];
};

static void make_weight_plans(struct weight_task *task)
{
    for (int last_out = 0; last_out < 2; last_out++)
        for (int last_in = 0; last_in < 2; last_in++) {
            const struct cut *out = &task->out_cut, *in = &task->in_cut;
            const struct product product = {.type = task->type,
                                            .m = part_size(out, last_out ? out->count - 1 : 0),
                                            .n = part_size(in, last_in ? in->count - 1 : 0),
                                            .k = task->rows,
                                            .a_stride = task->dy_stride,
                                            .b_stride = task->x_stride,
                                            .c_stride = task->in,
                                            .a_transposed = true,
                                            .accumulate = task->accumulate};
            task->plans[last_out][last_in] = product_plan(task->cpu->onednn, &product);
        }
}

static void run_weight_task(const struct weight_task *task, int64_t chunk, int64_t panel)
{
    const struct cut *out = &task->out_cut, *in = &task->in_cut;
    const int64_t first_out = chunk * out->size, first_in = panel * in->size;

    if (task->dbias != NULL && panel == 0)
        task->cpu->kernels->linear->column_sums(task->type, task->rows, part_size(out, chunk),
                                                task->dy_stride, task->dy, first_out,
                                                task->dbias + first_out);
    if (task->dweight != NULL)
        product_run(task->plans[chunk == out->count - 1][panel == in->count - 1],
                    omp_get_thread_num(), element(task->type, task->dy, first_out),
                    element(task->type, task->x, first_in),
                    task->dweight + first_out * task->in + first_in,
                    cpu_workspace_thread(task->cpu, PRODUCT_SCRATCH));
}

static void run_weight_tasks(struct weight_task *task)
{
    const int64_t tasks = task->out_cut.count * task->in_cut.count;

    if (task->dweight != NULL)
        make_weight_plans(task);
#pragma omp parallel for schedule(dynamic)                                                         \
    num_threads(cpu_threads_for_product(task->cpu, task->rows * task->in * task->out))
    for (int64_t t = 0; t < tasks; t++)
        run_weight_task(task, t % task->out_cut.count, t / task->out_cut.count);
}

/* Copy x and dy to fp32 in equal blocks of rows, as large as the workspace allows. */
static void run_weight_tasks_copied(struct weight_task *task, const struct linear_backward *args)
{
    const struct convert_kernels *convert = task->cpu->kernels->convert;
    const int64_t x_stride = copy_stride(args->in), dy_stride = copy_stride(args->out);
    const int64_t fit = WORKSPACE_SHARED / (int64_t)sizeof(float) / (x_stride + dy_stride);

    ENSURE(fit > 0, "linear layer: %lld columns exceed the workspace",
           (long long)(args->in + args->out));
    const int64_t parts = (args->rows + fit - 1) / fit, step = (args->rows + parts - 1) / parts;
    float *x =
        cpu_workspace_shared(task->cpu, (size_t)(step * (x_stride + dy_stride)) * sizeof(float));
    float *dy = x + step * x_stride;
    task->x = x;
    task->dy = dy;
    task->x_stride = x_stride;
    task->dy_stride = dy_stride;
    for (int64_t row = 0; row < args->rows; row += step) {
        task->rows = args->rows - row < step ? args->rows - row : step;
#pragma omp parallel for num_threads(task->cpu->threads)
        for (int64_t r = 0; r < task->rows; r++) {
            convert->to_fp32(x + r * x_stride, args->type,
                             element(args->type, args->x, (row + r) * args->in), args->in);
            convert->to_fp32(dy + r * dy_stride, args->type,
                             element(args->type, args->dy, (row + r) * args->out), args->out);
        }
        run_weight_tasks(task);
        task->accumulate = true;
    }
}

/* Overwrite a row of the gradient, or add to it. context: the task. */
static void finish_weight(const void *context, int64_t row, int64_t column, int64_t count,
                          const float *sum, float *buffer)
{
    const struct weight_task *task = context;
    float *to = task->dweight + row * task->in + column;

    (void)buffer;
    if (task->accumulate)
        task->cpu->kernels->elements->add(TYPE_FP32, to, to, sum, count);
    else
        memcpy(to, sum, (size_t)count * sizeof *to);
}

static void run_weight_with_tiles(struct weight_task *task)
{
    struct tile_product product = {
        .a = {.lines = task->out, .stride = task->out, .sums = task->dbias},
        .b = {.lines = task->in, .stride = task->in},
        .finish = finish_weight,
        .context = task};
    const int64_t depth = tile_product_depth(&product);

    for (int64_t row = 0; row < task->rows; row += depth) {
        product.k = smaller(depth, task->rows - row);
        product.a.from = element(task->type, task->dy, row * task->out);
        product.b.from = element(task->type, task->x, row * task->in);
        tile_product_run(task->cpu, &product);
        task->accumulate = true;
    }
}

/* True if the gradient of the weight needs a copy of rows of x and dy, without tiles. */
static bool copies_rows(const struct cpu_device *cpu, const struct linear_backward *args)
{
    return !is_native(cpu, args->type) || is_slow_stride(args->type, args->in) ||
           is_slow_stride(args->type, args->out);
}

static void gradient_of_weight(struct cpu_device *cpu, const struct linear_backward *args)
{
    const bool tiles = args->dweight != NULL && takes_tiles(cpu, args->type, args->in, args->out);
    const bool native = is_native(cpu, args->type);
    const struct task_size *size = task_size_of(cpu, args->type);
    struct weight_task task = {.cpu = cpu,
                               .type = native || tiles ? args->type : TYPE_FP32,
                               .rows = args->rows,
                               .in = args->in,
                               .out = args->out,
                               .x_stride = args->in,
                               .dy_stride = args->out,
                               .out_cut = cut_rows(args->out, size),
                               .in_cut = args->dweight != NULL
                                             ? cut_columns(args->in, size)
                                             : (struct cut){args->in, args->in, 1},
                               .x = args->x,
                               .dy = args->dy,
                               .dweight = args->dweight,
                               .dbias = args->dbias,
                               .accumulate = !args->overwrite};

    if (args->overwrite && args->dbias != NULL)
        memset(args->dbias, 0, (size_t)args->out * sizeof *args->dbias);
    if (tiles)
        run_weight_with_tiles(&task);
    else if (copies_rows(cpu, args))
        run_weight_tasks_copied(&task, args);
    else
        run_weight_tasks(&task);
}

void cpu_linear_forward(struct stream *stream, const struct linear_forward *args)
{
    if (args->rows > 0)
        linear_forward_run(stream->cpu, args);
}

void cpu_linear_backward(struct stream *stream, const struct linear_backward *args)
{
    if (args->rows > 0 && (args->dweight != NULL || args->dbias != NULL))
        gradient_of_weight(stream->cpu, args);
    if (args->rows > 0 && args->dx != NULL)
        gradient_of_x(stream->cpu, args);
}

/* Run square layers on one thread, in the fastest type for operands of this type. */
double cpu_measure_peak(struct device *device, enum data_type type)
{
    enum { SIZE = 768, NUMBERS = SIZE * SIZE, RUNS_LEAST = 3 };
    const size_t workspace = WORKSPACE_SHARED + WORKSPACE_THREAD;
    const size_t bytes = 3 * NUMBERS * sizeof(float);
    const double start = clock_now(), cpu_start = clock_thread();
    struct cpu_device one = *(struct cpu_device *)device;
    void *memory = NULL;
    double best = 0;

    ENSURE_MEMORY(posix_memalign(&memory, 4096, workspace + bytes) == 0,
                  "no memory to measure products");
    float *x = (float *)(void *)((char *)memory + workspace);
    const struct linear_forward layer = {
        .type = is_native(&one, type) || has_tiles(&one, type) ? type : TYPE_FP32,
        .rows = SIZE,
        .in = SIZE,
        .out = SIZE,
        .rows_per_sample = 1,
        .x = x,
        .weight = x + NUMBERS,
        .y = x + 2 * NUMBERS};
    one.threads = 1;
    one.workspace = memory;
    memset(x, 0, bytes); /* unused pages of the workspace remain unallocated */
    for (int runs = 0;
         runs < RUNS_LEAST || (clock_thread() < cpu_start + 0.05 && clock_now() < start + 0.5);
         runs++) {
        const double begin = clock_thread();
        linear_forward_run(&one, &layer);
        best = fmax(best, 2.0 * NUMBERS * SIZE / (clock_thread() - begin));
    }
    free(memory);
    return best;
}
