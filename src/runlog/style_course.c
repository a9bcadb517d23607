/* The lines of the course project on CIFAR-10 (report/course_lines.h), with what its programs say
 * before the first step, for CNNs and Vision Transformers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "config/options.h"
#include "core/atomic_file.h"
#include "core/log.h"
#include "report/course_lines.h"
#include "report/record.h"
#include "report/result_file.h"
#include "runlog/style.h"

static void line_log(void *self, const char *text)
{
    (void)self;
    log_info("%s", text);
}

static const struct course_sink console = {.line = line_log};

static enum course_program program_of(const struct style_run *run)
{
    return course_program_of(run->options->model.name);
}

static void ranks_say(const struct style_run *run, enum course_program program)
{
    static const struct {
        const char *ranks, *mark, *single;
    } words[] = {
        [COURSE_CNN_A] = {"Process info:", " ", "----- Running in single-GPU mode -----"},
        [COURSE_CNN_B] = {" Starting distributed training with:", "       - ",
                          "[INFO] Running in single-GPU mode"},
        [COURSE_VIT] = {"Starting distributed training with:", " ", "Running in single GPU mode"}};
    const char *mark = words[program].mark;
    if (run->ranks == 1) {
        log_info("%s", words[program].single);
        return;
    }
    log_info("%s", words[program].ranks);
    log_info("%sGlobal rank: 0", mark);
    log_info("%sLocal rank: 0", mark);
    log_info("%sWorld size: %d", mark, run->ranks);
}

static void cnn_resumed_say(const struct style_run *run)
{
    if (run->resumed[0] == '\0') {
        course_start(&console, COURSE_CNN_A);
        return;
    }
    log_info("Loaded %lld previous train accuracy records", (long long)run->epochs_before);
    log_info("Loaded %lld previous test accuracy records", (long long)run->epochs_before);
    if (!isnan(run->best_before))
        log_info("Previous best accuracy: %.4f%%", 100 * run->best_before);
    log_info("Previous total training time: %.2f seconds", run->seconds_before);
    log_info("Loaded model from %s", run->resumed);
    log_info("Continuing training from epoch %lld", (long long)run->epochs_before);
}

static void vit_resumed_say(const struct style_run *run)
{
    if (run->resumed[0] == '\0') {
        course_start(&console, COURSE_VIT);
        return;
    }
    log_info("Loading checkpoint from %s", run->resumed);
    log_info("Resuming training from epoch %lld", (long long)run->epochs_before);
}

static void settings_say(const struct style_run *run, enum course_program program)
{
    static const char *const titles[] = {[COURSE_CNN_A] = "--- Starting training with:---",
                                         [COURSE_CNN_B] = "Starting training with:",
                                         [COURSE_VIT] =
                                             "Starting Vision Transformer training with:"};
    char rate[40];
    log_info("%s", titles[program]);
    log_info(" Number of epochs: %lld", (long long)run->epochs);
    log_info(" Batch size: %lld", (long long)run->batch);
    if (program != COURSE_VIT)
        log_info(" Total steps per epoch: %lld", (long long)run->epoch_steps);
    log_info(" Learning rate: %s", style_number(run->rate, rate, sizeof rate));
    if (program == COURSE_VIT)
        log_info(" Image size: %lld", (long long)run->model->image);
    else
        log_info(" Starting from epoch: %lld", (long long)run->epochs_before);
    log_info(" Device: %s", run->device);
    if (run->ranks > 1)
        log_info(" Distributed training enabled with %d processes", run->ranks);
}

static void start_say(const struct style_run *run)
{
    enum course_program program = program_of(run);
    ranks_say(run, program);
    if (program == COURSE_VIT) {
        settings_say(run, program);
        vit_resumed_say(run);
        return;
    }
    cnn_resumed_say(run);
    settings_say(run, program);
}

static void epoch_begin_say(const struct style_run *run, int64_t epoch)
{
    enum course_program program = program_of(run);
    if (run->ranks > 1 && program != COURSE_VIT)
        log_info("%sSet epoch %lld for distributed sampler",
                 program == COURSE_CNN_B ? "[INFO] " : "", (long long)epoch);
}

static struct course_place place_of(const struct style_run *run, int64_t epoch, int64_t step)
{
    return (struct course_place){
        .epoch = epoch + 1, .epochs = run->epochs, .step = step, .steps = run->epoch_steps};
}

static void step_say(const struct style_run *run, const struct style_step *step)
{
    const struct course_place place = place_of(run, step->epoch, step->epoch_step);
    if (step->due)
        course_step(&console, program_of(run), &place, step->loss, step->mean_top1);
}

static void epoch_say(const struct style_run *run, const struct style_epoch *epoch)
{
    const struct epoch_row *row = epoch->row;
    const struct course_place place = place_of(run, row->epoch, 0);
    const struct course_epoch figures = {.loss = row->train_loss,
                                         .train_top1 = row->train_top1,
                                         .test_top1 = row->val_top1,
                                         .train_seconds = row->seconds,
                                         .test_seconds = row->eval_seconds,
                                         .total_seconds = epoch->epochs_seconds,
                                         .best = epoch->evaluated && epoch->better};
    course_epoch(&console, program_of(run), &place, &figures);
}

static void checkpoint_say(const struct style_run *run, int64_t epoch, const char *path)
{
    (void)epoch;
    if (program_of(run) == COURSE_VIT)
        log_info("Saved checkpoint to %s", path);
}

/* The classes as the project names them and what is known of each; the caller frees them, and the
 * numbers that stand for names in `numbers`. */
