// SPDX-License-Identifier: BSD-3-Clause
/* The record of a run: result.json, the summary in the log, and the row of the log book. Rank 0
 * reads result.json when an attempt begins, and holds it until the attempt ends, so that earlier
 * attempts are kept. */
#include "train/trainer.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/columns.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status.h"
#include "base/text.h"
#include "options/options.h"
#include "train/hardware.h"

static const char file_name[] = "result.json";

/* ---- ranks */

/* Memory that the memory limit counts: the run's plan and what was in use before it. */
static int64_t planned_bytes(const struct session *session)
{
    return (int64_t)(session_needs(session) + session->memory.base);
}

static double timeval_seconds(struct timeval time)
{
    return (double)time.tv_sec + 1e-6 * (double)time.tv_usec;
}

/* Return the figures of this rank; times are of this attempt. */
static json_t *rank_to_json(const struct trainer *trainer)
{
    const struct session *session = &trainer->session;
    const struct step_times *times = &trainer->attempt.times;
    json_t *rank = json_object();
    struct rusage usage = {0};
    getrusage(RUSAGE_SELF, &usage);
    value_put(rank, "attempt", json_null()); /* rank 0 knows it */
    value_put(rank, "rank", json_integer(trainer->session.world->rank));
    value_put(rank, "host", value_name(comm_host()));
    value_put(rank, "device", value_name(session->limits.name));
    value_put(rank, "threads", json_integer(session->limits.threads));
    value_put(rank, "planned_bytes", json_integer(planned_bytes(session)));
    value_put(rank, "peak_bytes", json_integer((json_int_t)session_memory_used(session, true)));
    value_put(rank, "user_seconds", value_number(timeval_seconds(usage.ru_utime)));
    value_put(rank, "system_seconds", value_number(timeval_seconds(usage.ru_stime)));
    value_put(rank, "steps", json_integer(trainer->attempt.steps));
    value_put(rank, "seconds", value_number(trainer->attempt.step_seconds));
    value_put(rank, "data_seconds", value_number(times->data));
    value_put(rank, "compute_seconds", value_number(compute_seconds(times)));
    value_put(rank, "exposed_comm_seconds", value_number(times->exposed));
    return rank;
}

/* Return an array with the figures of all ranks, on other ranks than 0 an empty one. Collective. */
static json_t *ranks_gather(const struct trainer *trainer)
{
    struct comm *world = trainer->session.world;
    json_t *ranks = json_array();
    struct joined_bytes all;
    json_error_t end;
    char *text = value_to_text(rank_to_json(trainer));
    comm_join(world, text, (int64_t)strlen(text), &all);
    for (int64_t at = 0; world->rank == 0 && at < all.bytes; at += end.position)
        value_append(ranks, json_loadb((const char *)all.data + at, (size_t)(all.bytes - at),
                                       JSON_DISABLE_EOF_CHECK, &end));
    comm_joined_free(&all);
    return ranks;
}

/* Return the units and, as a last one, the rest of the step (images, loss, norm, update): memory of
 * this rank, and seconds per step as means over the ranks; null where unknown. Collective. */
