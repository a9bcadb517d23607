// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 3 4
// devices: cpu gpu
/* Flat buffers on 1 to 4 ranks, on CPUs and (emulated) GPUs, for all shard sizes: sums, norms and
 * hashes; gathered units are whole. All ranks run the same tests and sum their numbers of failures
 * before an assertion, so that no rank waits for one that has failed. */
#include "mesh/flat.h"

#include "base/random.h"
#include "comm_fixture.h"
#include "device/exact_sum.h"
#include "flat_fixture.h"
#include "mesh/unit.h"

enum { UNITS = 3, SEED = 42 };

static struct device *device;
static struct stream *stream;

#define PARAMETER(tensor_name, elements, rule, scale, decays)                                      \
    {                                                                                              \
        .name = tensor_name, .dimensions = 1, .shape = {elements}, .count = elements,              \
        .kind = TENSOR_PARAMETER, .decay = decays, .rate_scale = 1, .trainable = true,             \
        .initial = rule, .initial_scale = scale                                                    \
    }

static struct unit_tensor stem[] = {
    PARAMETER("cls_token", 13, INITIAL_ZERO, 0, false),
    PARAMETER("pos_embed", 35, INITIAL_TRUNCATED_NORMAL, 0.02, false),
    PARAMETER("patch_embed.weight", 300, INITIAL_NORMAL, 1.5, true),
};
static struct unit_tensor block[] = {
    PARAMETER("norm.weight", 17, INITIAL_ONE, 0, false),
    PARAMETER("norm.bias", 17, INITIAL_ZERO, 0, false),
    PARAMETER("qkv.weight", 1003, INITIAL_TRUNCATED_NORMAL, 1, true),
    PARAMETER("frozen.weight", 50, INITIAL_UNIFORM, 0.3, true),
    PARAMETER("running_mean", 10, INITIAL_ONE, 0, false),
};
static struct unit_tensor head[] = {
    PARAMETER("head.weight", 70001, INITIAL_UNIFORM, 0.1, true),
    PARAMETER("head.bias", 1, INITIAL_ZERO, 0, true),
};
static struct unit units[UNITS] = {
    {.name = "stem", .tensors = stem, .tensor_count = 3},
    {.name = "block", .tensors = block, .tensor_count = 5},
    {.name = "head", .tensors = head, .tensor_count = 2},
};

static void device_begin(void)
{
    uint32_t index = 0;
    flat_device_open();
    device = flat_device.device;
    stream = flat_device.stream;
    if (strcmp(device->backend->name, "cpu") != 0) /* the emulated GPU is slow */
        head[0].count = head[0].shape[0] = 1501;
    for (int u = 0; u < UNITS; u++)
        for (int t = 0; t < units[u].tensor_count; t++) {
            struct unit_tensor *tensor = &units[u].tensors[t];
            tensor->index = index++;
            tensor->offset = (units[u].count + 15) / 16 * 16;
            units[u].count = tensor->offset + tensor->count;
        }
    block[3].trainable = false;
    block[4].kind = TENSOR_STATE;
}

/* GPUs use no shared memory. */
static int policies(void)
{
    return device->backend->comm_open == NULL ? SHARE_MEMORY + 1 : SHARE_MEMORY;
}

static void model_open(struct flat_fixture *fixture, int shard, enum flat_policy policy,
                       enum data_type type)
{
    flat_fixture_open(fixture, units, UNITS, shard, policy, type, 0, 0);
    flat_set_segments(&fixture->flat, 0.25, 1);
    flat_initialize(&fixture->flat, SEED);
    flat_refresh(&fixture->flat);
    queue_wait();
}

/* Declare and open a model that is closed at the end of the block. */
#define FLAT(name, ...)                                                                            \
    __attribute__((cleanup(flat_fixture_close))) struct flat_fixture name;                         \
    model_open(&name, __VA_ARGS__)

