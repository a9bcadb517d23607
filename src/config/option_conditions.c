// SPDX-License-Identifier: BSD-3-Clause
#include "config/option_conditions.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "config/option.h"
#include "config/options.h"
#include "core/text.h"

#define IS_VIT "model.name=vit_*,deit3_*"
#define HAS_NO_BATCH_NORM IS_VIT ",cnn_a*,linear"
#define CROPS ";augment.random_resized_crop=on;augment.recipe=photos"

/* Options, or patterns of their names, and the condition under which they apply, or (`excludes`) do
 * not apply: an option with a list of values or patterns. All rows of an option must hold; a row
 * also holds if an option after a semicolon has one of its values.
 * options_settle makes one pass over option_table: if the option of a condition has a condition of
 * its own, it precedes these options in the table, or they have that condition, too. */
static const struct condition {
    const char *options, *when;
    bool excludes;
} conditions[] = {
    {"model.patch,model.dim,model.depth,model.heads,model.mlp_ratio,model.dropout,model.drop_path",
     IS_VIT, false},
    {"model.qkv_bias,model.qk_norm,model.class_token,model.registers,model.position", IS_VIT,
     false},
    {"model.embed_norm,model.pool,model.fc_norm,model.layer_scale,model.mlp,model.gelu", IS_VIT,
     false},
    {"model.head", IS_VIT ",resnet*", false},
    {"model.pool,model.fc_norm,eval.flip", "model.head=dense", true},
    {"train.checkpoint_activations", IS_VIT, false},
    {"model.width,model.sync_bn", HAS_NO_BATCH_NORM, true},
    {"data.root", "data.format=synthetic", true},
    {"data.samples,data.distinct,data.image,data.classes,data.values", "data.format=synthetic",
     false},
    {"data.task", "data.format=synthetic,arrays", false},
    {"data.x,data.y,data.order,data.join,data.coordinates,data.missing,data.transform",
     "data.format=arrays", false},
    {"train.weights,train.row_weight,train.ignore_label", "data.format=arrays", false},
    {"data.shuffle_block", "data.shuffle=chunks", true},
    {"data.val_from", "data.val=test,reference,none,val", true},
    {"data.image,data.classes", "data.task=classes", false},
    {"augment.*,eval.resize*,eval.crop*,eval.flip,train.loss,train.label_smoothing",
     "model.name=linear", true},
    {"data.allow_empty", "data.format=imagefolder,cinic10", false},
    {"data.skip_broken", "data.format=imagefolder,cinic10,webdataset", false},
    {"data.check,data.truncated,data.scaled_decode,data.max_pixels,data.exif",
     "data.format=imagefolder,cinic10,webdataset", false},
    {"augment.erase_scale,augment.erase_ratio", "augment.erase=0", true},
    {"augment.rand_magnitude", "augment.rand_augment=0", true},
    {"augment.noise,augment.channel_dropout", "data.values=uint8;data.format=arrays", true},
    {"augment.mix_switch", "augment.mixup=0", true},
    {"augment.mix_switch", "augment.cutmix=0", true},
    {"augment.crop_scale,augment.crop_ratio", "augment.random_resized_crop=off", true},
    {"augment.crop_scale,augment.crop_ratio", "augment.recipe=cifar,plain" CROPS, true},
    {"augment.crop_scale,augment.crop_ratio", "data.format=cifar10,synthetic" CROPS, true},
    {"eval.crop_pad", "eval.crop=random", false},
    {"train.grain,train.check_every", "train.exact=layout", false},
    {"train.check_action,debug.flip", "train.check_every=0", true},
    {"debug.flip_rank", "debug.flip=off", true},
    {"train.loss_scale", "train.precision=fp16,auto", false},
    {"optim.lr_batch", "optim.lr_scale=none", true},
    {"optim.momentum", "optim.name=sgd,rmsprop,muon,lars", false},
    {"optim.nesterov", "optim.name=sgd,muon,lars", false},
    {"optim.nesterov", "optim.momentum=0", true},
    {"optim.betas", "optim.name=adam,adamw,muon,lion,lamb", false},
    {"optim.eps", "optim.name=sgd,lion", true},
    {"optim.alpha", "optim.name=rmsprop", false},
    {"optim.trust_coeff", "optim.name=lars", false},
    {"optim.trust_clip,optim.always_adapt", "optim.name=lamb,lars", false},
    {"optim.muon_*", "optim.name=muon", false},
    {"schedule.min_lr", "schedule.name=cosine,plateau", false},
    {"schedule.step_size,schedule.gamma", "schedule.name=step", false},
    {"schedule.pct_start,schedule.*div_factor", "schedule.name=onecycle", false},
    {"schedule.factor,schedule.threshold,schedule.patience", "schedule.name=plateau", false},
    {"schedule.end_factor", "schedule.name=linear", false},
    {"mesh.shard", "mesh.strategy=ddp", true},
    {"mesh.stall_warning", "mesh.heartbeat_timeout=0", true},
    {"output.tensorboard_tags", "output.tensorboard=on", false},
    {"output.upload_wait", "output.upload=", true},
    {"cuda.graph,cuda.tf32,cuda.dependent_launch,cuda.share", "run.backend=cpu", true},
};
enum { CONDITIONS = sizeof conditions / sizeof conditions[0] };

