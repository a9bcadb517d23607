// SPDX-License-Identifier: BSD-3-Clause
/* Rank 0 reads result.json when an attempt begins, and holds it until the attempt ends, so that
 * earlier attempts are kept. */
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
#include "base/text.h"
#include "options/options.h"
#include "train/hardware.h"

static const char file_name[] = "result.json";

enum { UNIT_TIMES = 3 };

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

/* Add the mean and the maximum of a sensor of this rank. */
static void sensor_put(json_t *rank, const struct monitor *monitor, enum sensor sensor)
{
    char key[64];
    double mean, most;
    monitor_own(monitor, sensor, &mean, &most);
    snprintf(key, sizeof key, "%s_mean", sensor_columns[sensor].name);
    value_put(rank, key, value_number(mean));
    snprintf(key, sizeof key, "%s_max", sensor_columns[sensor].name);
    value_put(rank, key, value_number(most));
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
    sensor_put(rank, trainer->output.monitor, SENSOR_GPU_BUSY);
    sensor_put(rank, trainer->output.monitor, SENSOR_GPU_POWER);
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

/* ---- units */

/* Return forward, backward and waiting seconds per step of each unit, then of the rest of the step
 * (images, loss, norm, update), as means over the ranks; NAN where unknown. The caller frees the
 * array. Collective. */
static double *unit_seconds_reduce(const struct trainer *trainer)
{
    const struct session *session = &trainer->session;
    const struct step_times *times = &trainer->attempt.times;
    int units = session->model->unit_count;
    int64_t count = (int64_t)UNIT_TIMES * (units + 1);
    double *seconds = allocate((size_t)count, sizeof *seconds);
    double *rest = seconds + (size_t)UNIT_TIMES * (size_t)units;
    rest[0] = times->forward;
    rest[1] = compute_seconds(times) - times->forward;
    rest[2] = times->exposed;
    for (int u = 0; session->timer.seconds != NULL && u < units; u++) {
        const struct unit_seconds *unit = &session->timer.seconds[u];
        double *into = seconds + (size_t)UNIT_TIMES * (size_t)u;
        into[0] = unit->forward;
        into[1] = unit->backward;
        into[2] = unit->forward_waiting + unit->backward_waiting;
        rest[0] -= unit->forward + unit->forward_waiting;
        rest[1] -= unit->backward - unit->forward_waiting;
        rest[2] -= into[2];
    }
    comm_all_reduce(trainer->session.world, seconds, count, COMM_FP64, COMM_SUM);
    double each = (double)trainer->session.world->size * (double)trainer->attempt.steps;
    for (int64_t i = 0; i < count; i++)
        seconds[i] = session->timer.seconds != NULL && each > 0 ? seconds[i] / each : (double)NAN;
    return seconds;
}

static json_t *unit_to_json(const char *name, int64_t parameters, int64_t trainable,
                            const size_t bytes[MEMORY_CLASSES], const double seconds[UNIT_TIMES])
{
    json_t *object = json_object();
    value_put(object, "unit", value_name(name));
    value_put(object, "parameters", json_integer(parameters));
    value_put(object, "trainable_parameters", json_integer(trainable));
    for (int i = 0; i < MEMORY_CLASSES; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s_bytes", memory_class_name[i]);
        value_put(object, key, json_integer((json_int_t)bytes[i]));
    }
    value_put(object, "forward_seconds", value_number(seconds[0]));
    value_put(object, "backward_seconds", value_number(seconds[1]));
    value_put(object, "waiting_seconds", value_number(seconds[2]));
    return object;
}

static json_t *units_to_json(const struct trainer *trainer, const double *seconds)
{
    const struct session *session = &trainer->session;
    const struct model *model = session->model;
    json_t *units = json_array();
    for (int u = 0; u < model->unit_count; u++)
        value_append(units, unit_to_json(model->units[u].name,
                                         unit_parameter_count(&model->units[u], false),
                                         unit_parameter_count(&model->units[u], true),
                                         session->memory.rows[ARENA_UNIT_ROWS + u],
                                         seconds + UNIT_TIMES * u));
    value_append(units, unit_to_json("(the step)", 0, 0, session->memory.rows[ARENA_SHARED_ROW],
                                     seconds + UNIT_TIMES * model->unit_count));
    return units;
}

/* ---- attempts */

/* Write one word of a command line, quoted for a POSIX shell where necessary. */
static void word_write(FILE *stream, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-+=./:,@%";
    if (*word != '\0' && strspn(word, plain) == strlen(word)) {
        fputs(word, stream);
        return;
    }
    fputc('\'', stream);
    for (; *word != '\0'; word++)
        fputs(*word == '\'' ? "'\\''" : (const char[]){*word, '\0'}, stream);
    fputc('\'', stream);
}

/* Return the process's command line; null without /proc. */
static json_t *command_line(void)
{
    struct text_stream words;
    char *word = NULL;
    size_t size = 0;
    FILE *file = fopen("/proc/self/cmdline", "re");
    if (file == NULL)
        return json_null();
    FILE *stream = text_stream_open(&words);
    for (int i = 0; getdelim(&word, &size, '\0', file) >= 0; i++) {
        if (i > 0)
            fputc(' ', stream);
        word_write(stream, word);
    }
    free(word);
    fclose(file);
    char *text = text_stream_close(&words);
    text_mask_password(text);
    json_t *value = value_name(text);
    free(text);
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

/* The facts on which the bits of a step may depend; also those of layout_put. */
static void machine_put(json_t *attempt, const struct trainer *trainer)
{
    const struct session *session = &trainer->session;
    value_put(attempt, "version", value_name(version_number));
    value_put(attempt, "commit", value_name(version_commit));
    value_put(attempt, "instructions", value_name(session->limits.instructions));
    value_put(attempt, "library", value_name(session->limits.library));
    value_put(attempt, "ranks", json_integer(trainer->session.world->size));
    value_put(attempt, "nodes", json_integer(session->mesh.node_count));
    value_put(attempt, "threads", json_integer(session->limits.threads));
}

static json_t *attempt_to_json(const struct trainer *trainer, const json_t *ranks)
{
    static struct options earlier;
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
    machine_put(attempt, trainer);
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

static void layout_put(json_t *run, const struct trainer *trainer)
{
    const struct session *session = &trainer->session;
    const struct mesh *mesh = &session->mesh;
    char transport[256];
    mesh_describe_transport(mesh, transport, sizeof transport);
    value_put(run, "backend", value_name(session->device->backend->name));
    value_put(run, "precision", value_name(type_name(session->compute)));
    value_put(run, "strategy", value_name(mesh->strategy));
    value_put(run, "replica", json_integer(mesh->replica->size));
    value_put(run, "shard", json_integer(mesh->shard->size));
    value_put(run, "transport", value_text(trainer->session.world->size > 1 ? transport : NULL));
    value_put(run, "planned_bytes", json_integer(planned_bytes(session)));
    json_t *planned = json_object();
    for (int i = 0; i < MEMORY_CLASSES; i++)
        value_put(planned, memory_class_name[i],
                  json_integer((json_int_t)session->memory.arena.by_class[i]));
    value_put(planned, "loaders", json_integer((json_int_t)session->memory.loader_bytes));
    value_put(planned, "snapshot", json_integer((json_int_t)session->memory.snapshot_bytes));
    value_put(planned, "shared_memory", json_integer((json_int_t)session->memory.shared_bytes));
    value_put(run, "planned", planned);
}

/* Return the description of the run. */
static json_t *run_to_json(const struct trainer *trainer)
{
    const struct options *options = &trainer->session.options;
    const struct model *model = trainer->session.model;
    const struct dataset *train = &trainer->session.train.dataset;
    const struct split_loader *validation =
        trainer->session.validates ? &trainer->session.validation : NULL;
    const struct evaluation *test = &trainer->test.evaluation;
    json_t *run = json_object(), *tags = json_array(), *names = json_array();
    char text[OPTION_TEXT];
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
    value_put(run, "world_size", json_integer(trainer->session.world->size));
    value_put(run, "nodes", json_integer(trainer->session.mesh.node_count));
    value_put(run, "threads", json_integer(trainer->session.limits.threads));
    value_put(run, "global_batch", json_integer(trainer->session.global_batch));
    value_put(run, "tags", tags);
    value_put(run, "model", value_name(options->model.name));
    value_put(run, "parameters", json_integer(model_parameter_count(model, false)));
    value_put(run, "image", json_integer(model->image.height));
    value_put(run, "image_width", json_integer(model->image.width));
    value_put(run, "trainable_parameters", json_integer(model_parameter_count(model, true)));
    value_put(run, "parameter_mb",
              value_number((double)model_parameter_count(model, false) * sizeof(float) / 1e6));
    value_put(run, "flops_per_image", value_number(model->flops_per_image));
    value_put(run, "peak_flops", value_number(trainer->peak_flops));
    layout_put(run, trainer);
    value_put(run, "train_samples", json_integer(train->count));
    value_put(run, "val_samples", value_count(validation != NULL ? validation->dataset.count : -1));
    value_put(run, "val_steps",
              value_count(validation != NULL ? sampler_steps(&validation->sampler) : -1));
    value_put(run, "test_samples",
              value_count(options->data.val == VALIDATION_TEST
                              ? trainer->session.validation.dataset.count
                          : test->confusion != NULL ? test->samples
                                                    : -1));
    value_put(run, "class_names", names);
    value_put(run, "chosen_on_test", json_boolean(trainer_chooses_on_test(trainer)));
    value_put(run, "base_lr",
              value_number(schedule_base_rate(options, trainer->session.global_batch)));
    value_put(run, "steps_per_epoch", json_integer(trainer->steps_per_epoch));
    value_put(run, "total_steps", json_integer(trainer->total_steps));
    return run;
}

/* ---- results */

static void results_put(json_t *run, const struct trainer *trainer, const struct results *results)
{
    const struct training_state *state = &trainer->state;
    const struct dataset *dataset = &trainer->session.validation.dataset;
    const struct metrics_row *epoch = &trainer->progress.last_epoch;
    const double target = trainer->session.options.output.target;
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
    value_put(run, "target_top1", target > 0 ? json_real(target) : json_null());
    value_put(run, "target_seconds", value_number(metrics_seconds_to(&trainer->folder, target)));
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

bool run_record_end(struct trainer *trainer, const struct results *results, struct error *error)
{
    json_t *sensors = monitor_stop(trainer->output.monitor);
    json_t *own = ranks_gather(trainer), *record = trainer->output.record, *rank;
    double *seconds = unit_seconds_reduce(trainer);
    size_t number;
    if (trainer->session.world->rank == 0) {
        json_t *run = run_to_json(trainer);
        json_t *units = record_array(record, "units"), *ranks = record_array(record, "ranks");
        attempt_end(trainer, results->stop_reason, NULL);
        json_array_foreach(own, number, rank)
            value_put(rank, "attempt", json_integer(trainer->attempt.number));
        json_array_extend(ranks, own);
        results_put(run, trainer, results);
        value_put(run, "sensors", json_incref(sensors));
        value_put(run, "attempts", json_incref(json_object_get(record, "attempts")));
        /* An attempt without steps has no times. */
        value_put(run, "units",
                  trainer->attempt.steps == 0 && json_array_size(units) > 0
                      ? json_incref(units)
                      : units_to_json(trainer, seconds));
        value_put(run, "ranks", json_incref(ranks));
        json_decref(record);
        trainer->output.record = run;
        error_defer(record_write(trainer, error));
    }
    free(seconds);
    json_decref(own);
    json_decref(sensors);
    return comm_agree(trainer->session.world, error);
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

/* Append the values of these keys that differ to text. */
static void facts_compare(const json_t *recorded, const json_t *own, const char *const *keys,
                          char *text, size_t size)
{
    for (; *keys != NULL; keys++) {
        const json_t *before = json_object_get(recorded, *keys), *now = json_object_get(own, *keys);
        size_t used = strlen(text);
        if (before == NULL || json_equal(before, now))
            continue;
        char *was = json_dumps(before, JSON_ENCODE_ANY), *is = json_dumps(now, JSON_ENCODE_ANY);
        ENSURE_MEMORY(was != NULL && is != NULL, "no memory to compare machines");
        snprintf(text + used, size - used, "%s%s %s, here %s", used > 0 ? "; " : "", *keys, was,
                 is);
        free(was);
        free(is);
    }
}

void run_record_compare(const struct trainer *trainer, int64_t step, char *text, size_t size)
{
    static const char *const layout[] = {"backend", "precision", "strategy", "replica",
                                         "shard",   "transport", NULL};
    static const char *const machine[] = {"instructions", "library", "ranks",  "nodes",
                                          "threads",      "version", "commit", NULL};
    json_t *run = record_read(trainer->folder.path), *own = json_object();
    const json_t *attempts = json_object_get(run, "attempts"), *attempt = NULL;
    for (size_t i = 0; i < json_array_size(attempts); i++)
        if (json_integer_value(json_object_get(json_array_get(attempts, i), "from_step")) < step)
            attempt = json_array_get(attempts, i);
    layout_put(own, trainer);
    machine_put(own, trainer);
    text[0] = '\0';
    facts_compare(attempt, own, machine, text, size);
    facts_compare(run, own, layout, text, size);
    json_decref(run);
    json_decref(own);
}

/* ---- the row of the log book */

/* Write a cell with the main figures of an evaluation; NULL: none. */
static void evaluation_cell(FILE *row, const struct evaluation *evaluation,
                            const struct dataset *dataset)
{
    char *text = evaluation != NULL ? evaluation_text(evaluation, dataset) : allocate_copy(", -");
    logbook_cell(row, "%s", text + strlen(", "));
    free(text);
}

void trainer_logbook_add(struct trainer *trainer, const char *failure)
{
    const struct session *session = &trainer->session;
    const struct options *options = &session->options;
    const struct debug_options *debug = &options->debug;
    const struct dataset *dataset = &session->validation.dataset;
    const double steps = (double)trainer->steps_per_epoch;
    const char *started = trainer->attempt.started;
    struct error error = {.kind = ERROR_NONE};
    struct text_stream text;
    char cell[64] = "", number[NUMBER_TEXT];
    if (session->world->rank != 0 || trainer->attempt.number == 0 ||
        options->output.logbook[0] == '\0')
        return;
    if (failure != NULL) /* else progress_result has set them */
        trainer_update_seconds(trainer);
    const struct results results = progress_results(trainer);
    const double mfu = results.images_per_second * session->model->flops_per_image /
                       (trainer->peak_flops * session->world->size);
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
    evaluation_cell(row, results.evaluation, dataset);
    evaluation_cell(row, results.test, dataset);
    logbook_cell(row, "%s", evaluation_number(results.images_per_second, 1, number));
    logbook_cell(row, "%s%s", evaluation_number(100 * mfu, 2, number), isnan(mfu) ? "" : " %");
    clock_format(trainer->state.total_seconds, cell, sizeof cell);
    logbook_cell(row, "%s", cell);
    logbook_cell(row, failure != NULL ? "failed" : results.unfinished ? "stopped" : "finished");
    logbook_cell(row, "%s", failure != NULL ? failure : results.stop_reason);
    /* The part of the data that was used: "25 %, at most 7 batches". */
    cell[0] = '\0';
    if (debug->overfit > 0)
        snprintf(cell, sizeof cell, ", the first %lld batches", (long long)debug->overfit);
    else if (debug->batches > 0)
        snprintf(cell, sizeof cell, ", at most %lld batches", (long long)debug->batches);
    logbook_cell(row, "%.3g %%%s", 100 * debug->fraction, cell);
    logbook_cell(row, "%s",
                 session_reads_weights(options) ? text_base_name(options->model.init) : "random");
    char *whole = text_stream_close(&text);
    if (!logbook_add(options->output.logbook, whole, trainer->attempt.number > 1, &error))
        log_warn("cannot add the run to the log book: %s", error.text);
    free(whole);
}
