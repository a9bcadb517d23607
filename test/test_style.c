/* The lines of each output.style, to the letter: figures go in that stand in logs of the programs
 * whose lines these are, and those logs' lines come out. Its tags: which points a row becomes. */
#include "runlog/style.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/options.h"
#include "core/log.h"
#include "report/course_lines.h"
#include "temporary.h"

static struct options options;
static struct unit units[2];
static struct unit_tensor stem[2], head[1];
static struct model model = {.units = units, .unit_count = 2, .image = 32};
static char *names[] = {"airplane", "automobile", "bird"};
static struct dataset dataset = {.classes = 3, .class_name = names};
static struct style_run run;

static int start(void **state)
{
    (void)state;
    temporary_open();
    options_default(&options);
    log_open(0, LOG_INFO);
    run = (struct style_run){.options = &options,
                             .model = &model,
                             .validation = &dataset,
                             .folder = "runs/one",
                             .resumed = "",
                             .device = "cuda:0",
                             .ranks = 2,
                             .epochs = 10,
                             .epoch_steps = 1563,
                             .batch = 16,
                             .validation_batches = 50,
                             .rate = 0.001,
                             .best_before = NAN};
    return 0;
}

static void choose(const char *style, const char *name)
{
    struct error error = {0};
    char text[64];
    snprintf(text, sizeof text, "output.style=%s", style);
    assert_true(options_set(text, &options, &error));
    snprintf(text, sizeof text, "model.name=%s", name);
    assert_true(options_set(text, &options, &error));
    options.output.log_every = 0;
    style_resolve(&options);
}

/* ---- what is said on the console */

static int console; /* the descriptor that it has in other times */

static void listen(void)
{
    fflush(stdout);
    console = dup(STDOUT_FILENO);
    const int file = open(temporary_path("said"), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_true(console >= 0 && file >= 0);
    dup2(file, STDOUT_FILENO);
    close(file);
}

static void assert_said(const char *expected)
{
    fflush(stdout);
    dup2(console, STDOUT_FILENO);
    close(console);
    char *text = temporary_text("said");
    assert_string_equal(text, expected);
    free(text);
}

/* ---- steps that have a line */

static void assert_due(const char *style, const char *name, const int64_t *steps, int count)
{
    int found = 0;
    choose(style, name);
    for (int64_t step = 1; step <= 2 * 1563; step++) {
        if (!style_is_due(&options, step, (step - 1) % 1563 + 1))
            continue;
        if (found < count)
            assert_int_equal(step, steps[found]);
        found++;
    }
    assert_true(found >= count);
}

static void lines_come_at_the_steps_of_their_style(void **state)
{
    (void)state;
    assert_due("vittrain", "cnn_a", (const int64_t[]){10, 20, 30}, 3);
    assert_due("course", "cnn_a", (const int64_t[]){512, 1024, 1536, 1563 + 512}, 4);
    assert_due("course", "vit_cifar", (const int64_t[]){100, 200}, 2);
    assert_due("imagenet", "resnet18", (const int64_t[]){1, 51, 101}, 3);
    assert_due("lightning", "vit_base_patch32_224", (const int64_t[]){50, 100, 150}, 3);
    assert_due("torchrun", "linear", (const int64_t[]){10, 20}, 2);
}

/* ---- numbers */

static void numbers_look_as_python_prints_them(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0.05, "0.05"},
                 {0, "0.0"},
                 {0.001, "0.001"},
                 {3e-4, "0.0003"},
                 {1e-5, "1e-05"},
                 {1.5e-7, "1.5e-07"},
                 {0.1 + 0.2, "0.30000000000000004"},
                 {100, "100.0"},
                 {1e16, "1e+16"},
                 {123456, "123456.0"},
                 {2685.184572696686, "2685.184572696686"},
                 {-2.5, "-2.5"},
                 {NAN, "nan"}};
    char text[40];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(style_number(cases[i].value, text, sizeof text), cases[i].text);
}

/* ---- the course's */

