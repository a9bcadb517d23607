// SPDX-License-Identifier: BSD-3-Clause
#include "device/grains.h"

#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/base.h"
#include "base/sum_tree.h"

/* GRADIENTS: maximum number of gradients of an operation. ALIGNMENT, in elements, of the stack's
 * gradients: algorithms of matrix products depend on the alignment of operands. */
enum { GRADIENTS = 4, ALIGNMENT = 64 };

struct grains {
    struct grains *previous; /* active again after grains_close; or NULL */
    struct device *device;
    const struct device_backend *inner;
    struct device_backend outer;
    int64_t samples; /* of a grain */
    /* Gradients of grains that wait to be added: [levels][level_count]. Level 0 is not stored here;
     * it is the memory of the partial sum. */
    float *stack;
    int64_t levels, level_count;
    double *rows; /* sums of batch norm: [total][row_count] */
    int64_t row_capacity, row_count;
    bool inside;          /* between grains_begin and grains_end */
    int64_t first, count; /* samples of the pass: number of the first one; how many */
    int64_t total;        /* grains of the global batch */
    struct subtree parts[TREE_PARTS];
    int part_count;
    int64_t stride;
    const int *slot;
    /* The grain whose gradients are hashed. */
    int64_t watched;                      /* -1: none */
    uint64_t *hash;                       /* device */
    int64_t gradients_seen, outputs_seen; /* since grains_watch */
    enum flip_choice flip;
    uint64_t flip_seed;
};

static struct grains *active;

/* A gradient of a parameter that an operation writes. sum: NULL if it is not computed. */
struct gradient {
    float *sum;
    int64_t count;
};

/* Samples first..first + count - 1 of the pass, which are one or more whole grains, and the memory
 * for the sum of their gradients. */
struct grain_range {
    int64_t first, count;
    float *gradient[GRADIENTS];
};

/* Run one call of an operation for these grains. args: those of the whole pass. */
typedef void grain_run(struct stream *stream, const void *args, const struct grain_range *grain);

/* Return the end of the grains of a subtree, in this pass. */
static int64_t part_end(const struct subtree *part)
{
    const int64_t end =
        active->first / active->samples + round_up_division(active->count, active->samples);

    return smaller(part->begin + ((int64_t)1 << part->level), end);
}

/* Return the elements that gradients 0..count - 1 take at a level of the stack. */
static int64_t room_of(const struct gradient *gradients, int count)
{
    int64_t room = 0;

    for (int i = 0; i < count; i++)
        room += gradients[i].sum != NULL ? round_up(gradients[i].count, ALIGNMENT) : 0;
    return room;
}

/* Return the memory of gradient `which` of partial sum `part` at a level of the stack. */
static float *level_of(const struct gradient *gradients, int which, int part, int level)
{
    if (gradients[which].sum == NULL)
        return NULL;
    if (level == 0)
        return gradients[which].sum + active->slot[part] * active->stride;
    return active->stack + (level - 1) * active->level_count + room_of(gradients, which);
}

static void room_check(const struct gradient *gradients, int top)
{
    const int64_t room = room_of(gradients, GRADIENTS);

    ENSURE(room == 0 || active->slot != NULL, "gradients of grains before grains_unit");
    ENSURE(room == 0 || top == 0 || (top <= active->levels && room <= active->level_count),
           "no room for %lld elements of gradients of grains at level %d", (long long)room, top);
}

/* Add level `top` of the stack to the level below it, then that level to the next one: `adds`
 * additions per gradient. */
static void stack_add(struct stream *stream, const struct gradient *gradients, int part, int top,
                      int adds)
{
    for (int level = top; level > top - adds; level--)
        for (int i = 0; i < GRADIENTS; i++)
            if (gradients[i].sum != NULL)
                active->inner->add(stream, level_of(gradients, i, part, level - 1),
                                   level_of(gradients, i, part, level), gradients[i].count);
}

static bool is_watched(const struct grain_range *grain)
{
    return (active->first + grain->first) / active->samples == active->watched;
}

