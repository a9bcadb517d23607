// SPDX-License-Identifier: BSD-3-Clause
// devices: cpu gpu
/* The optimizers against torch.optim (test/vectors/make_device.py), and related operations on flat
 * buffers: clipping, loss scale, segments, moving average, compute copy. */
#include "device/exact_sum.h"
#include "device_test.h"
#include "vector_file.h"

/* beta2: alpha of RMSprop. */
struct update_case {
    const char *name;
    enum update_rule rule;
    double rate, beta1, momentum, beta2, epsilon;
    float decay;
    double max_norm, trust;
    bool nesterov, trust_clip, moment1, moment2;
};

/* As in make_device.py. Those with trust_clip have always_adapt. */
static const struct update_case cases[] = {
    {"sgd", UPDATE_SGD, 0.1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"sgd_decay", UPDATE_SGD, 0.1, 0, 0, 0, 0, 0.05f, 0, 0, 0, 0, 0, 0},
    {"sgd_momentum", UPDATE_SGD, 0.05, 0, 0.9, 0, 0, 0.01f, 0, 0, 0, 0, 1, 0},
    {"sgd_nesterov", UPDATE_SGD, 0.05, 0, 0.8, 0, 0, 0.01f, 1.5, 0, 1, 0, 1, 0},
    {"adam", UPDATE_ADAM, 0.01, 0.9, 0, 0.999, 1e-8, 0, 0, 0, 0, 0, 1, 1},
    {"adam_decay", UPDATE_ADAM, 0.02, 0.8, 0, 0.95, 1e-3, 0.1f, 2, 0, 0, 0, 1, 1},
    {"adamw", UPDATE_ADAMW, 0.01, 0.9, 0, 0.999, 1e-8, 0.05f, 1, 0, 0, 0, 1, 1},
    {"adamw_other", UPDATE_ADAMW, 0.1, 0.5, 0, 0.9, 1e-6, 0.3f, 0, 0, 0, 0, 1, 1},
    {"rmsprop", UPDATE_RMSPROP, 0.01, 0, 0, 0.99, 1e-8, 0, 0, 0, 0, 0, 0, 1},
    {"rmsprop_momentum", UPDATE_RMSPROP, 0.01, 0, 0.9, 0.9, 1e-5, 0.1f, 3, 0, 0, 0, 1, 1},
    {"lion", UPDATE_LION, 0.01, 0.9, 0, 0.99, 0, 0, 0, 0, 0, 0, 1, 0},
    {"lion_decay", UPDATE_LION, 0.02, 0.8, 0, 0.95, 0, 0.3f, 2, 0, 0, 0, 1, 0},
    {"lamb", UPDATE_LAMB, 0.02, 0.9, 0, 0.999, 1e-6, 0.1f, 0, 1, 0, 0, 1, 1},
    {"lamb_clip", UPDATE_LAMB, 0.1, 0.8, 0, 0.95, 1e-3, 0.3f, 2, 1, 0, 1, 1, 1},
    {"lars", UPDATE_LARS, 0.5, 0, 0, 0, 1e-8, 0.1f, 0, 0.001, 0, 0, 0, 0},
    {"lars_momentum", UPDATE_LARS, 5, 0, 0.9, 0, 1e-8, 0.05f, 1.5, 0.01, 0, 0, 1, 0},
    {"lars_clip", UPDATE_LARS, 0.05, 0, 0.8, 0, 1e-2, 0.1f, 0, 0.03, 1, 1, 1, 0},
};

enum { CASES = sizeof cases / sizeof cases[0], STEPS = 5, FIRST = 21, COUNT = 45, GAP = 3 };

/* The two parameter groups with padding in between: FIRST elements, GAP, the rest, GAP. */
enum { PADDED = COUNT + 2 * GAP };

static int padded_index(int i)
{
    return i < FIRST ? i : i + GAP;
}

/* values: a tensor. */
static double norm_squared_of(struct device_test *test, const float *values, int64_t count)
{
    const struct device_backend *backend = test->device->backend;
    struct exact_sum *sum = device_test_zeros(test, TYPE_FP32, sizeof *sum / sizeof(float));
    double *value = device_test_number(test, 0);
    backend->sum_squares(test->stream, values, count, sum);
    backend->sum_value(test->stream, sum, value);
    device_test_wait(test);
    return *value;
}

