// SPDX-License-Identifier: BSD-3-Clause
/* The set-up of a training run: data, model, memory, run folder, checkpoint. User errors are found
 * here, before training starts. */
#include "train/trainer.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "base/text.h"
#include "checkpoint/model_metadata.h"
#include "options/options.h"
#include "train/hardware.h"

/* Rank 0. Fails for paths of rclone where they are not allowed, if the file of model.init is
 * missing and the run will not resume, or if it is a PyTorch file. */
static bool paths_check(const struct options *options, struct error *error)
{
    const char *resume = options->checkpoint.resume, *upload = options->output.upload;
    const char *init = options->model.init;
    if (text_is_remote(resume))
        return error_set(error, ERROR_USAGE,
                         "checkpoint.resume=%s is a remote path: copy it first with `rclone copy "
                         "--links %s FOLDER`; then set run.dir=FOLDER for a whole run, or "
                         "checkpoint.resume to the copied checkpoint",
                         resume, resume);
    if (upload[0] != '\0' && !text_is_remote(upload))
        return error_set(error, ERROR_USAGE,
                         "output.upload=%s is not a remote path: give REMOTE:PATH with a remote of "
                         "`rclone config`",
                         upload);
    return !session_reads_weights(options) ||
           ((run_folder_may_resume(options) || weights_file_exists("model.init: ", init, error)) &&
            weights_file_check(init, error));
}

/* Logs what the run trains, on what. */
static void run_announce(const struct session *session)
{
    const struct image_source source = batch_upload_source(&session->input, &session->train.source);
    const int ranks = session->world->size;
    char mesh[256], transport[512];
    mesh_describe(&session->mesh, mesh, sizeof mesh);
    mesh_describe_transport(&session->mesh, transport, sizeof transport);
    log_info("mesh: %s%s%s", mesh, ranks > 1 ? "; transport: " : "", ranks > 1 ? transport : "");
    log_info("device: %s; computing in %s%s%s", session->limits.name, type_name(session->compute),
             session->limits.library[0] != '\0' ? " with " : "", session->limits.library);
    log_info("data: %s, %lld training and %lld validation samples of %lldx%lld, %lld %s",
             session->options.data.format, (long long)session->train.dataset.count,
             (long long)session->validation.dataset.count, (long long)source.height,
             (long long)source.width, (long long)session->train.dataset.classes,
             session->train.dataset.target_normalised ? "outputs" : "classes");
    recipe_log(session);
    log_info("model: %s, %lld parameters in %d units, %.3g GFLOP per image and step",
             session->options.model.name, (long long)model_parameter_count(session->model, false),
             session->model->unit_count, session->model->flops_per_image / 1e9);
    if (session->model->local_norms && ranks > 1)
        log_info("batch norm uses the samples of one rank only (model.sync_bn=off): results "
                 "depend on the number of ranks");
    if (session->grains == NULL)
        return;
    const long long grains = session_grains(session);
    log_info("train.exact=layout: %lld grains of up to %lld samples in a global batch", grains,
             (long long)session->grain);
    if (grains < ranks)
        log_warn("train.exact=layout: only %lld of %d ranks have samples; use fewer ranks, "
                 "a larger global batch or a smaller train.grain",
                 grains, ranks);
}

bool trainer_chooses_on_test(const struct trainer *trainer)
{
    const struct options *options = &trainer->session.options;
    const int64_t period = trainer->steps_per_epoch * options->train.eval_every;
    const int64_t evaluations =
        period > 0 ? (trainer->total_steps + period - 1) / period : trainer->total_steps > 0;
    return options->data.val == VALIDATION_TEST && options->checkpoint.monitor != MONITOR_NONE &&
           evaluations > 1 && strcmp(options->data.format, "synthetic") != 0;
}

/* Collective. Creates or finds the run folder, and the checkpoint to resume from. */
static bool folder_open(struct trainer *trainer, struct error *error)
{
    const struct options *options = &trainer->session.options;
    struct run_folder *folder = &trainer->folder;
    struct checkpoint_target *target = &trainer->checkpoints.target;
    status_set_phase(PHASE_FOLDER);
    if (!run_folder_open(folder, &trainer->session.mesh, options, error))
        return false;
    log_info("run folder: %s%s", folder->path, folder->resuming ? " (resuming)" : "");
    target->directory = folder->checkpoints;
    return checkpoint_probe(folder->checkpoints, trainer->session.world,
                            options->checkpoint.writers, &target->writers, error) &&
           trainer_find_checkpoint(trainer, error);
}