static json_t *units_to_json(const struct trainer *trainer)
{
    static const char *const times_name[] = {"forward_seconds", "backward_seconds",
                                             "waiting_seconds"};
    enum { TIMES = sizeof times_name / sizeof times_name[0] };
    const struct session *session = &trainer->session;
    const struct step_times *times = &trainer->attempt.times;
    const struct model *model = session->model;
    const struct unit_seconds *unit = session->timer.seconds;
    const int count = model->unit_count;
    const double steps = (double)session->world->size * (double)trainer->attempt.steps;
    json_t *units = json_array();
    double(*seconds)[TIMES] = allocate((size_t)count + 1, sizeof *seconds), *rest = seconds[count];
    rest[0] = times->forward;
    rest[1] = compute_seconds(times) - times->forward;
    rest[2] = times->exposed;
    for (int u = 0; unit != NULL && u < count; u++) {
        seconds[u][0] = unit[u].forward;
        seconds[u][1] = unit[u].backward;
        seconds[u][2] = unit[u].forward_waiting + unit[u].backward_waiting;
        rest[0] -= unit[u].forward + unit[u].forward_waiting;
        rest[1] -= unit[u].backward - unit[u].forward_waiting;
        rest[2] -= seconds[u][2];
    }
    comm_all_reduce(session->world, seconds, (int64_t)TIMES * (count + 1), COMM_FP64, COMM_SUM);
    for (int u = 0; u <= count; u++) {
        const bool is_rest = u == count;
        const struct unit *own = &model->units[u];
        const size_t *bytes =
            session->memory.rows[is_rest ? ARENA_SHARED_ROW : ARENA_UNIT_ROWS + u];
        json_t *object = json_object();
        value_put(object, "unit", value_name(is_rest ? "(the step)" : own->name));
        value_put(object, "parameters",
                  json_integer(is_rest ? 0 : unit_parameter_count(own, false)));
        value_put(object, "trainable_parameters",
                  json_integer(is_rest ? 0 : unit_parameter_count(own, true)));
        for (int i = 0; i < MEMORY_CLASSES; i++) {
            OWNED char *key = allocate_text("%s_bytes", memory_class_name[i]);
            value_put(object, key, json_integer((json_int_t)bytes[i]));
        }
        for (int i = 0; i < TIMES; i++)
            value_put(object, times_name[i],
                      value_number(unit != NULL && steps > 0 ? seconds[u][i] / steps : NAN));
        value_append(units, object);
    }
    free(seconds);
    return units;
}

/* ---- attempts */

/* Return the words of the process's command line, separated by spaces; null without /proc. */
static json_t *command_line(void)
{
    size_t length;
    char *words = text_file_read("/proc/self/cmdline", &length);
    if (words == NULL)
        return json_null();
    for (size_t i = 0; i + 1 < length; i++)
        if (words[i] == '\0')
            words[i] = ' ';
    text_mask_password(words);
    json_t *value = value_name(words);
    free(words);
    return value;
}

/* Append a name unless the array has it. */
static void name_add(json_t *names, json_t *name)
{
    for (size_t i = json_array_size(names); i-- > 0;)
        if (json_equal(json_array_get(names, i), name))
            return;
    value_append(names, json_incref(name));
}

static void change_put(void *user, const struct option_change *change)
{
    json_t *values = json_array();
    value_append(values, value_name(change->before));
    value_append(values, value_name(change->now));
    value_put(user, change->name, values);
}

/* The facts on which the bits of a step may depend, beside the layout. */
static void machine_put(json_t *attempt, const struct session *session)
{
    value_put(attempt, "version", value_name(version_number));
    value_put(attempt, "commit", value_name(version_commit));
    value_put(attempt, "instructions", value_name(session->limits.instructions));
    value_put(attempt, "library", value_name(session->limits.library));
    value_put(attempt, "ranks", json_integer(session->world->size));
    value_put(attempt, "nodes", json_integer(session->mesh.node_count));
    value_put(attempt, "threads", json_integer(session->limits.threads));
}

static json_t *attempt_to_json(const struct trainer *trainer, const json_t *ranks)
{
    static struct options earlier;
    const struct session *session = &trainer->session;
    struct error ignored = {.kind = ERROR_NONE};
    json_t *changed = json_object(); /* options that differ from those of the folder's deck */
    json_t *attempt = json_object(), *hosts = json_array(), *devices = json_array();
    const char *resumed = trainer->checkpoints.resume_path;
    for (int rank = 0; rank < trainer->session.world->size; rank++) {
        const json_t *facts = json_array_get(ranks, (size_t)rank);
        name_add(hosts, json_object_get(facts, "host"));
        name_add(devices, json_object_get(facts, "device"));
    }
    value_put(attempt, "started", json_string(trainer->attempt.started));
    value_put(attempt, "command", command_line());
    machine_put(attempt, session);
    value_put(attempt, "job", value_text(getenv("SLURM_JOB_ID")));
    value_put(attempt, "hosts", hosts);
    value_put(attempt, "devices", devices);
    options_default(&earlier);
    OWNED char *path = allocate_text("%s/deck.ini", trainer->folder.path);
    if (access(path, F_OK) == 0 && options_read_stored(path, &earlier, &ignored))
        option_changes(&earlier, &trainer->session.options, change_put, changed);
    value_put(attempt, "changed", changed);
    value_put(attempt, "from_step", json_integer(trainer->state.step));
    value_put(attempt, "resumed_from", resumed[0] != '\0' ? value_name(resumed) : json_null());
    value_put(attempt, "setup_seconds", value_number(clock_now() - trainer->attempt.opened_at));
    return attempt;
}