/* Memory of the norms of two tensors, in floats. */
enum { NORM_FLOATS = 2 * sizeof(struct tensor_norms) / sizeof(float) };

/* The first call of rules that need norms; with the others it changes nothing. */
static void measure(const struct device_test *test, struct update args)
{
    const struct device_backend *backend = test->device->backend;
    backend->zero(test->stream, args.norms, NORM_FLOATS * sizeof(float));
    args.measure = true;
    backend->update(test->stream, &args);
}

static void check_optimizer(const struct update_case *it, const struct vector_file *file)
{
    DEVICE_TEST(test, 2);
    const float *start = vector_file_floats(file, "start", NULL);
    const float *gradients = vector_file_floats(file, "gradients", NULL);
    const double *expected = vector_file_doubles(file, it->name, NULL);
    bool adapts = it->rule == UPDATE_LAMB || it->rule == UPDATE_LARS;
    const struct update_segment segments[] = {
        {.begin = 0,
         .end = FIRST,
         .weight_decay = it->decay,
         .rate_scale = 1,
         .adapts = adapts,
         .tensor = 1},
        {.begin = FIRST + GAP, .end = COUNT + GAP, .rate_scale = 0.5f, .adapts = it->trust_clip}};
    float *weights = device_test_zeros(&test, TYPE_FP32, PADDED);
    float *gradient = device_test_random(&test, TYPE_FP32, PADDED, 1, 1);
    double average[COUNT], *norm_squared = device_test_number(&test, 0);
    struct step_params *params = device_test_params(&test, 0, 0, it->rate, 0);
    params->beta1 = it->beta1;
    params->momentum = it->momentum;
    const struct update args = DEVICE_ARGS(
        update, .rule = it->rule, .beta2 = it->beta2, .alpha = it->beta2, .epsilon = it->epsilon,
        .max_norm = it->max_norm, .trust = it->trust, .trust_clip = it->trust_clip,
        .nesterov = it->nesterov, .params = params, .count = PADDED, .weights = weights,
        .gradient = gradient,
        .moment1 = it->moment1 ? device_test_zeros(&test, TYPE_FP32, PADDED) : NULL,
        .moment2 = it->moment2 ? device_test_zeros(&test, TYPE_FP32, PADDED) : NULL,
        .average = device_test_zeros(&test, TYPE_FP32, PADDED),
        .copy = device_test_zeros(&test, TYPE_BF16, PADDED), .copy_type = TYPE_BF16,
        .segments = segments, .segment_count = 2, .average_decay = 0.75,
        .norm_squared = norm_squared, .norms = device_test_zeros(&test, TYPE_FP32, NORM_FLOATS));
    for (int i = 0; i < COUNT; i++)
        weights[padded_index(i)] = args.average[padded_index(i)] = start[i];
    for (int i = 0; i < COUNT; i++)
        average[i] = (double)start[i];
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < COUNT; i++)
            gradient[padded_index(i)] = gradients[step * COUNT + i];
        *norm_squared = norm_squared_of(
            &test, device_test_copy(&test, TYPE_FP32, gradients + step * COUNT, COUNT), COUNT);
        params->update = step + 1;
        measure(&test, args);
        DEVICE_QUEUE(&test, update, &args);
        device_test_wait(&test);
        for (int i = 0; i < COUNT; i++) {
            const double truth = expected[step * COUNT + i];
            average[i] = 0.75 * average[i] + 0.25 * truth;
            assert_true(fabs((double)weights[padded_index(i)] - truth) <= 1e-6 * (1 + fabs(truth)));
            assert_true(fabs((double)args.average[padded_index(i)] - average[i]) <= 2e-6);
        }
    }
    uint16_t *copy = device_test_zeros(&test, TYPE_BF16, PADDED);
    test.device->backend->convert(test.stream, TYPE_BF16, copy, TYPE_FP32, weights, PADDED);
    device_test_wait(&test);
    device_test_same("copy", TYPE_BF16, args.copy, copy, PADDED);
    for (int i = 0; i < GAP; i++)
        assert_true(weights[FIRST + i] == 0 && weights[COUNT + GAP + i] == 0);
}

