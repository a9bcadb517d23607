// SPDX-License-Identifier: BSD-3-Clause
/* Exports of run folders: the expected lines are those of the other programs' logs. */
#include "tools/report/export.h"

#include <png.h>
#include <unistd.h>

#include "config/command_options.h"
#include "temporary.h"
#include "test.h"

static int make_folder(void **state)
{
    (void)state;
    temporary_open();
    temporary_directory("run");
    return 0;
}

/* 2 epochs of 600 steps, 32 samples a step on 2 ranks; one attempt that ended. */
static void put_run(const char *model)
{
    char text[1024];
    snprintf(
        text, sizeof text,
        "{\"model\": \"%s\", \"backend\": \"cuda\", \"image\": 32, \"ranks\": 2, \"nodes\": 1,"
        " \"global_batch\": 32, \"base_lr\": 0.001, \"val_steps\": 50, \"steps_per_epoch\": 600,"
        " \"total_steps\": 1200, \"parameters\": 87462922, \"trainable_parameters\": 87455232,"
        " \"parts\": [{\"from_step\": 0, \"to_step\": 1200, \"seconds\": 4479}]}",
        model);
    temporary_write("run/run.json", text);
    temporary_write("run/metrics.csv", "epoch,step,split,loss,top1,top5,images_per_second,"
                                       "step_seconds,data_seconds\n"
                                       "0,100,train,2.25,0.125,0.5,1000,0.032,0.002\n"
                                       "0,512,train,2.0,0.25,0.75,2000,0.016,0.001\n"
                                       "0,600,train,1.5,0.5,0.75,1000,0.032,0.002\n"
                                       "0,600,val,1.4,0.5,0.9,1000,,\n"
                                       "1,700,train,1.4,0.5,0.75,1000,0.032,0.002\n"
                                       "1,1112,train,1.30006,0.75,0.875,1000,0.032,0.002\n"
                                       "1,1200,train,1.2,0.75,0.875,1000,0.032,0.002\n");
    temporary_write("run/epochs.csv",
                    "epoch,step,train_loss,train_top1,val_loss,val_top1,val_top5,seconds,"
                    "eval_seconds,next_lr\n"
                    "0,600,2.0312,0.3,1.4,0.5,0.9,20,2.5,0.0001\n"
                    "1,1200,1.31,0.7,1.5,0.4,0.875,18.25,2.25,1.5e-05\n");
    temporary_write("run/ranks.csv", "part,rank,user_seconds,system_seconds\n"
                                     "1,0,6053.4,2138.2\n1,1,1,1\n");
}

static void put_result(void)
{
    temporary_write(
        "run/result.json",
        "{\"total_seconds\": 50, \"without_setup_seconds\": 43.5, \"training_seconds\": 38.25,"
        " \"top1\": 0.4, \"classes\": [{\"name\": \"automobile\", \"one_vs_rest_accuracy\": 0.9,"
        " \"precision\": 0.75, \"recall\": 0.6, \"f1\": 0.66666667, \"specificity\": 0.95},"
        " {\"accuracy\": 0.9, \"precision\": 0.5, \"recall\": 0.25, \"f1\": 0.3333,"
        " \"specificity\": 1}], \"confusion_matrix\": [[12, 3], [4, 12345]]}");
}

static bool export_run(int format, struct error *error)
{
    struct record record;
    char folder[512];
    snprintf(folder, sizeof folder, "%s", temporary_path("run"));
    assert_true(record_read(&record, folder, error));
    const bool good = export_write(&record, format, error);
    record_free(&record);
    return good;
}

/* Export, and compare a file; "%s" in the expected text is the folder. */
static void assert_export(int format, const char *name, const char *expected)
{
    struct error error = {0};
    char path[64], text[8192], folder[512];
    snprintf(folder, sizeof folder, "%s", temporary_path("run"));
    const char *mark = strstr(expected, "%s");
    const int before = mark != NULL ? (int)(mark - expected) : (int)strlen(expected);
    snprintf(text, sizeof text, "%.*s%s%s", before, expected, mark != NULL ? folder : "",
             mark != NULL ? mark + 2 : "");
    assert_ok(export_run(format, &error), &error);
    snprintf(path, sizeof path, "run/%s", name);
    char *found = temporary_text(path);
    assert_string_equal(found, text);
    free(found);
}

