/* What a run goes on from, and what it leaves to go on from. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/checkpoint_read.h"
#include "config/options.h"
#include "core/clock.h"
#include "core/log.h"
#include "runlog/rclone.h"
#include "train/progress.h"
#include "train/retrieve.h"
#include "train/trainer.h"

bool trainer_find_local(struct trainer *trainer, struct error *error)
{
    char report[4096] = "";
    bool found = checkpoint_find(
        &trainer->checkpoints.target, trainer->world, trainer->checkpoints.resume_path,
        sizeof trainer->checkpoints.resume_path, report, sizeof report, error);
    for (char *line = strtok(report, "\n"); line != NULL; line = strtok(NULL, "\n"))
        log_warn("passed over: %s", line);
    return found || error->kind == ERROR_NONE;
}

bool trainer_find_checkpoint(struct trainer *trainer, struct error *error)
{
    const char *resume = trainer->options.checkpoint.resume;
    char *path = trainer->checkpoints.resume_path;
    if (strcmp(resume, "never") == 0)
        return true;
    if (rclone_is_remote(resume))
        return rclone_is_file(resume)
                   ? retrieve_file(trainer, resume, "checkpoint.resume", path,
                                   sizeof trainer->checkpoints.resume_path, error)
                   : retrieve_newest(trainer, resume, error);
    if (strcmp(resume, "auto") != 0) {
        snprintf(path, sizeof trainer->checkpoints.resume_path, "%s", resume);
        return true;
    }
    if (!trainer->folder.resuming)
        return true;
    if (!trainer_find_local(trainer, error) || path[0] != '\0')
        return error->kind == ERROR_NONE;
    return error_set(
        error, ERROR_CHECKPOINT,
        "no checkpoint in %s can be gone on with (the lines above say why): name one by "
        "checkpoint.resume=FILE, or begin anew by checkpoint.resume=never and another "
        "run.dir",
        trainer->folder.checkpoints);
}

/* Keeps a pass of a rank as small as the deck has it, where that does not change what is computed.
 */
static void batch_stretch(struct trainer *trainer)
{
    struct options *options = &trainer->options;
    const int64_t ranks = trainer->world->size, batch = options->train.batch;
    int64_t share = (trainer->global_batch + ranks - 1) / ranks;
    if (share > batch && !trainer->session.model->batch_norms)
        options->train.accumulate *= (share + batch - 1) / batch;
    log_info("mesh.elastic: the checkpoint's global batch of %lld goes on, up to %lld a rank in "
             "pieces of up to %lld",
             (long long)trainer->global_batch, (long long)share,
             (long long)feed_pass_samples(options, trainer->global_batch, ranks));
}

bool trainer_decide_batch(struct trainer *trainer, struct error *error)
{
    const struct options *options = &trainer->options;
    struct training_state state;
    trainer->global_batch = feed_global_batch(options, trainer->world->size);
    if (options->mesh.elastic && options->train.global_batch == 0 &&
        trainer->checkpoints.resume_path[0] != '\0') {
        if (!checkpoint_read_state(trainer->checkpoints.resume_path, trainer->world, &state, error))
            return false;
        if (state.step > 0 && state.global_batch != trainer->global_batch) {
            trainer->global_batch = state.global_batch;
            batch_stretch(trainer);
        }
    }
    if (options->data.drop_last && trainer->train.dataset.count < trainer->global_batch)
        return error_set(error, ERROR_USAGE,
                         "the global batch of %lld is larger than the %lld samples and "
                         "data.drop_last=on leaves none: use a smaller batch",
                         (long long)trainer->global_batch, (long long)trainer->train.dataset.count);
    return true;
}

/* What must not change within a run for it to go on as if it had never stopped. */
static bool state_check(const struct trainer *trainer, const char *path, struct error *error)
{
    const struct training_state *state = &trainer->state;
    if (state->step == 0)
        return true;
    if (state->global_batch != trainer->global_batch)
        return error_set(error, ERROR_CHECKPOINT,
                         "%s was made with a global batch of %lld, this run has %lld: set "
                         "train.global_batch=%lld, or mesh.elastic=yes in its place",
                         path, (long long)state->global_batch, (long long)trainer->global_batch,
                         (long long)state->global_batch);
    if (state->seed != (uint64_t)trainer->options.run.seed)
        return error_set(error, ERROR_CHECKPOINT,
                         "%s was made with run.seed=%llu, this run has %lld: set the same seed",
                         path, (unsigned long long)state->seed,
                         (long long)trainer->options.run.seed);
    if (state->epoch_step > trainer->steps_per_epoch)
        return error_set(error, ERROR_CHECKPOINT,
                         "%s stands at step %lld of an epoch, but an epoch has %lld now: use the "
                         "same data",
                         path, (long long)state->epoch_step, (long long)trainer->steps_per_epoch);
    int exponent;
    if (state->skipped_steps < 0 || state->skipped_steps > state->step ||
        state->loss_scale_good_steps < 0 || state->loss_scale_good_steps > state->step ||
        (state->loss_scale != 0 && frexp(state->loss_scale, &exponent) != 0.5))
        return error_set(error, ERROR_CHECKPOINT,
                         "%s: a loss scale of %g with %lld good and %lld skipped of %lld steps "
                         "makes no sense",
                         path, state->loss_scale, (long long)state->loss_scale_good_steps,
                         (long long)state->skipped_steps, (long long)state->step);
    return true;
}