/* Collective. Sets weights and training state to those of the checkpoint, or to the initial ones.
 */
static bool state_open(struct trainer *trainer, struct error *error)
{
    struct session *session = &trainer->session;
    struct training_state *state = &trainer->state;
    const int monitor = session->options.checkpoint.monitor;
    status_set_phase(PHASE_WEIGHTS_READ);
    *state = training_state_begin(session->global_batch, (uint64_t)session->options.run.seed);
    if (session->world->rank == 0)
        error_defer(resume_describe_data(trainer, error));
    if (!comm_share_error(session->world, error) ||
        !(trainer->checkpoints.resume_path[0] != '\0' ? trainer_resume(trainer, error)
                                                      : session_initialize(session, error)))
        return false;
    flat_refresh(&session->flat);
    state->parts++;
    trainer->best.metric = state->best_metric;
    trainer->best.step = monitor != MONITOR_NONE ? state->best_step : -1;
    trainer->best.top1 = monitor == MONITOR_TOP1 ? state->best_metric : NAN;
    trainer->attempt.earlier = *state;
    trainer->schedule.plateau_factor = state->plateau_rate_factor;
    trainer->schedule.plateau_best = state->plateau_best;
    trainer->schedule.plateau_bad = state->plateau_bad;
    return true;
}

/* Collective. Opens the tables of the run. */
static bool log_open_tables(struct trainer *trainer, struct error *error)
{
    const struct training_state *state = &trainer->state;
    const struct output_options *output = &trainer->session.options.output;
    if (trainer->session.world->rank == 0) {
        const bool over = state->finished && state->step >= trainer->total_steps;
        const struct metrics_position position = {.step = state->step,
                                                  .mid_epoch = state->epoch_step > 0 && !over,
                                                  .unevaluated =
                                                      trainer_epoch_is_unfinished(trainer),
                                                  .untested = !run_record_is_tested(trainer)};
        trainer->output.log = metrics_open(&trainer->folder, output, &position, error);
    }
    error_defer(metrics_write_options(trainer->output.log, &trainer->session.options, error));
    if (trainer->output.log != NULL) {
        char *header = receipts_header(trainer->session.model);
        error_defer(metrics_open_receipts(trainer->output.log, &trainer->folder, header,
                                          state->step, output->receipt > 0, error));
        free(header);
    }
    return comm_agree(trainer->session.world, error);
}

/* Collective. The set-up of a run or a replay in the order in which its parts depend on each other.
 * A replay has no folder, no writer and no tables. */
