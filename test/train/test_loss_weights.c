// SPDX-License-Identifier: BSD-3-Clause
/* train.weights: lists of numbers, and names of classes, outputs and variables. */
#include "data/dataset.h"
#include "options/options.h"
#include "test.h"
#include "train/session.h"

enum { MOST = 200 };

static char *classes[] = {"cat", "dog, wild", "dog, wild:2", "cat 2"};
static char *outputs[] = {"t2m", "z@+6 500 hPa", "z@+6 850 hPa", "z", "sea ice@+6"};
static int64_t variable_bytes[] = {3, 1, 1, 1, 7};

static struct options options;
static float weights[MOST];

static bool read(const char *text, enum task_choice task, char **names, int64_t count)
{
    const struct dataset dataset = {.class_name = task == TASK_REGRESSION ? NULL : names,
                                    .target_name = task == TASK_REGRESSION ? names : NULL,
                                    .variable_bytes = variable_bytes,
                                    .classes = count};
    options_default(&options);
    options.data.task = task;
    options.model.classes = count;
    snprintf(options.train.weights, sizeof options.train.weights, "%s", text);
    error_clear(&error);
    return loss_weights_read(&options, &dataset, weights, &error);
}

#define CHECK(text, task, names, ...)                                                              \
    do {                                                                                           \
        const float expected[] = {__VA_ARGS__};                                                    \
        assert_ok(read(text, task, names, sizeof expected / sizeof *expected), &error);            \
        assert_memory_equal(weights, expected, sizeof expected);                                   \
    } while (0)

TEST(names_have_weights)
{
    CHECK("cat:2", TASK_CLASSES, classes, 2, 1, 1, 1);
    CHECK(" dog, wild:0.5, cat 2:3 ,dog, wild:2:4,", TASK_CLASSES, classes, 1, 0.5f, 4, 3);
    CHECK("z:0.1,t2m:1e1", TASK_REGRESSION, outputs, 10, 0.1f, 0.1f, 0.1f, 1);
    CHECK("z@+6 850 hPa:3,z@+6:2,z:0,sea ice:4", TASK_REGRESSION, outputs, 1, 2, 3, 0, 4);
}

TEST(lists_have_any_length)
{
    char text[2 * MOST] = "1";
    CHECK("1, 0.5,0", TASK_LABELS, classes, 1, 0.5f, 0);
    for (int i = 1; i < MOST; i++)
        strcat(text, i % 2 == 0 ? ",1" : ",3");
    assert_ok(read(text, TASK_REGRESSION, NULL, MOST), &error);
    for (int i = 0; i < MOST; i++)
        assert_true(weights[i] == (i % 2 == 0 ? 1 : 3));
    assert_false(read(text, TASK_REGRESSION, outputs, 5));
    assert_error(&error, ERROR_USAGE, "for each of the 5 outputs; correct the list");
}

TEST(records_without_targets_have_no_names)
{
    assert_ok(read("t2m:2", TASK_REGRESSION, NULL, 2), &error);
    assert_true(weights[0] == 1 && weights[1] == 1);
}

TEST(wrong_weights_are_one_line)
{
    static const struct {
        const char *text, *part;
    } rows[] = {
        {"u:1", "NAME:NUMBER with a known name; the names are t2m, z@+6 500 hPa, "},
        {"t2m", "train.weights=t2m: it must be NAME:NUMBER"},
        {"sea:1", "it must be NAME:NUMBER"},
        {"t2m:1,z:2,t2m:1", "train.weights=t2m:1: its name occurs twice; the names are"},
        {"z:1,t2m:x", "train.weights=t2m:x: the weight must be a number of at least 0"},
        {"t2m:-1", "the weight must be"},
        {"t2m:inf", "the weight must be"},
        {"t2m:1 z:1", "the weight must be"},
        {"1,2,x,4,5", "train.weights=1,2,x,4,5: it must have a number of at least 0"},
        {"0,0,0,0,0", "train.weights: the sum"},
        {"t2m:1e300", "train.weights: the sum"},
    };
    char *many[MOST];
    for (int i = 0; i < MOST; i++)
        many[i] = outputs[1];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_false(read(rows[i].text, TASK_REGRESSION, outputs, 5));
        assert_error(&error, ERROR_USAGE, rows[i].part);
    }
    assert_false(read("u:1", TASK_CLASSES, many, MOST));
    assert_error(&error, ERROR_USAGE, "z@+6 500 hPa, ...");
}

static int32_t label_of(const struct dataset *dataset, int64_t record)
{
    assert_in_range(record, 0, dataset->count - 1);
    return record < 6 ? 0 : record == 6 ? 1 : 3;
}

/* Eight samples of classes of 6, 1, 0 and 1. */
static bool set(struct session *session, const char *text, double mixup)
{
    static const struct dataset_format format = {.label = label_of};
    const struct dataset dataset = {
        .format = &format, .count = 8, .class_name = classes, .classes = 4};
    memset(session, 0, sizeof *session);
    options_default(&session->options);
    session->options.model.classes = 4;
    session->options.augment.mixup = mixup;
    snprintf(session->options.train.weights, sizeof session->options.train.weights, "%s", text);
    error_clear(&error);
    return loss_weights_set(session, &dataset, &error);
}

TEST(single_labels_have_weights)
{
    static const double balanced[] = {8.0 / 18, 8.0 / 3, 1, 8.0 / 3};
    struct session session;
    assert_ok(set(&session, "balanced", 0), &error);
    for (int i = 0; i < 4; i++)
        assert_true(fabs((double)session.class_weights[i] - balanced[i]) < 1e-7);
    free(session.class_weights);
    assert_ok(set(&session, "3e-6,6e-6,0,24e-6", 0), &error); /* mean: 6e-6 */
    const float *w = session.class_weights;
    assert_true(w[0] == 3e-6f * 0x1p17f && w[1] == 2 * w[0] && w[2] == 0 && w[3] == 8 * w[0]);
    free(session.class_weights);
    assert_ok(set(&session, "3,6,0,24", 0.2), &error);
    assert_true(session.class_weights[0] == 3 && session.class_weights[3] == 24);
    free(session.class_weights);
    assert_false(set(&session, "0,0,1,0", 0));
    assert_error(&error, ERROR_USAGE, "of all training samples have the weight 0");
    free(session.class_weights);
}

TEST_MAIN()
