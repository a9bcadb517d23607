// SPDX-License-Identifier: BSD-3-Clause
/* Runs the training: epochs of steps, evaluations, checkpoints, and the reasons to stop. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "checkpoint/safetensors.h"
#include "options/options.h"
#include "train/trainer.h"

enum { BEST_PATH = OPTION_TEXT + 64 };
/* Ratio of learning rates above which a rise is logged. */
static const double rise_least = 1.5;

static const char early_stop_reason[] = "no gain for train.early_stop evaluations";

static void stop_by_signal(struct trainer *trainer)
{
    trainer->stop.signalled = true;
    trainer->stop.reason = "a signal requested it";
}

/* True if a checkpoint is due by the clock or by the number of steps. checkpoint.every counts
 * epochs and may be a fraction. */
static bool checkpoint_due(const struct trainer *trainer)
{
    double every = trainer->session.options.checkpoint.every * (double)trainer->steps_per_epoch;
    int64_t steps = (int64_t)llround(every);
    return trainer->checkpoints.overdue ||
           (every > 0 && trainer->state.step % (steps > 0 ? steps : 1) == 0);
}

/* Waits for the device and writes the row and the log line of the interval. */
static bool interval_end(struct trainer *trainer, struct error *error)
{
    status_set_phase(PHASE_REPORT);
    if (!step_finish(&trainer->session, &trainer->progress.interval.times, error))
        return false;
    trainer->progress.norm = step_norm(&trainer->session);
    progress_interval(trainer);
    return true;
}

/* Starts or stops the capture of an external profiler at the step debug.capture. */
static void step_capture(const struct trainer *trainer, bool on)
{
    const struct session *session = &trainer->session;
    const struct device_backend *backend = session->device->backend;
    if (trainer->state.step + 1 != trainer->session.options.debug.capture ||
        backend->capture == NULL)
        return;
    backend->stream_synchronize(session->stream);
    backend->capture(on);
}

static bool step_advance(struct trainer *trainer, struct error *error)
{
    struct training_state *state = &trainer->state;
    double rate = schedule_rate(&trainer->schedule, state->step);
    status_set_step(state->step + 1);
    memory_checkpoint_step(trainer->checkpoints.memory, state->step + 1);
    optimizer_set_momentum(&trainer->session.optimizer, &trainer->schedule, state->step);
    const bool receipt = receipts_due(trainer, state->step + 1);
    if (receipt)
        receipts_begin(trainer);
    step_capture(trainer, true);
    if (!step_run(&trainer->session, state->step, rate, &trainer->progress.interval.times, error))
        return false;
    step_capture(trainer, false);
    /* New shapes occur in the first step of this process, and in the first full batch if the run
     * was resumed at a smaller one. Steps are recorded after that. */
    if (trainer->attempt.steps + trainer->progress.interval.steps == 0 ||
        (state->epoch_step == 0 && trainer->session.step.graph == NULL))
        session_agree_algorithms(&trainer->session);
    trainer->progress.rate = rate;
    state->step++;
    state->epoch_step++;
    monitor_step(trainer->output.monitor, state->step);
    trainer->progress.interval.steps++;
    if (receipt && !receipts_take(trainer, error))
        return false;
    if (metrics_is_due(&trainer->session.options.output, state->step, state->epoch_step) &&
        !interval_end(trainer, error))
        return false;
    int64_t every = trainer->session.options.debug.check_weights;
    return every <= 0 || state->step % every != 0 || flat_check_same(&trainer->session.flat, error);
}