/* Write the name of the first option of a condition and its list of values. Return the rest, or
 * NULL. */
static const char *condition_parse(const char *when, char name[OPTION_KEY], char list[OPTION_TEXT])
{
    const size_t key = strcspn(when, "="), length = strcspn(when, ";");
    snprintf(name, OPTION_KEY, "%.*s", (int)key, when);
    snprintf(list, OPTION_TEXT, "%.*s", (int)(length - key - 1), when + key + 1);
    return when[length] == ';' ? when + length + 1 : NULL;
}

/* True if a pattern of the list matches; an empty list is one empty pattern. */
static bool list_matches(const char *list, const char *text)
{
    size_t length;
    const char *item = text_next_item(list, &length);
    bool matches = item == NULL && text[0] == '\0';
    for (; item != NULL; item = text_next_item(item + length, &length)) {
        char pattern[OPTION_TEXT];
        snprintf(pattern, sizeof pattern, "%.*s", (int)length, item);
        matches = matches || fnmatch(pattern, text, 0) == 0;
    }
    return matches;
}

static bool condition_holds(const struct condition *condition, const struct options *options)
{
    bool holds = false, excludes = condition->excludes;
    for (const char *when = condition->when; when != NULL && !holds; excludes = false) {
        char name[OPTION_KEY], list[OPTION_TEXT], value[OPTION_TEXT];
        when = condition_parse(when, name, list);
        options_value_text(options, name, value, sizeof value);
        holds = list_matches(list, value) != excludes;
    }
    return holds;
}

/* Return the first condition of an option that does not hold, or NULL. */
static const struct condition *unmet_condition(const struct option_entry *entry,
                                               const struct options *options)
{
    for (int i = 0; i < CONDITIONS; i++)
        if (list_matches(conditions[i].options, entry->name) &&
            !condition_holds(&conditions[i], options))
            return &conditions[i];
    return NULL;
}

/* Write the words of a list as "a, b or c". */
static void list_write(const char *list, char *text, size_t size)
{
    size_t length, used = 0;
    text[0] = '\0';
    for (const char *item = text_next_item(list, &length); item != NULL && used < size;) {
        size_t next_length;
        const char *next = text_next_item(item + length, &next_length);
        const bool is_last_but_one =
            next != NULL && text_next_item(next + next_length, &(size_t){0}) == NULL;
        used += (size_t)snprintf(text + used, size - used, "%.*s%s", (int)length, item,
                                 next == NULL      ? ""
                                 : is_last_but_one ? " or "
                                                   : ", ");
        item = next;
        length = next_length;
    }
}

