// SPDX-License-Identifier: BSD-3-Clause
/* Checkpoints of a run: finds and reads the one to resume from, writes new ones. */
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "checkpoint/checkpoint_file.h"
#include "checkpoint/model_metadata.h"
#include "options/options.h"

/* Collective. Finds the newest complete checkpoint in the memory of the nodes. */
static bool memory_look(struct trainer *trainer, struct error *error)
{
    struct run_checkpoints *checkpoints = &trainer->checkpoints;
    struct comm *world = trainer->session.world;
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
    const bool good = memory_find(id, &trainer->session.mesh, &checkpoints->found, error);
    if (good && !checkpoints->found.exists)
        log_warn("the checkpoints in memory of the last attempt are lost: no node has "
                 "/dev/shm/vittrain-*-%s",
                 id);
    else if (good && checkpoints->found.path[0] == '\0')
        log_info("the last attempt left no checkpoint in memory");
    return good;
}

/* With checkpoint.resume=auto: the newest valid one in memory or on disk. Those on disk are not
 * verified if one in memory is newer than all of them. */
bool trainer_find_checkpoint(struct trainer *trainer, struct error *error)
{
    struct run_checkpoints *checkpoints = &trainer->checkpoints;
    struct memory_found *found = &checkpoints->found;
    struct comm *world = trainer->session.world;
    const char *resume = trainer->session.options.checkpoint.resume;
    char *path = checkpoints->resume_path;
    const size_t size = sizeof checkpoints->resume_path;
    if (strcmp(resume, "never") == 0)
        return true;
    if (!memory_look(trainer, error))
        return false;
    if (strcmp(resume, "auto") != 0) {
        snprintf(path, size, "%s", resume);
        found->path[0] = '\0'; /* only its step is needed (state_check) */
        return true;
    }
    const int64_t disk = checkpoint_newest_step(&checkpoints->target, world);
    if ((found->path[0] == '\0' || found->step <= disk) && trainer->folder.resuming &&
        !checkpoint_find(&checkpoints->target, world, path, size, error) &&
        error->kind != ERROR_NONE)
        return false;
    if (found->path[0] != '\0' && (path[0] == '\0' || checkpoint_name_step(path) < found->step))
        snprintf(path, size, "%s", found->path);
    else
        found->path[0] = '\0';
    return !trainer->folder.resuming || path[0] != '\0' ||
           error_set(
               error, ERROR_CHECKPOINT,
               "cannot resume from %s: no valid checkpoint (see the lines above); set "
               "checkpoint.resume=FILE, or start over with checkpoint.resume=never and another "
               "run.dir",
               trainer->folder.checkpoints);
}

bool trainer_decide_batch(struct trainer *trainer, struct error *error)
{
    struct session *session = &trainer->session;
    const struct options *options = &session->options;
    const int64_t ranks = session->world->size, batch = options->train.batch;
    struct checkpoint_contents contents;
    if (!options->mesh.elastic || options->train.global_batch > 0 ||
        trainer->checkpoints.resume_path[0] == '\0')
        return true;
    const bool good = checkpoint_contents_read(trainer->checkpoints.resume_path, session->world, 0,
                                               &contents, error);
    const struct training_state state = contents.state;
    checkpoint_contents_free(&contents);
    if (!good)
        return false;
    if (state.step == 0 || state.global_batch == session->global_batch)
        return true;
    session->global_batch = state.global_batch;
    /* Micro-batches are no larger than train.batch, unless batch norm would give other results. */
    const int64_t share = round_up_division(session->global_batch, ranks);
    if (share > batch && !session->model->batch_norms)
        session->accumulate *= round_up_division(share, batch);
    log_info("mesh.elastic: the global batch of %lld is kept, up to %lld per rank in micro-batches "
             "of up to %lld",
             (long long)session->global_batch, (long long)share,
             (long long)split_loader_pass_samples(options, session->global_batch, ranks,
                                                  session->accumulate));
    return true;
}

/* Collective. Fails if the run would not continue as before from this state, or if it has a later
 * one, in result.json or in checkpoints (with the name of a FILE). */
static bool state_check(const struct trainer *trainer, const char *path, bool names_file,
                        struct error *error)
{
    const struct training_state *state = &trainer->state;
    const struct session *session = &trainer->session;
    const long long step = state->step, finished = trainer->folder.finished_steps;
    int exponent;
    if (step > 0 && state->global_batch != session->global_batch)
        return error_set(error, ERROR_CHECKPOINT,
                         "%s was made with a global batch of %lld, this run has %lld: set "
                         "train.global_batch=%lld, or mesh.elastic=yes in its place",
                         path, (long long)state->global_batch, (long long)session->global_batch,
                         (long long)state->global_batch);
    if (step > 0 && state->seed != (uint64_t)session->options.run.seed)
        return error_set(error, ERROR_CHECKPOINT,
                         "%s was made with run.seed=%llu, this run has %lld: set the same seed",
                         path, (unsigned long long)state->seed,
                         (long long)session->options.run.seed);
    if (step > 0 && state->epoch_step > trainer->steps_per_epoch)
        return error_set(error, ERROR_CHECKPOINT,
                         "%s is of step %lld of an epoch, but an epoch has %lld steps now: use the "
                         "same data",
                         path, (long long)state->epoch_step, (long long)trainer->steps_per_epoch);
    if (step > 0 && (state->skipped_steps < 0 || state->skipped_steps > step ||
                     state->loss_scale_good_steps < 0 || state->loss_scale_good_steps > step ||
                     (state->loss_scale != 0 && frexp(state->loss_scale, &exponent) != 0.5)))
        return error_set(error, ERROR_CHECKPOINT,
                         "%s: a loss scale of %g with %lld good and %lld skipped of %lld steps "
                         "is invalid",
                         path, state->loss_scale, (long long)state->loss_scale_good_steps,
                         (long long)state->skipped_steps, step);
    /* The next start would resume from later checkpoints, which belong to another history. */
    const int64_t memory = trainer->checkpoints.found.step;
    const int64_t disk =
        names_file ? checkpoint_newest_step(&trainer->checkpoints.target, session->world) : 0;
    if (names_file && larger(disk, memory) > step)
        return error_set(
            error, ERROR_USAGE,
            "%s is of step %lld, but the run folder %s has checkpoints up to step %lld%s: "
            "resume from those with checkpoint.resume=auto,%s or choose another run.dir",
            path, step, trainer->folder.path, (long long)larger(disk, memory),
            memory > disk ? " in memory" : "",
            memory > disk && disk <= step
                ? " remove the file .memory there to continue without them,"
                : "");
    /* The rows of metrics.csv after the checkpoint belong to that result, and resuming would remove
     * them. */
    return finished <= step ||
           error_set(error, ERROR_CHECKPOINT,
                     "cannot resume from %s: it is of step %lld, but %s/result.json is of a run of "
                     "%lld steps; restore a checkpoint of that step, or write \"finished\": false "
                     "into it to repeat the steps in between",
                     path, step, trainer->folder.path, finished);
}