static struct course_class *classes_of(const struct evaluation *evaluation,
                                       const struct dataset *dataset, char (**numbers)[24])
{
    size_t count = (size_t)evaluation->classes;
    struct course_class *classes = calloc(count, sizeof *classes);
    *numbers = calloc(count, sizeof **numbers);
    ENSURE(classes != NULL && *numbers != NULL, "no memory for %zu classes", count);
    for (size_t i = 0; i < count; i++) {
        struct class_metrics metrics;
        evaluation_class(evaluation, (int64_t)i, &metrics);
        snprintf((*numbers)[i], sizeof(*numbers)[i], "%zu", i);
        bool named = dataset->class_name != NULL && (int64_t)i < dataset->classes;
        classes[i] = (struct course_class){.name = named ? dataset->class_name[i] : (*numbers)[i],
                                           .accuracy = metrics.accuracy,
                                           .precision = metrics.precision,
                                           .recall = metrics.recall,
                                           .f1 = metrics.f1,
                                           .specificity = metrics.specificity};
    }
    return classes;
}

/* With more classes a table on the console helps nobody; the result file has all of them. */
enum { PRINTED_CLASSES = 20 };

static void result_say(const struct style_run *run, const struct style_end *end)
{
    const struct results *results = end->results;
    const struct evaluation *evaluation = results->evaluation;
    struct course_class *classes = NULL;
    char(*numbers)[24] = NULL, plot[FILE_PATH];
    struct course_end last = {.total_seconds = results->total_seconds,
                              .without_setup_seconds = results->without_setup_seconds,
                              .training_seconds = results->training_seconds,
                              .epochs_seconds = end->epochs_seconds,
                              .top1 = evaluation != NULL ? evaluation->top1 : NAN,
                              .best_top1 = end->best_top1,
                              .plot = plot};
    snprintf(plot, sizeof plot, "%s/accuracy_plot.png", run->folder);
    if (evaluation != NULL && evaluation->classes > 0 && evaluation->classes <= PRINTED_CLASSES) {
        classes = classes_of(evaluation, run->validation, &numbers);
        last.classes = evaluation->classes;
        last.of_class = classes;
        last.confusion = evaluation->confusion;
    }
    course_end(&console, program_of(run), &last);
    free(classes);
    free(numbers);
}

/* All that the run left is read again. */
static bool files_write(const char *folder, struct error *error)
{
    struct record record;
    if (!record_read(&record, folder, error))
        return false;
    bool good = result_file_write(&record, folder, error);
    record_free(&record);
    return good;
}

const struct style style_course = {.start = start_say,
                                   .epoch_begin = epoch_begin_say,
                                   .step = step_say,
                                   .epoch = epoch_say,
                                   .checkpoint = checkpoint_say,
                                   .result = result_say,
                                   .files = files_write};