/* Trains the rest of the epoch, or less if the run stops. */
static bool epoch_train(struct trainer *trainer, struct error *error)
{
    const struct options *options = &trainer->session.options;
    struct training_state *state = &trainer->state;
    struct run_checkpoints *checkpoints = &trainer->checkpoints;
    if (state->epoch_step == 0) {
        state->epoch_loss_sum = state->epoch_top1_sum = state->epoch_top5_sum = 0;
        state->epoch_samples = 0;
    }
    state->finished = false;
    session_activations(&trainer->session, true);
    while (state->epoch_step < trainer->steps_per_epoch && state->step < trainer->total_steps) {
        /* Time limits follow the clock of rank 0. */
        const double now = clock_now(), limit = options->train.max_seconds;
        const double every = options->checkpoint.every_seconds;
        const bool decides = trainer->session.world->rank == 0;
        control_start(
            &trainer->control,
            &(struct control_flags){
                .stop = comm_stop_wanted(),
                .time_over = decides && limit > 0 && now - trainer->attempt.opened_at >= limit,
                .checkpoint = decides && every > 0 && now - checkpoints->written_at >= every,
                .writing = checkpoint_writer_is_busy(checkpoints->writer)});
        if (!step_advance(trainer, error))
            return false;
        const struct control_flags flags = control_wait(&trainer->control);
        checkpoints->overdue = flags.checkpoint != 0;
        trainer->stop.out_of_time = flags.time_over != 0;
        if (trainer->stop.out_of_time)
            trainer->stop.reason = "train.max_seconds have passed";
        if (flags.stop != 0)
            stop_by_signal(trainer);
        if (!checkpoint_writer_follow(checkpoints->writer, flags.writing != 0, error))
            return false;
        if (trainer->output.upload != NULL)
            remote_copy_follow(trainer->output.upload,
                               checkpoints->count -
                                   checkpoint_writer_is_writing(checkpoints->writer));
        if (trainer->stop.reason != NULL)
            break;
        /* It waits for the checkpoint of the best evaluation in the background: a run that resumes
         * needs the file of the best step in its state. */
        checkpoints->memory_overdue =
            checkpoints->memory_overdue ||
            (checkpoints->memory != NULL && !checkpoints->memory_failed &&
             options->checkpoint.memory > 0 && state->step % options->checkpoint.memory == 0);
        if (checkpoints->memory_overdue && !checkpoint_writer_writes_best(checkpoints->writer)) {
            if (!interval_end(trainer, error))
                return false;
            trainer_memory_write(trainer);
        }
        /* epoch_finish writes the checkpoint at the end of an epoch. */
        if (state->epoch_step == trainer->steps_per_epoch || !checkpoint_due(trainer))
            continue;
        if (!interval_end(trainer, error) || !trainer_checkpoint(trainer, false, error))
            return false;
    }
    session_agree_algorithms(&trainer->session);
    return interval_end(trainer, error);
}

/* Returns true if the newest evaluation is the best so far by checkpoint.monitor, and stores it.
 * One without targets never is. regular: it is due by train.eval_every; the training state ignores
 * others. */
static bool best_update(struct trainer *trainer, bool regular)
{
    struct training_state *state = &trainer->state;
    const int monitor = trainer->session.options.checkpoint.monitor;
    const double value = evaluation_monitored(&trainer->evaluation, monitor);
    const double best = state->best_metric;
    if (monitor == MONITOR_NONE)
        return false;
    const bool gains = monitor == MONITOR_LOSS ? value < best : value > best;
    const bool better = isnan(best) ? !isnan(value) : gains;
    if (better) {
        trainer->best.metric = value;
        trainer->best.step = state->step;
    }
    if (better && regular) {
        state->best_metric = value;
        state->best_step = state->step;
    }
    return better;
}

/* Collective. Evaluates the session's weights, or their moving average, on a split. */
static bool split_evaluate(struct trainer *trainer, struct split_loader *feed,
                           struct evaluation *evaluation, struct error *error)
{
    struct session *session = &trainer->session;
    const struct evaluation_visitor visitor = {
        .visit = pictures_visit, .self = &trainer->pictures, .counts = true};
    const bool shows = pictures_begin(&trainer->pictures, session, feed);
    evaluation_free(evaluation);
    flat_swap_average(&session->flat);
    bool good = evaluation_run(session, feed, shows ? &visitor : NULL, &trainer->control,
                               evaluation, error);
    flat_swap_average(&session->flat);
    if (good)
        session_agree_algorithms(session);
    trainer->attempt.evaluation_seconds += evaluation->seconds;
    if (evaluation->given_up)
        stop_by_signal(trainer);
    return good;
}

static bool validation_run(struct trainer *trainer, struct error *error)
{
    return split_evaluate(trainer, &trainer->session.validation, &trainer->evaluation, error);
}

/* The schedule plateau reacts to the newest evaluation. */
static void schedule_follow(struct trainer *trainer)
{
    const int monitor = trainer->session.options.checkpoint.monitor;
    schedule_observe(&trainer->schedule, evaluation_monitored(&trainer->evaluation, monitor),
                     monitor == MONITOR_LOSS);
}

static bool patience_is_over(const struct trainer *trainer)
{
    int64_t patience = trainer->session.options.train.early_stop;
    return patience > 0 && trainer->state.evaluations_without_gain >= patience;
}

static bool run_is_over(const struct trainer *trainer)
{
    return trainer->state.step >= trainer->total_steps || trainer->stop.reason != NULL;
}

bool trainer_epoch_is_unfinished(const struct trainer *trainer)
{
    const struct training_state *state = &trainer->state;
    return state->epoch_step == trainer->steps_per_epoch ||
           (state->step >= trainer->total_steps && state->epoch_step > 0 && !state->finished);
}

