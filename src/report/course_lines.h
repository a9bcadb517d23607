/* The lines that the course project on CIFAR-10 prints, to the letter: for the console while a run
 * goes, and for the result file that is made of its folder afterwards. Accuracies come as shares
 * and are printed in percent; epochs count from 1 as the project's do. */
#ifndef VITTRAIN_REPORT_COURSE_LINES_H
#define VITTRAIN_REPORT_COURSE_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Its three programs: the small CNN, the deep one, the Vision Transformer. */
enum course_program { COURSE_CNN_A, COURSE_CNN_B, COURSE_VIT };

/* Whose lines a model of this name gets. */
enum course_program course_program_of(const char *model);

/* Steps between lines: 512, for the Vision Transformer 100. */
int64_t course_steps_between(enum course_program program);

/* Takes a line, without its end; it may have several, which then begin with an empty one. */
struct course_sink {
    void (*line)(void *self, const char *text);
    void *self;
};

/* A run begins anew. */
void course_start(const struct course_sink *sink, enum course_program program);

struct course_place {
    int64_t epoch, epochs, step, steps; /* epoch from 1; steps of the epoch */
};

/* top1: of the epoch so far; CNNs have no accuracy in this line. */
void course_step(const struct course_sink *sink, enum course_program program,
                 const struct course_place *place, double loss, double top1);

struct course_epoch {
    double loss, train_top1, test_top1; /* NAN: was not evaluated */
    double train_seconds, test_seconds; /* CNNs' epochs are told with both */
    double total_seconds;               /* so far */
    bool best;
};
void course_epoch(const struct course_sink *sink, enum course_program program,
                  const struct course_place *place, const struct course_epoch *epoch);

struct course_class {
    const char *name;
    double accuracy, precision, recall, f1, specificity;
};

/* After the last epoch. NAN, NULL, 0 classes: unknown, and then not said. */
struct course_end {
    double total_seconds, without_setup_seconds, training_seconds;
    double epochs_seconds; /* as the last epoch told it */
    double top1, best_top1;
    const char *plot; /* where the curves were drawn; NULL: nowhere */
    int64_t classes;
    const struct course_class *of_class; /* [classes] */
    const int64_t *confusion;            /* [classes, classes]: row = true class */
};
void course_end(const struct course_sink *sink, enum course_program program,
                const struct course_end *end);

/* The project's short word for a class: airplanes are planes, automobiles cars. */
const char *course_short_name(const char *name);

#endif
