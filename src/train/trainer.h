/* Training from a deck to a run folder: sets everything up, resumes, runs epochs of steps and
 * evaluations, writes checkpoints and what a run leaves. */
#ifndef VITTRAIN_TRAIN_TRAINER_H
#define VITTRAIN_TRAIN_TRAINER_H

#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/run_folder.h"
#include "config/options.h"
#include "runlog/monitor.h"
#include "runlog/run_log.h"
#include "runlog/upload.h"
#include "train/control.h"
#include "train/evaluate.h"
#include "train/feed.h"
#include "train/optimizer.h"
#include "train/schedule.h"
#include "train/session.h"
#include "train/step.h"
#include "train/straggler.h"

/* What has been added up since the last log line. */
struct interval {
    double begin; /* clock */
    int64_t steps, images;
    struct step_times times;
};

/* The running epoch, as far as this part of the run saw it. */
struct epoch_clock {
    double begin, data, training; /* clock; seconds */
    int64_t images, steps;
};

struct trainer {
    struct options options; /* with everything decided */
    struct comm *world;
    struct session session;
    struct data_feed train, validation;
    bool validates; /* there is a validation split */
    struct optimizer optimizer;
    struct schedule schedule;
    struct step_context step;
    struct training_state state;
    struct run_folder folder;
    struct run_log *log;     /* rank 0's */
    struct error log_error;  /* the first row that could not be written */
    struct monitor *monitor; /* NULL: output.monitor=0 */
    struct upload *upload;   /* rank 0 only; NULL: no output.upload */
    bool succeeded;          /* trainer_run did */
    struct checkpoint_target target;
    struct checkpoint_writer *writer;
    int64_t global_batch, steps_per_epoch, total_steps;
    char resume_path[OPTION_TEXT + 64]; /* of the checkpoint that is gone on with; "": none */

    double opened_at;  /* clock: when set-up began */
    char started[32];  /* the same in universal time */
    int64_t part;      /* of the run, from 1, as run.json counts them (rank 0); 0: not there */
    double part_begin; /* when the first step of this part began */
    double evaluation_seconds; /* of this part */
    double checkpointed_at;
    /* Of the parts before this one. */
    double earlier_seconds, earlier_without_setup_seconds, earlier_train_seconds;
    struct interval interval;
    struct step_times part_times; /* of this rank, in this part; seconds of its steps */
    int64_t part_steps;
    double part_step_seconds;
    double *interval_sums; /* of all ranks; see progress.c */
    struct straggler straggler;
    double checkpoint_seconds; /* that this part stood still for them */
    int64_t checkpoints;       /* of this part */
    struct epoch_clock epoch_clock;
    struct epoch_row last_epoch;
    double plain_line_at; /* clock: the newest plain progress line */
    double last_rate, last_norm;
    int64_t skipped_said;         /* skipped updates that the log knows of */
    int64_t run_images;           /* trained on in this part */
    struct evaluation evaluation; /* the newest */
    struct evaluation test;       /* train.test; no confusion: there was none */
    struct data_feed test_feed;   /* where the test split is not the validation split */
    const char *test_weights;     /* which it was of, "best" or "last", and their step */
    int64_t test_step;
    /* The best evaluation so far, as it is told. The state's, by which a run decides, leaves out
     * one that was made only because the run ended: who goes on with it would not have made it. */
    double best_metric;
    int64_t best_step;
    /* The highest accuracy of the evaluations, whatever decides which is best; NAN: none. */
    double best_top1;
    struct run_figures figures; /* as the monitor has them */
    const char *stop_reason;    /* NULL: goes on */
    bool data_wait_said;
    struct control control;
    bool out_of_time;        /* stopped by train.max_seconds */
    bool signalled;          /* stopped by a signal: at once, without an evaluation */
    bool checkpoint_overdue; /* by checkpoint.every_seconds */
};

/* Collective. On an error what was opened is closed again. */
MUST_CHECK bool trainer_open(struct trainer *trainer, const struct options *options,
                             struct comm *world, struct error *error);

/* Collective. Trains to the end of the run (epochs, steps, time or early stopping). */
MUST_CHECK bool trainer_run(struct trainer *trainer, struct error *error);
void trainer_close(struct trainer *trainer);

/* Below: between trainer*.c. */

/* Collective. A step file and its links: writes them, or begins to, in the background. */
MUST_CHECK bool trainer_checkpoint(struct trainer *trainer, bool best, struct error *error);

/* Collective. Waits until what is written in the background is complete. */
MUST_CHECK bool trainer_checkpoint_finish(struct trainer *trainer, struct error *error);

/* Collective. The newest good checkpoint of the run's own folder becomes trainer->resume_path,
 * empty where there is none. */
MUST_CHECK bool trainer_find_local(struct trainer *trainer, struct error *error);

/* Collective. Finds what the run goes on from: trainer->resume_path. */
MUST_CHECK bool trainer_find_checkpoint(struct trainer *trainer, struct error *error);

/* Collective, before what depends on the batch. With mesh.elastic the global batch is the
 * checkpoint's. */
MUST_CHECK bool trainer_decide_batch(struct trainer *trainer, struct error *error);

/* Collective. Reads and announces what the run goes on from; *resumed is false where it begins. */
MUST_CHECK bool trainer_resume(struct trainer *trainer, bool *resumed, struct error *error);

#endif