static const struct style_step cnn_step = {
    .epoch = 0, .epoch_step = 512, .step = 512, .loss = 2.2925, .mean_top1 = 0.1875, .due = true};

static void course_cnn_lines(void **state)
{
    (void)state;
    choose("course", "cnn_a");
    const struct style *style = style_of(&options);
    const struct epoch_row row = {.epoch = 0,
                                  .train_top1 = 0.0918,
                                  .val_top1 = 0.1022,
                                  .seconds = 38.5,
                                  .eval_seconds = 2.45};
    struct style_epoch epoch = {
        .row = &row, .evaluated = true, .better = true, .epochs_seconds = 40.95};
    listen();
    style->start(&run);
    style->epoch_begin(&run, 0);
    style->step(&run, &cnn_step);
    style->epoch(&run, &epoch);
    epoch.better = false;
    style->epoch(&run, &epoch);
    assert_said("Process info:\n Global rank: 0\n Local rank: 0\n World size: 2\n"
                "No checkpoint found. Starting training from scratch\n"
                "--- Starting training with:---\n Number of epochs: 10\n Batch size: 16\n"
                " Total steps per epoch: 1563\n Learning rate: 0.001\n Starting from epoch: 0\n"
                " Device: cuda:0\n Distributed training enabled with 2 processes\n"
                "Set epoch 0 for distributed sampler\n"
                "Epoch [1/10], Step [512/1563], Loss: 2.2925\n"
                "Epoch 1 completed in 40.95 seconds\n"
                "Train Accuracy: 9.18%, Test Accuracy: 10.22%\n"
                "Total training time so far: 40.95 seconds\n"
                "New best accuracy: 10.22%\n"
                "Epoch 1 completed in 40.95 seconds\n"
                "Train Accuracy: 9.18%, Test Accuracy: 10.22%\n"
                "Total training time so far: 40.95 seconds\n");
}

static void course_lines_between_are_not_said(void **state)
{
    (void)state;
    struct style_step step = cnn_step;
    step.due = false;
    choose("course", "cnn_a");
    listen();
    style_of(&options)->step(&run, &step);
    assert_said("");
}

static void course_cnn_that_goes_on(void **state)
{
    (void)state;
    choose("course", "cnn_b");
    run.ranks = 1;
    run.resumed = "weights/latest.h5";
    run.epochs_before = 3;
    run.best_before = 0.6770;
    run.seconds_before = 237.61;
    listen();
    style_of(&options)->start(&run);
    style_of(&options)->epoch_begin(&run, 3);
    run.ranks = 2;
    style_of(&options)->epoch_begin(&run, 3);
    assert_said("[INFO] Running in single-GPU mode\n"
                "Loaded 3 previous train accuracy records\n"
                "Loaded 3 previous test accuracy records\n"
                "Previous best accuracy: 67.7000%\n"
                "Previous total training time: 237.61 seconds\n"
                "Loaded model from weights/latest.h5\n"
                "Continuing training from epoch 3\n"
                "Starting training with:\n Number of epochs: 10\n Batch size: 16\n"
                " Total steps per epoch: 1563\n Learning rate: 0.001\n Starting from epoch: 3\n"
                " Device: cuda:0\n"
                "[INFO] Set epoch 3 for distributed sampler\n");
}

static void course_vit_lines(void **state)
{
    (void)state;
    choose("course", "vit_cifar");
    const struct style *style = style_of(&options);
    const struct style_step step = {.epoch = 0,
                                    .epoch_step = 100,
                                    .step = 100,
                                    .loss = 1.7911,
                                    .mean_top1 = 0.2969,
                                    .due = true};
    const struct epoch_row row = {
        .epoch = 0, .train_loss = 1.8468, .train_top1 = 0.3134, .val_top1 = NAN, .seconds = 21.97};
    const struct style_epoch epoch = {.row = &row};
    run.epoch_steps = 391;
    listen();
    style->epoch_begin(&run, 0);
    style->step(&run, &step);
    style->epoch(&run, &epoch);
    style->checkpoint(&run, 0, "weights/step-00000391.h5");
    assert_said("Epoch [1/10], Step [100/391], Loss: 1.7911, Acc: 29.69%\n"
                "Epoch [1/10], Loss: 1.8468, Accuracy: 31.34%, Time: 21.97s\n"
                "Saved checkpoint to weights/step-00000391.h5\n");
}