TEST(numbers_look_as_python_prints_them)
{
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
        assert_string_equal(export_number(cases[i].value, text, sizeof text), cases[i].text);
}

/* ---- the course's programs */

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

TEST_WITH(course_result_file_of_a_deep_cnn, make_folder, temporary_teardown)
{
    put_run("cnn_b");
    put_result();
    assert_export(
        FORMAT_COURSE, "16_2_1_2.txt",
        CNN_EPOCHS "Training completed in 43.50 seconds\nFinished Training\n" CLASSES(
            "car") "Training plots saved to %s/accuracy_plot.png\n"
                   "Best test accuracy: 50.00%\nTotal training time: 43.00 seconds\n" MATRIX);
    assert_picture("accuracy_plot");
    assert_picture("training_metrics");
}

/* The accuracy within an epoch is of all samples so far: (100 x 0.5 + 412 x 0.75) / 512. */
TEST_WITH(course_result_file_of_a_vit, make_folder, temporary_teardown)
{
    put_run("vit_cifar");
    temporary_write("run/deck.ini", "[output]\nlog_every = 512\n");
    put_result();
    assert_export(FORMAT_COURSE, "16_2_1_2.txt",
                  "No checkpoint found, starting fresh training\n"
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

TEST_WITH(course_log_of_a_cnn, make_folder, temporary_teardown)
{
    put_run("cnn_a");
    temporary_write("run/epochs.csv", "epoch,step\n");
    assert_export(FORMAT_COURSE, "course.log",
                  "Process info:\n Global rank: 0\n Local rank: 0\n World size: 2\n"
                  "No checkpoint found. Starting training from scratch\n"
                  "--- Starting training with:---\n Number of epochs: 2\n Batch size: 16\n"
                  " Total steps per epoch: 600\n Learning rate: 0.001\n Starting from epoch: 0\n"
                  " Device: cuda:0\n Distributed training enabled with 2 processes\n"
                  "Set epoch 0 for distributed sampler\n"
                  "Epoch [1/2], Step [512/600], Loss: 2.0000\n"
                  "Set epoch 1 for distributed sampler\n"
                  "Epoch [2/2], Step [512/600], Loss: 1.3001\n");
}

TEST_WITH(course_log_of_a_resumed_cnn, make_folder, temporary_teardown)
{
    put_run("cnn_b");
    temporary_write(
        "run/run.json",
        "{\"model\": \"cnn_b\", \"backend\": \"cpu\", \"ranks\": 1, \"nodes\": 1,"
        " \"global_batch\": 16, \"base_lr\": 0.001, \"steps_per_epoch\": 600,"
        " \"total_steps\": 1200, \"parts\": [{\"from_step\": 0, \"setup_seconds\": 0.5},"
        " {\"from_step\": 600, \"resumed_from\": \"weights/latest.h5\"}]}");
    temporary_write("run/metrics.csv", "epoch,step,split,loss,elapsed_seconds\n"
                                       "0,600,train,1.5,238.11\n1,1112,train,1.25,300\n");
    temporary_write("run/epochs.csv", "epoch,step,train_top1,val_loss,val_top1,seconds\n"
                                      "0,600,0.3,1,0.677,20\n");
    assert_export(FORMAT_COURSE, "course.log",
                  "[INFO] Running in single-GPU mode\n"
                  "No checkpoint found. Starting training from scratch\n"
                  "Starting training with:\n Number of epochs: 2\n Batch size: 16\n"
                  " Total steps per epoch: 600\n Learning rate: 0.001\n Starting from epoch: 0\n"
                  " Device: cpu\n"
                  "Epoch [1/2], Step [600/600], Loss: 1.5000\n"
                  "Epoch 1 completed in 20.00 seconds\n"
                  "Train Accuracy: 30.00%, Test Accuracy: 67.70%\n"
                  "Total training time so far: 20.00 seconds\n"
                  "New best accuracy: 67.70%\n"
                  "[INFO] Running in single-GPU mode\n"
                  "Loaded 1 previous train accuracy records\n"
                  "Loaded 1 previous test accuracy records\n"
                  "Previous best accuracy: 67.7000%\n"
                  "Previous total training time: 237.61 seconds\n"
                  "Loaded model from weights/latest.h5\n"
                  "Continuing training from epoch 1\n"
                  "Starting training with:\n Number of epochs: 2\n Batch size: 16\n"
                  " Total steps per epoch: 600\n Learning rate: 0.001\n Starting from epoch: 1\n"
                  " Device: cpu\n"
                  "Epoch [2/2], Step [512/600], Loss: 1.2500\n");
}

TEST_WITH(course_log_of_a_vit, make_folder, temporary_teardown)
{
    char *text;
    struct error error = {0};
    put_run("vit_cifar");
    temporary_write("run/deck.ini", "[output]\nlog_every = 512\n[checkpoint]\nevery = 0.5\n");
    assert_true(export_run(FORMAT_COURSE, &error));
    text = temporary_text("run/course.log");
    assert_has(text, "Starting Vision Transformer training with:\n"
                     " Number of epochs: 2\n Batch size: 16\n Learning rate: 0.001\n"
                     " Image size: 32\n Device: cuda:0\n");
    assert_has(text, "Time: 20.00s\nSaved checkpoint to ");
    assert_has(text, "/checkpoints/step-00000600.h5\n");
    assert_has(text, "/checkpoints/step-00001200.h5\n");
    free(text);
}

/* Folders of classes may have names of any length. */
TEST_WITH(course_matrix_of_long_names, make_folder, temporary_teardown)
{
    struct error error = {0};
    put_run("cnn_a");
    temporary_write("run/result.json",
                    "{\"classes\": [{\"name\": \"a class whose name was written down as a"
                    " sentence\"}], \"confusion_matrix\": [[7]]}");
    assert_true(export_run(FORMAT_COURSE, &error));
    char *text = temporary_text("run/16_2_1_2.txt");
    assert_has(text, "\n      a class whose name was written \n"
                     "a class whose name was written       7\n");
    free(text);
}

TEST_WITH(interrupted_run, make_folder, temporary_teardown)
{
    put_run("cnn_a");
    temporary_write("run/epochs.csv",
                    "epoch,step,train_loss,train_top1,val_loss,val_top1,seconds,eval_seconds\n"
                    "x,600,2.0312,0.3,,,20,\n" /* damaged */
                    "0,600,2.0312,0.3,,,20,\n"
                    "1,12"); /* torn */
    temporary_write("run/metrics.csv", "epoch,step,split,loss,top1\n"
                                       "0,512,train,2.0,0.25\n0,1e300,train,1,1\n"
                                       "0,x,train,1,1\n1,1112,train,1.30006,0.75\n");
    assert_export(FORMAT_COURSE, "16_2_1_2.txt",
                  "No checkpoint found. Starting training from scratch\n"
                  "Epoch [1/2], Step [512/600], Loss: 2.0000\n"
                  "Epoch 1 completed in 20.00 seconds\n"
                  "Train Accuracy: 30.00%, Test Accuracy: nan%\n"
                  "Total training time so far: 20.00 seconds\n"
                  "Epoch [2/2], Step [512/600], Loss: 1.3001\n");
    assert_picture("accuracy_plot");
}

TEST_WITH(incomplete_run_json, make_folder, temporary_teardown)
{
    struct error error = {0};
    put_run("cnn_a");
    temporary_write("run/run.json", "{\"model\": \"cnn_a\", \"ranks\": 2, \"nodes\": 1}");
    assert_false(export_run(FORMAT_COURSE, &error));
    assert_error(&error, ERROR_FILE, "neither run.json nor result.json has global_batch");
    error_clear(&error);
    temporary_write("run/run.json", "{\"ranks\": 2, \"nodes\": 1, \"global_batch\": 32,"
                                    " \"steps_per_epoch\": 600, \"total_steps\": 1e300}");
    assert_false(export_run(FORMAT_COURSE, &error));
    assert_int_equal(error.kind, ERROR_FILE);
}

TEST_WITH(unwritable_files, make_folder, temporary_teardown)
{
    static const struct {
        int format;
        const char *name;
    } cases[] = {{FORMAT_COURSE, "16_2_1_2.txt"},      {FORMAT_COURSE, "course.log"},
                 {FORMAT_COURSE, "accuracy_plot.png"}, {FORMAT_COURSE, "training_metrics.png"},
                 {FORMAT_LIGHTNING, "exec_time.log"},  {FORMAT_LIGHTNING, "hparams.yaml"},
                 {FORMAT_IMAGENET, "imagenet.log"}};
    put_run("cnn_a");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct error error = {0};
        char name[64], inside[80];
        snprintf(name, sizeof name, "run/%s", cases[i].name);
        snprintf(inside, sizeof inside, "%s/full", name);
        unlink(temporary_path(name));
        temporary_directory(inside);
        assert_false(export_run(cases[i].format, &error));
        assert_error(&error, ERROR_FILE, cases[i].name);
        assert_int_equal(rmdir(temporary_path(inside)), 0);
        assert_int_equal(rmdir(temporary_path(name)), 0);
    }
}

/* ---- PyTorch's ImageNet example */

TEST_WITH(imagenet_log, make_folder, temporary_teardown)
{
    put_run("resnet18");
    temporary_write("run/deck.ini", "[output]\nlog_every = 512\n");
    temporary_write("run/result.json", "{}");
    assert_export(FORMAT_IMAGENET, "imagenet.log",
                  "Epoch: [0][ 99/600]\tTime  0.032 ( 0.032)\tData  0.002 ( 0.002)\t"
                  "Loss 2.2500e+00 (2.2500e+00)\tAcc@1  12.50 ( 12.50)\tAcc@5  50.00 ( 50.00)\n"
                  "Epoch: [0][599/600]\tTime  0.032 ( 0.021)\tData  0.002 ( 0.001)\t"
                  "Loss 1.5000e+00 (1.9683e+00)\tAcc@1  50.00 ( 26.58)\tAcc@5  75.00 ( 70.83)\n"
                  "Test: [49/50]\tTime  0.050 ( 0.050)\tLoss 1.4000e+00 (1.4000e+00)\t"
                  "Acc@1  50.00 ( 50.00)\tAcc@5  90.00 ( 90.00)\n"
                  " * Acc@1 50.000 Acc@5 90.000\n"
                  "lr: [0.0001]\n"
                  "Epoch: [1][ 99/600]\tTime  0.032 ( 0.032)\tData  0.002 ( 0.002)\t"
                  "Loss 1.4000e+00 (1.4000e+00)\tAcc@1  50.00 ( 50.00)\tAcc@5  75.00 ( 75.00)\n"
                  "Epoch: [1][599/600]\tTime  0.032 ( 0.032)\tData  0.002 ( 0.002)\t"
                  "Loss 1.2000e+00 (1.3020e+00)\tAcc@1  75.00 ( 70.83)\tAcc@5  87.50 ( 85.42)\n"
                  "Test: [49/50]\tTime  0.045 ( 0.045)\tLoss 1.5000e+00 (1.5000e+00)\t"
                  "Acc@1  40.00 ( 40.00)\tAcc@5  87.50 ( 87.50)\n"
                  " * Acc@1 40.000 Acc@5 87.500\n"
                  "lr: [1.5e-05]\n");
}

/* ---- the Lightning-Hydra template */

TEST_WITH(lightning_files, make_folder, temporary_teardown)
{
    put_run("cnn_a");
    temporary_write("run/deck.ini", "[run]\nname = it's one\nseed = 7\n[optim]\nlr = 1e-05\n"
                                    "nesterov = off\n");
    assert_export(FORMAT_LIGHTNING, "hparams.yaml",
                  "run:\n  name: 'it''s one'\n  seed: 7\noptim:\n  lr: 1.0e-05\n"
                  "  nesterov: false\nmodel/params/total: 87462922\n"
                  "model/params/trainable: 87455232\nmodel/params/non_trainable: 7690\n");
    char *text = temporary_text("run/exec_time.log");
    assert_string_equal(text, "'train' execution time: 4479.0 (s)");
    free(text);
}

TEST_MAIN()