/* Return the bits of element `index`. In all types, the bits without the sign are ordered as the
 * absolute values are. */
static uint32_t bits_of(const unsigned char *memory, size_t width, int64_t index)
{
    uint32_t bits = 0; /* the host is little-endian */
    memcpy(&bits, memory + (size_t)index * width, width);
    return bits;
}

void flip_bit(const struct device_backend *backend, struct stream *stream, enum data_type type,
              void *values, int64_t count, uint64_t seed)
{
    enum { WINDOW = 64 };
    static const uint32_t mantissa[] = {
        [TYPE_FP32] = 1U << 22, [TYPE_BF16] = 1U << 6, [TYPE_FP16] = 1U << 9};
    const size_t width = type_size(type);
    const uint32_t sign = 1U << (8 * width - 1);
    const int64_t first = (int64_t)(seed % (uint64_t)larger(1, count - WINDOW));
    const int64_t window = smaller(WINDOW, count - first);
    unsigned char memory[WINDOW * sizeof(float)];
    int64_t largest = 0;
    backend->copy(stream, memory, element(type, values, first), (size_t)window * width);
    backend->stream_synchronize(stream);
    for (int64_t i = 1; i < window; i++)
        if ((bits_of(memory, width, i) & ~sign) > (bits_of(memory, width, largest) & ~sign))
            largest = i;
    const uint32_t bits = bits_of(memory, width, largest) ^ mantissa[type];
    backend->copy(stream, element_to_write(type, values, first + largest), &bits, width);
    backend->stream_synchronize(stream);
}

/* Invert a bit of the first output or gradient of the watched grain, as grains_watch requests. */
static void flip_first(struct stream *stream, enum flip_choice kind, int64_t seen,
                       enum data_type type, void *values, int64_t count)
{
    if (kind == active->flip && seen == 0)
        flip_bit(active->inner, stream, type, values, count, active->flip_seed);
}

static void watch_gradients(struct stream *stream, const struct gradient *gradients,
                            const struct grain_range *grain)
{
    enum { KEY_SHIFT = 40 };
    for (int i = 0; i < GRADIENTS && is_watched(grain); i++) {
        if (gradients[i].sum == NULL)
            continue;
        flip_first(stream, FLIP_GRADIENT, active->gradients_seen, TYPE_FP32, grain->gradient[i],
                   gradients[i].count);
        active->inner->hash(stream,
                            &(struct hash){.count = gradients[i].count,
                                           .values = grain->gradient[i],
                                           .key = (uint64_t)active->gradients_seen << KEY_SHIFT,
                                           .sum = active->hash});
        active->gradients_seen++;
    }
}

/* Run an operation in calls of up to 2^level grains: one call for each subtree of that level, or
 * for a smaller partial sum. Add the gradients in the order of the tree. */
static void for_each_subtree(struct stream *stream, grain_run *run, const void *args,
                             const struct gradient gradients[GRADIENTS], int level)
{
    for (int part = 0; part < active->part_count; part++) {
        const struct subtree *tree = &active->parts[part];
        const int64_t grains = (int64_t)1 << smaller(level, tree->level);
        const int64_t count = round_up_division(part_end(tree) - tree->begin, grains);
        for (int64_t i = 0; i < count; i++) {
            const int top = tree_stack_top(i);
            const int64_t first = (tree->begin + i * grains) * active->samples - active->first;
            struct grain_range grain = {
                .first = first, .count = smaller(grains * active->samples, active->count - first)};
            room_check(gradients, top);
            for (int g = 0; g < GRADIENTS; g++)
                grain.gradient[g] = level_of(gradients, g, part, top);
            run(stream, args, &grain);
            watch_gradients(stream, gradients, &grain);
            stack_add(stream, gradients, part, top, tree_stack_adds(i, count));
        }
    }
}

static void for_each_grain(struct stream *stream, grain_run *run, const void *args,
                           const struct gradient gradients[GRADIENTS])
{
    for_each_subtree(stream, run, args, gradients, 0);
}

