// SPDX-License-Identifier: BSD-3-Clause
// devices: cpu gpu
/* Attention against double precision: output, log of the sum of exponentials, and gradients of q, k
 * and v, for all types, sizes and instruction sets; bits are identical in each run and for any
 * number of threads. */
#include "device_test.h"
#include "temporary.h"

struct attention_case {
    enum data_type type;
    int64_t batch, tokens, queries, heads, head_dim;
    float dropout;
};

/* The first EMULATED ones are for the emulated GPU: heads in multiples of 8 up to 128, all queries
 * or few. Cases with dropout overwrite the sums of dqkv. */
static const struct attention_case cases[] = {
    {TYPE_FP32, 2, 5, 5, 2, 8, 0},        {TYPE_FP32, 1, 20, 1, 2, 64, 0.1f},
    {TYPE_BF16, 2, 5, 5, 2, 8, 0.3f},     {TYPE_BF16, 1, 50, 50, 1, 128, 0},
    {TYPE_BF16, 1, 65, 65, 1, 64, 0.1f},  {TYPE_BF16, 2, 33, 1, 2, 96, 0.1f},
    {TYPE_FP16, 2, 17, 9, 1, 80, 0.2f},   {TYPE_FP16, 1, 33, 33, 2, 32, 0.1f},
    {TYPE_FP16, 1, 33, 30, 1, 48, 0.1f},  {TYPE_BF16, 1, 197, 197, 1, 64, 0},
    {TYPE_FP16, 2, 50, 50, 2, 64, 0},     {TYPE_BF16, 2, 95, 3, 1, 64, 0},
    {TYPE_FP16, 1, 65, 64, 1, 64, 0},     {TYPE_FP32, 1, 1, 1, 1, 16, 0},
    {TYPE_FP32, 2, 65, 65, 3, 64, 0.1f},  {TYPE_FP32, 1, 197, 197, 1, 72, 0},
    {TYPE_FP32, 1, 50, 50, 2, 128, 0.5f}, {TYPE_FP32, 2, 17, 9, 2, 13, 0.2f},
    {TYPE_FP32, 1, 300, 4, 1, 40, 0.1f},  {TYPE_FP32, 1, 1200, 30, 1, 16, 0},
    {TYPE_BF16, 1, 150, 150, 2, 24, 0},   {TYPE_BF16, 2, 33, 1, 2, 12, 0.1f},
    {TYPE_BF16, 2, 1, 1, 2, 64, 0},       {TYPE_BF16, 1, 197, 197, 1, 64, 0.1f},
    {TYPE_FP16, 1, 65, 1, 2, 48, 0.1f},   {TYPE_BF16, 1, 333, 330, 1, 32, 0.1f},
};

enum { CASES = sizeof cases / sizeof cases[0], EMULATED = 13 };

static int64_t qkv_count(const struct attention_case *it)
{
    return it->batch * it->tokens * 3 * it->heads * it->head_dim;
}

static int64_t out_count(const struct attention_case *it)
{
    return it->batch * it->queries * it->heads * it->head_dim;
}

/* Index of element d of token t of q, k or v (part 0, 1, 2). */
static int64_t qkv_index(const struct attention_case *it, int64_t sample, int64_t t, int part,
                         int64_t head, int64_t d)
{
    return (((sample * it->tokens + t) * 3 + part) * it->heads + head) * it->head_dim + d;
}

static int64_t out_index(const struct attention_case *it, int64_t sample, int64_t i, int64_t head,
                         int64_t d)
{
    return ((sample * it->queries + i) * it->heads + head) * it->head_dim + d;
}

struct attention {
    struct attention_forward forward;
    struct attention_backward backward;
};

static struct attention run(struct device_test *test, const struct attention_case *it)
{
    const bool overwrite = it->dropout > 0;
    const float scale = 1 / sqrtf((float)it->head_dim);
    const void *qkv = device_test_random(test, it->type, qkv_count(it), 2, 1);
    void *out = device_test_zeros(test, it->type, out_count(it));
    float *lse = device_test_zeros(test, TYPE_FP32, it->batch * it->heads * it->queries);
    float *sums = test->device->backend->sums_gradients
                      ? device_test_gradient(test, overwrite, 3 * it->heads * it->head_dim, 4)
                      : NULL;
    const struct dropout dropout = device_test_drops(test, it->dropout, 3);
    const struct attention attention = {
        DEVICE_ARGS(attention_forward, it->type, it->batch, it->tokens, it->queries, it->heads,
                    it->head_dim, scale, qkv, out, lse, dropout),
        DEVICE_ARGS(attention_backward, it->type, it->batch, it->tokens, it->queries, it->heads,
                    it->head_dim, scale, qkv, out,
                    device_test_random(test, it->type, out_count(it), 1, 2), lse,
                    device_test_random(test, it->type, qkv_count(it), 1, 3), sums, overwrite,
                    dropout)};
    DEVICE_QUEUE(test, attention_forward, &attention.forward);
    DEVICE_QUEUE(test, attention_backward, &attention.backward);
    device_test_wait(test);
    return attention;
}