TEST_KERNELS(optimizers_are_pytorchs)
{
    VECTOR_FILE(file, "device_update.safetensors");
    for (int i = 0; i < CASES; i++)
        check_optimizer(&cases[i], file);
}

/* Memory of an AdamW update of `count` elements with a copy in this type. */
static struct update adamw_of(struct device_test *test, int64_t count, enum data_type copy_type)
{
    struct step_params *params = device_test_params(test, 0, 0, 0.01, 3);
    params->beta1 = 0.9;
    return DEVICE_ARGS(update, .rule = UPDATE_ADAMW, .count = count,
                       .weights = device_test_random(test, TYPE_FP32, count, 1, 1),
                       .gradient = device_test_random(test, TYPE_FP32, count, 1, 2),
                       .moment1 = device_test_random(test, TYPE_FP32, count, 0.1, 3),
                       .moment2 = device_test_zeros(test, TYPE_FP32, count),
                       .average = device_test_random(test, TYPE_FP32, count, 1, 4),
                       .copy = device_test_zeros(test, copy_type, count), .copy_type = copy_type,
                       .params = params, .beta2 = 0.99, .epsilon = 1e-8, .average_decay = 0.9);
}

/* Wait and compare everything that an update writes. */
static void check_equal(struct device_test *test, const struct update *a, const struct update *b)
{
    device_test_wait(test);
    device_test_same("weights", TYPE_FP32, a->weights, b->weights, a->count);
    device_test_same("moment1", TYPE_FP32, a->moment1, b->moment1, a->count);
    device_test_same("moment2", TYPE_FP32, a->moment2, b->moment2, a->count);
    device_test_same("average", TYPE_FP32, a->average, b->average, a->count);
    device_test_same("copy", a->copy_type, a->copy, b->copy, a->count);
}

/* Everything is as adamw_of initialised it. */
static void check_unchanged(struct device_test *test, const struct update *args)
{
    const struct update fresh = adamw_of(test, args->count, args->copy_type);
    check_equal(test, args, &fresh);
}

/* The sums of squares of LAMB's and LARS's weights and directions, of segments that need several
 * blocks. optimizers_are_pytorchs checks the values of the directions. */
static void check_norms(enum update_rule rule, double norm_squared)
{
    enum { MANY = 50003, TENSORS = 2 };
    const struct update_segment segments[] = {
        {.begin = 1, .end = 40001, .weight_decay = 0.5f, .rate_scale = 1, .adapts = true},
        {.begin = 40008, .end = 40010, .rate_scale = 1},
        {.begin = 40016,
         .end = MANY,
         .weight_decay = 0.5f,
         .rate_scale = 1,
         .adapts = true,
         .tensor = 1}};
    /* The last segment as on two ranks. */
    struct update_segment parts[] = {segments[0], segments[1], segments[2], segments[2]};
    parts[2].end = parts[3].begin = 40016 + 16 * 101;
    DEVICE_TEST(one, 1);
    DEVICE_TEST(three, 3);
    struct update a = adamw_of(&one, MANY, TYPE_BF16), b = adamw_of(&three, MANY, TYPE_BF16);
    a.rule = b.rule = rule;
    a.segments = segments;
    a.segment_count = 3;
    b.segments = parts;
    b.segment_count = 4;
    a.max_norm = b.max_norm = 2;
    a.norm_squared = device_test_number(&one, norm_squared);
    b.norm_squared = device_test_number(&three, norm_squared);
    a.norms = device_test_zeros(&one, TYPE_FP32, NORM_FLOATS);
    b.norms = device_test_zeros(&three, TYPE_FP32, NORM_FLOATS);
    measure(&one, a);
    measure(&three, b);
    device_test_wait(&one);
    device_test_wait(&three);
    for (int tensor = 0; tensor < TENSORS; tensor++) {
        const struct update_segment *segment = &segments[2 * tensor];
        const int64_t count = isfinite(norm_squared) ? segment->end - segment->begin : 0;
        const double sum = exact_sum_value(&a.norms[tensor].weights);
        const double squares = norm_squared_of(&one, a.weights + segment->begin, count);
        assert_true(fabs(sum - squares) <= 1e-9 * squares);
        assert_true(exact_sum_value(&b.norms[tensor].weights) == sum);
        assert_true(exact_sum_value(&b.norms[tensor].direction) ==
                    exact_sum_value(&a.norms[tensor].direction));
    }
    check_unchanged(&one, &a);
}

