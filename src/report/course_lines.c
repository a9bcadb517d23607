/* Formats taken from the project's programs and the result files that they left. */
#include "report/course_lines.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"

enum course_program course_program_of(const char *model)
{
    if (strncmp(model, "cnn_a", 5) == 0)
        return COURSE_CNN_A;
    return strncmp(model, "vit", 3) == 0 ? COURSE_VIT : COURSE_CNN_B;
}

int64_t course_steps_between(enum course_program program)
{
    return program == COURSE_VIT ? 100 : 512;
}

const char *course_short_name(const char *name)
{
    return strcmp(name, "airplane") == 0 ? "plane" : strcmp(name, "automobile") == 0 ? "car" : name;
}

static void say(const struct course_sink *sink, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void say(const struct course_sink *sink, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    sink->line(sink->self, text);
}

void course_start(const struct course_sink *sink, enum course_program program)
{
    say(sink, "%s",
        program == COURSE_VIT ? "No checkpoint found, starting fresh training"
                              : "No checkpoint found. Starting training from scratch");
}

void course_step(const struct course_sink *sink, enum course_program program,
                 const struct course_place *place, double loss, double top1)
{
    char accuracy[32] = "";
    if (program == COURSE_VIT)
        snprintf(accuracy, sizeof accuracy, ", Acc: %.2f%%", 100 * top1);
    say(sink, "Epoch [%lld/%lld], Step [%lld/%lld], Loss: %.4f%s", (long long)place->epoch,
        (long long)place->epochs, (long long)place->step, (long long)place->steps, loss, accuracy);
}

void course_epoch(const struct course_sink *sink, enum course_program program,
                  const struct course_place *place, const struct course_epoch *epoch)
{
    if (program == COURSE_VIT) {
        say(sink, "Epoch [%lld/%lld], Loss: %.4f, Accuracy: %.2f%%, Time: %.2fs",
            (long long)place->epoch, (long long)place->epochs, epoch->loss, 100 * epoch->train_top1,
            epoch->train_seconds);
        return;
    }
    double test = isnan(epoch->test_seconds) ? 0 : epoch->test_seconds;
    say(sink, "Epoch %lld completed in %.2f seconds", (long long)place->epoch,
        epoch->train_seconds + test);
    say(sink, "Train Accuracy: %.2f%%, Test Accuracy: %.2f%%", 100 * epoch->train_top1,
        100 * epoch->test_top1);
    say(sink, "Total training time so far: %.2f seconds", epoch->total_seconds);
    if (epoch->best)
        say(sink, "New best accuracy: %.2f%%", 100 * epoch->test_top1);
}

static void classes_say(const struct course_sink *sink, enum course_program program,
                        const struct course_end *end)
{
    say(sink, "\nMetrics for each class:");
    say(sink, "------------------------");
    for (int64_t i = 0; i < end->classes; i++) {
        const struct course_class *class = &end->of_class[i];
        say(sink,
            "\nClass: %s\nAccuracy: %.4f\nPrecision: %.4f\nRecall: %.4f\nF1-score: %.4f\n"
            "Specificity: %.4f",
            program == COURSE_VIT ? class->name : course_short_name(class->name), class->accuracy,
            class->precision, class->recall, class->f1, class->specificity);
    }
}

/* A cell of a line; of names that are much too long the beginning. */
enum { CELL = 32 };

static void cell_add(char *line, size_t *used, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void cell_add(char *line, size_t *used, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + *used, CELL, format, arguments);
    va_end(arguments);
    *used += strlen(line + *used);
}

/* The columns are wide enough for short names only. */
static void matrix_say(const struct course_sink *sink, const struct course_end *end)
{
    char *line = malloc(CELL * (size_t)(end->classes + 2));
    ENSURE(line != NULL, "no memory for a row of %lld classes", (long long)end->classes);
    size_t used = 0;
    say(sink, "\nConfusion Matrix:");
    say(sink, "----------------");
    say(sink, "Predicted \u2192");
    say(sink, "Actual \u2193");
    cell_add(line, &used, "      ");
    for (int64_t i = 0; i < end->classes; i++)
        cell_add(line, &used, "%-7s", course_short_name(end->of_class[i].name));
    sink->line(sink->self, line);
    for (int64_t i = 0; i < end->classes; i++) {
        used = 0;
        cell_add(line, &used, "%-6s", course_short_name(end->of_class[i].name));
        for (int64_t j = 0; j < end->classes; j++)
            cell_add(line, &used, "%7lld", (long long)end->confusion[i * end->classes + j]);
        sink->line(sink->self, line);
    }
    free(line);
}

static void cnn_end(const struct course_sink *sink, enum course_program program,
                    const struct course_end *end)
{
    say(sink, "Training completed in %.2f seconds", end->without_setup_seconds);
    say(sink, "Finished Training");
    if (end->classes > 0)
        classes_say(sink, program, end);
    if (program == COURSE_CNN_B) {
        if (end->plot != NULL)
            say(sink, "Training plots saved to %s", end->plot);
        if (!isnan(end->best_top1))
            say(sink, "Best test accuracy: %.2f%%", 100 * end->best_top1);
        say(sink, "Total training time: %.2f seconds", end->epochs_seconds);
    }
    if (end->classes > 0)
        matrix_say(sink, end);
}

void course_end(const struct course_sink *sink, enum course_program program,
                const struct course_end *end)
{
    if (program != COURSE_VIT) {
        cnn_end(sink, program, end);
        return;
    }
    say(sink, "Training completed in %.2f seconds", end->training_seconds);
    if (end->classes > 0) {
        say(sink, "Evaluating on test set...");
        classes_say(sink, program, end);
        say(sink, "\nOverall Accuracy: %.4f", end->top1);
        matrix_say(sink, end);
    }
    say(sink, "Total training time: %.2f seconds", end->total_seconds);
    say(sink, "Training time (excluding setup): %.2f seconds", end->training_seconds);
}
