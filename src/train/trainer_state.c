// SPDX-License-Identifier: BSD-3-Clause
/* Checkpoints of a run: finds and reads the one to resume from, writes new ones. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/model_metadata.h"
#include "config/options.h"
#include "core/clock.h"
#include "core/integer.h"
#include "core/log.h"
#include "train/progress.h"
#include "train/resume.h"
#include "train/trainer_state.h"

/* Collective. Sets resume_path to the newest valid checkpoint of the run folder, or to "". */
static bool local_find(struct trainer *trainer, struct error *error)
{
    struct run_checkpoints *checkpoints = &trainer->checkpoints;
    return checkpoint_find(&checkpoints->target, trainer->run.world, checkpoints->resume_path,
                           sizeof checkpoints->resume_path, error) ||
           error->kind == ERROR_NONE;
}

/* Collective. Finds the newest complete checkpoint in the memory of the nodes. */
static bool memory_look(struct trainer *trainer, struct error *error)
{
    struct run_checkpoints *checkpoints = &trainer->checkpoints;
    struct comm *world = trainer->run.world;
    char id[MEMORY_ID] = "";
    bool unusable = false;
    if (world->rank == 0 && !trainer->folder.fresh)
        memory_id(trainer->folder.path, id, &unusable);
    if (unusable)
        log_warn("checkpoints in memory are not used: %s/.memory is damaged or was copied from "
                 "another run folder",
                 trainer->folder.path);
    comm_broadcast(world, id, sizeof id, COMM_BYTE, 0);
    if (id[0] == '\0')
        return true;
    const bool good = memory_find(id, &trainer->run.session.mesh, &checkpoints->found, error);
    if (good && !checkpoints->found.exists)
        log_warn("the checkpoints in memory of the last attempt are lost: no node has "
                 "/dev/shm/vittrain-*-%s",
                 id);
    else if (good && checkpoints->found.path[0] == '\0')
        log_info("the last attempt left no checkpoint in memory");
    return good;
}

/* Sets resume_path to the checkpoint found in memory, if it is newer. */
static void memory_choose(struct run_checkpoints *checkpoints)
{
    struct memory_found *found = &checkpoints->found;
    const bool is_newer = checkpoints->resume_path[0] == '\0' ||
                          checkpoint_name_step(checkpoints->resume_path) < found->step;
    if (found->path[0] != '\0' && is_newer)
        snprintf(checkpoints->resume_path, sizeof checkpoints->resume_path, "%s", found->path);
    else
        found->path[0] = '\0';
}

/* Collective. Sets resume_path to the newest valid checkpoint in memory or on disk, or to "". Those
 * on disk are not verified if one in memory is newer than all of them. */
static bool newest_find(struct trainer *trainer, struct error *error)
{
    struct run_checkpoints *checkpoints = &trainer->checkpoints;
    struct memory_found *found = &checkpoints->found;
    const int64_t disk = checkpoint_newest_step(&checkpoints->target, trainer->run.world);
    if (!memory_look(trainer, error))
        return false;
    if ((found->path[0] == '\0' || found->step <= disk) && trainer->folder.resuming &&
        !local_find(trainer, error))
        return false;
    memory_choose(checkpoints);
    return true;
}

/* Collective. Sets resume_path to the FILE of checkpoint.resume. */
static bool file_find(struct trainer *trainer, const char *resume, struct error *error)
{
    struct run_checkpoints *checkpoints = &trainer->checkpoints;
    snprintf(checkpoints->resume_path, sizeof checkpoints->resume_path, "%s", resume);
    const bool good = memory_look(trainer, error);
    checkpoints->found.path[0] = '\0'; /* only its step is needed (latest_check) */
    return good;
}

bool trainer_find_checkpoint(struct trainer *trainer, struct error *error)
{
    const char *resume = trainer->run.options.checkpoint.resume;
    char *path = trainer->checkpoints.resume_path;
    if (strcmp(resume, "never") == 0)
        return true;
    if (strcmp(resume, "auto") != 0)
        return file_find(trainer, resume, error);
    if (!newest_find(trainer, error))
        return false;
    if (!trainer->folder.resuming || path[0] != '\0')
        return true;
    return error_set(
        error, ERROR_CHECKPOINT,
        "cannot resume from %s: no valid checkpoint (see the lines above); set "
        "checkpoint.resume=FILE, or start over with checkpoint.resume=never and another "
        "run.dir",
        trainer->folder.checkpoints);
}