/* The initial values of a whole unit; gaps and padding are zero. */
static float *start_of(const struct flat_buffer *buffer)
{
    float *values = allocate((size_t)buffer->padded, sizeof *values);
    for (int t = 0; t < buffer->unit->tensor_count; t++) {
        const struct unit_tensor *tensor = &buffer->unit->tensors[t];
        initial_draw(tensor, SEED, 0, tensor->count, values + tensor->offset);
    }
    return values;
}

/* The memory contained NaN. */
TEST(moments_start_at_zero)
{
    int64_t wrong = 0;
    FLAT(fixture, world->size, KEEP_ALL, TYPE_BF16);
    for (int u = 0; u < UNITS; u++) {
        const struct flat_buffer *buffer = &fixture.flat.buffers[u];
        for (int64_t i = 0; i < buffer->shard_count; i++)
            wrong += buffer->moment1[i] != 0 || buffer->moment2[i] != 0 ||
                     buffer->average[i] != buffer->master[i];
    }
    assert_int_equal(all_wrong(wrong), 0);
}

static float *pinned_floats(int64_t count)
{
    float *values =
        device->backend->allocate_pinned(device, (size_t)count * sizeof *values, &error);
    assert_non_null(values);
    return values;
}

/* True if the unit's weights equal `start` plus `more` in the compute type. */
static int gathered_wrong(struct flat_fixture *fixture, int unit, float more)
{
    const struct flat_buffer *buffer = &fixture->flat.buffers[unit];
    OWNED float *start = start_of(buffer);
    float *wide = pinned_floats(2 * buffer->padded), *expected = wide + buffer->padded;
    for (int64_t i = 0; i < buffer->padded; i++)
        wide[i] = start[i] + more;
    device->backend->convert(stream, fixture->flat.type, expected, TYPE_FP32, wide, buffer->padded);
    flat_gather_start(&fixture->flat, unit);
    flat_gather_wait(&fixture->flat, unit);
    queue_wait();
    int wrong = memcmp(buffer->weights, expected,
                       (size_t)buffer->padded * type_size(fixture->flat.type)) != 0;
    wrong += flat_weight(&fixture->flat, unit, 1) !=
             (const char *)buffer->weights +
                 (size_t)buffer->unit->tensors[1].offset * type_size(fixture->flat.type);
    flat_release(&fixture->flat, unit);
    device->backend->release_pinned(device, wide);
    return wrong;
}

/* Gathers the units in the order of a step after an update: forward, then backward, each while its
 * neighbour is in use. */
static int passes_wrong(struct flat_fixture *fixture)
{
    int wrong = 0;
    for (int u = 0; u < UNITS; u++)
        wrong += gathered_wrong(fixture, u, 0);
    for (int u = 0; u < UNITS; u++)
        for (int64_t i = 0; i < fixture->flat.buffers[u].shard_count; i++)
            fixture->flat.buffers[u].master[i] += 0.5f;
    flat_refresh(&fixture->flat);
    for (int u = UNITS - 1; u >= 0; u--)
        wrong += gathered_wrong(fixture, u, 0.5f);
    /* The last two units are still in their slots and are not gathered again. */
    wrong += fixture->flat.slots_weights && fixture->flat.buffers[UNITS - 1].weights != NULL;
    wrong += !fixture->flat.buffers[0].whole || !fixture->flat.buffers[1].whole;
    return wrong;
}

TEST(gathered_units_are_whole)
{
    int wrong = 0;
    for (int shard = 1; shard > 0; shard = next_shard(shard))
        for (int policy = KEEP_ALL; policy < policies(); policy++)
            for (int type = TYPE_FP32; type <= TYPE_FP16; type++) {
                FLAT(fixture, shard, (enum flat_policy)policy, (enum data_type)type);
                wrong += passes_wrong(&fixture);
            }
    assert_int_equal(all_wrong(wrong), 0);
}

/* The backward pass of one micro-batch. The sums of its values are exact in all types, except for
 * one that 16 bits round away. Frozen units have no gradients. */