bool trainer_resume(struct trainer *trainer, struct error *error)
{
    const char *path = trainer->checkpoints.resume_path;
    struct session *session = &trainer->session;
    struct training_state *state = &trainer->state;
    struct checkpoint_target target = trainer->checkpoints.target;
    const bool names_file = strcmp(session->options.checkpoint.resume, "auto") != 0;
    bool other_monitor;
    if (trainer->checkpoints.found.path[0] != '\0')
        target.writers = WRITERS_ALL;
    if (!resume_check(trainer, path, names_file, &other_monitor, error) ||
        !checkpoint_read(path, &target, &session->flat, state, false, error) ||
        !state_check(trainer, path, names_file, error))
        return false;
    /* The statistics of step 0 may have been made from weights of other data. */
    if (state->step == 0 && !session_find_statistics(session, error))
        return false;
    if (state->step > 0 && session_needs_statistics(session, &session->train.dataset)) {
        struct model_metadata metadata;
        const bool good =
            model_metadata_read(path, session->world, &metadata, error) &&
            session_use_statistics(session, &session->train.dataset, &metadata.statistics, error);
        model_metadata_free(&metadata);
        if (!good)
            return false;
    }
    if (other_monitor) { /* the best evaluation is of another metric */
        state->best_metric = state->plateau_best = NAN;
        state->best_step = state->evaluations_without_gain = state->plateau_bad = 0;
    }
    /* If the run used another compute type before, train.loss_scale applies. */
    struct loss_scaler scaler = session->io.result.scaler;
    scaler.skipped = state->skipped_steps;
    if (state->loss_scale > 0 && session->io.scaler != NULL) {
        scaler.scale = (float)state->loss_scale;
        scaler.good_steps = (int32_t)state->loss_scale_good_steps;
    }
    session_set_scaler(session, &scaler);
    if (state->step == 0) { /* no random numbers were drawn yet */
        state->global_batch = session->global_batch;
        state->seed = (uint64_t)session->options.run.seed;
    }
    const bool ended = state->epoch_step == 0 && trainer_is_over(trainer, state);
    log_info("resuming from %s: step %lld, epoch %lld", path, (long long)state->step,
             (long long)state->epoch + (ended ? 0 : 1));
    const long long reached = trainer->checkpoints.found.reached, lost = reached - state->step;
    if (lost > 0 && reached <= trainer->total_steps)
        log_info("the run was interrupted in step %lld: %lld step%s repeated", reached, lost,
                 lost == 1 ? " is" : "s are");
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

/* Counts the time since `since` as waiting for checkpoints. */
static void checkpoint_pause(struct trainer *trainer, double since)
{
    double seconds = clock_now() - since;
    trainer->checkpoints.seconds += seconds;
    progress_pause(trainer, seconds);
}

char *trainer_metadata(const struct trainer *trainer)
{
    return model_metadata_describe(&trainer->session.options, trainer->session.model,
                                   &trainer->session.train.dataset);
}

/* Collective. Writes the state as a checkpoint on disk or in memory. */
static bool state_write(struct trainer *trainer, bool best, bool in_memory, struct error *error)
{
    struct training_state *state = &trainer->state;
    const struct step_io *io = &trainer->session.io;
    trainer_update_seconds(trainer);
    state->plateau_rate_factor = trainer->schedule.plateau_factor;
    state->plateau_best = trainer->schedule.plateau_best;
    state->plateau_bad = trainer->schedule.plateau_bad;
    state->loss_scale = io->scaler != NULL ? (double)io->result.scaler.scale : 0;
    state->loss_scale_good_steps = io->result.scaler.good_steps;
    state->skipped_steps = io->result.scaler.skipped;
    /* A run that resumes from this checkpoint does not write the rows up to this step again. */
    error_defer(metrics_flush(trainer->output.log, &trainer->output.log_error));
    char *metadata = trainer_metadata(trainer);
    const struct checkpoint_order order = {.options = &trainer->session.options,
                                           .state = &trainer->state,
                                           .metadata = metadata,
                                           .data = trainer->data,
                                           .best = best};
    const bool good = in_memory
                          ? memory_checkpoint_write(trainer->checkpoints.memory, &order, error)
                          : checkpoint_writer_start(trainer->checkpoints.writer, &order, error);
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