/* Divides the rank's batch into micro-batches no larger than train.batch, unless batch norm would
 * give other results. */
static void batch_stretch(struct trainer *trainer)
{
    const struct options *options = &trainer->run.options;
    struct session *session = &trainer->run.session;
    const int64_t ranks = trainer->run.world->size, batch = options->train.batch;
    int64_t share = (trainer->run.global_batch + ranks - 1) / ranks;
    if (share > batch && !session->model->batch_norms)
        session->accumulate *= (share + batch - 1) / batch;
    log_info("mesh.elastic: the global batch of %lld is kept, up to %lld per rank in micro-batches "
             "of up to %lld",
             (long long)trainer->run.global_batch, (long long)share,
             (long long)feed_pass_samples(options, trainer->run.global_batch, ranks,
                                          session->accumulate));
}

bool trainer_decide_batch(struct trainer *trainer, struct error *error)
{
    const struct options *options = &trainer->run.options;
    struct training_state state;
    char *deck;
    if (options->mesh.elastic && options->train.global_batch == 0 &&
        trainer->checkpoints.resume_path[0] != '\0') {
        if (!checkpoint_read_deck(trainer->checkpoints.resume_path, trainer->run.world, &state,
                                  &deck, error))
            return false;
        free(deck);
        if (state.step > 0 && state.global_batch != trainer->run.global_batch) {
            trainer->run.global_batch = state.global_batch;
            batch_stretch(trainer);
        }
    }
    return true;
}

/* Fails if settings differ with which a resumed run would not continue as before. */
static bool state_check(const struct trainer *trainer, const char *path, struct error *error)
{
    const struct training_state *state = &trainer->state;
    if (state->step == 0)
        return true;
    if (state->global_batch != trainer->run.global_batch)
        return error_set(error, ERROR_CHECKPOINT,
                         "%s was made with a global batch of %lld, this run has %lld: set "
                         "train.global_batch=%lld, or mesh.elastic=yes in its place",
                         path, (long long)state->global_batch, (long long)trainer->run.global_batch,
                         (long long)state->global_batch);
    if (state->seed != (uint64_t)trainer->run.options.run.seed)
        return error_set(error, ERROR_CHECKPOINT,
                         "%s was made with run.seed=%llu, this run has %lld: set the same seed",
                         path, (unsigned long long)state->seed,
                         (long long)trainer->run.options.run.seed);
    if (state->epoch_step > trainer->steps_per_epoch)
        return error_set(error, ERROR_CHECKPOINT,
                         "%s is of step %lld of an epoch, but an epoch has %lld steps now: use the "
                         "same data",
                         path, (long long)state->epoch_step, (long long)trainer->steps_per_epoch);
    int exponent;
    if (state->skipped_steps < 0 || state->skipped_steps > state->step ||
        state->loss_scale_good_steps < 0 || state->loss_scale_good_steps > state->step ||
        (state->loss_scale != 0 && frexp(state->loss_scale, &exponent) != 0.5))
        return error_set(error, ERROR_CHECKPOINT,
                         "%s: a loss scale of %g with %lld good and %lld skipped of %lld steps "
                         "is invalid",
                         path, state->loss_scale, (long long)state->loss_scale_good_steps,
                         (long long)state->skipped_steps, (long long)state->step);
    return true;
}

/* Fails if the run folder contains later checkpoints than the FILE to resume from: the next start
 * would resume from those, which belong to another history. */
static bool latest_check(const struct trainer *trainer, const char *path, struct error *error)
{
    const int64_t disk = checkpoint_newest_step(&trainer->checkpoints.target, trainer->run.world);
    const int64_t memory = trainer->checkpoints.found.step;
    if (larger(disk, memory) <= trainer->state.step)
        return true;
    return error_set(error, ERROR_USAGE,
                     "%s is of step %lld, but the run folder %s has checkpoints up to step %lld%s: "
                     "resume from those with checkpoint.resume=auto,%s or choose another run.dir",
                     path, (long long)trainer->state.step, trainer->folder.path,
                     (long long)larger(disk, memory), memory > disk ? " in memory" : "",
                     memory > disk && disk <= trainer->state.step
                         ? " remove the file .memory there to continue without them,"
                         : "");
}

