// SPDX-License-Identifier: BSD-3-Clause
/* Checkpoints of a run: finds the one to resume from, compares it with the run, reads it, and
 * writes new ones. */
#include "train/trainer.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrays/arrays.h"
#include "base/allocate.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/columns.h"
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
    if (step > 0 && (state->skipped_steps > step || state->loss_scale_good_steps > step ||
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

enum { SAMPLED_CLASSES = 256 };

/* ---- the description of the data */

/* Continue the checksum with the file or the values of a sample. */
static bool content_add(const struct dataset *dataset, int64_t index, struct byte_buffer *bytes,
                        uint32_t *sum, struct error *error)
{
    const size_t size = dataset_record_bytes(dataset);
    const bool good = dataset->encoded ? dataset_load(dataset, index, bytes, error)
                                       : byte_buffer_reserve(bytes, size, error) &&
                                             dataset_read(dataset, index, bytes->data, error);
    if (good)
        *sum = crc32c_update(*sum, bytes->data, dataset->encoded ? bytes->count : size);
    return good;
}

/* Return the description of a split; on an error it is incomplete. */
static json_t *split_describe(const struct dataset *dataset, struct error *error)
{
    const int64_t stride = round_up_division(dataset->classes, SAMPLED_CLASSES);
    int64_t *samples = allocate((size_t)dataset->classes, sizeof *samples);
    uint32_t list = dataset->sum, content = 0;
    struct byte_buffer bytes = {.data = NULL};
    json_t *split = json_object(), *counts = json_array();
    for (int64_t i = 0; i < dataset->count; i++) {
        const uint32_t record = dataset_record(dataset, i);
        const int32_t label = dataset_label(dataset, i);
        if (dataset->subset != NULL)
            list = crc32c_update(list, &record, sizeof record);
        if (samples[label]++ == 0 && label % stride == 0 &&
            !content_add(dataset, i, &bytes, &content, error))
            break;
    }
    for (int64_t c = 0; c < dataset->classes; c++)
        value_append(counts, json_integer(samples[c]));
    value_put(split, "samples", counts);
    value_put(split, "list", json_integer(list));
    value_put(split, "content", json_integer(content));
    free(bytes.data);
    free(samples);
    return split;
}

bool resume_describe_data(struct trainer *trainer, struct error *error)
{
    struct session *session = &trainer->session;
    const struct dataset *train = &session->train.dataset;
    const struct image_size image = session->model->image;
    json_t *data = json_object(), *names = json_array();
    value_put(data, "image",
              json_pack("[I, I]", (json_int_t)image.height, (json_int_t)image.width));
    for (int64_t c = 0; train->class_name != NULL && c < train->classes; c++)
        value_append(names, value_name(train->class_name[c]));
    value_put(data, "classes", names);
    value_put(data, "train", split_describe(&session->train.dataset, error));
    if (session->validates && error->kind == ERROR_NONE)
        value_put(data, "val", split_describe(&session->validation.dataset, error));
    trainer->data = value_to_text(data);
    return error->kind == ERROR_NONE;
}

/* ---- the comparison */

struct comparison {
    const struct trainer *trainer;
    bool named;      /* differences are warnings */
    char first[512]; /* the first difference that is an error */
};

/* Log a difference as a warning, or keep the first one for the error. */
__attribute__((format(printf, 2, 3))) static void difference_add(struct comparison *comparison,
                                                                 const char *format, ...)
{
    char text[sizeof comparison->first];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (comparison->named)
        log_warn("changed since the checkpoint: %s", text);
    else if (comparison->first[0] == '\0')
        memcpy(comparison->first, text, sizeof text);
}

static void option_compare(void *user, const struct option_change *change)
{
    struct comparison *comparison = user;
    const char *was = change->before, *is = change->now;
    if (change->effect == EFFECT_MODEL)
        difference_add(comparison, "%s was %.200s, is %.200s", change->name, was, is);
    else if (change->effect == EFFECT_LEARNING)
        log_info("changed since the checkpoint: %s %s -> %s", change->name, was, is);
    else if (comparison->trainer->receipts.expected == NULL)
        log_detail("changed since the checkpoint: %s %s -> %s", change->name, was, is);
}

/* Compare values of two descriptions of the data: members of objects that both have, and arrays up
 * to the first difference. `name`: "data/train/samples[3]". */
static void values_compare(struct comparison *comparison, const char *name, json_t *was, json_t *is)
{
    const char *key;
    json_t *value;
    size_t i = 0;
    if (json_equal(was, is))
        return;
    if (json_is_object(was) && json_is_object(is)) {
        json_object_foreach(is, key, value)
        {
            OWNED char *member = allocate_text("%s/%s", name, key);
            if (json_object_get(was, key) != NULL)
                values_compare(comparison, member, json_object_get(was, key), value);
        }
    } else if (json_is_array(was) && json_is_array(is)) {
        while (json_equal(json_array_get(was, i), json_array_get(is, i)))
            i++;
        OWNED char *element = allocate_text("%s[%zu]", name, i);
        values_compare(comparison, element, json_array_get(was, i), json_array_get(is, i));
    } else {
        char *before = was != NULL ? json_dumps(was, JSON_ENCODE_ANY) : allocate_copy("missing");
        char *now = is != NULL ? json_dumps(is, JSON_ENCODE_ANY) : allocate_copy("missing");
        difference_add(comparison, "%s was %.100s, is %.100s", name, before, now);
        free(before);
        free(now);
    }
}

/* Rank 0. Compare a checkpoint of a step with the run. *other_monitor: its deck has another
 * checkpoint.monitor, so its best value is of another metric. Fail if its data, image size or model
 * differ from the run's, unless `named`: checkpoint.resume names the file, and the differences are
 * warnings. Other options that differ are logged. */
static bool resume_check(const struct trainer *trainer, const char *path, bool named,
                         const struct checkpoint_contents *contents, bool *other_monitor,
                         struct error *error)
{
    const struct options *options = &trainer->session.options;
    const bool replays = trainer->receipts.expected != NULL;
    struct comparison comparison = {.trainer = trainer, .named = named};
    struct dataset dataset = trainer->session.train.dataset;
    struct model_metadata metadata;
    struct options saved;
    struct error reason = {.kind = ERROR_NONE};
    options_default(&saved);
    /* A deck of another version that cannot be read is not compared. */
    if (checkpoint_deck_parse(contents->text[TEXT_DECK], path, &saved, &reason)) {
        *other_monitor = saved.checkpoint.monitor != MONITOR_AUTO &&
                         saved.checkpoint.monitor != options->checkpoint.monitor;
        option_changes(&saved, options, option_compare, &comparison);
        if (*other_monitor)
            log_info("with another checkpoint.monitor the best evaluation and the patience of "
                     "train.early_stop start over");
    }
    error_clear(&reason);
    json_t *was = json_loads(contents->text[TEXT_DATA], 0, NULL);
    json_t *is = json_loads(trainer->data, 0, NULL);
    if (json_is_object(was))
        values_compare(&comparison, "data", was, is);
    else
        log_warn("%s is of format %lld, which does not describe the data: they cannot be compared "
                 "with those of this run",
                 path, (long long)contents->format);
    json_decref(was);
    json_decref(is);
    /* The grid of arrays and the step of their times. */
    model_metadata_parse(contents->text[TEXT_METADATA], &metadata);
    if (!arrays_check_grid(&dataset, metadata.grid, path, &reason))
        difference_add(&comparison, "%s", reason.text);
    model_metadata_free(&metadata);
    /* A FILE on disk is refused as long as a newer checkpoint is in memory. */
    const bool in_memory = trainer->checkpoints.found.path[0] != '\0' && trainer->folder.resuming;
    return comparison.first[0] == '\0' ||
           error_set(error, ERROR_USAGE, "cannot %s from %s: %s; use %s",
                     replays ? "replay" : "resume", path, comparison.first,
                     replays ? "the data and the model of the run"
                     : in_memory
                         ? "another run.dir, or remove the file .memory in run.dir and set "
                           "checkpoint.resume=FILE to continue on purpose from a checkpoint on disk"
                     : strncmp(comparison.first, "data/classes", strlen("data/classes")) == 0
                         ? "another run.dir, or model.init=FILE.safetensors to fine-tune"
                         : "another run.dir, checkpoint.resume=FILE to continue on purpose, or "
                           "model.init=FILE to fine-tune");
}

bool trainer_resume(struct trainer *trainer, struct error *error)
{
    const char *path = trainer->checkpoints.resume_path;
    struct session *session = &trainer->session;
    struct training_state *state = &trainer->state;
    struct checkpoint_target target = trainer->checkpoints.target;
    const bool names_file = strcmp(session->options.checkpoint.resume, "auto") != 0;
    struct checkpoint_contents contents = {.unit_count = 0};
    bool other_monitor = false;
    if (trainer->checkpoints.found.path[0] != '\0')
        target.writers = WRITERS_ALL;
    if (session->world->rank == 0 && checkpoint_file_read(path, &contents, error) &&
        contents.state.step > 0)
        error_defer(resume_check(trainer, path, names_file, &contents, &other_monitor, error));
    checkpoint_contents_free(&contents);
    comm_broadcast(session->world, &other_monitor, sizeof other_monitor, COMM_BYTE, 0);
    if (!comm_share_error(session->world, error) ||
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
    const bool ended = state->epoch_step == 0 && trainer_is_over(trainer);
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
    state->total_seconds =
        trainer->attempt.earlier.total_seconds + now - trainer->attempt.opened_at;
    state->without_setup_seconds =
        trainer->attempt.earlier.without_setup_seconds + now - trainer->attempt.begin;
    state->train_seconds = trainer->attempt.earlier.train_seconds + now - trainer->attempt.begin -
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
    checkpoints->memory_seconds += clock_now() - begin;
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
