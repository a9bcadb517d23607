// SPDX-License-Identifier: BSD-3-Clause
/* The set-up of a training run: data, model, memory, run folder, checkpoint. User errors are found
 * here, before training starts. */
#include "train/trainer.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/weights_file.h"
#include "config/options.h"
#include "config/phase.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/status.h"
#include "core/text.h"
#include "train/hardware.h"
#include "train/peak.h"
#include "train/progress.h"
#include "train/receipts.h"
#include "train/resolve.h"
#include "train/resume.h"
#include "train/trainer_state.h"

/* Fails unless the paths of rclone are where they are allowed. */
static bool remotes_check(const struct options *options, struct error *error)
{
    const char *resume = options->checkpoint.resume, *upload = options->output.upload;
    if (text_is_remote(resume))
        return error_set(error, ERROR_USAGE,
                         "checkpoint.resume=%s is a remote path: copy it first with `rclone copy "
                         "--links %s FOLDER`; then set run.dir=FOLDER for a whole run, or "
                         "checkpoint.resume to the copied checkpoint",
                         resume, resume);
    return upload[0] == '\0' || text_is_remote(upload) ||
           error_set(error, ERROR_USAGE,
                     "output.upload=%s is not a remote path: give REMOTE:PATH with a remote of "
                     "`rclone config`",
                     upload);
}

/* Collective. Fails for wrong remote paths, if the file of model.init is missing and the run will
 * not resume, or if it is a PyTorch file. */
static bool paths_check(const struct trainer *trainer, struct error *error)
{
    const struct options *options = &trainer->run.options;
    const char *init = options->model.init;
    if (trainer->run.world->rank == 0 && remotes_check(options, error) &&
        run_reads_weights(options) &&
        (run_folder_may_resume(options) || weights_file_exists("model.init: ", init, error)))
        error_defer(weights_file_check(init, error));
    return comm_share_error(trainer->run.world, error);
}

static void run_announce(const struct trainer *trainer)
{
    const struct session *session = &trainer->run.session;
    const struct image_source source = input_source(&session->input, &trainer->run.train.source);
    char mesh[256], transport[512];
    mesh_describe(&session->mesh, mesh, sizeof mesh);
    mesh_describe_transport(&session->mesh, transport, sizeof transport);
    log_info("mesh: %s%s%s", mesh, trainer->run.world->size > 1 ? "; transport: " : "",
             trainer->run.world->size > 1 ? transport : "");
    log_info("device: %s; computing in %s%s%s", session->limits.name, type_name(session->compute),
             session->limits.library[0] != '\0' ? " with " : "", session->limits.library);
    log_info("data: %s, %lld training and %lld validation samples of %lldx%lld, %lld %s",
             trainer->run.options.data.format, (long long)trainer->run.train.dataset.count,
             (long long)trainer->run.validation.dataset.count, (long long)source.height,
             (long long)source.width, (long long)trainer->run.train.dataset.classes,
             trainer->run.train.dataset.target_normalised ? "outputs" : "classes");
    recipe_log(&trainer->run.options);
    log_info("model: %s, %lld parameters in %d units, %.3g GFLOP per image and step",
             trainer->run.options.model.name, (long long)model_parameter_count(session->model),
             session->model->unit_count, session->model->flops_per_image / 1e9);
    model_print_summary(session->model);
}

static bool state_prepare(struct trainer *trainer, struct error *error)
{
    bool resumed = false;
    status_set_phase(PHASE_WEIGHTS_READ);
    trainer->state =
        training_state_begin(trainer->run.global_batch, (uint64_t)trainer->run.options.run.seed);
    if (trainer->run.world->rank == 0)
        error_defer(resume_describe_data(trainer, error));
    if (!comm_share_error(trainer->run.world, error) || !trainer_resume(trainer, &resumed, error))
        return false;
    if (!resumed && !run_initialize(&trainer->run, error))
        return false;
    flat_refresh(&trainer->run.session.flat);
    trainer->state.parts++;
    const bool monitors = trainer->run.options.checkpoint.monitor != MONITOR_NONE;
    trainer->best.metric = trainer->state.best_metric;
    trainer->best.step = monitors ? trainer->state.best_step : -1;
    trainer->best.top1 =
        trainer->run.options.checkpoint.monitor == MONITOR_TOP1 ? trainer->best.metric : NAN;
    trainer->attempt.earlier_seconds = trainer->state.total_seconds;
    trainer->attempt.earlier_without_setup_seconds = trainer->state.without_setup_seconds;
    trainer->attempt.earlier_train_seconds = trainer->state.train_seconds;
    trainer->schedule.plateau_factor = trainer->state.plateau_rate_factor;
    trainer->schedule.plateau_best = trainer->state.plateau_best;
    trainer->schedule.plateau_bad = trainer->state.plateau_bad;
    return true;
}