/* One query of one head in double precision; results are stored in the device's layout. */
struct reference {
    const struct attention_case *it;
    const struct dropout *dropout;
    const double *qkv, *dout;
    double *out, *dqkv, *lse;
    double *probability, *factor, *slope; /* of one query, indexed by token */
};

static double qkv_value(const struct reference *reference, int64_t sample, int64_t t, int part,
                        int64_t head, int64_t d)
{
    return reference->qkv[qkv_index(reference->it, sample, t, part, head, d)];
}

static void reference_forward(struct reference *reference, int64_t sample, int64_t head, int64_t i)
{
    const struct attention_case *it = reference->it;
    const int64_t row = (head * it->queries + i) * ((it->tokens + 7) / 8 * 8);
    double *p = reference->probability, sum = 0, most = -INFINITY;
    for (int64_t j = 0; j < it->tokens; j++) {
        p[j] = 0;
        for (int64_t d = 0; d < it->head_dim; d++)
            p[j] += qkv_value(reference, sample, i, 0, head, d) *
                    qkv_value(reference, sample, j, 1, head, d) / sqrt((double)it->head_dim);
        most = fmax(most, p[j]);
    }
    for (int64_t j = 0; j < it->tokens; j++)
        sum += p[j] = exp(p[j] - most);
    reference->lse[(sample * it->heads + head) * it->queries + i] = most + log(sum);
    for (int64_t j = 0; j < it->tokens; j++) {
        p[j] /= sum;
        reference->factor[j] = device_test_dropout(reference->dropout, sample, row + j);
        for (int64_t d = 0; d < it->head_dim; d++)
            reference->out[out_index(it, sample, i, head, d)] +=
                p[j] * reference->factor[j] * qkv_value(reference, sample, j, 2, head, d);
    }
}

static void reference_backward(struct reference *reference, int64_t sample, int64_t head, int64_t i)
{
    const struct attention_case *it = reference->it;
    const double *p = reference->probability, *factor = reference->factor;
    const double scale = 1 / sqrt((double)it->head_dim);
    double mean = 0;
    for (int64_t j = 0; j < it->tokens; j++) {
        reference->slope[j] = 0;
        for (int64_t d = 0; d < it->head_dim; d++) {
            const double dout = reference->dout[out_index(it, sample, i, head, d)];
            reference->slope[j] += factor[j] * dout * qkv_value(reference, sample, j, 2, head, d);
            reference->dqkv[qkv_index(it, sample, j, 2, head, d)] += p[j] * factor[j] * dout;
        }
        mean += p[j] * reference->slope[j];
    }
    for (int64_t j = 0; j < it->tokens; j++)
        for (int64_t d = 0; d < it->head_dim; d++) {
            const double slope = p[j] * (reference->slope[j] - mean) * scale;
            reference->dqkv[qkv_index(it, sample, i, 0, head, d)] +=
                slope * qkv_value(reference, sample, j, 1, head, d);
            reference->dqkv[qkv_index(it, sample, j, 1, head, d)] +=
                slope * qkv_value(reference, sample, i, 0, head, d);
        }
}

/* Tensor cores use probabilities and softmax gradients rounded to the type. One element may be off
 * by the rounding of the largest term of its sum, but the error over all elements is about one
 * rounding. */
static void check_all(struct device_test *test, const char *what, const struct attention_case *it,
                      const void *tensor, const double *expected, int64_t count)
{
    const double precision = device_test_precision(it->type);
    const double *found = device_test_values(test, tensor);
    double errors = 0, squares = 0;
    device_test_near(test, what, tensor, expected, 1.1 * precision + 2e-6, 1);
    for (int64_t i = 0; i < count; i++) {
        errors += pow(found[i] - expected[i], 2);
        squares += pow(expected[i], 2);
    }
    if (sqrt(errors) > (it->type == TYPE_FP32 ? 20 : 1) * precision * sqrt(squares))
        fail_msg("%s, case %d: %g of %g are wrong", what, (int)(it - cases), sqrt(errors),
                 sqrt(squares));
}