static void gradients_add(struct flat_fixture *fixture, bool last)
{
    for (int u = UNITS - 1; u >= 0; u--) {
        struct flat_buffer *buffer = &fixture->flat.buffers[u];
        flat_gradient_open(&fixture->flat, u, false);
        queue_wait();
        for (int64_t i = 0; i < buffer->padded; i++)
            buffer->whole_gradient[i] += (float)((world->rank + 1) * (i % 11 - 5));
        buffer->whole_gradient[5] += 0x1p-20f + (world->rank == 0 ? 1 : 0);
        flat_gradient_close(&fixture->flat, u, last);
    }
}

/* Element 5 after `micro_batches` passes: 16-bit reductions lose the small summand. */
static float element_five(bool narrow, int64_t size, int micro_batches)
{
    return narrow ? (float)micro_batches : (float)micro_batches * (1 + (float)size * 0x1p-20f);
}

static int64_t gradients_wrong(int shard, enum flat_policy policy, enum data_type type,
                               int micro_batches)
{
    int64_t wrong = 0, size = world->size;
    double squares = 0, sum_squares = 0;
    FLAT(fixture, shard, policy, type);
    flat_begin_gradients(&fixture.flat);
    for (int micro = 0; micro < micro_batches; micro++)
        gradients_add(&fixture, micro == micro_batches - 1);
    flat_reduce_wait(&fixture.flat);
    queue_wait();
    for (int u = 0; u < UNITS; u++) {
        struct flat_buffer *buffer = &fixture.flat.buffers[u];
        for (int64_t i = 0; i < buffer->shard_count; i++) {
            int64_t place = i + buffer->shard_begin;
            float sum = (float)(micro_batches * size * (size + 1) / 2 * (place % 11 - 5));
            if (place == 5)
                sum = element_five(type != TYPE_FP32 && size > 1, size, micro_batches);
            wrong += buffer->gradient[i] != sum;
            if (u != 1 || place < block[4].offset) /* running statistics are not part of the norm */
                squares += (double)sum * sum;
        }
    }
    comm_all_reduce(fixture.mesh.shard, &squares, 1, COMM_FP64, COMM_SUM);
    flat_norm(&fixture.flat);
    flat_norm(&fixture.flat); /* overwrites the previous norm */
    queue_wait();
    sum_squares = *fixture.flat.norm_squared;
    wrong += fabs(sum_squares - squares) > 1e-12 * squares;
    wrong += !comm_same(world, fixture.flat.norm_squared, sizeof(double));
    return wrong;
}

TEST(gradients_are_added_over_the_mesh)
{
    int64_t wrong = 0;
    for (int shard = 1; shard > 0; shard = next_shard(shard))
        for (int policy = KEEP_ALL; policy < policies(); policy++)
            for (int type = TYPE_FP32; type <= TYPE_FP16; type++)
                wrong += gradients_wrong(shard, (enum flat_policy)policy, (enum data_type)type,
                                         1 + (policy + type) % 2);
    assert_int_equal(all_wrong(wrong), 0);
}

/* A gradient of normal and very small numbers, by index in the tensor. */
static float gradient_at(const struct unit_tensor *tensor, int64_t index)
{
    struct random_block drawn =
        random_block_at(SEED, RANDOM_INITIAL_WEIGHTS, 1, 0, tensor->index, (uint32_t)index);
    return ldexpf((float)(drawn.word[0] >> 8) - 0x1p23f, -(int)(drawn.word[1] % 64) - 23);
}

/* Sets this rank's part of the gradient; gaps are zero. */
static void gradient_fill(const struct flat_buffer *buffer)
{
    memset(buffer->gradient, 0, (size_t)buffer->shard_count * sizeof *buffer->gradient);
    for (int t = 0; t < buffer->unit->tensor_count; t++) {
        const struct unit_tensor *tensor = &buffer->unit->tensors[t];
        int64_t begin, end;
        if (!flat_tensor_part(buffer, tensor, &begin, &end))
            continue;
        for (int64_t i = begin; i < end; i++)
            buffer->gradient[i] = gradient_at(tensor, i + buffer->shard_begin - tensor->offset);
    }
}