static bool writer_prepare(struct trainer *trainer, struct error *error)
{
    struct session *session = &trainer->run.session;
    if (trainer->checkpoints.target.writers == WRITERS_NODE0) {
        if (session->memory.snapshot != NULL ||
            trainer->run.options.checkpoint.background == BACKGROUND_YES)
            log_info(
                "checkpoints: not in the background, because the first node writes for all nodes");
        session_drop_snapshot(session);
    }
    trainer->checkpoints.writer = checkpoint_writer_open(
        &trainer->checkpoints.target, &session->flat, session->memory.snapshot, error);
    return comm_agree(trainer->run.world, error);
}

static bool folder_prepare(struct trainer *trainer, struct error *error)
{
    struct session *session = &trainer->run.session;
    const struct options *options = &trainer->run.options;
    status_set_phase(PHASE_FOLDER);
    if (!run_folder_open(&trainer->folder, &session->mesh, options, error))
        return false;
    log_info("run folder: %s%s", trainer->folder.path,
             trainer->folder.resuming ? " (resuming)" : "");
    enum writers_choice writers = WRITERS_AUTO;
    if (!checkpoint_probe(trainer->folder.checkpoints, trainer->run.world,
                          (enum writers_choice)options->checkpoint.writers, &writers, error))
        return false;
    trainer->checkpoints.target =
        (struct checkpoint_target){.directory = trainer->folder.checkpoints,
                                   .writers = writers,
                                   .model = options->model.name,
                                   .options = options};
    if (!trainer_find_checkpoint(trainer, error))
        return false;
    if (trainer->run.world->rank == 0)
        run_folder_clean(trainer->folder.path);
    return true;
}

static bool log_prepare(struct trainer *trainer, struct error *error)
{
    const struct training_state *state = &trainer->state;
    bool over = state->finished && state->step >= trainer->total_steps;
    if (trainer->run.world->rank == 0) {
        const struct run_log_position position = {.step = state->step,
                                                  .mid_epoch = state->epoch_step > 0 && !over,
                                                  .unevaluated =
                                                      trainer_epoch_is_unfinished(trainer),
                                                  .untested = !run_record_is_tested(trainer)};
        trainer->output.log =
            run_log_open(&trainer->folder, &trainer->run.options.output, &position, error);
    }
    error_defer(run_log_options(trainer->output.log, &trainer->run.options, error));
    if (trainer->output.log != NULL) {
        char *header = receipts_header(trainer->run.session.model);
        error_defer(run_log_open_receipts(trainer->output.log, &trainer->folder, header,
                                          state->step, trainer->run.options.output.receipt > 0,
                                          error));
        free(header);
    }
    return comm_agree(trainer->run.world, error);
}

/* Only rank 0 reports the MFU. The others do not measure, so that ranks do not disturb each other.
 */
static void peak_prepare(struct trainer *trainer)
{
    const struct session *session = &trainer->run.session;
    char folder[1024];
    hardware_cache_folder(&trainer->run.options, folder, sizeof folder);
    trainer->peak_flops = trainer->run.world->rank == 0
                              ? peak_find(session->device, session->compute, folder)
                              : (double)NAN;
}

/* Logs the grains, or the cost of train.exact=layout, as docs/exact.md has it. */
static void grains_announce(const struct session *session)
{
    if (session->grains == NULL) {
        log_detail(
            "train.exact=off: results depend on the layout by about 1e-5; train.exact=layout "
            "costs 1 to 5 %% of a step of a ViT on CPUs");
        return;
    }
    const long long grains = session_grains(session), ranks = session->mesh.world->size;
    log_info("train.exact=layout: %lld grains of up to %lld samples in a global batch", grains,
             (long long)session->grain);
    if (grains < ranks)
        log_warn("train.exact=layout: only %lld of %lld ranks have samples; use fewer ranks, "
                 "a larger global batch or a smaller train.grain",
                 grains, ranks);
}

bool trainer_chooses_on_test(const struct trainer *trainer)
{
    const struct options *options = &trainer->run.options;
    const int64_t period = trainer->steps_per_epoch * options->train.eval_every;
    const int64_t evaluations =
        period > 0 ? (trainer->total_steps + period - 1) / period : trainer->total_steps > 0;
    return options->data.val == VALIDATION_TEST && options->checkpoint.monitor != MONITOR_NONE &&
           evaluations > 1 && strcmp(options->data.format, "synthetic") != 0;
}

static void schedule_prepare(struct trainer *trainer)
{
    const struct options *options = &trainer->run.options;
    const double rate = schedule_base_rate(options, trainer->run.global_batch);
    trainer->steps_per_epoch = sampler_steps(&trainer->run.train.sampler);
    trainer->total_steps = options->train.steps > 0
                               ? options->train.steps
                               : options->train.epochs * trainer->steps_per_epoch;
    schedule_open(&trainer->schedule, options, rate, trainer->steps_per_epoch,
                  trainer->total_steps);
    log_info("run: %lld step%s of global batch %lld (%lld per epoch), learning rate %g",
             (long long)trainer->total_steps, trainer->total_steps == 1 ? "" : "s",
             (long long)trainer->run.global_batch, (long long)trainer->steps_per_epoch, rate);
}