/* Goes on with the scale of the loss; where the run computed in another type before, with the
 * option's. */
static void scaler_resume(struct trainer *trainer)
{
    const struct training_state *state = &trainer->state;
    struct loss_scaler scaler = trainer->session.io.result.scaler;
    scaler.skipped = state->skipped_steps;
    if (state->loss_scale > 0 && trainer->session.io.scaler != NULL) {
        scaler.scale = (float)state->loss_scale;
        scaler.good_steps = (int32_t)state->loss_scale_good_steps;
    }
    session_set_scaler(&trainer->session, &scaler);
}

/* Who goes on from a FILE must not leave later checkpoints behind in the run's folder: they would
 * be of another history, and the next start would take them. */
static bool latest_check(const struct trainer *trainer, const char *path, struct error *error)
{
    int64_t newest = checkpoint_newest_step(&trainer->checkpoints.target, trainer->world);
    if (newest <= trainer->state.step)
        return true;
    return error_set(error, ERROR_USAGE,
                     "%s is of step %lld, but the run folder %s holds checkpoints up to step %lld: "
                     "go on with those by checkpoint.resume=auto, or choose another run.dir",
                     path, (long long)trainer->state.step, trainer->folder.path, (long long)newest);
}

/* One file that a person chose, and not the newest of a folder. */
static bool is_named(const char *resume)
{
    return strcmp(resume, "auto") != 0 && (!rclone_is_remote(resume) || rclone_is_file(resume));
}

bool trainer_resume(struct trainer *trainer, bool *resumed, struct error *error)
{
    const char *path = trainer->checkpoints.resume_path;
    *resumed = false;
    if (path[0] == '\0')
        return true;
    if (!checkpoint_read(path, &trainer->checkpoints.target, &trainer->session.flat,
                         &trainer->state, false, error) ||
        !state_check(trainer, path, error) ||
        (is_named(trainer->options.checkpoint.resume) && !latest_check(trainer, path, error)))
        return false;
    scaler_resume(trainer);
    if (trainer->state.step == 0) { /* nothing was drawn or counted yet */
        trainer->state.global_batch = trainer->global_batch;
        trainer->state.seed = (uint64_t)trainer->options.run.seed;
    }
    log_info("resuming from %s: step %lld, epoch %lld", path, (long long)trainer->state.step,
             (long long)trainer->state.epoch + 1);
    *resumed = true;
    return true;
}

/* Brings the state up to now. */
static void state_update(struct trainer *trainer)
{
    struct training_state *state = &trainer->state;
    double now = clock_now();
    state->total_seconds = trainer->attempt.earlier_seconds + now - trainer->attempt.opened_at;
    state->without_setup_seconds =
        trainer->attempt.earlier_without_setup_seconds + now - trainer->attempt.begin;
    state->train_seconds = trainer->attempt.earlier_train_seconds + now - trainer->attempt.begin -
                           trainer->attempt.evaluation_seconds - trainer->checkpoints.seconds;
    state->plateau_rate_factor = trainer->schedule.plateau_factor;
    state->plateau_best = trainer->schedule.plateau_best;
    state->plateau_bad = trainer->schedule.plateau_bad;
    const struct loss_scaler *scaler = &trainer->session.io.result.scaler;
    state->loss_scale = trainer->session.io.scaler != NULL ? (double)scaler->scale : 0;
    state->loss_scale_good_steps = scaler->good_steps;
    state->skipped_steps = scaler->skipped;
    state->finished = state->step >= trainer->total_steps && !trainer->stop.signalled;
}

/* The run has stood still since then, for its checkpoints. */
static void checkpoint_pause(struct trainer *trainer, double since)
{
    double seconds = clock_now() - since;
    trainer->checkpoints.seconds += seconds;
    progress_pause(trainer, seconds);
}

bool trainer_checkpoint(struct trainer *trainer, bool best, struct error *error)
{
    char name[64];
    double begin = clock_now();
    state_update(trainer);
    /* Rows up to this step must not be lost with the process: who resumes here will not write them.
     */
    error_defer(run_log_flush(trainer->output.log, &trainer->output.log_error));
    snprintf(name, sizeof name, "step-%08lld.h5", (long long)trainer->state.step);
    char *deck = options_to_run_deck(&trainer->options);
    const struct checkpoint_order order = {.name = name,
                                           .model_name = trainer->options.model.name,
                                           .state = &trainer->state,
                                           .deck_text = deck,
                                           .best = best,
                                           .keep = trainer->options.checkpoint.keep};
    bool good = checkpoint_writer_start(trainer->checkpoints.writer, &order, error);
    free(deck);
    if (!good)
        return false;
    trainer->checkpoints.overdue = false;
    trainer->checkpoints.count++;
    trainer->checkpoints.written_at = clock_now();
    trainer->output.figures.checkpoint_at = clock_wall();
    progress_figures(trainer);
    checkpoint_pause(trainer, begin);
    return true;
}

bool trainer_checkpoint_finish(struct trainer *trainer, struct error *error)
{
    double begin = clock_now();
    bool good = checkpoint_writer_finish(trainer->checkpoints.writer, error);
    checkpoint_pause(trainer, begin);
    return good;
}