static bool set_up(struct trainer *trainer, const struct options *given, struct error *error)
{
    struct session *session = &trainer->session;
    struct run_checkpoints *checkpoints = &trainer->checkpoints;
    const struct options *options = &session->options;
    const bool replays = trainer->receipts.expected != NULL, elastic = given->mesh.elastic;
    if (session->world->rank == 0 && !replays)
        error_defer(paths_check(given, error));
    if (!comm_share_error(session->world, error) ||
        !session_open(session, given, session->world, error))
        return false;
    run_announce(session);
    /* The folder is created after the memory check. With mesh.elastic it is needed before, because
     * the batch depends on the checkpoint. */
    if ((elastic && !replays && !folder_open(trainer, error)) ||
        !trainer_decide_batch(trainer, error) || !session_start(session, error))
        return false;

    const double rate = schedule_base_rate(options, session->global_batch);
    trainer->steps_per_epoch = sampler_steps(&session->train.sampler);
    trainer->total_steps = options->train.steps > 0
                               ? options->train.steps
                               : options->train.epochs * trainer->steps_per_epoch;
    schedule_open(&trainer->schedule, options, rate, trainer->steps_per_epoch,
                  trainer->total_steps);
    log_info("run: %lld step%s of global batch %lld (%lld per epoch), learning rate %g",
             (long long)trainer->total_steps, trainer->total_steps == 1 ? "" : "s",
             (long long)session->global_batch, (long long)trainer->steps_per_epoch, rate);

    if (!replays) {
        if (trainer_chooses_on_test(trainer))
            log_warn("data.val=test: the best checkpoint is chosen on the test set, so its "
                     "accuracy there is an overestimate; hold out training images with "
                     "data.val=0.1");
        /* The other ranks do not measure, so that ranks do not disturb each other. */
        if (session->world->rank == 0)
            trainer->peak_flops = peak_find(session->device, session->compute);
        if (!elastic && !folder_open(trainer, error))
            return false;
        if (checkpoints->target.writers == WRITERS_NODE0) {
            if (session->memory.snapshot != NULL || options->checkpoint.background == SWITCH_ON)
                log_info("checkpoints: not in the background, because the first node writes for "
                         "all nodes");
            session_drop_snapshot(session);
        }
        checkpoints->writer =
            checkpoint_writer_open(&checkpoints->target, &session->flat, session->memory.snapshot);
    }

    if (!state_open(trainer, error))
        return false;
    /* Until here nothing is lost if this start ends. The last two remove what belongs to a newer
     * checkpoint, which may be in the memory of a node that is not in this job. */
    trainer->control.world = session->world;
    control_start(&trainer->control, &(struct control_flags){.stop = comm_stop_wanted()});
    trainer->stop.early = control_wait(&trainer->control).stop != 0;
    if (replays || trainer->stop.early)
        return true;
    checkpoints->memory =
        memory_checkpoint_open(trainer->folder.path, &session->flat, checkpoints->found.path,
                               options->checkpoint.memory > 0, error);
    return checkpoints->memory != NULL && log_open_tables(trainer, error);
}

bool trainer_open(struct trainer *trainer, const struct options *options,
                  const struct receipt_table *expected, const char *checkpoint, struct comm *world,
                  struct error *error)
{
    *trainer = (struct trainer){.session = {.options = *options, .world = world},
                                .peak_flops = NAN,
                                .receipts = {.expected = expected},
                                .attempt = {.opened_at = clock_now()}};
    clock_stamp_utc(trainer->attempt.started, sizeof trainer->attempt.started);
    trainer->checkpoints.target =
        (struct checkpoint_target){.writers = WRITERS_AUTO, .options = &trainer->session.options};
    if (expected != NULL)
        snprintf(trainer->checkpoints.resume_path, sizeof trainer->checkpoints.resume_path, "%s",
                 checkpoint);
    if (set_up(trainer, options, error)) {
        if (world->rank == 0 && expected == NULL && options->output.upload[0] != '\0')
            trainer->output.upload = remote_copy_open(trainer->folder.path, options->output.upload);
        return true;
    }
    trainer_close(trainer);
    return false;
}

void trainer_close(struct trainer *trainer)
{
    const double upload_seconds = trainer->session.options.output.upload_wait;
    const bool is_root = trainer->session.world->rank == 0;
    progress_end(trainer);
    status_set_phase(PHASE_END);
    control_close(&trainer->control);
    monitor_close(trainer->output.monitor);
    checkpoint_writer_close(trainer->checkpoints.writer);
    memory_checkpoint_close(trainer->checkpoints.memory, trainer->stop.succeeded);
    if (trainer->output.log != NULL)
        metrics_close(trainer->output.log);
    json_decref(trainer->output.record);
    free(trainer->data);
    evaluation_free(&trainer->evaluation);
    evaluation_free(&trainer->test.evaluation);
    pictures_free(&trainer->pictures);
    split_loader_close(&trainer->test.feed);
    session_close(&trainer->session);
    remote_copy_close(trainer->output.upload, upload_seconds);
    if (trainer->stop.succeeded && is_root)
        run_folder_mark(&trainer->folder, true);
    run_folder_close(&trainer->folder);
}

bool trainer_train(struct trainer *trainer, struct error *error)
{
    const bool succeeded = trainer->stop.succeeded = trainer_run(trainer, error);
    if (!succeeded)
        run_record_fail(trainer, error);
    if (error->kind == ERROR_NUMERIC) { /* a restart must use an older checkpoint, from disk */
        memory_checkpoint_close(trainer->checkpoints.memory, true);
        trainer->checkpoints.memory = NULL;
    }
    trainer_logbook_add(trainer, succeeded ? NULL : error->text);
    trainer_close(trainer);
    return succeeded;
}