/* Fails if result.json is of a later step: the rows of metrics.csv after the checkpoint belong to
 * that result, and resuming would remove them. */
static bool result_check(const struct trainer *trainer, const char *path, struct error *error)
{
    const int64_t finished = trainer->folder.finished_steps;
    return finished <= trainer->state.step ||
           error_set(error, ERROR_CHECKPOINT,
                     "cannot resume from %s: it is of step %lld, but %s/result.json is of a run of "
                     "%lld steps; restore a checkpoint of that step, or write \"finished\": false "
                     "into it to repeat the steps in between",
                     path, (long long)trainer->state.step, trainer->folder.path,
                     (long long)finished);
}

/* Collective. Takes the statistics of the training samples from the checkpoint. That of step 0 may
 * have been made from weights of other data. */
static bool statistics_read(struct trainer *trainer, const char *path, struct error *error)
{
    struct model_metadata metadata;
    if (!run_needs_statistics(&trainer->run, &trainer->run.train.dataset))
        return true;
    if (trainer->state.step == 0)
        return run_find_statistics(&trainer->run, error);
    const bool good =
        model_metadata_read(path, trainer->run.world, &metadata, error) &&
        run_use_statistics(&trainer->run, &trainer->run.train.dataset, &metadata.statistics, error);
    model_metadata_free(&metadata);
    return good;
}

/* Forgets the best evaluation and what depends on it: the counts of evaluations without a gain. */
static void best_forget(struct training_state *state)
{
    state->best_metric = state->plateau_best = NAN;
    state->best_step = state->evaluations_without_gain = state->plateau_bad = 0;
}

bool trainer_resume(struct trainer *trainer, bool *resumed, struct error *error)
{
    const char *path = trainer->checkpoints.resume_path;
    const char *resume = trainer->run.options.checkpoint.resume;
    bool names_file = strcmp(resume, "auto") != 0;
    struct checkpoint_target target = trainer->checkpoints.target;
    const bool in_memory = trainer->checkpoints.found.path[0] != '\0';
    bool other_monitor;
    *resumed = false;
    if (path[0] == '\0')
        return true;
    if (in_memory)
        target.writers = WRITERS_ALL;
    if (!resume_check(trainer, path, names_file, &other_monitor, error) ||
        !checkpoint_read(path, &target, &trainer->run.session.flat, &trainer->state, false,
                         error) ||
        !state_check(trainer, path, error) || (names_file && !latest_check(trainer, path, error)) ||
        !result_check(trainer, path, error))
        return false;
    if (!statistics_read(trainer, path, error))
        return false;
    if (other_monitor)
        best_forget(&trainer->state);
    /* If the run used another compute type before, train.loss_scale applies. */
    struct loss_scaler scaler = trainer->run.session.io.result.scaler;
    scaler.skipped = trainer->state.skipped_steps;
    if (trainer->state.loss_scale > 0 && trainer->run.session.io.scaler != NULL) {
        scaler.scale = (float)trainer->state.loss_scale;
        scaler.good_steps = (int32_t)trainer->state.loss_scale_good_steps;
    }
    session_set_scaler(&trainer->run.session, &scaler);
    if (trainer->state.step == 0) { /* no random numbers were drawn yet */
        trainer->state.global_batch = trainer->run.global_batch;
        trainer->state.seed = (uint64_t)trainer->run.options.run.seed;
    }
    const struct training_state *state = &trainer->state;
    const bool ended = state->epoch_step == 0 && trainer_is_over(trainer, state);
    log_info("resuming from %s: step %lld, epoch %lld", path, (long long)state->step,
             (long long)state->epoch + (ended ? 0 : 1));
    const long long reached = trainer->checkpoints.found.reached, lost = reached - state->step;
    if (lost > 0 && reached <= trainer->total_steps)
        log_info("the run was interrupted in step %lld: %lld step%s repeated", reached, lost,
                 lost == 1 ? " is" : "s are");
    *resumed = true;
    return true;
}