bool trainer_is_over(const struct trainer *trainer)
{
    return (trainer->state.step >= trainer->total_steps || patience_is_over(trainer)) &&
           !trainer_epoch_is_unfinished(trainer);
}

/* True if train.eval_every requires an evaluation at the end of the current epoch. */
static bool evaluation_is_regular(const struct trainer *trainer)
{
    int64_t every = trainer->session.options.train.eval_every;
    return every > 0 && (trainer->state.epoch + 1) % every == 0;
}

/* Writes a checkpoint without the epoch's evaluation: a resumed run makes it. */
static bool epoch_interrupt(struct trainer *trainer, struct error *error)
{
    evaluation_free(&trainer->evaluation); /* it is of another step */
    if (trainer_epoch_is_unfinished(trainer))
        log_info("the evaluation after step %lld is left to the next attempt",
                 (long long)trainer->state.step);
    return trainer_checkpoint(trainer, false, error);
}

/* Evaluates, logs and writes a checkpoint at the end of an epoch or of the run. */
static bool epoch_finish(struct trainer *trainer, struct error *error)
{
    struct training_state *state = &trainer->state;
    if (trainer->stop.signalled)
        return epoch_interrupt(trainer, error);
    bool complete = state->epoch_step == trainer->steps_per_epoch;
    bool regular = complete && evaluation_is_regular(trainer);
    bool evaluated = trainer->session.validates && (regular || run_is_over(trainer)),
         better = false;
    if (evaluated) {
        if (!validation_run(trainer, error)) {
            /* A checkpoint, so that the epoch is not lost. */
            struct error other = {.kind = ERROR_NONE};
            if (!epoch_interrupt(trainer, &other))
                log_warn("no checkpoint of step %lld: %s", (long long)state->step, other.text);
            return false;
        }
        if (trainer->stop.signalled)
            return epoch_interrupt(trainer, error);
        /* An evaluation because of train.max_seconds is not made by a run without that limit. */
        bool counts = regular || trainer->state.step >= trainer->total_steps;
        better = counts && best_update(trainer, regular);
        if (regular) {
            schedule_follow(trainer);
            state->evaluations_without_gain = better ? 0 : state->evaluations_without_gain + 1;
            if (patience_is_over(trainer))
                trainer->stop.reason = early_stop_reason;
        }
    }
    if (!progress_epoch(trainer, evaluated, error))
        return false;
    if (complete) {
        state->epoch++;
        state->epoch_step = 0;
    }
    state->finished = state->step >= trainer->total_steps;
    bool keeps_best = better && trainer->session.options.checkpoint.every > 0;
    if (checkpoint_due(trainer) || keeps_best || run_is_over(trainer))
        return trainer_checkpoint(trainer, better, error);
    return true;
}

/* True if the run ends with an evaluation of the test split (train.test). */
static bool test_is_due(const struct trainer *trainer)
{
    bool interrupted = trainer->stop.out_of_time && trainer->state.step < trainer->total_steps;
    return trainer->session.options.train.test && !trainer->stop.signalled && !interrupted;
}

/* Collective. Writes the session's weights to the run folder. */
static bool weights_write(struct trainer *trainer, const char *name, struct error *error)
{
    char path[OPTION_TEXT + 32];
    if (!trainer->session.options.output.weights)
        return true;
    status_set_phase(PHASE_WEIGHTS_WRITE);
    snprintf(path, sizeof path, "%s/%s", trainer->folder.path, name);
    char *metadata = trainer_metadata(trainer);
    flat_swap_average(&trainer->session.flat);
    bool good = safetensors_write(path, &trainer->session.flat, metadata, error);
    flat_swap_average(&trainer->session.flat);
    free(metadata);
    return good;
}

/* Collective. True if the checkpoint of the best evaluation exists. Writes its path. */
static bool best_exists(const struct trainer *trainer, char *path, size_t size)
{
    char name[CHECKPOINT_NAME];
    checkpoint_name(name, trainer->best.step);
    snprintf(path, size, "%s/%s", trainer->folder.checkpoints, name);
    int64_t exists = trainer->best.step > 0 && access(path, R_OK) == 0;
    comm_broadcast(trainer->session.world, &exists, 1, COMM_INT64, 0);
    return exists != 0;
}

/* Collective. After a resume: forgets the best evaluation if its checkpoint is missing. With
 * checkpoint.every=0 evaluations write none. */