/* The published matrix of CNN-A, 16 a GPU on one, and what follows from it. */
static const char *const class_names[] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                          "dog",      "frog",       "horse", "ship", "truck"};
static const int64_t confusion[] = {
    458, 82,  74,  20,  27,  21,  28,  59,  188, 43,  59,  462, 12,  24,  11, 17,  55,
    39,  136, 185, 85,  34,  211, 82,  225, 79,  125, 115, 22,  22,  37,  36, 107, 210,
    97,  161, 166, 124, 18,  44,  29,  25,  102, 43,  404, 62,  151, 149, 19, 16,  20,
    16,  123, 129, 112, 330, 83,  150, 24,  13,  8,   32,  65,  88,  189, 38, 494, 45,
    7,   34,  33,  22,  61,  73,  99,  89,  45,  512, 26,  40,  164, 125, 20, 39,  19,
    26,  17,  41,  429, 120, 44,  166, 16,  37,  13,  7,   58,  50,  138, 471};

static char said[8192];

static void line_keep(void *self, const char *text)
{
    (void)self;
    const size_t used = strlen(said);
    snprintf(said + used, sizeof said - used, "%s\n", text);
}

static const struct course_sink sink = {.line = line_keep};

/* The evaluation that the matrix is of. */
static struct course_end end_of(struct course_class *classes)
{
    const struct evaluation evaluation = {
        .samples = 10000, .classes = 10, .confusion = (int64_t *)confusion};
    for (int64_t i = 0; i < 10; i++) {
        struct class_metrics metrics;
        evaluation_class(&evaluation, i, &metrics);
        classes[i] = (struct course_class){class_names[i], metrics.accuracy, metrics.precision,
                                           metrics.recall, metrics.f1,       metrics.specificity};
    }
    said[0] = '\0';
    return (struct course_end){.total_seconds = 1399.15,
                               .without_setup_seconds = 393.9,
                               .training_seconds = 1386.59,
                               .epochs_seconds = 393.81,
                               .top1 = 0.6691,
                               .best_top1 = 0.8496,
                               .plot = "./weights/accuracy_plot.png",
                               .classes = 10,
                               .of_class = classes,
                               .confusion = confusion};
}

#define MATRIX                                                                                     \
    "\nConfusion Matrix:\n----------------\nPredicted \u2192\nActual \u2193\n"                     \
    "      plane  car    bird   cat    deer   dog    frog   horse  ship   truck  \n"               \
    "plane     458     82     74     20     27     21     28     59    188     43\n"               \
    "car        59    462     12     24     11     17     55     39    136    185\n"               \
    "bird       85     34    211     82    225     79    125    115     22     22\n"               \
    "cat        37     36    107    210     97    161    166    124     18     44\n"               \
    "deer       29     25    102     43    404     62    151    149     19     16\n"               \
    "dog        20     16    123    129    112    330     83    150     24     13\n"               \
    "frog        8     32     65     88    189     38    494     45      7     34\n"               \
    "horse      33     22     61     73     99     89     45    512     26     40\n"               \
    "ship      164    125     20     39     19     26     17     41    429    120\n"               \
    "truck      44    166     16     37     13      7     58     50    138    471\n"

#define FIRST_CLASS(name)                                                                          \
    "\nMetrics for each class:\n------------------------\n\nClass: " name                          \
    "\nAccuracy: 0.8979\nPrecision: 0.4888\nRecall: 0.4580\nF1-score: 0.4729\n"                    \
    "Specificity: 0.9468\n\nClass: "