/* The norm of the gradient, and LARS's norms of the weights and gradients of tensors.
 * gradients_are_added_over_the_mesh checks the first one's value. */
TEST(norms_have_the_same_bits_on_every_mesh)
{
    enum { TENSORS = 3 };
    struct unit_tensor *const adapting[TENSORS] = {&stem[2], &block[2], &head[0]};
    double first[1 + 2 * TENSORS], found[1 + 2 * TENSORS];
    int64_t wrong = 0;
    struct step_params *params = device->backend->allocate_pinned(device, sizeof *params, &error);
    assert_non_null(params);
    *params = (struct step_params){.update = 1};
    for (int i = 0; i < TENSORS; i++)
        adapting[i]->adapts = true;
    for (int shard = 1; shard > 0; shard = next_shard(shard)) {
        FLAT(fixture, shard, KEEP_WEIGHTS, TYPE_FP32);
        device->backend->zero(stream, fixture.flat.norms,
                              (size_t)fixture.flat.norm_count * sizeof *fixture.flat.norms);
        for (int u = 0; u < UNITS; u++) {
            const struct flat_buffer *buffer = &fixture.flat.buffers[u];
            gradient_fill(buffer);
            OPERATION_RUN(device, stream, update, .rule = UPDATE_LARS, .count = buffer->shard_count,
                          .weights = buffer->master, .gradient = buffer->gradient,
                          .segments = buffer->segments, .segment_count = buffer->segment_count,
                          .params = params, .norms = fixture.flat.norms, .measure = true);
        }
        flat_norms_sum(&fixture.flat);
        flat_norm(&fixture.flat);
        queue_wait();
        found[0] = *fixture.flat.norm_squared;
        for (int i = 0; i < TENSORS; i++) {
            const struct tensor_norms *norms = &fixture.flat.norms[adapting[i]->index];
            found[1 + 2 * i] = exact_sum_value(&norms->weights);
            found[2 + 2 * i] = exact_sum_value(&norms->direction);
        }
        if (shard == 1)
            memcpy(first, found, sizeof first);
        for (int i = 0; i < 1 + 2 * TENSORS; i++)
            wrong += !(found[i] > 0) || found[i] != first[i];
    }
    for (int i = 0; i < TENSORS; i++)
        adapting[i]->adapts = false;
    device->backend->release_pinned(device, params);
    assert_int_equal(all_wrong(wrong), 0);
}

static void fill_with_nan(const struct flat_buffer *buffer)
{
    for (int64_t i = 0; i < buffer->padded; i++)
        buffer->whole_gradient[i] = NAN;
}

/* Counts the wrong elements of an opened gradient in memory that contained NaN. Expected: zeros in
 * a pass without samples; else NaN where an operation writes, and zeros elsewhere. */
static int64_t opened_wrong(const struct flat_buffer *buffer, bool samples)
{
    int64_t wrong = buffer->overwrites != samples;
    for (int64_t i = 0; i < buffer->padded; i++) {
        bool written = false;
        for (int t = 0; t < buffer->unit->tensor_count; t++) {
            const struct unit_tensor *tensor = &buffer->unit->tensors[t];
            written |=
                tensor->trainable && i >= tensor->offset && i < tensor->offset + tensor->count;
        }
        wrong += written && samples ? !isnan(buffer->whole_gradient[i])
                                    : !(buffer->whole_gradient[i] == 0);
    }
    return wrong;
}

/* Two passes. If whole gradients stay, the second pass adds. All memory contains NaN before a
 * gradient is opened. */
