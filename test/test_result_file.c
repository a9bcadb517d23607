/* The course's result file and plots, made of folders as runs leave them: whole, cut in the middle,
 * and such as tell too little. */
#include "report/result_file.h"

#include <math.h>
#include <png.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "temporary.h"

static int make_folder(void **state)
{
    (void)state;
    temporary_open();
    temporary_directory("run");
    return 0;
}

/* 2 epochs of 600 steps, 32 samples a step of 2 ranks; each row stands for 300 steps but those that
 * a checkpoint cut. */
static void put_run(const char *model)
{
    char text[512];
    snprintf(text, sizeof text,
             "{\"model\": \"%s\", \"ranks\": 2, \"nodes\": 1, \"global_batch\": 32,"
             " \"steps_per_epoch\": 600, \"total_steps\": 1200}",
             model);
    temporary_write("run/run.json", text);
    temporary_write("run/metrics.csv", "epoch,step,split,loss,top1,images_per_second,step_seconds\n"
                                       "0,100,train,2.25,0.125,1000,0.032\n"
                                       "0,512,train,2.0,0.25,2000,0.016\n"
                                       "0,600,train,1.5,0.5,1000,0.032\n"
                                       "0,600,val,1.4,0.5,1000,\n"
                                       "1,700,train,1.4,0.5,1000,0.032\n"
                                       "1,1112,train,1.30006,0.75,1000,0.032\n"
                                       "1,1200,train,1.2,0.75,1000,0.032\n");
    temporary_write("run/epochs.csv",
                    "epoch,step,train_loss,train_top1,val_loss,val_top1,seconds,eval_seconds\n"
                    "0,600,2.0312,0.3,1.4,0.5,20,2.5\n"
                    "1,1200,1.31,0.7,1.5,0.4,18.25,2.25\n");
}

static void put_result(void)
{
    temporary_write(
        "run/result.json",
        "{\"total_seconds\": 50, \"without_setup_seconds\": 43.5, \"training_seconds\": 38.25,"
        " \"top1\": 0.4, \"classes\": [{\"name\": \"automobile\", \"accuracy\": 0.9,"
        " \"precision\": 0.75, \"recall\": 0.6, \"f1\": 0.66666667, \"specificity\": 0.95},"
        " {\"accuracy\": 0.9, \"precision\": 0.5, \"recall\": 0.25, \"f1\": 0.3333,"
        " \"specificity\": 1}], \"confusion_matrix\": [[12, 3], [4, 12345]]}");
}

static bool write_result(struct error *error)
{
    struct record record;
    char folder[512];
    snprintf(folder, sizeof folder, "%s", temporary_path("run"));
    assert_true(record_read(&record, folder, error));
    const bool good = result_file_write(&record, folder, error);
    record_free(&record);
    return good;
}

static void assert_file(const char *expected)
{
    char *text = temporary_text("run/16_2_1_2.txt");
    assert_string_equal(text, expected);
    free(text);
}

#define CNN_EPOCHS                                                                                 \
    "No checkpoint found. Starting training from scratch\n"                                        \
    "Epoch [1/2], Step [512/600], Loss: 2.0000\n"                                                  \
    "Epoch 1 completed in 22.50 seconds\n"                                                         \
    "Train Accuracy: 30.00%, Test Accuracy: 50.00%\n"                                              \
    "Total training time so far: 22.50 seconds\n"                                                  \
    "New best accuracy: 50.00%\n"                                                                  \
    "Epoch [2/2], Step [512/600], Loss: 1.3001\n"                                                  \
    "Epoch 2 completed in 20.50 seconds\n"                                                         \
    "Train Accuracy: 70.00%, Test Accuracy: 40.00%\n"                                              \
    "Total training time so far: 43.00 seconds\n"

#define CLASSES(first)                                                                             \
    "\nMetrics for each class:\n------------------------\n"                                        \
    "\nClass: " first "\nAccuracy: 0.9000\nPrecision: 0.7500\nRecall: 0.6000\nF1-score: 0.6667\n"  \
    "Specificity: 0.9500\n"                                                                        \
    "\nClass: 1\nAccuracy: 0.9000\nPrecision: 0.5000\nRecall: 0.2500\nF1-score: 0.3333\n"          \
    "Specificity: 1.0000\n"

#define MATRIX                                                                                     \
    "\nConfusion Matrix:\n----------------\nPredicted \u2192\nActual \u2193\n"                     \
    "      car    1      \ncar        12      3\n1           4  12345\n"

static void assert_picture(const char *name)
{
    char path[64];
    png_byte head[24];
    snprintf(path, sizeof path, "run/%s.png", name);
    FILE *file = fopen(temporary_path(path), "r");
    assert_non_null(file);
    assert_int_equal(fread(head, 1, sizeof head, file), sizeof head);
    fclose(file);
    assert_int_equal(png_sig_cmp(head, 0, 8), 0);
    assert_int_equal(png_get_uint_32(head + 16), 1200);
    assert_int_equal(png_get_uint_32(head + 20), 500);
}

