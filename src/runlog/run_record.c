/* run.json: what runs, on what, since when. It is read, added to and replaced as a whole by rank 0,
 * so that no part of a run forgets another. */
#include "runlog/run_record.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/atomic_file.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/value.h"
#include "core/version.h"
#include "runlog/run_tables.h"

static const char file_name[] = "run.json";

/* Of the format; a reader of other versions takes what it knows. */
enum { FORMAT = 1 };

/* ---- what this part is */

/* A word as a shell takes it. */
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

/* The process's command line, null where there is no /proc. */
static json_t *command_line(void)
{
    char *word = NULL, *text = NULL;
    size_t size = 0, length = 0;
    FILE *file = fopen("/proc/self/cmdline", "re");
    if (file == NULL)
        return json_null();
    FILE *stream = open_memstream(&text, &length);
    ENSURE(stream != NULL, "no memory for the command line");
    for (int i = 0; getdelim(&word, &size, '\0', file) >= 0; i++) {
        if (i > 0)
            fputc(' ', stream);
        word_write(stream, word);
    }
    free(word);
    fclose(file);
    ENSURE(fclose(stream) == 0, "no memory for the command line");
    json_t *value = value_name(text);
    free(text);
    return value;
}

static json_t *stamp_now(void)
{
    char stamp[32];
    clock_stamp_utc(stamp, sizeof stamp);
    return json_string(stamp);
}

/* Names in the order of the ranks, each once. */
static json_t *names_once(int ranks, const char *(*name_of)(const void *self, int rank),
                          const void *self)
{
    json_t *array = json_array();
    const char *before = "";
    for (int rank = 0; rank < ranks; rank++) {
        const char *name = name_of(self, rank);
        bool known = strcmp(name, before) == 0;
        for (size_t i = 0; !known && i < json_array_size(array); i++)
            known = strcmp(json_string_value(json_array_get(array, i)), name) == 0;
        if (!known)
            value_append(array, value_name(name));
        before = name;
    }
    return array;
}

static const char *host_of(const void *self, int rank)
{
    (void)self;
    return comm_host_of(rank);
}

static const char *device_of(const void *self, int rank)
{
    const struct rank_facts *facts = self;
    return facts[rank].device;
}

static json_t *part_to_json(const struct trainer *trainer, const struct rank_facts *facts)
{
    json_t *part = json_object();
    const struct session *session = &trainer->session;
    const char *job = getenv("SLURM_JOB_ID");
    value_put(part, "started", json_string(trainer->started));
    value_put(part, "command", command_line());
    value_put(part, "version", value_name(version_number));
    value_put(part, "commit", value_name(version_commit));
    value_put(part, "job", value_text(job));
    value_put(part, "hosts", names_once(trainer->world->size, host_of, NULL));
    value_put(part, "devices", names_once(trainer->world->size, device_of, facts));
    value_put(part, "ranks", json_integer(trainer->world->size));
    value_put(part, "nodes", json_integer(session->mesh.node_count));
    value_put(part, "threads", json_integer(session->limits.threads));
    value_put(part, "from_step", json_integer(trainer->state.step));
    value_put(part, "setup_seconds", value_number(clock_now() - trainer->opened_at));
    return part;
}

/* ---- what the run is */

static void model_put(json_t *run, const struct trainer *trainer)
{
    const struct session *session = &trainer->session;
    const struct model *model = session->model;
    int64_t all = model_parameter_count(model);
    value_put(run, "model", value_name(trainer->options.model.name));
    value_put(run, "image", json_integer(model->image));
    value_put(run, "parameters", json_integer(all));
    value_put(run, "trainable_parameters", json_integer(model_trainable_count(model)));
    value_put(run, "parameter_mb", value_number((double)all * sizeof(float) / 1e6));
    value_put(run, "flops_per_image", value_number(model->flops_per_image));
    value_put(run, "peak_flops", value_number(session->limits.peak_flops[session->compute]));
}

static json_t *classes_to_json(const struct dataset *dataset)
{
    json_t *names = json_array();
    for (int64_t i = 0; dataset->class_name != NULL && i < dataset->classes; i++)
        value_append(names, value_name(dataset->class_name[i]));
    return names;
}