static void best_require(struct trainer *trainer)
{
    char path[BEST_PATH];
    if (best_exists(trainer, path, sizeof path) || trainer->best.step <= 0 ||
        trainer->session.options.checkpoint.every <= 0)
        return;
    log_warn("the checkpoint of the best evaluation is missing: %s; the best is chosen among the "
             "evaluations from now on",
             path);
    trainer->state.best_metric = trainer->best.metric = trainer->best.top1 = NAN;
    trainer->state.best_step = trainer->best.step = 0;
}

/* Collective. Reads the best weights, unless they are those of the newest step. With
 * checkpoint.every=0 they may have no checkpoint; then the session keeps the last weights. */
static bool best_weights_read(struct trainer *trainer, struct error *error)
{
    struct session *session = &trainer->session;
    const int64_t best = trainer->best.step;
    char path[BEST_PATH];
    const bool is_last = best > 0 && best == trainer->state.step;
    const bool exists = best_exists(trainer, path, sizeof path) || is_last;
    if (!exists && best > 0 && session->options.checkpoint.every > 0)
        return error_set(error, ERROR_CHECKPOINT,
                         "the best weights, of step %lld, are missing: %s does not exist; restore "
                         "it, or start the run again to end with the last weights",
                         (long long)best, path);
    trainer->test.weights = exists ? "best" : "last";
    trainer->test.step = exists ? best : trainer->state.step;
    if (!exists || is_last)
        return true;
    status_set_phase(PHASE_WEIGHTS_READ);
    if (!checkpoint_read(path, &trainer->checkpoints.target, &session->flat, NULL, true, error))
        return false;
    flat_refresh(&session->flat);
    return true;
}

/* Collective. Writes the final weights and, except after a signal, the best ones. If the best
 * weights are needed, the session keeps them. */
static bool weights_export(struct trainer *trainer, struct error *error)
{
    double begin = clock_now();
    bool wanted = trainer->session.options.output.weights && !trainer->stop.signalled;
    bool good = weights_write(trainer, "weights.safetensors", error);
    if (good && (wanted || test_is_due(trainer))) {
        good = best_weights_read(trainer, error);
        if (good && wanted && strcmp(trainer->test.weights, "best") == 0)
            good = weights_write(trainer, "best.safetensors", error);
    }
    trainer->checkpoints.seconds += clock_now() - begin;
    return good;
}

/* Collective. Evaluates the session's weights, the best ones if there are any, on the test split
 * (train.test). */
static bool test_run(struct trainer *trainer, struct error *error)
{
    const struct options *options = &trainer->session.options;
    struct session *session = &trainer->session;
    struct test_evaluation *test = &trainer->test;
    bool validated = options->data.val == VALIDATION_TEST;
    if (!test_is_due(trainer))
        return true;
    status_set_phase(PHASE_TEST);
    if (!validated && (!session_open_split(&trainer->session, SPLIT_TEST, &test->feed, error) ||
                       !split_loader_start_evaluation(&test->feed, options, trainer->session.world,
                                                      session->device, session->batch,
                                                      session->model->image, error)))
        return false;
    bool good = split_evaluate(trainer, validated ? &trainer->session.validation : &test->feed,
                               &test->evaluation, error);
    if (good && test->evaluation.given_up)
        log_info("the evaluation of the test split is left to the next attempt: a signal requested "
                 "the end");
    else if (good)
        progress_evaluation(trainer, "test", &test->evaluation);
    return good;
}

/* Collective. Restores the results of a run that was killed between its last checkpoint and the
 * results. */
static bool results_restore(struct trainer *trainer, struct error *error)
{
    if (patience_is_over(trainer))
        trainer->stop.reason = early_stop_reason;
    /* That in memory is removed at the end. */
    if (trainer->checkpoints.found.path[0] != '\0' &&
        (!trainer_checkpoint(trainer, false, error) || !trainer_checkpoint_finish(trainer, error)))
        return false;
    trainer->progress.last_epoch = progress_epoch_row(trainer);
    if (trainer->session.validates && !validation_run(trainer, error))
        return false;
    if (trainer->stop.signalled)
        log_info("the results are left to the next attempt: a signal requested the end");
    else if (trainer->session.validates)
        best_update(trainer, false);
    return true;
}

/* Runs the epochs. The loader continues across epochs and during evaluations. A background
 * checkpoint is completed in any case. */
static bool epochs_run(struct trainer *trainer, struct error *error)
{
    struct error late = {.kind = ERROR_NONE};
    const struct training_state *state = &trainer->state;
    if (!run_is_over(trainer))
        loader_start(trainer->session.train.loader, state->epoch, state->epoch_step,
                     trainer->total_steps - state->step);
    bool good = !trainer_epoch_is_unfinished(trainer) || epoch_finish(trainer, error);
    while (good && !run_is_over(trainer))
        good = epoch_train(trainer, error) && epoch_finish(trainer, error);
    if (trainer_checkpoint_finish(trainer, &late))
        return good;
    if (good)
        *error = late;
    return false;
}

