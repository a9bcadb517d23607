// SPDX-License-Identifier: BSD-3-Clause
#include "config/option_changes.h"

#include <stdio.h>
#include <string.h>

#include "config/option.h"
#include "config/option_conditions.h"
#include "config/options.h"

/* The first row whose name is an option's, or a section's with its dot, applies. Image size,
 * channels and classes are compared with those of the open model, not here. */
static const struct {
    const char *name;
    enum option_effect effect;
} effects[] = {
    {"run.name", EFFECT_NONE},
    {"run.tags", EFFECT_NONE},
    {"run.dir", EFFECT_NONE},
    {"run.threads", EFFECT_NONE},
    {"model.image", EFFECT_LEARNING},
    {"model.image_width", EFFECT_LEARNING},
    {"model.channels", EFFECT_LEARNING},
    {"model.classes", EFFECT_LEARNING},
    {"model.dropout", EFFECT_LEARNING},
    {"model.drop_path", EFFECT_LEARNING},
    {"model.sync_bn", EFFECT_LEARNING},
    {"model.", EFFECT_MODEL},
    {"data.x", EFFECT_MODEL},
    {"data.y", EFFECT_MODEL},
    {"data.join", EFFECT_MODEL},
    {"data.coordinates", EFFECT_MODEL},
    {"data.transform", EFFECT_MODEL},
    {"data.missing", EFFECT_NONE},
    {"data.workers", EFFECT_NONE},
    {"train.epochs", EFFECT_NONE},
    {"train.steps", EFFECT_NONE},
    {"train.accumulate", EFFECT_NONE},
    {"train.max_seconds", EFFECT_NONE},
    {"train.early_stop", EFFECT_NONE},
    {"train.test", EFFECT_NONE},
    {"mesh.", EFFECT_NONE},
    {"checkpoint.", EFFECT_NONE},
    {"output.", EFFECT_NONE},
    {"debug.profile", EFFECT_NONE},
    {"debug.check_weights", EFFECT_NONE},
    {"debug.pause", EFFECT_NONE},
    {"plan.", EFFECT_NONE},
};

enum option_effect option_effect_of(const char *name)
{
    for (size_t i = 0; i < sizeof effects / sizeof effects[0]; i++) {
        const char *row = effects[i].name;
        const size_t length = strlen(row);
        if (row[length - 1] == '.' ? strncmp(row, name, length) == 0 : strcmp(row, name) == 0)
            return effects[i].effect;
    }
    return EFFECT_LEARNING;
}

/* Write the value, or "unset" for the one of train.batch and train.global_batch that is not used.
 */
static void value_write(const struct option_entry *entry, const struct options *options,
                        char text[OPTION_TEXT])
{
    if (option_is_cleared(entry, options))
        snprintf(text, OPTION_TEXT, "unset");
    else
        option_write(entry, options, text, OPTION_TEXT);
}

void option_changes(const struct options *before, const struct options *now,
                    option_change_visit *visit, void *user)
{
    /* A deck of version 0.2 may set options that do not apply. */
    struct options applied[2] = {*before, *now};
    options_settle(&applied[0]);
    options_settle(&applied[1]);
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++) {
        struct option_change change = {.name = entry->name,
                                       .effect = option_effect_of(entry->name)};
        if (!option_is_of_run(entry))
            continue;
        value_write(entry, &applied[0], change.before);
        value_write(entry, &applied[1], change.now);
        if (strcmp(change.before, change.now) != 0)
            visit(user, &change);
    }
}

static void count_effects(void *user, const struct option_change *change)
{
    int *count = user;
    *count += change->effect != EFFECT_NONE;
}

bool option_changes_nothing(const struct options *before, const struct options *now)
{
    int count = 0;
    option_changes(before, now, count_effects, &count);
    return count == 0;
}