/* ---- the run */

/* Return the description of the run. */
static json_t *run_to_json(const struct trainer *trainer)
{
    const struct session *session = &trainer->session;
    const struct options *options = &session->options;
    const struct model *model = session->model;
    const struct mesh *mesh = &session->mesh;
    const struct dataset *train = &session->train.dataset;
    const struct split_loader *validation = session->validates ? &session->validation : NULL;
    const struct evaluation *test = &trainer->test.evaluation;
    json_t *run = json_object(), *tags = json_array(), *names = json_array();
    json_t *planned = json_object();
    char text[OPTION_TEXT], transport[256];
    mesh_describe_transport(mesh, transport, sizeof transport);
    size_t length;
    for (const char *tag = text_next_item(options->run.tags, &length); tag != NULL;
         tag = text_next_item(tag + length, &length)) {
        snprintf(text, sizeof text, "%.*s", (int)length, tag);
        value_append(tags, value_name(text));
    }
    for (int64_t i = 0; train->class_name != NULL && i < train->classes; i++)
        value_append(names, value_name(train->class_name[i]));
    value_put(run, "format", json_integer(RUN_FORMAT));
    value_put(run, "name", value_name(options->run.name));
    value_put(run, "seed", json_integer(options->run.seed));
    value_put(run, "world_size", json_integer(session->world->size));
    value_put(run, "nodes", json_integer(mesh->node_count));
    value_put(run, "threads", json_integer(session->limits.threads));
    value_put(run, "global_batch", json_integer(session->global_batch));
    value_put(run, "tags", tags);
    value_put(run, "model", value_name(options->model.name));
    value_put(run, "parameters", json_integer(model_parameter_count(model, false)));
    value_put(run, "image", json_integer(model->image.height));
    value_put(run, "image_width", json_integer(model->image.width));
    value_put(run, "trainable_parameters", json_integer(model_parameter_count(model, true)));
    value_put(run, "flops_per_image", value_number(model->flops_per_image));
    value_put(run, "peak_flops", value_number(trainer->peak_flops));
    value_put(run, "backend", value_name(session->device->backend->name));
    value_put(run, "precision", value_name(type_name(session->compute)));
    value_put(run, "strategy", value_name(mesh->strategy));
    value_put(run, "replica", json_integer(mesh->replica->size));
    value_put(run, "shard", json_integer(mesh->shard->size));
    value_put(run, "transport", value_text(session->world->size > 1 ? transport : NULL));
    value_put(run, "planned_bytes", json_integer(planned_bytes(session)));
    for (int i = 0; i < MEMORY_CLASSES; i++)
        value_put(planned, memory_class_name[i],
                  json_integer((json_int_t)session->memory.arena.by_class[i]));
    value_put(planned, "loaders", json_integer((json_int_t)session->memory.loader_bytes));
    value_put(planned, "snapshot", json_integer((json_int_t)session->memory.snapshot_bytes));
    value_put(planned, "shared_memory", json_integer((json_int_t)session->memory.shared_bytes));
    value_put(run, "planned", planned);
    value_put(run, "train_samples", json_integer(train->count));
    value_put(run, "val_samples", value_count(validation != NULL ? validation->dataset.count : -1));
    value_put(run, "val_steps",
              value_count(validation != NULL ? sampler_steps(&validation->sampler) : -1));
    value_put(run, "test_samples",
              value_count(options->data.val == VALIDATION_TEST ? session->validation.dataset.count
                          : test->confusion != NULL            ? test->samples
                                                               : -1));
    value_put(run, "class_names", names);
    json_t *weights = session->class_weights != NULL ? json_array() : json_null();
    for (int64_t c = 0; session->class_weights != NULL && c < model->classes; c++)
        value_append(weights, json_real((double)session->class_weights[c]));
    value_put(run, "loss_weights", weights);
    value_put(run, "chosen_on_test", json_boolean(trainer_chooses_on_test(trainer)));
    value_put(run, "base_lr", value_number(schedule_base_rate(options, session->global_batch)));
    value_put(run, "steps_per_epoch", json_integer(trainer->steps_per_epoch));
    value_put(run, "total_steps", json_integer(trainer->total_steps));
    return run;
}

