// SPDX-License-Identifier: BSD-3-Clause
/* Gradients of linear layers, summed over grains. Each task computes one block of dweight. The
 * tasks of the first columns also compute dbias. The thread's workspace holds a stack of blocks
 * (core/tree.h), so the blocks of grains are added in the cache. The shapes of products depend on
 * the rows of one grain only, so the bits do not depend on the number of grains in a call. */
#include <omp.h>
#include <string.h>

#include "core/tree.h"
#include "device/cpu_linear.h"
#include "device/kernels.h"

struct grains_task {
    struct cpu_device *cpu;
    const struct linear_backward *args;
    struct cut out, in;
    int64_t grains;
    const struct product_plan *plans[2][2][2]; /* [short grain][last out][last in] */
};

/* A block: rows x columns of dweight, then `rows` elements of dbias. */
struct grains_block {
    int64_t row, column, rows, columns;
    bool bias;
};

static struct grains_block block_at(const struct grains_task *task, int64_t number)
{
    const int64_t o = number % task->out.count, i = number / task->out.count;

    return (struct grains_block){.row = o * task->out.size,
                                 .column = i * task->in.size,
                                 .rows = part_size(&task->out, o),
                                 .columns =
                                     task->args->dweight != NULL ? part_size(&task->in, i) : 0,
                                 .bias = task->args->dbias != NULL && i == 0};
}

/* Return the elements of an entry of the stack. */
static int64_t entry_size(const struct grains_task *task)
{
    enum { ALIGNMENT = 64 };
    const int64_t columns = task->args->dweight != NULL ? task->in.size : 0;

    return round_up(task->out.size * (columns + 1), ALIGNMENT);
}

static int64_t rows_of_grain(const struct grains_task *task, int64_t grain)
{
    const struct linear_backward *args = task->args;

    return smaller(args->grain_rows, args->rows - grain * args->grain_rows);
}

static void make_plans(struct grains_task *task)
{
    const struct linear_backward *args = task->args;

    for (int plan = 0; plan < 8; plan++) {
        const int last_grain = plan / 4, last_out = plan / 2 % 2, last_in = plan % 2;
        const struct product product = {
            .type = args->type,
            .m = part_size(&task->out, last_out ? task->out.count - 1 : 0),
            .n = part_size(&task->in, last_in ? task->in.count - 1 : 0),
            .k = rows_of_grain(task, last_grain ? task->grains - 1 : 0),
            .a_stride = args->out,
            .b_stride = args->in,
            .c_stride = part_size(&task->in, last_in ? task->in.count - 1 : 0),
            .a_transposed = true};
        task->plans[last_grain][last_out][last_in] = product_plan(task->cpu->products, &product);
    }
}

/* Compute the block of one grain. */
static void compute_block(const struct grains_task *task, const struct grains_block *block,
                          int64_t grain, void *scratch, float *entry)
{
    const struct linear_backward *args = task->args;
    const int64_t first = grain * args->grain_rows;
    const void *dy = element(args->type, args->dy, first * args->out);
    float *bias = entry + block->rows * block->columns;

    if (block->columns > 0)
        product_run(
            task->plans[grain == task->grains - 1][block->row + block->rows == task->out.total]
                       [block->column + block->columns == task->in.total],
            omp_get_thread_num(), element(args->type, dy, block->row),
            element(args->type, args->x, first * args->in + block->column), entry, scratch);
    if (!block->bias)
        return;
    memset(bias, 0, (size_t)block->rows * sizeof *bias);
    task->cpu->kernels->linear->column_sums(args->type, rows_of_grain(task, grain), block->rows,
                                            args->out, dy, block->row, bias);
}

/* Add the `adds` top entries of a stack to the ones below, a few elements at a time, which remain
 * in the L1 cache. */
static void add_entries(const struct grains_task *task, float *stack, int64_t count, int top,
                        int adds)
{
    enum { PIECE = 1024 };
    const int64_t size = entry_size(task);

    for (int64_t i = 0; i < count; i += PIECE)
        for (int level = top; level > top - adds; level--) {
            float *sum = stack + (level - 1) * size + i;
            task->cpu->kernels->elements->add(TYPE_FP32, sum, sum, sum + size,
                                              smaller(PIECE, count - i));
        }
}

static void store_block(const struct linear_backward *args, const struct grains_block *block,
                        const float *sums)
{
    const float *bias = sums + block->rows * block->columns;

    for (int64_t r = 0; r < block->rows && block->columns > 0; r++)
        memcpy(args->dweight + (block->row + r) * args->in + block->column,
               sums + r * block->columns, (size_t)block->columns * sizeof *sums);
    if (block->bias)
        memcpy(args->dbias + block->row, bias, (size_t)block->rows * sizeof *bias);
}

static void run_task(const struct grains_task *task, int64_t number)
{
    const struct grains_block block = block_at(task, number);
    const int64_t size = entry_size(task), count = block.rows * (block.columns + block.bias);
    char *memory = cpu_workspace_thread(
        task->cpu, PRODUCT_SCRATCH + (GRAINS_LEVEL + 1) * (size_t)size * sizeof(float));
    float *stack = (float *)(memory + PRODUCT_SCRATCH);

    for (int64_t grain = 0; grain < task->grains; grain++) {
        const int top = tree_stack_top(grain);
        compute_block(task, &block, grain, memory, stack + top * size);
        add_entries(task, stack, count, top, tree_stack_adds(grain, task->grains));
    }
    store_block(task->args, &block, stack);
}

void cpu_linear_gradient_of_grains(struct cpu_device *cpu, const struct linear_backward *args,
                                   struct cut out, const struct cut *in)
{
    const int64_t room =
        (WORKSPACE_THREAD - PRODUCT_SCRATCH) / (GRAINS_LEVEL + 1) / (int64_t)sizeof(float);
    struct grains_task task = {.cpu = cpu,
                               .args = args,
                               .out = out,
                               .in = *in,
                               .grains = round_up_division(args->rows, args->grain_rows)};

    ENSURE(task.grains <= 1 << GRAINS_LEVEL, "linear layer: a call with %lld grains",
           (long long)task.grains);
    while (entry_size(&task) > room)
        task.out = cut_by_size(out.total, 2 * task.out.count, 4);
    if (args->dweight != NULL)
        make_plans(&task);
#pragma omp parallel for schedule(dynamic)                                                         \
    num_threads(cpu_threads_for_product(cpu, args->rows * args->in * args->out))
    for (int64_t t = 0; t < task.out.count * task.in.count; t++)
        run_task(&task, t);
}