static bool requests_nothing(const char *value)
{
    return list_matches("0,off,none,auto,class", value) || value[0] == '\0';
}

static bool option_refuse(const char *where, const struct option_entry *entry,
                          const struct condition *unmet, const struct options *options,
                          struct error *error)
{
    char name[OPTION_KEY], list[OPTION_TEXT], value[OPTION_TEXT], other[OPTION_TEXT];
    char words[OPTION_TEXT];
    const char *unless = condition_parse(unmet->when, name, list);
    option_write(entry, options, value, sizeof value);
    options_value_text(options, name, other, sizeof other);
    list_write(list, words, sizeof words);
    if (unless != NULL)
        snprintf(words, sizeof words, "set %.*s", (int)strcspn(unless, ";"), unless);
    else if (unmet->excludes)
        snprintf(words, sizeof words, "change %s", name);
    return error_set(error, ERROR_USAGE,
                     "%s%s=%s does not apply with %s=%s: leave it out, or %s%s%s%s", where,
                     entry->name, value, name, other[0] != '\0' ? other : "(empty)",
                     unmet->excludes ? "" : "set ", unmet->excludes ? "" : name,
                     unmet->excludes ? "" : " to ", words);
}

static bool deck_check(const char *path, const struct options *options, struct error *error)
{
    static struct options own, defaults;
    int settings;
    char where[OPTION_TEXT];
    options_default(&own);
    options_default(&defaults);
    if (!options_read_deck(path, &own, &settings, error) || settings >= RESOLVED_DECK)
        return error->kind == ERROR_NONE;
    snprintf(where, sizeof where, "%s: ", path);
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++) {
        char value[OPTION_TEXT], preset[OPTION_TEXT], final[OPTION_TEXT];
        const struct condition *unmet = unmet_condition(entry, options);
        if (unmet == NULL || unmet_condition(entry, &own) == NULL)
            continue;
        option_write(entry, &own, value, sizeof value);
        option_write(entry, &defaults, preset, sizeof preset);
        option_write(entry, options, final, sizeof final);
        if (strcmp(value, final) == 0 && strcmp(value, preset) != 0 && !requests_nothing(value))
            return option_refuse(where, entry, unmet, options, error);
    }
    return true;
}

bool option_word_check(const char *word, const struct options *options, struct error *error)
{
    char name[2 * OPTION_KEY], value[OPTION_TEXT];
    if (!option_is_setting(word))
        return deck_check(word, options, error);
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    const struct option_entry *entry = option_find(name);
    const struct condition *unmet = entry != NULL ? unmet_condition(entry, options) : NULL;
    if (unmet == NULL)
        return true;
    option_write(entry, options, value, sizeof value);
    return requests_nothing(value) || option_refuse("", entry, unmet, options, error);
}

void options_settle(struct options *options)
{
    struct error error = {0};
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++)
        if (unmet_condition(entry, options) != NULL)
            error_defer(option_read(entry, "default: ", entry->preset, options, &error));
    ENSURE(error.kind == ERROR_NONE, "%s", error.text);
}

void option_conditions_text(const char *name, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < CONDITIONS && used < size; i++) {
        char other[OPTION_KEY], list[OPTION_TEXT], words[OPTION_TEXT];
        if (!list_matches(conditions[i].options, name))
            continue;
        const char *unless = condition_parse(conditions[i].when, other, list);
        list_write(list, words, sizeof words);
        used += (size_t)snprintf(
            text + used, size - used, "%s%s %s=%s%s%.*s", used > 0 ? ", " : "",
            conditions[i].excludes ? "not with" : "with", other,
            words[0] != '\0' ? words : "(empty)", unless != NULL ? " unless " : "",
            unless != NULL ? (int)strcspn(unless, ";") : 0, unless != NULL ? unless : "");
    }
}