/* ---- results */

/* Results of a run so far. */
struct results {
    const struct evaluation *evaluation, *test; /* the last one; of the test split; NULL: none */
    double images_per_second;                   /* of training in this attempt; NAN: unknown */
    bool unfinished;         /* ended by a signal or train.max_seconds: can be resumed */
    const char *stop_reason; /* text for the user */
};

static struct results results_of(const struct trainer *trainer)
{
    const struct run_stop *stop = &trainer->stop;
    const struct training_state *state = &trainer->state;
    const double training = state->train_seconds - trainer->attempt.earlier.train_seconds;
    const double images = trainer->attempt.images > 0 ? (double)trainer->attempt.images : NAN;
    const struct evaluation *evaluation = &trainer->evaluation, *test = &trainer->test.evaluation;
    return (struct results){.evaluation = evaluation->confusion != NULL ? evaluation : NULL,
                            .test = test->confusion != NULL ? test : NULL,
                            .images_per_second = images / training,
                            .unfinished = stop->signalled ||
                                          (stop->out_of_time && state->step < trainer->total_steps),
                            .stop_reason = stop->reason != NULL ? stop->reason : "all steps done"};
}

static void results_put(json_t *run, const struct trainer *trainer, const struct results *results)
{
    const struct training_state *state = &trainer->state;
    const struct dataset *dataset = &trainer->session.validation.dataset;
    const struct metrics_row *epoch = &trainer->progress.last_epoch;
    json_t *train = json_object(), *best = json_object();
    char monitor[16];
    options_value_text(&trainer->session.options, "checkpoint.monitor", monitor, sizeof monitor);
    value_put(run, "epochs", json_integer(state->epoch));
    value_put(run, "steps", json_integer(state->step));
    value_put(run, "finished", json_boolean(!results->unfinished));
    value_put(run, "stop_reason", value_name(results->stop_reason));
    value_put(run, "total_seconds", value_number(state->total_seconds));
    value_put(run, "without_setup_seconds", value_number(state->without_setup_seconds));
    value_put(run, "training_seconds", value_number(state->train_seconds));
    value_put(run, "images_per_second", value_number(results->images_per_second));
    value_put(train, "loss", value_number(epoch->loss));
    value_put(train, "top1", value_number(epoch->top1));
    value_put(train, "top5", value_number(epoch->top5));
    value_put(run, "train", train);
    value_put(best, "monitor", value_name(monitor));
    value_put(best, "value", value_number(trainer->best.metric));
    value_put(best, "step", value_count(isnan(trainer->best.metric) ? -1 : trainer->best.step));
    value_put(run, "best", best);
    if (results->evaluation != NULL)
        evaluation_to_json(results->evaluation, "val", dataset, run);
    if (results->test != NULL) {
        json_t *test = json_object();
        evaluation_to_json(results->test, "test", dataset, test);
        value_put(test, "weights", value_name(trainer->test.weights));
        value_put(test, "step", json_integer(trainer->test.step));
        value_put(run, "test", test);
    }
}

/* ---- the file */