static bool trainer_prepare(struct trainer *trainer, const struct options *given,
                            struct error *error)
{
    struct session *session = &trainer->run.session;
    const struct options *options = &trainer->run.options;
    if ((trainer->receipts.expected == NULL && !paths_check(trainer, error)) ||
        !run_open(&trainer->run, given, trainer->run.world, error))
        return false;
    run_announce(trainer);
    if (session->model->local_norms && trainer->run.world->size > 1)
        log_info("batch norm uses the samples of one rank only (model.sync_bn=off): results "
                 "depend on the number of ranks");
    grains_announce(session);
    /* The folder is created after the memory check. With mesh.elastic it is needed before, because
     * the batch depends on the checkpoint. */
    const bool replays = trainer->receipts.expected != NULL, elastic = options->mesh.elastic;
    if ((elastic && !replays && !folder_prepare(trainer, error)) ||
        !trainer_decide_batch(trainer, error) || !run_start(&trainer->run, error))
        return false;
    schedule_prepare(trainer);
    if (replays) {
        const bool good = state_prepare(trainer, error);
        trainer->stop.early = good && trainer_stop_is_wanted(trainer);
        return good;
    }
    if (trainer_chooses_on_test(trainer))
        log_warn("data.val=test: the best checkpoint is chosen on the test set, so its accuracy "
                 "there is an overestimate; hold out training images with data.val=0.1");
    peak_prepare(trainer);
    if ((!elastic && !folder_prepare(trainer, error)) || !writer_prepare(trainer, error) ||
        !state_prepare(trainer, error) || !trainer_memory_open(trainer, error))
        return false;
    /* Until here nothing is lost if this start ends. The next two remove what belongs to a newer
     * checkpoint, which may be in the memory of a node that is not in this job. */
    trainer->stop.early = trainer_stop_is_wanted(trainer);
    return trainer->stop.early || (memory_checkpoint_begin(trainer->checkpoints.memory, error) &&
                                   log_prepare(trainer, error));
}

static void trainer_begin(struct trainer *trainer, const struct options *options,
                          struct comm *world)
{
    memset(trainer, 0, sizeof *trainer);
    trainer->attempt.opened_at = clock_now();
    clock_stamp_utc(trainer->attempt.started, sizeof trainer->attempt.started);
    trainer->run.options = *options;
    trainer->run.world = world;
    trainer->peak_flops = (double)NAN;
}

bool trainer_open(struct trainer *trainer, const struct options *options, struct comm *world,
                  struct error *error)
{
    trainer_begin(trainer, options, world);
    if (trainer_prepare(trainer, options, error)) {
        if (world->rank == 0 && options->output.upload[0] != '\0')
            trainer->output.upload = upload_open(trainer->folder.path, options->output.upload);
        return true;
    }
    struct run_folder folder = trainer->folder;
    const bool of_node = folder.fresh && trainer->run.session.mesh.node->rank == 0;
    if (folder.fresh) {
        memory_checkpoint_close(trainer->checkpoints.memory, true);
        trainer->checkpoints.memory = NULL;
    }
    trainer->folder.locked = false; /* the lock is kept until the files are removed */
    trainer_close(trainer);
    if (folder.fresh)
        run_folder_discard(&folder, world, of_node);
    run_folder_close(&folder);
    return false;
}

bool trainer_open_replay(struct trainer *trainer, const struct options *options, const char *folder,
                         const char *checkpoint, const struct receipt_table *expected,
                         struct comm *world, struct error *error)
{
    trainer_begin(trainer, options, world);
    trainer->receipts.expected = expected;
    snprintf(trainer->folder.path, sizeof trainer->folder.path, "%s", folder);
    snprintf(trainer->checkpoints.resume_path, sizeof trainer->checkpoints.resume_path, "%s",
             checkpoint);
    trainer->checkpoints.target =
        (struct checkpoint_target){.writers = WRITERS_AUTO,
                                   .model = trainer->run.options.model.name,
                                   .options = &trainer->run.options};
    if (trainer_prepare(trainer, options, error))
        return true;
    trainer_close(trainer);
    return false;
}

void trainer_close(struct trainer *trainer)
{
    progress_end(trainer);
    status_set_phase(PHASE_END);
    control_close(&trainer->control);
    monitor_close(trainer->output.monitor);
    checkpoint_writer_close(trainer->checkpoints.writer);
    memory_checkpoint_close(trainer->checkpoints.memory, trainer->stop.succeeded);
    if (trainer->output.log != NULL)
        run_log_close(trainer->output.log);
    json_decref(trainer->output.record);
    free(trainer->data);
    evaluation_free(&trainer->evaluation);
    evaluation_free(&trainer->test.evaluation);
    misclassified_free(&trainer->misclassified);
    plane_samples_free(&trainer->planes);
    feed_close(&trainer->test.feed);
    run_close(&trainer->run);
    upload_close(trainer->output.upload, trainer->run.options.output.upload_wait);
    if (trainer->stop.succeeded && trainer->run.world->rank == 0)
        run_folder_end(&trainer->folder);
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