static void assert_parts(const char *const *parts)
{
    const char *at = said;
    for (; *parts != NULL; parts++) {
        const char *found = strstr(at, *parts);
        if (found == NULL)
            fail_msg("not said: %s\nbut: %s", *parts, at);
        else
            at = found + strlen(*parts);
    }
    assert_string_equal(at, "");
}

static void course_ends(void **state)
{
    (void)state;
    struct course_class classes[10];
    struct course_end last = end_of(classes);
    course_end(&sink, COURSE_CNN_A, &last);
    static const char first[] =
        "Training completed in 393.90 seconds\nFinished Training\n\nMetrics";
    assert_int_equal(strncmp(said, first, sizeof first - 1), 0);
    assert_parts((const char *const[]){
        FIRST_CLASS("plane") "car\nAccuracy: 0.8924\nPrecision: 0.4620\nRecall: 0.4620\n"
                             "F1-score: 0.4620\nSpecificity: 0.9402\n\nClass: bird\n",
        "\nClass: truck\nAccuracy: 0.8954\nPrecision: 0.4767\nRecall: 0.4710\nF1-score: 0.4738\n"
        "Specificity: 0.9426\n" MATRIX,
        NULL});
    last = end_of(classes);
    course_end(&sink, COURSE_CNN_B, &last);
    assert_parts((const char *const[]){
        "Specificity: 0.9426\nTraining plots saved to ./weights/accuracy_plot.png\n"
        "Best test accuracy: 84.96%\nTotal training time: 393.81 seconds\n" MATRIX,
        NULL});
    last = end_of(classes);
    course_end(&sink, COURSE_VIT, &last);
    assert_parts((const char *const[]){
        "Training completed in 1386.59 seconds\nEvaluating on test set...\n" FIRST_CLASS(
            "airplane") "automobile\n",
        "Specificity: 0.9426\n\nOverall Accuracy: 0.6691\n" MATRIX
        "Total training time: 1399.15 seconds\n"
        "Training time (excluding setup): 1386.59 seconds\n",
        NULL});
}

/* Folders of classes may have any names. */
static void course_matrix_of_long_names(void **state)
{
    (void)state;
    static const char name[] =
        "a class whose name was written down as a sentence, by somebody who had never thought of "
        "tables and the width of their columns";
    const struct course_class classes[] = {{.name = name}, {.name = name}, {.name = name}};
    const int64_t counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    const struct course_end last = {.classes = 3, .of_class = classes, .confusion = counts};
    said[0] = '\0';
    course_end(&sink, COURSE_CNN_A, &last);
    const char *rows = strstr(said, "Actual \u2193\n");
    assert_non_null(rows);
    assert_string_equal(rows + strlen("Actual \u2193\n"),
                        "      a class whose name was written a class whose name was written "
                        "a class whose name was written \n"
                        "a class whose name was written       1      2      3\n"
                        "a class whose name was written       4      5      6\n"
                        "a class whose name was written       7      8      9\n");
}

/* In the file a message of several lines has one stamp, as Python's logging writes it. */
static void course_stamps(void **state)
{
    (void)state;
    struct error error = {0};
    int year, day, parts[4], used = 0;
    log_set_stamp(LOG_STAMP_COURSE);
    listen();
    assert_true(log_to_file(temporary_path("train.log"), &error));
    log_info("\nClass: plane\nAccuracy: 0.8979");
    log_close();
    assert_said("\nClass: plane\nAccuracy: 0.8979\n");
    log_set_stamp(LOG_STAMP_ISO);
    char *text = temporary_text("train.log");
    char *line = strstr(text, " - \nClass: plane\n"); /* behind lines that had no file yet */
    assert_non_null(line);
    line -= strlen("2026-11-21 04:05:06,789");
    assert_int_equal(sscanf(line, "%4d-%2d-%2d %2d:%2d:%2d,%3d -%n", &year, &day, &parts[0],
                            &parts[1], &parts[2], &parts[3], &day, &used),
                     7);
    assert_int_equal(used, 25);
    assert_string_equal(line + used, " \nClass: plane\nAccuracy: 0.8979\n");
    free(text);
}