/* The sums are of dqkv, or of dqkv before it is rounded. */
static void check_sums(struct device_test *test, const struct attention_case *it,
                       const struct attention *attention)
{
    const double *dqkv = device_test_values(test, attention->backward.dqkv);
    device_test_column_sums(test, "dqkv_sums", dqkv, it->batch * it->tokens,
                            3 * it->heads * it->head_dim, attention->backward.dqkv_sums,
                            1.01 * device_test_precision(it->type) + 1e-6);
}

static void check(struct device_test *test, const struct attention_case *it,
                  const struct attention *attention)
{
    struct reference reference = {
        .it = it,
        .dropout = &attention->forward.dropout,
        .qkv = device_test_given(test, attention->forward.qkv),
        .dout = device_test_given(test, attention->backward.dout),
        .out = device_test_expected(test, out_count(it)),
        .dqkv = device_test_expected(test, qkv_count(it)),
        .lse = device_test_expected(test, it->batch * it->heads * it->queries),
        .probability = device_test_expected(test, it->tokens),
        .factor = device_test_expected(test, it->tokens),
        .slope = device_test_expected(test, it->tokens)};
    for (int64_t sample = 0; sample < it->batch; sample++)
        for (int64_t head = 0; head < it->heads; head++)
            for (int64_t i = 0; i < it->queries; i++) {
                reference_forward(&reference, sample, head, i);
                reference_backward(&reference, sample, head, i);
            }
    device_test_near(test, "lse", attention->forward.lse, reference.lse, 1e-6, 1);
    check_all(test, "out", it, attention->forward.out, reference.out, out_count(it));
    check_all(test, "dqkv", it, attention->backward.dqkv, reference.dqkv, qkv_count(it));
    check_sums(test, it, attention);
}

/* GPUs load eight elements at a time. */
static bool is_for(struct device_test *test, const struct attention_case *it)
{
    const bool fits = test->device->backend->attention_fits(test->device, it->tokens, it->head_dim);
    assert_true(fits || it->head_dim % 8 != 0);
    return fits;
}

TEST_KERNELS(results_and_gradients_are_right)
{
    for (int i = 0; i < device_test_cases(CASES, EMULATED); i++) {
        DEVICE_TEST(test, 1);
        if (is_for(&test, &cases[i])) {
            const struct attention attention = run(&test, &cases[i]);
            DEVICE_TEST_AGAIN(&test, other, run(&other, &cases[i]))
            check(&test, &cases[i], &attention);
        }
    }
}

/* Run with this variant. If `kernel` is not NULL, the emulated GPU must have launched it. */
static struct attention run_variant(struct device_test *test, const struct attention_case *it,
                                    int variant, const char *kernel)
{
    device_test_choose(test, "attention ", variant);
    if (!device_test_is_emulated(test))
        return run(test, it);
    setenv("VITTRAIN_EMULATION_CAPTURE", temporary_path("launches"), 1);
    test->device->backend->capture(true);
    const struct attention attention = run(test, it);
    test->device->backend->capture(false);
    OWNED char *launches = temporary_text("launches");
    if (kernel != NULL && strstr(launches, kernel) == NULL)
        fail_msg("case %d, variant %d: no %s among %s", (int)(it - cases), variant, kernel,
                 launches);
    return attention;
}

/* Variants: 4 or 8 warps, wgmma (cuda/attention.h). */
TEST(variants_give_the_same_bits)
{
    for (int i = 0; i < device_test_cases(CASES, EMULATED); i++) {
        const struct attention_case *it = &cases[i];
        const bool wgmma = it->head_dim == 64 && it->tokens <= 208 && it->dropout == 0;
        DEVICE_TEST(test, 1);
        if (test.device->backend == &device_cpu || it->type == TYPE_FP32 || !is_for(&test, it))
            continue;
        run(&test, it);
        const struct attention first = run_variant(&test, it, 0, NULL);
        for (int variant = 1; variant < 3; variant++) {
            const struct attention other = run_variant(
                &test, it, variant, wgmma && variant == 2 ? "attention_wgmma_backward" : NULL);
            device_test_same("out", it->type, first.forward.out, other.forward.out, out_count(it));
            device_test_same("lse", TYPE_FP32, first.forward.lse, other.forward.lse,
                             it->batch * it->heads * it->queries);
            device_test_same("dqkv", it->type, first.backward.dqkv, other.backward.dqkv,
                             qkv_count(it));
            check_sums(&test, it, &other);
        }
    }
}

/* Other GPUs take variant 0; wgmma would end the emulation. */
TEST(wgmma_is_only_for_hopper)
{
    static const char *const capabilities[] = {"80", "100"};
    const struct attention_case it = {TYPE_BF16, 1, 17, 17, 1, 64, 0};
    DEVICE_TEST(hopper, 1);
    for (int i = 0; i < 2 && device_test_is_emulated(&hopper); i++) {
        setenv("VITTRAIN_EMULATION_CAPABILITY", capabilities[i], 1);
        DEVICE_TEST(test, 1);
        run(&test, &it);
        const struct attention attention = run_variant(&test, &it, 2, "attention_backward_kernel");
        check(&test, &it, &attention);
    }
    unsetenv("VITTRAIN_EMULATION_CAPABILITY");
}

