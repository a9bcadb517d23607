// SPDX-License-Identifier: BSD-3-Clause
/* Operations on all options: defaults, decks, comparison. */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "options/option.h"
#include "options/phase.h"

void options_default(struct options *options)
{
    struct error error = {0};
    memset(options, 0, sizeof *options);
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++)
        error_defer(option_read(entry, "default: ", entry->preset, options, &error));
    ENSURE(error.kind == ERROR_NONE, "%s", error.text);
}

bool option_set(struct option_source *source, const char *assignment, struct error *error)
{
    const char *equals = strchr(assignment, '=');
    if (equals == NULL)
        return error_set(error, ERROR_USAGE, "%s: not section.key=value", assignment);
    char name[2 * OPTION_KEY], value[2 * OPTION_TEXT];
    snprintf(name, sizeof name, "%.*s", (int)(equals - assignment), assignment);
    snprintf(value, sizeof value, "%s", equals + 1 + strspn(equals + 1, " \t"));
    size_t length = strlen(value);
    while (length > 0 && isspace((unsigned char)value[length - 1]))
        value[--length] = '\0';
    return option_assign(source, "", name, value, error);
}

bool options_set(const char *assignment, struct options *options, struct error *error)
{
    struct option_source source = {.options = options};
    return option_set(&source, assignment, error);
}

static bool pair_assign(void *user, const char *where, const char *name, const char *value,
                        struct error *error)
{
    return option_assign(user, where, name, value, error);
}

/* Also closes the file, which may be NULL. */
static bool deck_read(FILE *file, const char *name, struct option_source *source,
                      struct error *error)
{
    const bool good = file != NULL && deck_read_pairs(file, name, pair_assign, source, error);
    if (file != NULL)
        fclose(file);
    return good;
}

bool option_read_deck(const char *path, struct option_source *source, struct error *error)
{
    return deck_read(deck_file_open(path, error), path, source, error);
}

bool options_read_file(const char *path, struct options *options, struct error *error)
{
    return option_read_deck(path, &(struct option_source){.options = options}, error);
}

bool options_read_stored(const char *path, struct options *options, struct error *error)
{
    struct option_source source = {.options = options, .is_stored = true};
    return option_read_deck(path, &source, error);
}

bool options_read_text(const char *text, const char *name, struct options *options,
                       struct error *error)
{
    struct option_source source = {.options = options, .is_stored = true};
    const size_t length = strlen(text);
    if (length == 0)
        return true;
    FILE *file = fmemopen((void *)(uintptr_t)text, length, "r");
    if (file == NULL)
        return error_set(error, ERROR_MEMORY, "%s: cannot read the deck: %s", name,
                         strerror(errno));
    return deck_read(file, name, &source, error);
}

char *options_to_run_deck(const struct options *options)
{
    struct text_stream text;
    FILE *file = text_stream_open(&text);
    const struct option_section *section = NULL;
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++) {
        char value[OPTION_TEXT];
        if (!option_is_in_deck(entry, options))
            continue;
        if (entry->section != section)
            fprintf(file, "%s[%s]\n", section == NULL ? "" : "\n", entry->section->name);
        section = entry->section;
        option_write(entry, options, value, sizeof value);
        fprintf(file, "%s = %s\n", option_key(entry), value);
    }
    return text_stream_close(&text);
}

char *options_changed(const struct options *options)
{
    struct text_stream text;
    struct options defaults;
    FILE *file = text_stream_open(&text);
    options_default(&defaults);
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++) {
        char value[OPTION_TEXT], preset[OPTION_TEXT];
        option_write(entry, options, value, sizeof value);
        option_write(entry, &defaults, preset, sizeof preset);
        if (option_is_in_deck(entry, options) && strcmp(value, preset) != 0)
            fprintf(file, " %s=%s", entry->name, value);
    }
    return text_stream_close(&text);
}

void options_value_text(const struct options *options, const char *key, char *text, size_t size)
{
    const struct option_entry *entry = option_find(key);
    ENSURE(entry != NULL, "no option %s", key);
    option_write(entry, options, text, size);
}

bool options_difference(const struct options *one, const struct options *other, char *text,
                        size_t size)
{
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++) {
        char values[2][OPTION_TEXT];
        option_write(entry, one, values[0], sizeof values[0]);
        option_write(entry, other, values[1], sizeof values[1]);
        if (strcmp(values[0], values[1]) == 0)
            continue;
        snprintf(text, size, "%s=%s, but %s", entry->name, values[0], values[1]);
        return true;
    }
    return false;
}

/* Write the value, or "unset" for the one of train.batch and train.global_batch that is not used.
 */
static void value_write(const struct option_entry *entry, const struct options *options,
                        char text[OPTION_TEXT])
{
    if (option_is_in_deck(entry, options))
        option_write(entry, options, text, OPTION_TEXT);
    else
        snprintf(text, OPTION_TEXT, "unset");
}

void option_changes(const struct options *before, const struct options *now,
                    option_change_visit *visit, void *user)
{
    /* A deck of version 0.2 may set options that do not apply. */
    struct options applied[2] = {*before, *now};
    options_settle(&applied[0]);
    options_settle(&applied[1]);
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++) {
        struct option_change change = {.name = entry->name, .effect = option_effect(entry)};
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

#define PHASE_ROW(constant, word, name) [constant] = {word, name},
const struct status_phase phase_table[PHASE_COUNT] = {PHASES(PHASE_ROW)};