/* True if a call of a linear layer may have several grains. If a grain is watched, each grain of
 * the pass has its own call. */
static bool calls_have_grains(void)
{
    return active->inner->linear_grains && active->watched < 0;
}

/* True if an operation over this many rows runs once per grain. Other calls, whose rows do not
 * belong to the samples of the pass, go to the device's backend unchanged. */
static bool is_cut(int64_t rows, int64_t rows_per_sample)
{
    return active->inside && rows > 0 && rows == active->count * rows_per_sample;
}

/* True if an operation with gradients of parameters runs once per grain. In a pass without samples
 * it does not run, so partial sums of earlier passes stay unchanged. */
static bool is_summed(const char *operation, int64_t rows, bool overwrite)
{
    if (!active->inside)
        return false;
    ENSURE(active->count == 0 ? rows == 0 : rows % active->count == 0,
           "%s: %lld rows of %lld samples cannot be cut into grains", operation, (long long)rows,
           (long long)active->count);
    ENSURE(overwrite || rows == 0, "%s: gradients of grains are written, not accumulated",
           operation);
    return true;
}

static void dropout_shift(struct dropout *dropout, const struct grain_range *grain)
{
    dropout->first += (uint32_t)grain->first;
}

static void linear_forward_grain(struct stream *stream, const void *whole,
                                 const struct grain_range *grain)
{
    struct linear_forward args = *(const struct linear_forward *)whole;
    const int64_t x = grain->first * args.rows_per_sample * args.in;
    const int64_t y = grain->first * args.rows_per_sample * args.out;

    args.rows = grain->count * args.rows_per_sample;
    args.grain_rows = active->samples * args.rows_per_sample;
    args.x = element(args.type, args.x, x);
    args.residual = element(args.type, args.residual, y);
    args.pre = element_to_write(args.type, args.pre, y);
    args.y = element_to_write(args.type, args.y, y);
    dropout_shift(&args.dropout, grain);
    dropout_shift(&args.drop_path, grain);
    active->inner->linear_forward(stream, &args);
    if (is_watched(grain))
        flip_first(stream, FLIP_ACTIVATION, active->outputs_seen++, args.type, args.y,
                   args.rows * args.out);
}

static void grains_linear_forward(struct stream *stream, const struct linear_forward *args)
{
    if (is_cut(args->rows, args->rows_per_sample))
        for_each_subtree(stream, linear_forward_grain, args, (struct gradient[GRADIENTS]){{0}},
                         calls_have_grains() ? TREE_LEVELS : 0);
    else
        active->inner->linear_forward(stream, args);
}

static void linear_backward_grain(struct stream *stream, const void *whole,
                                  const struct grain_range *grain)
{
    struct linear_backward args = *(const struct linear_backward *)whole;
    const int64_t x = grain->first * args.rows_per_sample * args.in;

    args.rows = grain->count * args.rows_per_sample;
    args.grain_rows = active->samples * args.rows_per_sample;
    args.x = element(args.type, args.x, x);
    args.dy = element(args.type, args.dy, grain->first * args.rows_per_sample * args.out);
    args.pre = element(args.type, args.pre, x);
    args.dx = element_to_write(args.type, args.dx, x);
    args.dweight = grain->gradient[0];
    args.dbias = grain->gradient[1];
    dropout_shift(&args.dropout, grain);
    active->inner->linear_backward(stream, &args);
}

/* Compute the gradients of parameters first, because dx may be x. */
static void linear_backward_grains(struct stream *stream, const struct linear_backward *args,
                                   const struct gradient gradients[GRADIENTS])
{
    struct linear_backward weight = *args, x = *args;

    weight.dx = NULL;
    x.dweight = x.dbias = NULL;
    if (args->dweight != NULL || args->dbias != NULL)
        for_each_grain(stream, linear_backward_grain, &weight, gradients);
    if (args->dx != NULL)
        for_each_subtree(stream, linear_backward_grain, &x, (struct gradient[GRADIENTS]){{0}},
                         TREE_LEVELS);
}

