/* How a run speaks: the lines of the console and of train.log while it trains. Each style has the
 * lines of one program that users' scripts read, with numbers that are of all ranks. What a line is
 * made of is collected by progress.c and is the same for all. */
#ifndef VITTRAIN_RUNLOG_STYLE_H
#define VITTRAIN_RUNLOG_STYLE_H

#include <stdbool.h>
#include <stdint.h>

#include "data/dataset.h"
#include "model/model.h"
#include "runlog/results.h"
#include "runlog/run_log.h"

struct options;

/* What does not change while a part of a run goes. */
struct style_run {
    const struct options *options;
    const struct model *model;
    const struct dataset *validation; /* names the classes */
    const char *folder;               /* of the run */
    const char *resumed;              /* the checkpoint that is gone on with; "": none */
    const char *device;               /* "cpu", "cuda:0" */
    int ranks;
    int64_t epochs, epoch_steps; /* of the run; of an epoch */
    int64_t batch;               /* samples of a rank in a step */
    int64_t validation_batches;  /* of a rank */
    double rate;                 /* the schedule's base */
    /* Of the parts before this one. */
    int64_t epochs_before;
    double best_before, seconds_before; /* share of right answers, NAN: none; without set-up */
};

/* A log interval has ended. Means are over its steps, or over the epoch so far. */
struct style_step {
    int64_t epoch, epoch_step, step, steps; /* steps: of the run */
    double loss, top1, top5, seconds, data_seconds;
    double mean_loss, mean_top1, mean_top5, mean_seconds, mean_data_seconds;
    double rate;
    double images_per_second, data_share, seconds_left; /* of the epoch so far; of the run */
    bool due;       /* its last step is one that the style has a line for */
    bool plain_due; /* none of the lines that are counted by the clock came for a while */
};

/* An epoch has ended, or the run within it. */
struct style_epoch {
    const struct epoch_row *row;
    bool evaluated, better; /* there was an evaluation; its accuracy is the best */
    double best;            /* by checkpoint.monitor */
    double best_top1;
    double last_loss, last_top1; /* of the last log interval */
    double next_rate;            /* of the step that follows */
    double epochs_seconds;       /* of all epochs, evaluations included, so far */
};

/* The run has ended. */
struct style_end {
    const struct results *results;
    double best_top1;                    /* of the evaluations; NAN: none */
    double epochs_seconds;               /* of all epochs, evaluations included */
    double part_seconds;                 /* of this part, all */
    double user_seconds, system_seconds; /* of this rank's processors, in this part */
};

/* NULL: the style says nothing then. All are called on every rank, log_info speaks on the first. */
struct style {
    void (*start)(const struct style_run *run);
    /* Rank 0's, then: a file of the style's own. */
    bool (*begin)(const struct style_run *run, struct error *error);
    void (*epoch_begin)(const struct style_run *run, int64_t epoch);
    void (*step)(const struct style_run *run, const struct style_step *step);
    void (*epoch)(const struct style_run *run, const struct style_epoch *epoch);
    /* A checkpoint that was begun at this epoch is on disk. */
    void (*checkpoint)(const struct style_run *run, int64_t epoch, const char *path);
    void (*result)(const struct style_run *run, const struct style_end *end);
    /* Rank 0's, when all else of the run is in its folder: files of the style's own. */
    bool (*files)(const char *folder, struct error *error);
    /* Rank 0's, however the run ends. */
    bool (*close)(const char *folder, double seconds, struct error *error);
};

extern const struct style style_vittrain, style_course, style_imagenet, style_lightning,
    style_torchrun;

const struct style *style_of(const struct options *options);

/* Decides what options leave to the style: output.log_every. */
void style_resolve(struct options *options);

/* Does a log interval end at this step of the run (steps that were done, in all and of the epoch)?
 */
bool style_is_due(const struct options *options, int64_t step, int64_t epoch_step);

/* hparams.yaml, into the run's folder. */
MUST_CHECK bool style_hparams_write(const struct style_run *run, struct error *error);

/* A number as Python's print shows it: the fewest digits that read back, "0.05", "1e-05", "2.0". */
const char *style_number(double value, char *text, size_t size);

#endif