static void a_run_of_a_deep_cnn(void **state)
{
    (void)state;
    struct error error = {0};
    char expected[4096];
    put_run("cnn_b");
    put_result();
    assert_true(write_result(&error));
    snprintf(expected, sizeof expected, "%s%s%s/accuracy_plot.png\n%s", CNN_EPOCHS,
             "Training completed in 43.50 seconds\nFinished Training\n" CLASSES(
                 "car") "Training plots saved to ",
             temporary_path("run"),
             "Best test accuracy: 50.00%\nTotal training time: 43.00 seconds\n" MATRIX);
    assert_file(expected);
    assert_picture("accuracy_plot");
    assert_picture("training_metrics");
}

/* Its accuracy within an epoch is of all samples so far: (100 x 0.5 + 412 x 0.75) / 512. */
static void a_run_of_a_vit(void **state)
{
    (void)state;
    struct error error = {0};
    put_run("vit_cifar");
    temporary_write("run/deck.ini", "[output]\nstyle = course\nlog_every = 512\n");
    put_result();
    assert_true(write_result(&error));
    assert_file("No checkpoint found, starting fresh training\n"
                "Epoch [1/2], Step [512/600], Loss: 2.0000, Acc: 22.56%\n"
                "Epoch [1/2], Loss: 2.0312, Accuracy: 30.00%, Time: 20.00s\n"
                "Epoch [2/2], Step [512/600], Loss: 1.3001, Acc: 70.12%\n"
                "Epoch [2/2], Loss: 1.3100, Accuracy: 70.00%, Time: 18.25s\n"
                "Training completed in 38.25 seconds\n"
                "Evaluating on test set...\n" CLASSES(
                    "automobile") "\nOverall Accuracy: 0.4000\n" MATRIX
                                  "Total training time: 50.00 seconds\n"
                                  "Training time (excluding setup): 38.25 seconds\n");
}

static void a_run_that_was_cut(void **state)
{
    (void)state;
    struct error error = {0};
    put_run("cnn_a");
    temporary_write("run/epochs.csv",
                    "epoch,step,train_loss,train_top1,val_loss,val_top1,seconds,eval_seconds\n"
                    "x,600,2.0312,0.3,,,20,\n" /* damaged */
                    "0,600,2.0312,0.3,,,20,\n"
                    "1,12"); /* torn */
    temporary_write("run/metrics.csv", "epoch,step,split,loss,top1\n"
                                       "0,512,train,2.0,0.25\n0,1e300,train,1,1\n"
                                       "0,x,train,1,1\n1,1112,train,1.30006,0.75\n");
    assert_true(write_result(&error));
    assert_file("No checkpoint found. Starting training from scratch\n"
                "Epoch [1/2], Step [512/600], Loss: 2.0000\n"
                "Epoch 1 completed in 20.00 seconds\n"
                "Train Accuracy: 30.00%, Test Accuracy: nan%\n"
                "Total training time so far: 20.00 seconds\n"
                "Epoch [2/2], Step [512/600], Loss: 1.3001\n");
    assert_picture("accuracy_plot");
}

static void a_run_that_tells_too_little(void **state)
{
    (void)state;
    struct error error = {0};
    put_run("cnn_a");
    temporary_write("run/run.json", "{\"model\": \"cnn_a\", \"ranks\": 2, \"nodes\": 1}");
    assert_false(write_result(&error));
    assert_int_equal(error.kind, ERROR_FILE);
    assert_non_null(strstr(error.text, "neither run.json nor result.json tells global_batch"));
    error_clear(&error);
    temporary_write("run/run.json",
                    "{\"ranks\": 2, \"nodes\": 1, \"global_batch\": 32,"
                    " \"steps_per_epoch\": 600, \"total_steps\": 1e300}"); /* without end */
    assert_false(write_result(&error));
    assert_int_equal(error.kind, ERROR_FILE);
}

static void places_that_cannot_be_written(void **state)
{
    (void)state;
    static const char *const names[] = {"run/16_2_1_2.txt", "run/accuracy_plot.png",
                                        "run/training_metrics.png"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct error error = {0};
        char inside[64];
        put_run("cnn_a");
        snprintf(inside, sizeof inside, "%s/full", names[i]);
        temporary_directory(inside);
        assert_false(write_result(&error));
        assert_int_equal(error.kind, ERROR_FILE);
        assert_non_null(strstr(error.text, names[i] + strlen("run/")));
        assert_int_equal(rmdir(temporary_path(inside)), 0);
        assert_int_equal(rmdir(temporary_path(names[i])), 0);
    }
}

int main(void)
{
#define RUN(test) cmocka_unit_test_setup_teardown(test, make_folder, temporary_teardown)
    const struct CMUnitTest tests[] = {RUN(a_run_of_a_deep_cnn), RUN(a_run_of_a_vit),
                                       RUN(a_run_that_was_cut), RUN(a_run_that_tells_too_little),
                                       RUN(places_that_cannot_be_written)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