/* Return result.json. A folder of version 0.2 has the description in run.json. */
static json_t *record_read(const char *folder)
{
    OWNED char *path = allocate_text("%s/%s", folder, file_name);
    OWNED char *older = allocate_text("%s/run.json", folder);
    json_t *record = json_load_file(path, 0, NULL);
    if (json_integer_value(json_object_get(record, "format")) == RUN_FORMAT)
        return record;
    if (!json_is_object(record)) {
        json_decref(record);
        record = json_object();
    }
    json_t *old = json_load_file(older, 0, NULL), *attempts = json_object_get(old, "parts");
    json_object_update(record, old);
    if (attempts != NULL)
        value_put(record, "attempts", json_incref(attempts));
    json_object_del(record, "parts");
    json_decref(old);
    return record;
}

void run_record_compare(const struct trainer *trainer, char *text, size_t size)
{
    static const char *const facts[] = {
        "instructions", "library",   "ranks",    "nodes",   "threads", "version",  "commit",
        "backend",      "precision", "strategy", "replica", "shard",   "transport"};
    json_t *run = record_read(trainer->folder.path), *own = run_to_json(trainer), *attempt;
    const json_t *attempts = json_object_get(run, "attempts"), *last = NULL;
    size_t number;
    json_array_foreach(attempts, number,
                       attempt) if (json_integer_value(json_object_get(attempt, "from_step")) <
                                    trainer->state.step) last = attempt;
    json_object_update(run, (json_t *)last);
    machine_put(own, &trainer->session);
    text[0] = '\0';
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) {
        const json_t *was = json_object_get(run, facts[i]), *is = json_object_get(own, facts[i]);
        const size_t used = strlen(text);
        if (was == NULL || json_equal(was, is))
            continue;
        char *before = json_dumps(was, JSON_ENCODE_ANY), *now = json_dumps(is, JSON_ENCODE_ANY);
        ENSURE_MEMORY(before != NULL && now != NULL, "no memory to compare machines");
        snprintf(text + used, size - used, "%s%s %s, here %s",
                 used > 0 ? "; " : "; the run had other conditions: ", facts[i], before, now);
        free(before);
        free(now);
    }
    json_decref(run);
    json_decref(own);
}

bool run_record_is_tested(const struct trainer *trainer)
{
    json_t *record = record_read(trainer->folder.path);
    const bool tested = json_object_get(record, "test") != NULL &&
                        json_integer_value(json_object_get(record, "steps")) == trainer->state.step;
    json_decref(record);
    return tested;
}

/* Return the array of that name, which is created if it is missing. */
static json_t *record_array(json_t *record, const char *name)
{
    if (!json_is_array(json_object_get(record, name)))
        value_put(record, name, json_array());
    return json_object_get(record, name);
}

static bool record_write(const struct trainer *trainer, struct error *error)
{
    char *text = value_to_text(json_incref(trainer->output.record));
    bool good = run_folder_write(&trainer->folder, file_name, text, error);
    free(text);
    return good;
}

bool run_record_begin(struct trainer *trainer, struct error *error)
{
    json_t *ranks = ranks_gather(trainer);
    if (trainer->session.world->rank == 0) {
        json_t *record = trainer->output.record = record_read(trainer->folder.path);
        json_t *run = run_to_json(trainer), *attempts = record_array(record, "attempts");
        value_append(attempts, attempt_to_json(trainer, ranks));
        trainer->attempt.number = (int64_t)json_array_size(attempts);
        json_object_update(record, run);
        json_decref(run);
        value_put(record, "finished", json_false());
        value_put(record, "stop_reason", json_null());
        record_array(record, "units");
        record_array(record, "ranks");
        if (record_write(trainer, error))
            error_defer(run_folder_save_deck(&trainer->folder, &trainer->session.options, error));
    }
    json_decref(ranks);
    return comm_agree(trainer->session.world, error);
}