/* Evaluation stores no sums; scores that differ widely neither overflow nor vanish. */
TEST(large_scores_and_no_lse)
{
    enum { TOKENS = 20, DIM = 8 };
    for (enum data_type type = TYPE_FP32; type <= TYPE_FP16; type++) {
        DEVICE_TEST(test, 1);
        void *out = device_test_zeros(&test, type, TOKENS * DIM);
        for (int64_t batch = 1; batch >= 0; batch--)
            DEVICE_RUN(&test, attention_forward, .type = type, .batch = batch, .tokens = TOKENS,
                       .queries = TOKENS, .heads = 1, .head_dim = DIM, .scale = 1,
                       .qkv = device_test_random(&test, type, TOKENS * 3 * DIM, 300, 1),
                       .out = out);
        device_test_wait(&test);
        const double *values = device_test_values(&test, out);
        for (int i = 0; i < TOKENS * DIM; i++)
            assert_true(fabs(values[i]) <= 300 && values[i] != 0);
    }
}

/* All scores are -128, so that the exponential of a padding token's 0 overflows. Values and output
 * gradients are 1: so are outputs and gradients of values, and the others are 0. */
TEST(low_scores_of_padded_rows)
{
    enum { TOKENS = 33, DIM = 64, COUNT = TOKENS * 3 * DIM };
    const uint16_t of_part[3] = {0x4080, 0xc080, 0x3f80}; /* 4, -4, 1 in bf16 */
    for (int variant = 0; variant < 3; variant++) {
        DEVICE_TEST(test, 1);
        uint16_t *qkv = device_test_zeros(&test, TYPE_BF16, COUNT);
        uint16_t *dout = device_test_zeros(&test, TYPE_BF16, TOKENS * DIM);
        void *out = device_test_zeros(&test, TYPE_BF16, TOKENS * DIM);
        void *dqkv = device_test_zeros(&test, TYPE_BF16, COUNT);
        float *lse = device_test_zeros(&test, TYPE_FP32, TOKENS);
        double *expected = device_test_expected(&test, COUNT);
        for (int i = 0; i < COUNT; i++) {
            qkv[i] = of_part[i / DIM % 3];
            expected[i] = i / DIM % 3 == 2;
        }
        for (int i = 0; i < TOKENS * DIM; i++)
            dout[i] = of_part[2];
        for (int round = 0; round < 2; round++) {
            DEVICE_RUN(&test, attention_forward, .type = TYPE_BF16, .batch = 1, .tokens = TOKENS,
                       .queries = TOKENS, .heads = 1, .head_dim = DIM, .scale = 0.125f, .qkv = qkv,
                       .out = out, .lse = lse);
            DEVICE_RUN(&test, attention_backward, .type = TYPE_BF16, .batch = 1, .tokens = TOKENS,
                       .queries = TOKENS, .heads = 1, .head_dim = DIM, .scale = 0.125f, .qkv = qkv,
                       .out = out, .dout = dout, .lse = lse, .dqkv = dqkv);
            if (round == 0 && test.device->backend->choices_export != NULL)
                device_test_choose(&test, "attention ", variant);
        }
        device_test_wait(&test);
        device_test_near(&test, "dqkv", dqkv, expected, 0.01, 1);
    }
}

/* Sizes reported as supported work: each is run with the maximum number of tokens. With all of them
 * as queries this takes too long on an emulated GPU; one query needs the same memory. */
TEST(most_tokens_fit)
{
    enum { DIM = 8 };
    DEVICE_TEST(test, 1);
    const struct device_backend *backend = test.device->backend;
    int64_t fits = 256, too_many = 1 << 20;
    assert_true(backend->attention_fits(test.device, fits, DIM));
    assert_false(backend->attention_fits(test.device, too_many, DIM));
    while (too_many - fits > 1) {
        int64_t middle = (fits + too_many) / 2;
        *(backend->attention_fits(test.device, middle, DIM) ? &fits : &too_many) = middle;
    }
    const int64_t queries = backend == &device_cpu ? fits : 1;
    for (enum data_type type = TYPE_FP32; type <= TYPE_BF16; type++)
        run(&test, &(const struct attention_case){type, 1, fits, queries, 1, DIM, 0.1f});
}

TEST_MAIN(.setup = temporary_setup, .teardown = temporary_close)
