// SPDX-License-Identifier: BSD-3-Clause
#include "train/trainer.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrays/arrays.h"
#include "base/allocate.h"
#include "base/base.h"
#include "base/columns.h"
#include "base/log.h"
#include "checkpoint/checkpoint_file.h"
#include "checkpoint/model_metadata.h"
#include "options/options.h"

enum { SAMPLED_CLASSES = 256 };

/* ---- the description */

static const struct {
    const char *key, *name;
} splits[] = {{"train", "training"}, {"val", "validation"}};
enum { SPLITS = sizeof splits / sizeof splits[0] };

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
    struct dataset *const datasets[SPLITS] = {
        &trainer->session.train.dataset,
        trainer->session.validates ? &trainer->session.validation.dataset : NULL};
    const struct image_size image = trainer->session.model->image;
    json_t *data = json_object(), *names = json_array();
    value_put(data, "image",
              json_pack("[I, I]", (json_int_t)image.height, (json_int_t)image.width));
    for (int64_t c = 0; datasets[0]->class_name != NULL && c < datasets[0]->classes; c++)
        value_append(names, value_name(datasets[0]->class_name[c]));
    value_put(data, "classes", names);
    for (int s = 0; s < SPLITS && error->kind == ERROR_NONE; s++)
        if (datasets[s] != NULL)
            value_put(data, splits[s].key, split_describe(datasets[s], error));
    trainer->data = value_to_text(data);
    return error->kind == ERROR_NONE;
}

/* ---- the comparison */

struct comparison {
    const struct trainer *trainer;
    bool named;                /* differences are warnings */
    bool other_monitor;        /* the best value is of another metric */
    bool over;                 /* no step is left */
    char first[512];           /* the first difference that is an error */
    char without_effect[2048]; /* the first option that differs, if no step is left */
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
    char text[sizeof comparison->without_effect];
    const bool replays = comparison->trainer->receipts.expected != NULL;
    /* The data are compared, not their place. Only fp16 has a loss scale. */
    const bool has_no_effect = change->effect == EFFECT_LEARNING &&
                               strcmp(change->name, "data.root") != 0 &&
                               (strcmp(change->name, "train.loss_scale") != 0 ||
                                comparison->trainer->session.io.scaler != NULL);
    if (change->effect == EFFECT_MODEL) {
        difference_add(comparison, "%s was %.200s, is %.200s", change->name, change->before,
                       change->now);
        return;
    }
    snprintf(text, sizeof text, "%s %.900s -> %.900s", change->name, change->before, change->now);
    if (has_no_effect && comparison->over && comparison->without_effect[0] == '\0')
        memcpy(comparison->without_effect, text, sizeof text);
    if (comparison->other_monitor && strcmp(change->name, "checkpoint.monitor") == 0)
        log_info("changed since the checkpoint: %s: the best evaluation and the patience of "
                 "train.early_stop start over",
                 text);
    else if (change->effect == EFFECT_LEARNING || (comparison->over && !replays))
        log_info("changed since the checkpoint: %s", text);
    else if (!replays)
        log_detail("changed since the checkpoint: %s", text);
}

/* Return false if the classes differ. */
static bool classes_compare(struct comparison *comparison, const json_t *before, const json_t *now)
{
    const size_t was = json_array_size(before), is = json_array_size(now);
    char counts[64] = "";
    if (was != is)
        snprintf(counts, sizeof counts, " (%zu classes before, %zu now)", was, is);
    for (size_t c = 0; c < was || c < is; c++) {
        const char *old = json_string_value(json_array_get(before, c));
        const char *new = json_string_value(json_array_get(now, c));
        if (old != NULL && new != NULL && strcmp(old, new) == 0)
            continue;
        if (old == NULL || new == NULL)
            difference_add(comparison, "class %zu '%.100s' is %s%s", c, old != NULL ? old : new,
                           old != NULL ? "missing" : "new", counts);
        else
            difference_add(comparison, "class %zu was '%.100s', is '%.100s'%s", c, old, new,
                           counts);
        return false;
    }
    return true;
}

/* Compare a split that both runs have. */
static void split_compare(struct comparison *comparison, const char *name, const json_t *before,
                          const json_t *now, const json_t *classes)
{
    const json_t *was = json_object_get(before, "samples"), *is = json_object_get(now, "samples");
    char owner[160] = "the run";
    for (size_t c = 0; c < json_array_size(is); c++) {
        const json_t *old = json_array_get(was, c), *new = json_array_get(is, c);
        const char *class = json_string_value(json_array_get(classes, c));
        if (json_equal(old, new))
            continue;
        if (class != NULL)
            snprintf(owner, sizeof owner, "class %zu '%.100s'", c, class);
        difference_add(comparison, "%s had %lld %s samples, has %lld", owner,
                       (long long)json_integer_value(old), name,
                       (long long)json_integer_value(new));
        return;
    }
    if (!json_equal(json_object_get(before, "list"), json_object_get(now, "list")))
        difference_add(comparison, "the list of %s samples has other files or another order", name);
    else if (!json_equal(json_object_get(before, "content"), json_object_get(now, "content")))
        difference_add(comparison, "%s samples of the same name have other contents", name);
}