/* ---- ImageNet's */

static void imagenet_lines(void **state)
{
    (void)state;
    choose("imagenet", "resnet18");
    const struct style *style = style_of(&options);
    const struct style_step step = {.epoch = 0,
                                    .epoch_step = 51,
                                    .loss = 6.6716,
                                    .mean_loss = 6.8422,
                                    .top1 = 0.0040,
                                    .mean_top1 = 0.0045,
                                    .top5 = 0.0180,
                                    .mean_top5 = 0.0168,
                                    .seconds = 1.425,
                                    .mean_seconds = 2.073,
                                    .data_seconds = 0.002,
                                    .mean_data_seconds = 0.323,
                                    .due = true};
    const struct epoch_row row = {.epoch = 0,
                                  .val_loss = 3.1141,
                                  .val_top1 = 0.32632,
                                  .val_top5 = 0.58672,
                                  .eval_seconds = 50 * 4.675};
    const struct style_epoch epoch = {.row = &row, .evaluated = true, .next_rate = 0.05};
    const struct style_end last = {.user_seconds = 1 * 3600 + 40 * 60 + 53.4,
                                   .system_seconds = 35 * 60 + 38.2,
                                   .part_seconds = 3600 + 14 * 60 + 39};
    const struct style_end quick = {
        .user_seconds = 5.1234, .system_seconds = 0.312, .part_seconds = 86400 + 60};
    run.epoch_steps = 1282;
    listen();
    style->step(&run, &step);
    style->epoch(&run, &epoch);
    style->result(&run, &last);
    style->result(&run, &quick);
    assert_said("Epoch: [0][  50/1282]\tTime  1.425 ( 2.073)\tData  0.002 ( 0.323)\t"
                "Loss 6.6716e+00 (6.8422e+00)\tAcc@1   0.40 (  0.45)\tAcc@5   1.80 (  1.68)\n"
                "Test: [49/50]\tTime  4.675 ( 4.675)\tLoss 3.1141e+00 (3.1141e+00)\t"
                "Acc@1  32.63 ( 32.63)\tAcc@5  58.67 ( 58.67)\n"
                " * Acc@1 32.632 Acc@5 58.672\n"
                "lr: [0.05]\n"
                "CPU times: user 1h 40min 53s, sys: 35min 38s, total: 2h 16min 31s\n"
                "Wall time: 1h 14min 39s\n"
                "CPU times: user 5.12 s, sys: 312 ms, total: 5.44 s\n"
                "Wall time: 1d 1min\n");
}

/* ---- Lightning's */

static void units_make(void)
{
    stem[0] = (struct unit_tensor){.count = 87455232, .kind = TENSOR_PARAMETER, .trainable = true};
    stem[1] = (struct unit_tensor){.count = 64, .kind = TENSOR_STATE};
    head[0] = (struct unit_tensor){.count = 7690, .kind = TENSOR_PARAMETER, .trainable = true};
    units[0] = (struct unit){.name = "stem", .tensors = stem, .tensor_count = 2};
    units[1] = (struct unit){.name = "head", .tensors = head, .tensor_count = 1};
}

static void lightning_summary(void **state)
{
    (void)state;
    choose("lightning", "vit_base_patch32_224");
    units_make();
    listen();
    style_of(&options)->start(&run);
    fflush(stdout);
    dup2(console, STDOUT_FILENO);
    close(console);
    char *text = temporary_text("said");
    assert_non_null(strstr(text, "\u2502 0   \u2502 net                          \u2502 "
                                 "VisionTransformer \u2502 87.5 M \u2502\n"));
    assert_non_null(strstr(text, "\u2502 2   \u2502 net.head                     \u2502 "
                                 "Unit              \u2502  7.7 K \u2502\n"));
    const char *totals = strstr(text, "Trainable params: ");
    assert_non_null(totals);
    assert_string_equal(totals, "Trainable params: 87.5 M    \nNon-trainable params: 0         \n"
                                "Total params: 87.5 M    \n"
                                "Total estimated model params size (MB): 349       \n");
    free(text);
    head[0].trainable = false;
    listen();
    style_of(&options)->start(&run);
    fflush(stdout);
    dup2(console, STDOUT_FILENO);
    close(console);
    text = temporary_text("said");
    assert_non_null(strstr(text, "Non-trainable params: 7.7 K     \n"));
    free(text);
}

