// SPDX-License-Identifier: BSD-3-Clause
/* Operands are packed and multiplied in tiles of 16 lines and 32 k. A strip has the tiles of 16
 * lines, one after another along k. Lines are padded with zeros to pairs of strips, k to whole
 * tiles.
 *
 * All threads first pack b into the shared workspace. If a is transposed (along_k is false) and
 * tasks divide the columns, they also pack a, because several tasks read each strip. Then each
 * thread computes its tasks, which are blocks of the result, in blocks of k. If a is not in the
 * shared workspace, the task packs its strips of a, one pair at a time. It multiplies the pair by
 * all columns of the task and adds to sums in the thread's workspace. The pair stays in the L1
 * cache, the columns of b and the sums in the L2 cache. After the last block of k, the rows of a
 * pair are finished while they are in the cache. */
#include <string.h>

#include "cpu/cpu.h"
#include "cpu/cpu_product.h"

/* Lines of a pair of strips; k of a tile. */
enum { PAIR = 32, INNER = 32 };
/* Bytes of the two tiles of a pair, and of the sums of two pairs. */
enum { PAIR_TILE_BYTES = 2 * 2 * TILE_NUMBERS, PAIR_SUMS_BYTES = 4 * PAIR * PAIR };
/* Most pairs of rows and of columns of a task; most tiles of a block of k. */
enum { ROWS_MOST = 8, COLUMNS_MOST = TILE_PRODUCT_COLUMNS / PAIR, DEPTH_MOST = 16 };
_Static_assert(TILE_PRODUCT_WIDEST == WORKSPACE_SHARED / 128 - 64,
               "two tiles of each line of the widest operands fit into the shared workspace");

/* Division of `total` into `parts` of almost equal size. */
struct split {
    int64_t total, parts;
};

static int64_t split_begin(struct split split, int64_t part)
{
    return split.total * part / split.parts;
}

/* Return parts of at most `most`. Their number is a multiple of `multiple`, or `total`. */
static struct split split_of(int64_t total, int64_t most, int64_t multiple)
{
    const int64_t least = round_up_division(total, larger(most, 1));

    return (struct split){total, smaller(total, round_up(least, multiple))};
}

struct work {
    const struct cpu_device *cpu;
    const struct tile_product *product;
    struct split rows, columns; /* in pairs of strips */
    struct split depth;         /* in tiles */
    int64_t first_pair;         /* of the columns in b */
    uint16_t *a, *b;            /* packed; a is NULL if each task packs its rows */
};

/* A pair of strips of a takes half of the L1 cache; b and the sums take three eighths of the L2
 * cache each. */
static void work_split(struct work *work, int64_t columns)
{
    const struct cpu_device *cpu = work->cpu;
    const struct tile_product *product = work->product;
    const int64_t l2 = cpu->l2_bytes * 3 / 8;
    const int64_t depth = smaller(cpu->l1_bytes / 2 / PAIR_TILE_BYTES, DEPTH_MOST);

    work->depth = split_of(round_up_division(product->k, INNER), depth, 1);
    const int64_t deepest = round_up_division(work->depth.total, work->depth.parts);
    const int64_t width = smaller(l2 / (deepest * PAIR_TILE_BYTES), COLUMNS_MOST);
    const int64_t height = smaller(l2 / (width * PAIR_SUMS_BYTES), ROWS_MOST);
    work->rows = split_of(round_up_division(product->a.lines, PAIR), height, cpu->threads);
    work->columns = split_of(columns, width, round_up_division(cpu->threads, work->rows.parts));
}

/* Pack a pair of strips: `count` tiles of each, from tile `begin` of k on. */
static void pack_pair(const struct work *work, const struct tile_operand *operand, int64_t pair,
                      int64_t begin, int64_t count, uint16_t *tiles)
{
    const int64_t line = pair * PAIR, k = begin * INNER;
    const int64_t row = operand->along_k ? line : k, column = operand->along_k ? k : line;
    const struct tile_strips it = {.from = operand->from + row * operand->stride + column,
                                   .stride = operand->stride,
                                   .lines = smaller(operand->lines - line, PAIR),
                                   .k = smaller(count * INNER, work->product->k - k),
                                   .step = count * TILE_NUMBERS,
                                   .along_k = operand->along_k,
                                   .of_b = operand == &work->product->b,
                                   .sums = operand->sums == NULL ? NULL : operand->sums + line};

    work->cpu->tiles->product->pack(&it, tiles);
}

/* Pack pair i of the shared workspace: first come the pairs of b, then those of a. */
static void pack_shared(const struct work *work, int64_t i)
{
    const int64_t columns = work->columns.total, step = 2 * work->depth.total * TILE_NUMBERS;

    if (i < columns)
        pack_pair(work, &work->product->b, work->first_pair + i, 0, work->depth.total,
                  work->b + i * step);
    else
        pack_pair(work, &work->product->a, i - columns, 0, work->depth.total,
                  work->a + (i - columns) * step);
}

/* A block of the result. Pairs of strips of rows and columns: begin .. end. */
struct task {
    const struct work *work;
    int64_t row, row_end, column, column_end;
    uint16_t *a;          /* a packed pair */
    float *buffer, *sums; /* sums: [rows, columns] */
};