static int64_t overwriting_wrong(int shard, enum flat_policy policy, bool samples)
{
    int64_t wrong = 0;
    FLAT(fixture, shard, policy, TYPE_FP32);
    bool stays = !fixture.flat.gradients_in_slots;
    for (int u = 0; u < UNITS && stays; u++)
        fill_with_nan(&fixture.flat.buffers[u]);
    flat_begin_gradients(&fixture.flat);
    for (int pass = 0; pass < 2; pass++)
        for (int u = UNITS - 1; u >= 0; u--) {
            const struct flat_buffer *buffer = &fixture.flat.buffers[u];
            flat_gradient_open(&fixture.flat, u, samples);
            queue_wait();
            wrong += stays && pass == 1 ? buffer->overwrites : opened_wrong(buffer, samples);
            fill_with_nan(buffer);
            flat_gradient_close(&fixture.flat, u, pass == 1);
        }
    flat_reduce_wait(&fixture.flat);
    return wrong;
}

TEST(the_first_pass_overwrites_gradients)
{
    int64_t wrong = 0;
    for (int shard = 1; shard > 0; shard = next_shard(shard))
        for (int policy = KEEP_ALL; policy < policies(); policy++)
            for (int samples = 0; samples < 2; samples++)
                wrong += overwriting_wrong(shard, (enum flat_policy)policy, samples);
    assert_int_equal(all_wrong(wrong), 0);
}

/* As in PyTorch: r = 0.9 r + 0.1 s for each micro-batch. The weights sum to 1 also if some
 * micro-batches have no samples. */
TEST(running_statistics_weigh_one)
{
    for (int64_t accumulate = 1; accumulate <= 8; accumulate++)
        for (int64_t pieces = 1; pieces <= accumulate; pieces++) {
            double all = pow(0.9, (double)accumulate);
            for (int64_t micro = 0; micro < accumulate; micro++) {
                double weight = flat_running_weight(accumulate, pieces, micro);
                assert_true(micro < pieces ? weight > 0 : weight == 0);
                if (pieces == accumulate)
                    assert_true(fabs(weight - 0.1 * pow(0.9, (double)(pieces - 1 - micro))) <
                                1e-15);
                all += weight;
            }
            assert_true(fabs(all - 1) < 1e-14);
        }
}

TEST(a_flipped_bit_is_found_and_named)
{
    int wrong = 0;
    for (int shard = 1; shard > 0; shard = next_shard(shard)) {
        error_clear(&error);
        FLAT(fixture, shard, KEEP_ALL, TYPE_FP32);
        wrong += !flat_check_same(&fixture.flat, &error);
        struct flat_buffer *buffer = &fixture.flat.buffers[1];
        int64_t begin, end;
        bool last = world->rank == world->size - 1;
        if (last && flat_tensor_part(buffer, &block[2], &begin, &end))
            ((uint32_t *)(void *)buffer->master)[end - 1] ^= 1;
        bool same = flat_check_same(&fixture.flat, &error);
        char expected[64];
        snprintf(expected, sizeof expected, "rank %d holds other bits in qkv.weight",
                 world->size - 1);
        if (fixture.mesh.replica->size > 1)
            wrong += same || strstr(error.text, expected) == NULL;
        else
            wrong += !same;
    }
    assert_int_equal(all_wrong(wrong), 0);
}