bool trainer_replay(struct trainer *trainer, int64_t last, struct error *error)
{
    struct training_state *state = &trainer->state;
    const bool follows =
        trainer->session.options.schedule.name == SCHEDULE_PLATEAU && trainer->session.validates;
    OWNED char *header = receipts_header(trainer->session.model);
    if (strcmp(header, trainer->receipts.expected->header) != 0)
        return error_set(error, ERROR_DATA,
                         "receipt.csv: its columns are not the units of the model: the file is "
                         "damaged or of another run");
    if (trainer->stop.early)
        return true;
    trainer->total_steps = last;
    progress_begin(trainer);
    loader_start(trainer->session.train.loader, state->epoch, state->epoch_step,
                 last - state->step);
    while (!run_is_over(trainer)) {
        if (!epoch_train(trainer, error))
            return false;
        if (state->epoch_step < trainer->steps_per_epoch)
            continue;
        if (follows && evaluation_is_regular(trainer)) {
            if (!validation_run(trainer, error))
                return false;
            schedule_follow(trainer);
        }
        state->epoch++;
        state->epoch_step = 0;
    }
    return true;
}

/* Warn if the learning rate rises because steps were added to a run whose schedule had ended. */
static void schedule_rise_warn(const struct trainer *trainer)
{
    const int64_t step = trainer->state.step;
    struct schedule ended = trainer->schedule;
    ended.total_steps = step;
    if (step < 1 || trainer->folder.finished_steps != step ||
        trainer->session.options.train.early_stop > 0)
        return;
    const double before = schedule_rate(&ended, step - 1);
    const double now = schedule_rate(&trainer->schedule, step);
    if (now > rise_least * before)
        log_warn("the schedule ended at step %lld with the learning rate %.3g, and the added steps "
                 "stretch it, so it continues with %.3g: schedule.name=constant and optim.lr keep "
                 "a low rate",
                 (long long)step, before, now);
}

bool trainer_run(struct trainer *trainer, struct error *error)
{
    const struct options *options = &trainer->session.options;
    const struct run_stop *stop = &trainer->stop;
    const bool over = trainer_is_over(trainer);
    const long long step = trainer->state.step, steps = trainer->total_steps;
    trainer->attempt.begin = trainer->checkpoints.written_at = clock_now();
    status_set_step(step);
    trainer->progress.last_epoch = metrics_row_empty("epoch", 0, 0);
    if (step > 0)
        trainer->progress.rate = schedule_rate(&trainer->schedule, step - 1);
    if (stop->early) {
        log_info("stopped before the first step: a signal requested it");
        return true;
    }
    if (over && trainer->folder.finished_steps == step) {
        log_info(
            "nothing to do: the run ended at step %lld of %lld; raise train.epochs, train.steps "
            "or train.early_stop to continue; other changed options have no effect",
            step, steps);
        return true;
    }
    if (over)
        log_info("the run ended at step %lld before its results were written: writing them now",
                 step);
    if (!run_record_begin(trainer, error))
        return false;
    best_require(trainer);
    if (over && !results_restore(trainer, error))
        return false;
    if (trainer->session.world->rank == 0)
        error_defer(
            checkpoint_links_restore(trainer->folder.checkpoints, step, trainer->best.step, error));
    if (!comm_agree(trainer->session.world, error))
        return false;
    if (!over) {
        const struct monitor_setup setup = {.world = trainer->session.world,
                                            .node = trainer->session.mesh.node,
                                            .folder = trainer->folder.path,
                                            .log = trainer->output.log,
                                            .device = trainer->session.device,
                                            .seconds = options->output.monitor,
                                            .step = step,
                                            .root = ""};
        if (options->output.monitor > 0)
            trainer->output.monitor = monitor_open(&setup);
        schedule_rise_warn(trainer);
        progress_begin(trainer);
        if (!epochs_run(trainer, error))
            return false;
        if (stop->reason != NULL)
            log_info("stopped at step %lld of %lld: %s%s", (long long)trainer->state.step, steps,
                     stop->reason,
                     stop->signalled && strcmp(options->checkpoint.resume, "auto") == 0
                         ? "; the same command resumes the run"
                         : "");
    }
    return weights_export(trainer, error) && test_run(trainer, error) &&
           run_record_end(trainer, error);
}