TEST_KERNELS(norms_are_sums_of_squares)
{
    check_norms(UPDATE_LAMB, 16);
    check_norms(UPDATE_LARS, 16);
    check_norms(UPDATE_LAMB, INFINITY);
}

/* Segments of any length and position, more than one launch of a kernel handles: the same result as
 * if each were updated alone, with another number of threads; elements between them do not change.
 */
TEST(segments_are_updated_each_for_itself)
{
    enum { SEGMENTS = 150, ELEMENTS = 92000 };
    struct update_segment segments[SEGMENTS];
    DEVICE_TEST(test, 1);
    DEVICE_TEST(other, 3);
    int64_t end = 3;
    for (int i = 0; i < SEGMENTS; i++) {
        const int64_t begin = end + i % 3, length = i == 70 ? 89001 : i * 7 % 29;
        segments[i] = (struct update_segment){.begin = begin,
                                              .end = begin + length,
                                              .weight_decay = (float)i / 100,
                                              .rate_scale = i % 10 == 9 ? 0 : 1 / (1 + (float)i)};
        end = begin + length;
    }
    assert_true(end <= ELEMENTS);
    struct update all = adamw_of(&other, ELEMENTS, TYPE_BF16);
    struct update each = adamw_of(&test, ELEMENTS, TYPE_BF16);
    all.segments = segments;
    all.segment_count = SEGMENTS;
    DEVICE_QUEUE(&other, update, &all);
    device_test_wait(&other);
    each.segment_count = 1;
    for (int i = 0; i < SEGMENTS; i++) {
        each.segments = &segments[i];
        DEVICE_QUEUE(&test, update, &each);
    }
    check_equal(&test, &all, &each);
    for (int i = 0, s = 0; i < ELEMENTS; i++) {
        while (s < SEGMENTS && segments[s].end <= i)
            s++;
        bool inside = s < SEGMENTS && segments[s].begin <= i && segments[s].rate_scale != 0;
        assert_true((all.moment2[i] != 0) == inside); /* it was 0 */
    }
}

/* Buffer `number` of the chain below, cut from `all`; some are not aligned. */
static struct update chain_part(const struct update *all, int number, int64_t count)
{
    static const struct update_segment segments[] = {
        {.begin = 1, .end = 30, .weight_decay = 0.1f, .rate_scale = 1},
        {.begin = 30, .end = 31, .rate_scale = 1},
        {.begin = 40, .end = 60, .rate_scale = 0},
        {.begin = 60, .end = 70, .rate_scale = 0.5f},
        {.begin = 70, .end = 80, .rate_scale = 1, .running = true, .keep = 0.5f}};
    const int64_t skipped = number * (count + 8) + number % 2;
    struct update part = *all;
    part.count = count;
    part.weights += skipped;
    part.gradient += skipped;
    part.moment1 += skipped;
    part.moment2 += skipped;
    part.average += skipped;
    part.copy = (uint16_t *)part.copy + skipped + number / 2 % 2;
    part.segments = segments + number % 2;
    part.segment_count = number == 4 ? 0 : 4;
    return part;
}

/* One call for a chain of buffers, more than one launch of a kernel handles: the same result as one
 * call each. */
TEST(chained_buffers_are_updated_like_single_ones)
{
    enum { CHAIN = 23, EACH = 88, ELEMENTS = CHAIN * (EACH + 8) };
    struct update chain[CHAIN];
    DEVICE_TEST(test, 1);
    const struct update together = adamw_of(&test, ELEMENTS, TYPE_BF16);
    const struct update single = adamw_of(&test, ELEMENTS, TYPE_BF16);
    for (int i = 0; i < CHAIN; i++) {
        const struct update part = chain_part(&single, i, EACH);
        chain[i] = chain_part(&together, i, EACH);
        chain[i].next = i + 1 < CHAIN ? &chain[i + 1] : NULL;
        DEVICE_QUEUE(&test, update, &part);
    }
    test.device->backend->update(test.stream, chain);
    check_equal(&test, &together, &single);
    for (int i = 0; i < CHAIN; i++)
        assert_true((chain[i].moment2[65] != 0) == (i != 4)); /* it was 0 */
}