TEST(a_hash_depends_on_the_values_only)
{
    uint64_t first[2 * UNITS], hash[2 * UNITS], changed[2 * UNITS];
    int wrong = 0;
    for (int shard = 1; shard > 0; shard = next_shard(shard)) {
        FLAT(fixture, shard, KEEP_ALL, TYPE_FP32);
        for (int u = 0; u < UNITS; u++) {
            struct flat_buffer *buffer = &fixture.flat.buffers[u];
            for (int64_t i = 0; i < buffer->shard_count; i++) {
                int64_t index = buffer->shard_begin + i;
                buffer->moment1[i] = (float)index;
                if (index >= units[u].count) /* padding */
                    buffer->master[i] = buffer->moment1[i] = (float)shard;
            }
        }
        flat_hash(&fixture.flat, hash);
        if (shard == 1)
            memcpy(first, hash, sizeof first);
        wrong += memcmp(first, hash, sizeof first) != 0;
        /* Two values of a unit change places, on all ranks that hold them. */
        struct flat_buffer *buffer = &fixture.flat.buffers[1];
        int64_t begin, end;
        if (flat_tensor_part(buffer, &block[2], &begin, &end) && end - begin > 1) {
            float value = buffer->master[begin];
            buffer->master[begin] = buffer->master[begin + 1];
            buffer->master[begin + 1] = value;
        }
        flat_hash(&fixture.flat, changed);
        for (int u = 0; u < 2 * UNITS; u++)
            wrong += (changed[u] != hash[u]) != (u == 1);
        /* A weight and a moment with the same bits have different hashes. */
        wrong += hash[0] == hash[UNITS];
    }
    assert_int_equal(all_wrong(wrong), 0);
}

TEST(values_that_are_not_finite_are_named)
{
    char text[TENSOR_NAME + 32];
    FLAT(fixture, 1, KEEP_ALL, TYPE_FP32);
    assert_false(flat_find_nonfinite(&fixture.flat, true, text, sizeof text));
    assert_false(flat_find_nonfinite(&fixture.flat, false, text, sizeof text));
    flat_gradient(&fixture.flat, 1, 0)[3] = INFINITY;
    flat_gradient(&fixture.flat, 1, 2)[1002] = NAN;
    assert_true(flat_find_nonfinite(&fixture.flat, true, text, sizeof text));
    assert_string_equal(text, "qkv.weight[1002]");
    fixture.flat.buffers[0].master[stem[1].offset] = NAN;
    fixture.flat.buffers[1].master[2] = NAN;
    assert_true(flat_find_nonfinite(&fixture.flat, false, text, sizeof text));
    assert_string_equal(text, "pos_embed[0]");
}

TEST(averages_and_masters_change_places)
{
    int wrong = 0;
    for (int type = TYPE_FP32; type <= TYPE_FP16; type++) {
        FLAT(fixture, world->size, KEEP_NOTHING, (enum data_type)type);
        for (int u = 0; u < UNITS; u++)
            for (int64_t i = 0; i < fixture.flat.buffers[u].shard_count; i++)
                fixture.flat.buffers[u].average[i] += 1;
        flat_swap_average(&fixture.flat);
        wrong += gathered_wrong(&fixture, 1, 1);
        flat_swap_average(&fixture.flat);
        wrong += gathered_wrong(&fixture, 1, 0);
    }
    assert_int_equal(all_wrong(wrong), 0);
}

/* A rank stores 1/N of all units, and two whole units with their gradients. */
TEST(sharded_memory_is_a_part_and_two_units)
{
    FLAT(fixture, world->size, KEEP_NOTHING, TYPE_FP32);
    size_t parts = 0, slots = 0;
    for (int u = 0; u < UNITS; u++)
        parts += (size_t)fixture.flat.buffers[u].shard_count * sizeof(float);
    /* The stem uses the head's slot. One rank needs no slots. */
    for (int u = world->size > 1 ? 1 : UNITS; u < UNITS; u++)
        slots += (size_t)fixture.flat.buffers[u].padded * sizeof(float);
    const size_t *by_class = fixture.arena.by_class, slack = (size_t)16 * ARENA_ALIGNMENT;
    assert_in_range(by_class[MEMORY_WEIGHTS], parts, parts + slack);
    assert_in_range(by_class[MEMORY_GRADIENTS], parts, parts + slack);
    assert_in_range(by_class[MEMORY_OPTIMIZER], 3 * parts, 3 * parts + slack);
    assert_in_range(by_class[MEMORY_GATHERED], 2 * slots, 2 * slots + slack);
}

TEST_MAIN_WORLD(.setup = device_begin, .teardown = flat_device_close)