static void lightning_progress(void **state)
{
    (void)state;
    choose("lightning", "vit_base_patch32_224");
    const struct epoch_row row = {.epoch = 9,
                                  .train_loss = 0.89701,
                                  .train_top1 = 0.6777,
                                  .val_loss = 1.0293,
                                  .val_top1 = 0.6374,
                                  .seconds = 200,
                                  .eval_seconds = 31};
    const struct style_epoch epoch = {.row = &row,
                                      .evaluated = true,
                                      .best_top1 = 0.6374,
                                      .last_loss = 0.857,
                                      .last_top1 = 0.7148};
    run.epoch_steps = 59;
    run.validation_batches = 7;
    listen();
    style_of(&options)->epoch(&run, &epoch);
    assert_said(
        "Epoch 9    \u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501"
        "\u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501"
        "\u2501\u2501\u2501\u2501 66/66 0:03:51 \u2022 0:00:00 0.29it/s loss: 0.857 v_num: 0 "
        "train/loss_step: 0.857 train/acc_step: 0.715 val/loss: 1.029 val/acc: 0.637 "
        "val/acc_best: 0.637 train/loss_epoch: 0.897 train/acc_epoch: 0.678\n");
}

static void lightning_time(void **state)
{
    (void)state;
    struct error error = {0};
    char folder[512];
    snprintf(folder, sizeof folder, "%s", temporary_path("."));
    assert_true(style_lightning.close(folder, 2685.184572696686, &error));
    char *text = temporary_text("exec_time.log");
    assert_string_equal(text, "'train' execution time: 2685.184572696686 (s)");
    free(text);
    assert_false(style_lightning.close("/proc/none", 1, &error));
    assert_int_equal(error.kind, ERROR_FILE);
}

/* ---- torchrun's */

static void torchrun_lines(void **state)
{
    (void)state;
    choose("torchrun", "linear");
    const struct style *style = style_of(&options);
    const struct style_end last = {.part_seconds = 1};
    run.batch = 32;
    run.epoch_steps = 32;
    listen();
    style->start(&run);
    style->epoch_begin(&run, 0);
    style->checkpoint(&run, 0, "snapshot.pt");
    run.resumed = "snapshot.pt";
    run.epochs_before = 10;
    style->start(&run);
    style->result(&run, &last);
    options.output.weights = false;
    style->result(&run, &last);
    assert_said("[GPU0] Epoch 0 | Batchsize: 32 | Steps: 32\n"
                "Epoch 0 | Training snapshot saved at snapshot.pt\n"
                "Loading snapshot\n"
                "Resuming training from snapshot at Epoch 10\n"
                "Final model saved at runs/one/weights.safetensors\n");
}

int main(void)
{
#define LINES(test) cmocka_unit_test_setup_teardown(test, start, temporary_teardown)
    const struct CMUnitTest tests[] = {LINES(lines_come_at_the_steps_of_their_style),
                                       LINES(numbers_look_as_python_prints_them),
                                       LINES(course_cnn_lines),
                                       LINES(course_lines_between_are_not_said),
                                       LINES(course_cnn_that_goes_on),
                                       LINES(course_vit_lines),
                                       LINES(course_ends),
                                       LINES(course_matrix_of_long_names),
                                       LINES(course_stamps),
                                       LINES(imagenet_lines),
                                       LINES(lightning_summary),
                                       LINES(lightning_progress),
                                       LINES(lightning_time),
                                       LINES(torchrun_lines)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