static void data_compare(struct comparison *comparison, const char *path,
                         const struct checkpoint_contents *contents)
{
    json_t *before = json_loads(contents->text[TEXT_DATA], 0, NULL);
    json_t *now = json_loads(comparison->trainer->data, 0, NULL);
    const json_t *was = json_object_get(before, "image"), *is = json_object_get(now, "image");
    const json_t *classes = json_object_get(now, "classes");
    if (!json_is_object(before)) {
        log_warn("%s is of format %lld, which does not describe the data: they cannot be compared "
                 "with those of this run",
                 path, (long long)contents->format);
    } else {
        const bool same = classes_compare(comparison, json_object_get(before, "classes"), classes);
        if (!json_equal(was, is))
            difference_add(comparison, "the model's images had %lldx%lld pixels, have %lldx%lld",
                           (long long)json_integer_value(json_array_get(was, 0)),
                           (long long)json_integer_value(json_array_get(was, 1)),
                           (long long)json_integer_value(json_array_get(is, 0)),
                           (long long)json_integer_value(json_array_get(is, 1)));
        for (int s = 0; s < SPLITS && same; s++) {
            const json_t *old = json_object_get(before, splits[s].key);
            const json_t *new = json_object_get(now, splits[s].key);
            if (old != NULL && new != NULL)
                split_compare(comparison, splits[s].name, old, new, classes);
        }
    }
    json_decref(before);
    json_decref(now);
}

/* Return what to do about a difference. Weights of other shapes cannot be resumed from, and as
 * initial weights only safetensors may have another head. A FILE on disk is refused as long as a
 * newer checkpoint is in memory. */
static const char *difference_advice(const struct trainer *trainer,
                                     const struct checkpoint_contents *contents)
{
    char difference[512];
    if (trainer->receipts.expected != NULL)
        return "the data and the model of the run";
    const bool fits =
        checkpoint_fits(contents, &trainer->session.flat, difference, sizeof difference);
    if (trainer->checkpoints.found.path[0] != '\0')
        return fits && trainer->folder.resuming
                   ? "another run.dir, or remove the file .memory in run.dir and set "
                     "checkpoint.resume=FILE to continue on purpose from a checkpoint on disk"
                   : "another run.dir";
    return fits ? "another run.dir, checkpoint.resume=FILE to continue on purpose, or "
                  "model.init=FILE to fine-tune"
                : "another run.dir, or model.init=FILE.safetensors to fine-tune";
}

/* Rank 0. Compare a checkpoint of a step with the run. */
static bool contents_compare(struct comparison *comparison, const char *path,
                             const struct checkpoint_contents *contents, struct error *error)
{
    const struct trainer *trainer = comparison->trainer;
    const struct options *options = &trainer->session.options;
    const bool replays = trainer->receipts.expected != NULL;
    struct training_state state = contents->state;
    struct dataset dataset = trainer->session.train.dataset;
    struct model_metadata metadata;
    struct options saved;
    struct error reason = {.kind = ERROR_NONE};
    options_default(&saved);
    /* A deck of another version that cannot be read is not compared. */
    if (checkpoint_deck_parse(contents->text[TEXT_DECK], path, &saved, &reason)) {
        comparison->other_monitor = saved.checkpoint.monitor != MONITOR_AUTO &&
                                    saved.checkpoint.monitor != options->checkpoint.monitor;
        if (comparison->other_monitor)
            state.evaluations_without_gain = 0;
        comparison->over = trainer_is_over(trainer, &state);
        option_changes(&saved, options, option_compare, comparison);
    }
    error_clear(&reason);
    data_compare(comparison, path, contents);
    /* The grid of arrays and the step of their times. */
    model_metadata_parse(contents->text[TEXT_METADATA], &metadata);
    if (!arrays_check_grid(&dataset, metadata.grid, path, &reason))
        difference_add(comparison, "%s", reason.text);
    model_metadata_free(&metadata);
    if (comparison->first[0] != '\0')
        return error_set(error, ERROR_USAGE, "cannot %s from %s: %s; use %s",
                         replays ? "replay" : "resume", path, comparison->first,
                         difference_advice(trainer, contents));
    if (replays || comparison->without_effect[0] == '\0')
        return true;
    return error_set(error, ERROR_USAGE,
                     "%s: the run has ended at step %lld of %lld, so %s has no effect; raise "
                     "train.epochs or train.steps to continue, or use another run.dir",
                     trainer->folder.path, (long long)state.step, (long long)trainer->total_steps,
                     comparison->without_effect);
}

bool resume_check(const struct trainer *trainer, const char *path, bool named, bool *other_monitor,
                  struct error *error)
{
    struct comm *world = trainer->session.world;
    struct comparison comparison = {.trainer = trainer, .named = named};
    struct checkpoint_contents contents = {.unit_count = 0};
    if (world->rank == 0 && checkpoint_file_read(path, &contents, error) && contents.state.step > 0)
        error_defer(contents_compare(&comparison, path, &contents, error));
    checkpoint_contents_free(&contents);
    *other_monitor = comparison.other_monitor;
    comm_broadcast(world, other_monitor, sizeof *other_monitor, COMM_BYTE, 0);
    return comm_share_error(world, error);
}