static struct task task_open(const struct work *work, int64_t number)
{
    const int64_t r = number % work->rows.parts, c = number / work->rows.parts;
    struct task task = {.work = work,
                        .row = split_begin(work->rows, r),
                        .row_end = split_begin(work->rows, r + 1),
                        .column = split_begin(work->columns, c),
                        .column_end = split_begin(work->columns, c + 1)};
    const int64_t pairs = (task.row_end - task.row) * (task.column_end - task.column);
    const int64_t a_bytes = DEPTH_MOST * PAIR_TILE_BYTES, buffer_bytes = 4 * TILE_PRODUCT_COLUMNS;
    const int64_t bytes = a_bytes + buffer_bytes + pairs * PAIR_SUMS_BYTES;
    char *memory = cpu_workspace_thread(work->cpu, (size_t)bytes);

    task.a = (uint16_t *)memory;
    task.buffer = (float *)(memory + a_bytes);
    task.sums = (float *)(memory + a_bytes + buffer_bytes);
    return task;
}

static void finish_pair(const struct task *task, int64_t pair, const float *sums)
{
    const struct tile_product *product = task->work->product;
    const int64_t stride = (task->column_end - task->column) * PAIR;
    const int64_t column = (task->work->first_pair + task->column) * PAIR;
    const int64_t end = smaller((pair + 1) * PAIR, product->a.lines);

    for (int64_t row = pair * PAIR; row < end; row++, sums += stride)
        product->finish(product->context, row, column, smaller(stride, product->b.lines - column),
                        sums, task->buffer);
}

/* Add the products of `count` tiles from tile `begin` of k on to the sums of a task. */
static void run_block(const struct task *task, int64_t begin, int64_t count)
{
    const struct work *work = task->work;
    const int64_t strip = work->depth.total * TILE_NUMBERS; /* packed */
    struct tile_block block = {.a_step = work->a != NULL ? strip : count * TILE_NUMBERS,
                               .b = work->b + 2 * task->column * strip + begin * TILE_NUMBERS,
                               .b_step = strip,
                               .c_stride = (task->column_end - task->column) * PAIR,
                               .pairs = task->column_end - task->column,
                               .tiles = count,
                               .begin = begin == 0};

    for (int64_t pair = task->row; pair < task->row_end; pair++) {
        block.c = task->sums + (pair - task->row) * PAIR * block.c_stride;
        block.a = work->a != NULL ? work->a + 2 * pair * strip + begin * TILE_NUMBERS : task->a;
        if (work->a == NULL)
            pack_pair(work, &work->product->a, pair, begin, count, task->a);
        work->cpu->tiles->product->multiply(&block);
        if (begin + count == work->depth.total)
            finish_pair(task, pair, block.c);
    }
}

static void run_task(const struct work *work, int64_t number)
{
    const struct task task = task_open(work, number);

    for (int64_t part = 0; part < work->depth.parts; part++) {
        const int64_t begin = split_begin(work->depth, part);
        run_block(&task, begin, split_begin(work->depth, part + 1) - begin);
    }
}

static void run_columns(struct work *work)
{
    const struct tile_product *product = work->product;
    const int64_t shared = work->columns.total + (work->a != NULL ? work->rows.total : 0);
    const int64_t tasks = work->rows.parts * work->columns.parts;

#pragma omp parallel num_threads(                                                                  \
    cpu_threads_for_product(work->cpu, product->a.lines * product->b.lines * product->k))
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < shared; i++)
            pack_shared(work, i);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < tasks; i++)
            run_task(work, i);
    }
}

/* Return the pairs of strips of a that must fit into the shared workspace. */
static int64_t shared_rows(const struct tile_product *product)
{
    return product->a.along_k ? 0 : round_up_division(product->a.lines, PAIR);
}

int64_t tile_product_depth(const struct tile_product *product)
{
    const int64_t columns = product->a.along_k ? 1 : round_up_division(product->b.lines, PAIR);

    return WORKSPACE_SHARED / PAIR_TILE_BYTES / (shared_rows(product) + columns) * INNER;
}

void tile_product_run(const struct cpu_device *cpu, const struct tile_product *product)
{
    const int64_t tiles = round_up_division(product->k, INNER), rows = shared_rows(product);
    const int64_t fit = WORKSPACE_SHARED / PAIR_TILE_BYTES / tiles - rows;
    const int64_t columns = round_up_division(product->b.lines, PAIR);

    ENSURE(fit > 0, "a product of %lld inputs exceeds the workspace", (long long)product->k);
    const struct split blocks = split_of(columns, fit, 1);
    for (int64_t block = 0; block < blocks.parts; block++) {
        const int64_t begin = split_begin(blocks, block);
        struct work work = {.cpu = cpu, .product = product, .first_pair = begin};
        work_split(&work, split_begin(blocks, block + 1) - begin);
        const int64_t shared = work.columns.parts > 1 ? rows : 0;
        work.b = cpu_workspace_shared(
            cpu, (size_t)((work.columns.total + shared) * tiles * PAIR_TILE_BYTES));
        if (shared > 0)
            work.a = work.b + 2 * work.columns.total * tiles * TILE_NUMBERS;
        run_columns(&work);
    }
}