/* A norm that is not finite, frozen and empty segments, and no elements. */
TEST(some_updates_change_nothing)
{
    enum { ALL = 100 };
    static const struct {
        double norm_squared, max_norm;
        float rate_scale;
        int64_t end, count;
    } idle[] = {{INFINITY, 0, 1, ALL, ALL},
                {INFINITY, 1, 1, ALL, ALL},
                {NAN, 0, 1, ALL, ALL},
                {NAN, 1, 1, ALL, ALL},
                {1, 0, 0, 60, ALL},
                {1, 0, 1, 0, ALL},
                {1, 0, 1, 0, 0}};
    for (size_t i = 0; i < sizeof idle / sizeof idle[0]; i++) {
        DEVICE_TEST(test, 1);
        struct update args = adamw_of(&test, ALL, TYPE_BF16);
        const struct update_segment segment = {
            .end = idle[i].end, .weight_decay = 0.1f, .rate_scale = idle[i].rate_scale};
        args.segments = &segment;
        args.segment_count = 1;
        args.norm_squared = device_test_number(&test, idle[i].norm_squared);
        args.max_norm = idle[i].max_norm;
        args.count = idle[i].count;
        DEVICE_QUEUE(&test, update, &args);
        args.count = ALL;
        check_unchanged(&test, &args);
    }
}

/* A scaler in device memory. */
static struct loss_scaler *scaler_of(struct device_test *test, struct loss_scaler scaler)
{
    return device_test_copy(test, TYPE_FP32, &scaler, sizeof scaler / sizeof(float));
}

/* Running statistics between two segments that are optimised: neither clipped nor scaled, without
 * decay and moments; average and copy are updated. */
TEST(running_statistics_follow)
{
    enum { FROM = 21, TO = 60, ALL = 83 };
    const struct update_segment segments[] = {
        {.begin = 0, .end = FROM, .weight_decay = 0.1f, .rate_scale = 1},
        {.begin = FROM, .end = TO, .rate_scale = 1, .running = true, .keep = 0.75f},
        {.begin = TO, .end = ALL, .rate_scale = 1}};
    DEVICE_TEST(test, 2);
    struct update args = adamw_of(&test, ALL, TYPE_BF16), before = adamw_of(&test, ALL, TYPE_BF16);
    args.segments = segments;
    args.segment_count = 3;
    args.norm_squared = device_test_number(&test, 1e12);
    args.max_norm = 1;
    args.scaler = scaler_of(&test, (struct loss_scaler){.scale = 1024});
    DEVICE_QUEUE(&test, update, &args);
    device_test_wait(&test);
    const uint16_t *copy = args.copy;
    for (int i = FROM; i < TO; i++) {
        double expected = 0.75 * (double)before.weights[i] + (double)args.gradient[i];
        double average = (double)before.average[i];
        average += (expected - average) * (1 - args.average_decay);
        assert_true(fabs((double)args.weights[i] - expected) <= 1e-6);
        assert_true(fabs((double)args.average[i] - average) <= 1e-6);
        assert_true(fabs((double)from_bf16(copy[i]) - expected) <= fabs(expected) / 256);
        assert_float_equal(args.moment1[i], before.moment1[i], 0);
        assert_float_equal(args.moment2[i], 0, 0);
    }
    assert_true(args.moment1[TO] != before.moment1[TO]);
    before.segments = segments;
    before.segment_count = 3;
    before.norm_squared = device_test_number(&test, INFINITY);
    DEVICE_QUEUE(&test, update, &before);
    check_unchanged(&test, &before);
}

/* The loss scale is divided out exactly, so it affects neither clipping nor the number of Adam's
 * updates. If half of the samples are in the loss, the gradient is twice as large; it is unchanged
 * if none is. */