void trainer_update_seconds(struct trainer *trainer)
{
    struct training_state *state = &trainer->state;
    double now = clock_now();
    state->total_seconds = trainer->attempt.earlier_seconds + now - trainer->attempt.opened_at;
    state->without_setup_seconds =
        trainer->attempt.earlier_without_setup_seconds + now - trainer->attempt.begin;
    state->train_seconds = trainer->attempt.earlier_train_seconds + now - trainer->attempt.begin -
                           trainer->attempt.evaluation_seconds - trainer->checkpoints.seconds;
}

/* Updates the training state before a checkpoint. */
static void state_update(struct trainer *trainer)
{
    struct training_state *state = &trainer->state;
    trainer_update_seconds(trainer);
    state->plateau_rate_factor = trainer->schedule.plateau_factor;
    state->plateau_best = trainer->schedule.plateau_best;
    state->plateau_bad = trainer->schedule.plateau_bad;
    const struct loss_scaler *scaler = &trainer->run.session.io.result.scaler;
    state->loss_scale = trainer->run.session.io.scaler != NULL ? (double)scaler->scale : 0;
    state->loss_scale_good_steps = scaler->good_steps;
    state->skipped_steps = scaler->skipped;
}

/* Counts the time since `since` as waiting for checkpoints. */
static void checkpoint_pause(struct trainer *trainer, double since)
{
    double seconds = clock_now() - since;
    trainer->checkpoints.seconds += seconds;
    progress_pause(trainer, seconds);
}

char *trainer_metadata(const struct trainer *trainer)
{
    return model_metadata_describe(&trainer->run.options, trainer->run.session.model,
                                   &trainer->run.train.dataset);
}

/* Collective. Writes the state as a checkpoint on disk or in memory. */
static bool state_write(struct trainer *trainer, bool best, bool in_memory, struct error *error)
{
    char name[CHECKPOINT_NAME];
    state_update(trainer);
    /* A run that resumes from this checkpoint does not write the rows up to this step again. */
    error_defer(run_log_flush(trainer->output.log, &trainer->output.log_error));
    checkpoint_name(name, trainer->state.step);
    char *deck = options_to_run_deck(&trainer->run.options);
    char *metadata = trainer_metadata(trainer);
    const struct checkpoint_order order = {.name = name,
                                           .model_name = trainer->run.options.model.name,
                                           .state = &trainer->state,
                                           .deck_text = deck,
                                           .metadata = metadata,
                                           .data = trainer->data,
                                           .best = best,
                                           .keep = trainer->run.options.checkpoint.keep};
    const bool good = in_memory
                          ? memory_checkpoint_write(trainer->checkpoints.memory, &order, error)
                          : checkpoint_writer_start(trainer->checkpoints.writer, &order, error);
    free(deck);
    free(metadata);
    return good;
}

bool trainer_checkpoint(struct trainer *trainer, bool best, struct error *error)
{
    double begin = clock_now();
    if (!state_write(trainer, best, false, error))
        return false;
    trainer->checkpoints.overdue = false;
    trainer->checkpoints.count++;
    trainer->checkpoints.written_at = clock_now();
    checkpoint_pause(trainer, begin);
    return true;
}

bool trainer_memory_open(struct trainer *trainer, struct error *error)
{
    struct run_checkpoints *checkpoints = &trainer->checkpoints;
    checkpoints->memory = memory_checkpoint_open(trainer->folder.path, &trainer->run.session.flat,
                                                 checkpoints->found.path,
                                                 trainer->run.options.checkpoint.memory > 0, error);
    return checkpoints->memory != NULL;
}

void trainer_memory_write(struct trainer *trainer)
{
    struct run_checkpoints *checkpoints = &trainer->checkpoints;
    struct error error = {.kind = ERROR_NONE};
    const double begin = clock_now();
    checkpoints->memory_overdue = false;
    if (!state_write(trainer, false, true, &error)) {
        log_warn("no more checkpoints in memory: %s", error.text);
        checkpoints->memory_failed = true;
    }
    *(checkpoints->memory_count < 2 ? &checkpoints->memory_allocation_seconds
                                    : &checkpoints->memory_seconds) += clock_now() - begin;
    checkpoints->memory_count += !checkpoints->memory_failed;
    checkpoint_pause(trainer, begin);
}

bool trainer_checkpoint_finish(struct trainer *trainer, struct error *error)
{
    double begin = clock_now();
    bool good = checkpoint_writer_finish(trainer->checkpoints.writer, error);
    checkpoint_pause(trainer, begin);
    return good;
}