static void grains_linear_backward(struct stream *stream, const struct linear_backward *args)
{
    const struct gradient gradients[GRADIENTS] = {{args->dweight, args->out * args->in},
                                                  {args->dbias, args->out}};

    if (!is_summed("linear_backward", args->rows, args->overwrite))
        active->inner->linear_backward(stream, args);
    else if (calls_have_grains())
        linear_backward_grains(stream, args, gradients);
    else
        for_each_grain(stream, linear_backward_grain, args, gradients);
}

static int64_t rows_per_sample(int64_t rows)
{
    return rows / active->count;
}

/* Set the rows of sums of all grains to zero; no effect if channels is -1. The `sums` of the
 * operation are not written (grains_rows). */
static void rows_clear(struct stream *stream, int64_t channels)
{
    if (!active->inside || channels < 0)
        return;
    active->row_count = 2 * channels + 1;
    ENSURE(active->total * active->row_count <= active->row_capacity,
           "no room for %lld sums of %lld grains", (long long)active->row_count,
           (long long)active->total);
    active->inner->zero(stream, active->rows,
                        (size_t)(active->total * active->row_count) * sizeof *active->rows);
}

/* Return the row of sums of a grain of this pass. */
static double *row_of(const struct grain_range *grain)
{
    return active->rows + (active->first + grain->first) / active->samples * active->row_count;
}

/* Define grains_NAME: the operation runs once per grain if `condition` is true, with the arguments
 * that NAME_cut sets. channels: of a batch norm, otherwise -1. The last arguments are the
 * gradients.
 */