TEST(factors_of_the_gradient_are_divided_out)
{
    enum { ELEMENTS = 1001 };
    static const struct {
        float factor;   /* of the gradient */
        bool scales;    /* by a loss scale */
        double counted; /* of 16 samples, without a loss scale */
    } factors[] = {
        {65536, true, 0}, {0x1p-24f, true, 0}, {1, true, 0}, {0.5f, false, 8}, {1, false, 0}};
    const struct update_segment segment = {.end = ELEMENTS, .weight_decay = 0.1f, .rate_scale = 1};
    for (int i = 0; i < 10; i++) {
        DEVICE_TEST(test, 1);
        const float factor = factors[i / 2].factor;
        struct update plain = adamw_of(&test, ELEMENTS, TYPE_FP16);
        struct update other = adamw_of(&test, ELEMENTS, TYPE_FP16);
        float *gradient = device_test_random(&test, TYPE_FP32, ELEMENTS, 1, 2);
        struct step_params *params = device_test_params(&test, 0, 0, 0.01, 3);
        params->beta1 = 0.9;
        params->samples = 16;
        for (int j = 0; j < ELEMENTS; j++)
            gradient[j] *= factor;
        plain.segments = other.segments = &segment;
        plain.segment_count = other.segment_count = 1;
        plain.max_norm = other.max_norm = i % 2 == 0 ? 0 : 0.7;
        plain.norm_squared = device_test_number(&test, 9);
        other.norm_squared = device_test_number(&test, 9 * (double)factor * (double)factor);
        other.gradient = gradient;
        other.params = params;
        if (factors[i / 2].scales) {
            params->update += 4;
            other.scaler = scaler_of(&test, (struct loss_scaler){factor, 0, 4});
        } else {
            other.counted = device_test_number(&test, factors[i / 2].counted);
        }
        DEVICE_QUEUE(&test, update, &plain);
        DEVICE_QUEUE(&test, update, &other);
        check_equal(&test, &other, &plain);
    }
}

/* Return the scaler after `steps` updates with this norm. */
static void check_scaler(struct device_test *test, struct loss_scaler *scaler, int steps,
                         double norm_squared, struct loss_scaler expected)
{
    const double *norm = device_test_number(test, norm_squared);
    for (int i = 0; i < steps; i++)
        test->device->backend->scaler_update(test->stream, scaler, norm);
    device_test_wait(test);
    assert_true(scaler->scale == expected.scale);
    assert_int_equal(scaler->good_steps, expected.good_steps);
    assert_int_equal(scaler->skipped, expected.skipped);
}

/* Halved if the norm is not finite, doubled after 2000 consecutive good steps, within bounds. */
TEST(the_scale_follows_the_norms)
{
    DEVICE_TEST(test, 1);
    struct loss_scaler *scaler = scaler_of(&test, (struct loss_scaler){65536, 0, 0});
    check_scaler(&test, scaler, 1999, 1e300, (struct loss_scaler){65536, 1999, 0});
    check_scaler(&test, scaler, 1, INFINITY, (struct loss_scaler){32768, 0, 1});
    check_scaler(&test, scaler, 1, NAN, (struct loss_scaler){16384, 0, 2});
    check_scaler(&test, scaler, 2000, 1e300, (struct loss_scaler){32768, 0, 2});
    *scaler = (struct loss_scaler){LOSS_SCALE_LEAST, 5, 7};
    check_scaler(&test, scaler, 1, NAN, (struct loss_scaler){LOSS_SCALE_LEAST, 0, 8});
    *scaler = (struct loss_scaler){LOSS_SCALE_MOST, 1999, 7};
    check_scaler(&test, scaler, 1, 1e300, (struct loss_scaler){LOSS_SCALE_MOST, 0, 7});
}

/* Only the CPU checks the parameters when the update is queued. */
TEST_ENDS(momentum_without_a_buffer_ends, "without moment1")
{
    struct step_params *params = device_test_params(test, 0, 0, 1, 1);
    params->momentum = 0.9;
    DEVICE_RUN(test, update, .rule = UPDATE_SGD, .params = params);
}