static void data_put(json_t *run, const struct trainer *trainer)
{
    const struct dataset *validation = &trainer->validation.dataset;
    bool is_test = trainer->options.data.val == VALIDATION_TEST;
    value_put(run, "train_samples", json_integer(trainer->train.dataset.count));
    value_put(run, "val_samples", value_count(trainer->validates ? validation->count : -1));
    value_put(run, "test_samples", value_count(is_test ? validation->count : -1));
    value_put(run, "class_names", classes_to_json(&trainer->train.dataset));
    value_put(run, "global_batch", json_integer(trainer->global_batch));
    value_put(run, "steps_per_epoch", json_integer(trainer->steps_per_epoch));
    value_put(run, "total_steps", json_integer(trainer->total_steps));
}

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
    value_put(run, "transport", value_text(trainer->world->size > 1 ? transport : NULL));
    value_put(run, "ranks", json_integer(trainer->world->size));
    value_put(run, "nodes", json_integer(mesh->node_count));
    value_put(run, "threads", json_integer(session->limits.threads));
    value_put(run, "planned_bytes", json_integer(run_planned_bytes(session)));
    json_t *planned = json_object();
    for (int i = 0; i < MEMORY_CLASSES; i++)
        value_put(planned, memory_class_name[i],
                  json_integer((json_int_t)session->arena.by_class[i]));
    value_put(planned, "loaders", json_integer((json_int_t)session->feed_bytes));
    value_put(planned, "snapshot", json_integer((json_int_t)session->snapshot_bytes));
    value_put(run, "planned", planned);
}

/* ---- the file */

/* The parts before this one; a file that cannot be read tells of none. */
static json_t *parts_read(const struct trainer *trainer)
{
    char path[FILE_PATH];
    snprintf(path, sizeof path, "%s/%s", trainer->folder.path, file_name);
    json_t *old = json_load_file(path, 0, NULL);
    json_t *parts = json_incref(json_object_get(old, "parts"));
    json_decref(old);
    if (json_is_array(parts))
        return parts;
    json_decref(parts);
    return json_array();
}

/* Takes the JSON over. */
static bool record_write(const struct trainer *trainer, json_t *run, struct error *error)
{
    char *text = value_to_text(run);
    bool good = run_folder_write(&trainer->folder, file_name, text, error);
    free(text);
    return good;
}

static bool part_begin(struct trainer *trainer, const struct rank_facts *facts, struct error *error)
{
    json_t *run = json_object(), *parts = parts_read(trainer);
    value_append(parts, part_to_json(trainer, facts));
    trainer->part = (int64_t)json_array_size(parts);
    value_put(run, "format", json_integer(FORMAT));
    value_put(run, "name", value_name(trainer->options.run.name));
    model_put(run, trainer);
    layout_put(run, trainer);
    data_put(run, trainer);
    value_put(run, "parts", parts);
    return record_write(trainer, run, error);
}

bool run_record_begin(struct trainer *trainer, struct error *error)
{
    struct rank_facts *facts = rank_facts_gather(trainer);
    if (trainer->world->rank == 0)
        part_begin(trainer, facts, error);
    free(facts);
    return comm_agree(trainer->world, error);
}

/* Tells in the file how the newest part ended. */
static bool part_end(const struct trainer *trainer, const char *reason, const char *failure,
                     struct error *error)
{
    char path[FILE_PATH];
    snprintf(path, sizeof path, "%s/%s", trainer->folder.path, file_name);
    json_t *run = json_load_file(path, 0, NULL), *parts = json_object_get(run, "parts");
    json_t *part = json_array_get(parts, json_array_size(parts) - 1);
    if (!json_is_object(part)) {
        json_decref(run);
        return error_set(error, ERROR_FILE, "%s does not tell of this run any more", path);
    }
    value_put(part, "ended", stamp_now());
    value_put(part, "to_step", json_integer(trainer->state.step));
    value_put(part, "stop_reason", value_text(reason));
    value_put(part, "error", value_text(failure));
    if (trainer->test.confusion != NULL)
        value_put(run, "test_samples", json_integer(trainer->test.samples));
    return record_write(trainer, run, error);
}

bool run_record_end(struct trainer *trainer, struct error *error)
{
    const char *reason = trainer->stop_reason != NULL ? trainer->stop_reason : "all steps done";
    struct rank_facts *facts = rank_facts_gather(trainer);
    rank_facts_say(facts, trainer->world->size);
    double *seconds = unit_seconds_reduce(trainer);
    if (trainer->world->rank == 0 && part_end(trainer, reason, NULL, error) &&
        trainer->options.output.csv && units_write(trainer, seconds, error))
        ranks_write(trainer, facts, error);
    free(seconds);
    free(facts);
    return comm_agree(trainer->world, error);
}

void run_record_fail(struct trainer *trainer, const struct error *why)
{
    struct error trouble = {.kind = ERROR_NONE};
    if (trainer->world->rank == 0 && trainer->part > 0 &&
        !part_end(trainer, NULL, why->text, &trouble))
        log_warn("%s", trouble.text);
}
