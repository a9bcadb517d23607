// SPDX-License-Identifier: BSD-3-Clause
// devices: cpu gpu
/* Whole models in grains (device/grains.h). Logits and gradients have the same bits in one pass and
 * in several passes, whose gradients are added in the order of base/sum_tree.h. They equal those
 * without grains up to rounding. */
#include "base/sum_tree.h"
#include "device_test.h"
#include "vit_fixture.h"

enum { GRAIN = 8, GRAINS = 4, SAMPLES = 29, PASSES = 3 };

/* Results of the passes over the samples. Each pass is one subtree. */
struct result {
    int64_t count; /* gradients of all parameters */
    float *gradient[PASSES];
    int64_t logit_count;
    float *logits; /* [SAMPLES, classes, output] */
};

static void run_pass(struct vit_fixture *fixture, struct result *result, int pass, int64_t first,
                     int64_t count)
{
    const int64_t classes = model_output_count(fixture->model);

    vit_fixture_poison(fixture);
    vit_fixture_zero(fixture);
    vit_fixture_run(fixture, first, count, 0.1, false);
    OWNED float *logits = vit_fixture_logits(fixture, count);
    memcpy(result->logits + first * classes, logits, (size_t)(count * classes) * sizeof *logits);
    vit_fixture_run(fixture, first, count, 0.1, true);
    result->gradient[pass] = vit_fixture_gradients(fixture, &result->count);
}

static void add(void *context, int into, int from)
{
    const struct result *result = context;

    for (int64_t i = 0; i < result->count; i++)
        result->gradient[into][i] += result->gradient[from][i];
}

/* A ViT, or a small convolutional model of this name. */
struct subject {
    struct vit_shape vit;
    const char *convnet;
};

static void subject_open(struct vit_fixture *fixture, const struct subject *subject,
                         enum data_type type)
{
    if (subject->convnet != NULL) {
        const struct convnet_shape shape = vit_fixture_small_convnet(subject->convnet);
        vit_fixture_open_convnet(fixture, NULL, &shape, type, SAMPLES, "");
    } else {
        vit_fixture_open(fixture, &subject->vit, type, SAMPLES, "");
    }
}

/* Run passes that end at these grains and add their gradients to gradient[0]. */
static struct result run(const struct subject *subject, enum data_type type, int64_t grain,
                         const int *ends)
{
    struct vit_fixture fixture;
    struct result result = {0};
    struct tree_pool pool = {.total = GRAINS};
    int64_t begin = 0;

    vit_fixture_set_grain(grain);
    subject_open(&fixture, subject, type);
    vit_fixture_set_grain(0);
    result.logit_count = SAMPLES * model_output_count(fixture.model);
    result.logits = allocate((size_t)result.logit_count, sizeof *result.logits);
    for (int pass = 0; begin < GRAINS; begin = ends[pass++]) {
        struct subtree parts[TREE_PARTS];
        const int64_t first = begin * GRAIN, end = ends[pass] * GRAIN;
        assert_int_equal(tree_cut(begin, ends[pass], GRAINS, parts), 1);
        run_pass(&fixture, &result, pass, first, (end < SAMPLES ? end : SAMPLES) - first);
        tree_pool_insert(&pool, parts[0], pass, add, &result);
    }
    vit_fixture_close(&fixture);
    return result;
}

static void result_free(struct result *result)
{
    for (int pass = 0; pass < PASSES; pass++)
        free(result->gradient[pass]);
    free(result->logits);
}

static void check_subject(const struct subject *subject, enum data_type type, int layout_count)
{
    static const int layouts[][PASSES] = {{2, 4}, {1, 2, 4}, {2, 3, 4}};
    struct result once = run(subject, type, GRAIN, (const int[]){GRAINS});
    struct result plain = run(subject, type, 0, (const int[]){GRAINS});

    for (int i = 0; i < layout_count; i++) {
        struct result other = run(subject, type, GRAIN, layouts[i]);
        device_test_same("logits", TYPE_FP32, once.logits, other.logits, once.logit_count);
        device_test_same("gradient", TYPE_FP32, once.gradient[0], other.gradient[0], once.count);
        result_free(&other);
    }
    device_test_near_in_norm("gradient", TYPE_FP32, plain.gradient[0], once.gradient[0], once.count,
                             type == TYPE_FP32 ? 1e-5 : 4 * device_test_precision(type));
    result_free(&plain);
    result_free(&once);
}

static void check(struct vit_shape shape, enum data_type type)
{
    const struct subject subject = {.vit = shape};
    check_subject(&subject, type, device_test_cases(3, 1));
}

/* Batch norm needs the sums of all passes. test_exact has several. */
TEST(convolutional_models)
{
    const struct subject plain = {.convnet = "cnn_a"}, batch_norm = {.convnet = "resnet18"};
    for (int type = TYPE_FP32; type < device_test_cases(3, 1); type++)
        check_subject(&plain, (enum data_type)type, device_test_cases(3, 1));
    check_subject(&batch_norm, TYPE_FP32, 0);
}

TEST(models_in_fp32)
{
    for (int i = 0; i < device_test_cases(SHAPE_KINDS, 0); i++)
        check(vit_fixture_shape_of((enum vit_fixture_kind)i, i == SHAPE_MAP ? 1 : 2), TYPE_FP32);
}

TEST(models_in_halves)
{
    static const enum vit_fixture_kind kinds[] = {SHAPE_PARTS, SHAPE_ROTARY, SHAPE_MAP};
    const int count = device_test_cases(3, 1);
    for (int i = 0; i < count; i++)
        check(vit_fixture_shape_of(kinds[i], count == 1 ? 1 : 2), i == 1 ? TYPE_FP16 : TYPE_BF16);
}

TEST_MAIN()