/* Muon's first call on a segment that is a matrix and on one that is not, and its second call. */
static void check_muon(enum data_type type, bool nesterov)
{
    enum { MATRIX = 37, REST = 20, ELEMENTS = MATRIX + REST };
    const struct update_segment segments[] = {
        {.begin = 0, .end = MATRIX, .weight_decay = 0.1f, .rate_scale = 0.5f, .matrix = true},
        {.begin = MATRIX, .end = ELEMENTS, .weight_decay = 0.1f, .rate_scale = 1}};
    const enum data_type directions = direction_type(type);
    DEVICE_TEST(test, 1);
    double *norm_squared = device_test_number(&test, 16);
    struct update muon = adamw_of(&test, ELEMENTS, type), adamw = adamw_of(&test, ELEMENTS, type);
    const double *weights_given = device_test_given(&test, muon.weights);
    const double *moment_given = device_test_given(&test, muon.moment1);
    const double *average_given = device_test_given(&test, muon.average);
    float *zeros = device_test_zeros(&test, TYPE_FP32, ELEMENTS);
    float *direction = device_test_zeros(&test, TYPE_FP32, MATRIX);
    float weights[MATRIX], moment[MATRIX];
    muon.rule = UPDATE_MUON;
    muon.direction = device_test_zeros(&test, directions, ELEMENTS);
    muon.segments = segments;
    muon.segment_count = 2;
    muon.nesterov = adamw.nesterov = nesterov;
    muon.norm_squared = adamw.norm_squared = norm_squared;
    muon.max_norm = adamw.max_norm = 2; /* gradients are halved */
    adamw.segments = &segments[1];
    adamw.segment_count = 1;
    ((struct step_params *)(uintptr_t)muon.params)->momentum = 0.75;
    DEVICE_QUEUE(&test, update, &muon);
    DEVICE_QUEUE(&test, update, &adamw);
    test.device->backend->convert(test.stream, TYPE_FP32, direction, directions, muon.direction,
                                  MATRIX);
    device_test_wait(&test);
    for (int i = 0; i < MATRIX; i++) {
        double added = 0.25 * 0.5 * (double)muon.gradient[i];
        double expected = 0.75 * moment_given[i] + added;
        assert_true(fabs((double)muon.moment1[i] - expected) < 1e-6);
        expected = nesterov ? 0.75 * expected + added : expected;
        assert_true(fabs((double)direction[i] - expected) <
                    1e-6 + (directions == TYPE_BF16 ? fabs(expected) / 250 : 0));
    }
    /* All but the matrix is updated as by AdamW; the weights of the matrix are unchanged. */
    device_test_same("weights", TYPE_FP32, muon.weights + MATRIX, adamw.weights + MATRIX, REST);
    device_test_same("moment2", TYPE_FP32, muon.moment2, adamw.moment2, ELEMENTS);
    device_test_same("weights", TYPE_FP32, muon.weights, adamw.weights, MATRIX);
    device_test_same("average", TYPE_FP32, muon.average, adamw.average, ELEMENTS);
    device_test_same("copy", type, muon.copy, adamw.copy, ELEMENTS);
    muon.rule = UPDATE_MUON_APPLY;
    DEVICE_QUEUE(&test, update, &muon);
    device_test_wait(&test);
    for (int i = 0; i < MATRIX; i++) {
        double expected = weights_given[i] * (1 - 0.005 * 0.1) - 0.005 * (double)direction[i];
        assert_true(fabs((double)muon.weights[i] - expected) < 1e-6);
        expected = 0.9 * average_given[i] + 0.1 * expected;
        assert_true(fabs((double)muon.average[i] - expected) < 1e-6);
    }
    device_test_same("weights", TYPE_FP32, muon.weights + MATRIX, adamw.weights + MATRIX, REST);
    device_test_same("moment2", TYPE_FP32, muon.moment2, zeros, MATRIX);
    /* Neither call changes anything if the norm is not finite. */
    memcpy(weights, muon.weights, sizeof weights);
    memcpy(moment, muon.moment1, sizeof moment);
    *norm_squared = INFINITY;
    DEVICE_QUEUE(&test, update, &muon);
    muon.rule = UPDATE_MUON;
    DEVICE_QUEUE(&test, update, &muon);
    device_test_wait(&test);
    assert_memory_equal(weights, muon.weights, sizeof weights);
    assert_memory_equal(moment, muon.moment1, sizeof moment);
}

TEST_KERNELS(muon_updates_matrices_in_two_calls)
{
    for (int i = 0; i < 6; i++)
        check_muon((enum data_type)(i / 2), i % 2 != 0);
}

TEST_MAIN()