/* Complete the newest attempt. NULL: no stop reason, no failure. */
static void attempt_end(const struct trainer *trainer, const char *reason, const char *failure)
{
    char stamp[32];
    json_t *attempts = json_object_get(trainer->output.record, "attempts");
    json_t *attempt = json_array_get(attempts, json_array_size(attempts) - 1);
    clock_stamp_utc(stamp, sizeof stamp);
    value_put(attempt, "ended", json_string(stamp));
    value_put(attempt, "seconds", value_number(clock_now() - trainer->attempt.opened_at));
    value_put(attempt, "to_step", json_integer(trainer->state.step));
    value_put(attempt, "stop_reason", value_text(reason));
    value_put(attempt, "error", value_text(failure));
}

/* Log the cost of checkpoints. */
static void checkpoints_log(const struct trainer *trainer)
{
    const struct run_checkpoints *checkpoints = &trainer->checkpoints;
    const double total = clock_now() - trainer->attempt.begin,
                 in_memory = checkpoints->memory_seconds;
    const long long count = checkpoints->memory_count;
    double blocked, waited;
    checkpoint_writer_times(checkpoints->writer, &blocked, &waited);
    if (checkpoints->count > 0)
        log_info("checkpoints: %lld written %s; training was blocked for %.2f s (%.2f %% of the "
                 "time without set-up), %.2f s of that to wait for the previous checkpoint",
                 (long long)checkpoints->count,
                 trainer->session.memory.snapshot != NULL ? "in the background" : "synchronously",
                 blocked, 100 * blocked / total, waited);
    if (count > 0)
        log_info("checkpoints in memory: %lld, each took %.1f ms, all %.2f %% of the time", count,
                 1e3 * in_memory / (double)count, 100 * in_memory / total);
}

/* Log the end of the run, the most important lines last. */
static void summary_log(const struct trainer *trainer, const struct results *results)
{
    const struct dataset *dataset = &trainer->session.validation.dataset;
    char total[32], training[32], speed[32] = "", weights[64];
    clock_format(trainer->state.total_seconds, total, sizeof total);
    clock_format(trainer->state.train_seconds, training, sizeof training);
    if (!isnan(results->images_per_second))
        snprintf(speed, sizeof speed, ", %.0f img/s", results->images_per_second);
    log_info("time: %s in total, %s training only%s", total, training, speed);
    if (results->evaluation != NULL)
        evaluation_log("final", results->evaluation, dataset, 4, "");
    snprintf(weights, sizeof weights, ", with the %s weights (step %lld)", trainer->test.weights,
             (long long)trainer->test.step);
    if (results->test != NULL)
        evaluation_log("test", results->test, dataset, 4, weights);
    log_info("next: vittrain report %s", trainer->folder.path);
}

bool run_record_end(struct trainer *trainer, struct error *error)
{
    const struct session *session = &trainer->session;
    status_set_phase(PHASE_RESULTS);
    trainer_update_seconds(trainer);
    const struct results results = results_of(trainer);
    if (results.evaluation != NULL)
        evaluation_print(results.evaluation, &session->validation.dataset, log_detail);
    checkpoints_log(trainer);
    const double planned = mib((size_t)planned_bytes(session));
    const double peak = mib(session_memory_used(session, true));
    log_detail("memory of rank 0: planned %.1f MiB, %s at most %.1f MiB (%+.1f %%)", planned,
               hardware_has_memory(session->device) ? "in use on the GPU" : "resident", peak,
               100 * (peak / planned - 1));
    if ((results.evaluation != NULL || results.test != NULL) && !trainer->test.evaluation.given_up)
        pictures_write(&trainer->pictures, &trainer->folder, results.test != NULL ? "test" : "val",
                       error);
    if (!comm_agree(session->world, error))
        return false;
    json_t *sensors = monitor_stop(trainer->output.monitor), *own = ranks_gather(trainer);
    json_t *measured = units_to_json(trainer), *rank;
    size_t number;
    if (session->world->rank == 0) {
        json_t *record = trainer->output.record, *run = run_to_json(trainer);
        json_t *units = record_array(record, "units"), *ranks = record_array(record, "ranks");
        attempt_end(trainer, results.stop_reason, NULL);
        json_array_foreach(own, number, rank)
            value_put(rank, "attempt", json_integer(trainer->attempt.number));
        json_array_extend(ranks, own);
        results_put(run, trainer, &results);
        value_put(run, "sensors", json_incref(sensors));
        value_put(run, "attempts", json_incref(json_object_get(record, "attempts")));
        /* An attempt without steps has no times. */
        const bool keeps = trainer->attempt.steps == 0 && json_array_size(units) > 0;
        value_put(run, "units", json_incref(keeps ? units : measured));
        value_put(run, "ranks", json_incref(ranks));
        json_decref(record);
        trainer->output.record = run;
        error_defer(record_write(trainer, error));
        if (error->kind == ERROR_NONE && !results.unfinished)
            error_defer(metrics_finish(trainer->output.log, error));
    }
    json_decref(measured);
    json_decref(own);
    json_decref(sensors);
    if (!comm_agree(session->world, error))
        return false;
    summary_log(trainer, &results);
    return true;
}