#define PER_GRAIN(name, condition, channels, ...)                                                  \
    static void name##_grain(struct stream *stream, const void *whole,                             \
                             const struct grain_range *grain)                                      \
    {                                                                                              \
        struct name args = *(const struct name *)whole;                                            \
        name##_cut(&args, grain);                                                                  \
        active->inner->name(stream, &args);                                                        \
    }                                                                                              \
    static void grains_##name(struct stream *stream, const struct name *args)                      \
    {                                                                                              \
        rows_clear(stream, channels);                                                              \
        if (condition)                                                                             \
            for_each_grain(stream, name##_grain, args, (struct gradient[GRADIENTS]){__VA_ARGS__}); \
        else                                                                                       \
            active->inner->name(stream, args);                                                     \
    }
#define SUMMED(name, rows, overwrite, channels, ...)                                               \
    PER_GRAIN(name, is_summed(#name, rows, overwrite), channels, __VA_ARGS__)

static void norm_backward_cut(struct norm_backward *args, const struct grain_range *grain)
{
    const int64_t row = grain->first * rows_per_sample(args->rows);
    const int64_t grouped = args->group > 0 ? row / args->group * args->stride : row * args->width;

    args->rows = grain->count * rows_per_sample(args->rows);
    args->x = element(args->type, args->x, row * args->width);
    args->dy = element(args->type, args->dy, grouped);
    args->mean += row;
    args->rstd += row;
    args->add = element(args->type, args->add, row * args->width);
    args->dx = element_to_write(args->type, args->dx, grouped);
    args->dgamma = grain->gradient[0];
    args->dbeta = grain->gradient[1];
}

SUMMED(norm_backward, args->rows, args->overwrite, -1, {args->dgamma, args->width},
       {args->dbeta, args->width})

static void scale_backward_cut(struct scale_backward *args, const struct grain_range *grain)
{
    const int64_t first = grain->first * args->rows_per_sample * args->width;

    args->rows = grain->count * args->rows_per_sample;
    args->pre = element(args->type, args->pre, first);
    args->dy = element(args->type, args->dy, first);
    args->dx = element_to_write(args->type, args->dx, first);
    args->dscale = grain->gradient[0];
    dropout_shift(&args->dropout, grain);
    dropout_shift(&args->drop_path, grain);
}

SUMMED(scale_backward, args->rows, args->overwrite, -1, {args->dscale, args->width})

static void tokens_backward_cut(struct tokens_backward *args, const struct grain_range *grain)
{
    const int64_t patches = args->tokens - args->registers - args->class_token;
    const int64_t first = grain->first * rows_per_sample(args->batch);

    args->batch = grain->count * rows_per_sample(args->batch);
    args->dx = element(args->type, args->dx, first * args->tokens * args->width);
    args->dpatches = element_to_write(args->type, args->dpatches, first * patches * args->width);
    args->dclass_token = grain->gradient[0];
    args->dregister_tokens = grain->gradient[1];
    args->dposition = grain->gradient[2];
}

SUMMED(tokens_backward, args->batch, args->overwrite, -1, {args->dclass_token, args->width},
       {args->dregister_tokens, args->registers * args->width},
       {args->dposition, (args->tokens - args->unplaced) * args->width})

/* Return the elements of x before the samples of a grain. */
static int64_t x_before(const struct convolution_shape *s, const struct grain_range *grain)
{
    return grain->first * s->height * s->width * s->in;
}

/* Return the elements of y before the samples of a grain. */
static int64_t y_before(const struct convolution_shape *s, const struct grain_range *grain)
{
    return grain->first * convolved_height(s) * convolved_width(s) * s->out;
}

static void convolution_forward_cut(struct convolution_forward *args,
                                    const struct grain_range *grain)
{
    args->shape.batch = grain->count;
    args->x = element(args->type, args->x, x_before(&args->shape, grain));
    args->y = element_to_write(args->type, args->y, y_before(&args->shape, grain));
}

PER_GRAIN(convolution_forward, is_cut(args->shape.batch, 1), -1, {0})

static void convolution_backward_cut(struct convolution_backward *args,
                                     const struct grain_range *grain)
{
    args->shape.batch = grain->count;
    args->x = element(args->type, args->x, x_before(&args->shape, grain));
    args->dy = element(args->type, args->dy, y_before(&args->shape, grain));
    args->dx = element_to_write(args->type, args->dx, x_before(&args->shape, grain));
    args->dweight = grain->gradient[0];
    args->dbias = grain->gradient[1];
}

SUMMED(convolution_backward, args->shape.batch, args->overwrite, -1,
       {args->dweight, convolution_weights(&args->shape)}, {args->dbias, args->shape.out})

/* Return the largest workspace of a whole batch, for evaluations, and of grains of any length. */
static size_t grains_convolution_workspace(struct device *device, enum data_type type,
                                           const struct convolution_shape *shape)
{
    struct convolution_shape part = *shape;
    size_t most = active->inner->convolution_workspace(device, type, shape);

    for (part.batch = smaller(active->samples, shape->batch); part.batch > 0; part.batch--) {
        const size_t bytes = active->inner->convolution_workspace(device, type, &part);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static void batch_norm_sums_cut(struct batch_norm_sums *args, const struct grain_range *grain)
{
    const int64_t of_sample = rows_per_sample(args->rows);

    args->x = element(args->type, args->x, grain->first * of_sample * args->channels);
    args->rows = grain->count * of_sample;
    args->sums = row_of(grain);
}

SUMMED(batch_norm_sums, args->rows, true, args->channels, {0})

static void batch_norm_backward_sums_cut(struct batch_norm_backward_sums *args,
                                         const struct grain_range *grain)
{
    const int64_t of_sample = rows_per_sample(args->rows);
    const int64_t first = grain->first * of_sample * args->channels;

    args->rows = grain->count * of_sample;
    args->x = element(args->type, args->x, first);
    args->y = element(args->type, args->y, first);
    args->add = element(args->type, args->add, first);
    args->dy = element_to_write(args->type, args->dy, first);
    args->sums = row_of(grain);
    args->dgamma = grain->gradient[0];
    args->dbeta = grain->gradient[1];
    args->drunning_mean = grain->gradient[2];
    args->drunning_variance = grain->gradient[3];
}

SUMMED(batch_norm_backward_sums, args->rows, args->overwrite, args->channels,
       {args->dgamma, args->channels}, {args->dbeta, args->channels},
       {args->drunning_mean, args->channels}, {args->drunning_variance, args->channels})

struct grains *grains_open(struct device *device, int64_t samples)
{
    ENSURE(samples > 0 && samples % 8 == 0, "grains of %lld samples are not aligned",
           (long long)samples);
    struct grains *grains = allocate(1, sizeof *grains);
    grains->previous = active;
    grains->device = device;
    grains->samples = samples;
    grains->watched = -1;
    grains->inner = device->backend;
    grains->outer = *device->backend;
    grains->outer.sums_gradients = false;
    grains->outer.convolution_workspace = grains_convolution_workspace;
#define REPLACE_PASS(name)
#define REPLACE_GRAIN(name) grains->outer.name = grains_##name;
#define REPLACE(name, kind, ...) REPLACE_##kind(name)
    DEVICE_OPERATIONS(REPLACE)
    device->backend = &grains->outer;
    device->reproducible = true;
    active = grains;
    return grains;
}

void grains_close(struct grains *grains)
{
    if (grains == NULL)
        return;
    grains->device->backend = grains->inner;
    grains->device->reproducible = false;
    active = grains->previous;
    free(grains);
}

void grains_allocate(struct grains *grains, struct arena *arena, int64_t batch, int64_t total,
                     int64_t largest, int64_t channels)
{
    grains->levels = tree_root_level(larger(1, round_up_division(batch, grains->samples)));
    /* The gradients of an operation have at most 2 * largest elements (room_check). */
    grains->level_count = 2 * round_up(largest, GRADIENTS * ALIGNMENT);
    grains->row_capacity = channels > 0 ? total * (2 * channels + 1) : 0;
    grains->stack = arena_take(arena, MEMORY_BUFFERS,
                               (size_t)(grains->levels * grains->level_count) * sizeof(float));
    grains->hash = arena_take(arena, MEMORY_BUFFERS, sizeof *grains->hash);
    grains->rows =
        arena_take(arena, MEMORY_BUFFERS, (size_t)grains->row_capacity * sizeof *grains->rows);
}

void grains_begin(struct grains *grains, int64_t first, int64_t count, int64_t global_count)
{
    const int64_t samples = grains->samples, end = first + count;

    ENSURE(first % samples == 0 && (end % samples == 0 || end == global_count),
           "samples %lld to %lld of %lld are not whole grains of %lld", (long long)first,
           (long long)end, (long long)global_count, (long long)samples);
    grains->first = first;
    grains->count = count;
    grains->total = round_up_division(global_count, samples);
    grains->part_count =
        tree_cut(first / samples, round_up_division(end, samples), grains->total, grains->parts);
    grains->inside = true;
}

void grains_unit(struct grains *grains, int64_t stride, const int *slot)
{
    grains->stride = stride;
    grains->slot = slot;
}

void grains_end(struct grains *grains)
{
    grains->inside = false;
    grains->slot = NULL;
    grains->watched = -1;
}

void grains_watch(struct grains *grains, struct stream *stream, int64_t grain,
                  enum flip_choice flip, uint64_t seed)
{
    grains->watched = grain;
    grains->flip = flip;
    grains->flip_seed = seed;
    grains->gradients_seen = grains->outputs_seen = 0;
    grains->inner->zero(stream, grains->hash, sizeof *grains->hash);
}

uint64_t grains_hash(const struct grains *grains, struct stream *stream)
{
    uint64_t hash;
    grains->inner->copy(stream, &hash, grains->hash, sizeof hash);
    grains->inner->stream_synchronize(stream);
    return hash;
}

double *grains_rows(const struct grains *grains, int64_t count, int64_t *rows)
{
    ENSURE(grains->inside && count == grains->row_count, "no sums of grains to add");
    *rows = grains->total;
    return grains->rows;
}