void run_record_fail(struct trainer *trainer, const struct error *why)
{
    struct error error = {.kind = ERROR_NONE};
    if (trainer->output.record == NULL)
        return;
    attempt_end(trainer, NULL, why->text);
    if (!record_write(trainer, &error))
        log_detail("%s", error.text); /* `why` is reported later */
}

/* ---- the row of the log book */

void trainer_logbook_add(struct trainer *trainer, const char *failure)
{
    const struct session *session = &trainer->session;
    const struct options *options = &session->options;
    const struct dataset *dataset = &session->validation.dataset;
    const double steps = (double)trainer->steps_per_epoch;
    const char *started = trainer->attempt.started;
    struct error error = {.kind = ERROR_NONE};
    struct text_stream text;
    char cell[64] = "", number[NUMBER_TEXT];
    if (session->world->rank != 0 || trainer->attempt.number == 0 ||
        options->output.logbook[0] == '\0')
        return;
    if (failure != NULL) /* else run_record_end has set them */
        trainer_update_seconds(trainer);
    const struct results results = results_of(trainer);
    const struct evaluation *const evaluations[] = {results.evaluation, results.test};
    FILE *row = text_stream_open(&text);
    logbook_cell(row, "%s", trainer->folder.path);
    logbook_cell(row, "%.10s %.8s UTC", started, started + strlen("2026-11-21T"));
    logbook_cell(row, "%s", options->model.name);
    logbook_cell(row, "%d", session->world->size);
    logbook_cell(row, "%d", session->mesh.node_count);
    logbook_cell(row, "%s", session->mesh.strategy);
    logbook_cell(row, "%s", type_name(session->compute));
    logbook_cell(row, "%lld", (long long)session->global_batch);
    /* The completed epochs, "10", or "3.5 of 10" before the last step. */
    if (trainer->state.step < trainer->total_steps)
        snprintf(cell, sizeof cell, "%.6g of ",
                 floor(10 * (double)trainer->state.step / steps) / 10);
    logbook_cell(row, "%s%.6g", cell, ceil(10 * (double)trainer->total_steps / steps) / 10);
    for (int i = 0; i < 2; i++) {
        OWNED char *figures = evaluations[i] != NULL ? evaluation_text(evaluations[i], dataset)
                                                     : allocate_copy(", -");
        logbook_cell(row, "%s", figures + strlen(", "));
    }
    logbook_cell(row, "%s", evaluation_number(results.images_per_second, 1, number));
    clock_format(trainer->state.total_seconds, cell, sizeof cell);
    logbook_cell(row, "%s", cell);
    logbook_cell(row, failure != NULL ? "failed" : results.unfinished ? "stopped" : "finished");
    logbook_cell(row, "%s", failure != NULL ? failure : results.stop_reason);
    OWNED char *whole = text_stream_close(&text);
    if (!logbook_add(options->output.logbook, whole, trainer->attempt.number > 1, &error))
        log_warn("cannot add the run to the log book: %s", error.text);
}
