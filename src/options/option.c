// SPDX-License-Identifier: BSD-3-Clause
/* Find options by name, read their values from text and write them. A number must be plain decimal
 * and in range: trailing letters, NaN and hexadecimal are errors. */
#include "options/option.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"

/* ---- names */

const struct option_entry *option_find(const char *name)
{
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++)
        if (strcmp(entry->name, name) == 0)
            return entry;
    return NULL;
}

const char *option_key(const struct option_entry *entry)
{
    return entry->name + strlen(entry->section->name) + 1;
}

enum option_effect option_effect(const struct option_entry *entry)
{
    return entry->effect != EFFECT_OF_SECTION ? entry->effect : entry->section->effect;
}

const struct option_condition *option_unmet(const struct option_entry *entry,
                                            const struct options *options)
{
    const struct option_condition *conditions[] = {entry->section->applies, entry->applies};
    for (int i = 0; i < 2; i++)
        if (conditions[i] != NULL && !conditions[i]->holds(options))
            return conditions[i];
    return NULL;
}

bool option_is_setting(const char *word)
{
    const size_t length = strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                       "0123456789._-");
    return length > 0 && word[length] == '=' && word[0] != '-';
}

const struct option_entry *option_of_flag(const char *name, const char **value)
{
    const size_t length = strlen(name);
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++) {
        const char *word = entry->flags != NULL ? entry->flags : "";
        for (; *word != '\0'; word += strcspn(word, " "), word += strspn(word, " ")) {
            bool is_same = strcspn(word, "= ") == length;
            for (size_t i = 0; is_same && i < length; i++)
                is_same = word[i] == (name[i] == '_' ? '-' : (char)tolower((unsigned char)name[i]));
            *value = word + length;
            if (is_same)
                return entry;
        }
    }
    return NULL;
}

/* A known key in a wrong section or without a section, and a key of another program, are nearer
 * than any misspelt key. */
const char *option_find_nearest(const char *name)
{
    const char *dot = strchr(name, '.'), *last_dot = strrchr(name, '.'), *value;
    const char *key = dot != NULL ? dot + 1 : name;
    const char *names[512], *keys[512];
    size_t count = 0;
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++) {
        if (strcmp(option_key(entry), key) == 0)
            return entry->name;
        ENSURE(count < 511, "more options than expected");
        names[count] = entry->name;
        keys[count++] = option_key(entry);
    }
    names[count] = keys[count] = NULL;
    const struct option_entry *same =
        option_of_flag(last_dot != NULL ? last_dot + 1 : name, &value);
    if (same != NULL)
        return same->name;
    const char *nearest = text_nearest(name, names);
    if (nearest != NULL || dot != NULL)
        return nearest;
    const char *nearest_key = text_nearest(key, keys);
    for (size_t i = 0; nearest_key != NULL && i < count; i++)
        if (keys[i] == nearest_key)
            return names[i];
    return NULL;
}

/* ---- values from text */

struct unit {
    const char *name;
    double factor;
};

static const struct unit time_units[] = {{"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}, {NULL, 0}};
static const struct unit byte_units[] = {
    {"GiB", 0x1p30}, {"MiB", 0x1p20}, {"KiB", 0x1p10}, {"", 1}, {NULL, 0}};
static const struct unit no_units[] = {{"", 1}, {NULL, 0}};

static bool in_range(const struct option_entry *entry, double value)
{
    if (entry->above_least ? value <= entry->least : value < entry->least)
        return false;
    return entry->below_most ? value < entry->most : value <= entry->most;
}

bool option_read_decimal(const char *text, double *value, char **end)
{
    const size_t length = strspn(text, "+-.0123456789eE");
    errno = 0;
    *value = strtod(text, end);
    return *end != text && *end <= text + length && isfinite(*value);
}

/* Read a number with a unit of the option's kind. */
static bool read_number(const struct option_entry *entry, const char *text, double *value)
{
    const struct unit *units = entry->kind == OPTION_IS_SECONDS ? time_units
                               : entry->kind == OPTION_IS_BYTES ? byte_units
                                                                : no_units;
    char *end;
    if (!option_read_decimal(text, value, &end))
        return false;
    while (units->name != NULL && strcmp(end, units->name) != 0)
        units++;
    *value *= units->factor;
    return units->name != NULL && in_range(entry, *value);
}

/* Numbers in the ranges of options are exact as doubles. */
static bool read_integer(const struct option_entry *entry, const char *text, int64_t *value)
{
    double number;
    if (!read_number(entry, text, &number) || number != rint(number))
        return false;
    *value = (int64_t)number;
    return entry->multiple == 0 || *value % entry->multiple == 0;
}

static bool read_switch(const char *text, bool *value)
{
    static const char *const words[] = {"off", "on", "no", "yes", "false", "true", "0", "1"};
    for (int i = 0; i < 8; i++) {
        if (strcasecmp(text, words[i]) == 0) {
            *value = i % 2 == 1;
            return true;
        }
    }
    return false;
}

/* Read a choice, or a number or a text if the option accepts one. The others are set to 0, so
 * that options with the same meaning have the same bytes. */
static bool read_choice(const struct option_entry *entry, const char *text, struct options *options)
{
    int *value = (int *)(void *)((char *)options + entry->offset);
    double *number = (double *)(void *)((char *)options + entry->number_offset);
    char *other = (char *)options + entry->text_offset;
    if (entry->number_offset > 0)
        *number = 0;
    if (entry->text_offset > 0)
        memset(other, 0, OPTION_TEXT);
    /* A choice of on and off also accepts yes, no, true, false, 1 and 0. */
    bool on;
    const bool is_switch = entry->number_offset == 0 && read_switch(text, &on);
    const char *word = !is_switch ? text : on ? "on" : "off";
    for (const struct option_choice *choice = entry->choices; choice->word != NULL; choice++) {
        if (strcasecmp(text, choice->word) == 0 || strcasecmp(word, choice->word) == 0) {
            *value = choice->value;
            return true;
        }
    }
    if (entry->text_offset > 0 && entry->is_text(text)) {
        *value = entry->text_choice;
        snprintf(other, OPTION_TEXT, "%s", text);
        return strlen(text) < OPTION_TEXT;
    }
    *value = entry->number_choice;
    return entry->number_offset > 0 && read_number(entry, text, number);
}

static bool read_list(const struct option_entry *entry, const char *text, struct option_list *list)
{
    while (list->count < entry->most_count) {
        char *end;
        double value;
        if (!option_read_decimal(text, &value, &end) || !in_range(entry, value))
            return false;
        list->value[list->count++] = value;
        end += strspn(end, " \t");
        if (*end == '\0')
            return list->count >= entry->least_count;
        if (*end != ',')
            return false;
        text = end + 1 + strspn(end + 1, " \t");
    }
    return false;
}

static bool read_value(const struct option_entry *entry, const char *text, struct options *options)
{
    void *value = (char *)options + entry->offset;
    const bool is_automatic = entry->has_automatic && strcasecmp(text, "auto") == 0;
    switch (entry->kind) {
    case OPTION_IS_TEXT:
        memset(value, 0, OPTION_TEXT);
        snprintf(value, OPTION_TEXT, "%s", text);
        return strlen(text) < OPTION_TEXT && deck_can_hold(text);
    case OPTION_IS_INTEGER:
    case OPTION_IS_BYTES:
        *(int64_t *)value = (int64_t)entry->automatic;
        return is_automatic || read_integer(entry, text, value);
    case OPTION_IS_NUMBER:
    case OPTION_IS_SECONDS:
        *(double *)value = entry->automatic;
        return is_automatic || read_number(entry, text, value);
    case OPTION_IS_SWITCH:
        return read_switch(text, value);
    case OPTION_IS_CHOICE:
        return read_choice(entry, text, options);
    case OPTION_IS_LIST:
        memset(value, 0, sizeof(struct option_list));
        return is_automatic || read_list(entry, text, value);
    }
    return false;
}

bool option_is_in_deck(const struct option_entry *entry, const struct options *options)
{
    const struct train_options *train = &options->train;
    const void *value = (const char *)options + entry->offset;
    return option_effect(entry) != EFFECT_OF_COMMAND &&
           value != (train->global_batch > 0 ? &train->batch : &train->global_batch);
}

bool option_read(const struct option_entry *entry, const char *where, const char *text,
                 struct options *options, struct error *error)
{
    const struct options before = *options;
    struct train_options *train = &options->train;
    const void *value = (const char *)options + entry->offset;
    char expected[512];
    if (!read_value(entry, text, options)) {
        *options = before;
        option_describe(entry, expected, sizeof expected);
        return error_set(error, ERROR_USAGE, "%s%s=%s: must be %s", where, entry->name, text,
                         expected);
    }
    if (value == &train->batch)
        train->global_batch = 0;
    else if (value == &train->global_batch && train->global_batch > 0)
        train->batch = BATCH_DEFAULT;
    return true;
}

/* ---- values to text */

void option_write(const struct option_entry *entry, const struct options *options, char *text,
                  size_t size)
{
    const void *value = (const char *)options + entry->offset;
    const double *number =
        entry->number_offset > 0
            ? (const double *)(const void *)((const char *)options + entry->number_offset)
            : value;
    const struct option_list *list = value; /* if the option is a list */
    const struct unit *unit = byte_units;
    switch (entry->kind) {
    case OPTION_IS_TEXT:
        snprintf(text, size, "%s", (const char *)value);
        text_mask_password(text);
        return;
    case OPTION_IS_INTEGER:
        if (entry->has_automatic && *(const int64_t *)value == (int64_t)entry->automatic)
            snprintf(text, size, "auto");
        else
            snprintf(text, size, "%lld", (long long)*(const int64_t *)value);
        return;
    case OPTION_IS_NUMBER:
    case OPTION_IS_SECONDS:
        if (entry->has_automatic && *number == entry->automatic)
            snprintf(text, size, "auto");
        else
            text_shortest_decimal(*number, false, text, size);
        return;
    case OPTION_IS_BYTES: /* the largest unit that gives a whole number */
        while (fmod((double)*(const int64_t *)value, unit->factor) != 0 ||
               (*(const int64_t *)value == 0 && unit->factor > 1))
            unit++;
        snprintf(text, size, "%.0f%s", (double)*(const int64_t *)value / unit->factor, unit->name);
        return;
    case OPTION_IS_SWITCH:
        snprintf(text, size, "%s", *(const bool *)value ? "on" : "off");
        return;
    case OPTION_IS_CHOICE:
        for (const struct option_choice *choice = entry->choices; choice->word != NULL; choice++)
            if (choice->value == *(const int *)value)
                snprintf(text, size, "%s", choice->word);
        if (entry->number_offset > 0 && *(const int *)value == entry->number_choice)
            text_shortest_decimal(*number, false, text, size);
        if (entry->text_offset > 0 && *(const int *)value == entry->text_choice)
            snprintf(text, size, "%s", (const char *)options + entry->text_offset);
        return;
    case OPTION_IS_LIST:
        snprintf(text, size, "%s", list->count == 0 ? "auto" : "");
        for (int i = 0; i < list->count; i++) {
            const size_t used = strlen(text);
            snprintf(text + used, size - used, "%s", i > 0 ? "," : "");
            text_shortest_decimal(list->value[i], false, text + strlen(text), size - strlen(text));
        }
        return;
    }
}

/* ---- descriptions */

static void describe_range(const struct option_entry *entry, char *text, size_t size)
{
    char least[32], most[32];
    text_shortest_decimal(entry->least, false, least, sizeof least);
    text_shortest_decimal(entry->most, false, most, sizeof most);
    if (isinf(entry->least))
        text[0] = '\0';
    else if (isinf(entry->most))
        snprintf(text, size, entry->above_least ? " above %s" : " of at least %s", least);
    else
        snprintf(text, size, " %s %s %s %s%s", entry->above_least ? "above" : "from", least,
                 entry->above_least && entry->below_most ? "and" : "to",
                 entry->below_most ? "below " : "", most);
}

static void describe_choices(const struct option_entry *entry, const char *range, char *text,
                             size_t size)
{
    const bool has_number = entry->number_offset > 0;
    size_t used = 0;
    for (const struct option_choice *choice = entry->choices; choice->word != NULL; choice++)
        used += (size_t)snprintf(text + used, size - used, "%s%s",
                                 choice == entry->choices                ? ""
                                 : choice[1].word == NULL && !has_number ? " or "
                                                                         : ", ",
                                 choice->word);
    if (has_number)
        used += (size_t)snprintf(text + used, size - used, "%s a number%s",
                                 entry->text_offset > 0 ? "," : ", or", range);
    if (entry->text_offset > 0)
        snprintf(text + used, size - used, ", or %s", entry->text_example);
}

void option_describe(const struct option_entry *entry, char *text, size_t size)
{
    const char *automatic = entry->has_automatic ? "auto, or " : "";
    char range[128], count[32] = "";
    describe_range(entry, range, sizeof range);
    switch (entry->kind) {
    case OPTION_IS_TEXT:
        snprintf(text, size, "a text of at most %d characters, without # or ; after a space",
                 OPTION_TEXT - 1);
        return;
    case OPTION_IS_INTEGER:
        if (entry->multiple > 0)
            snprintf(count, sizeof count, "multiple of %lld", (long long)entry->multiple);
        snprintf(text, size, "%sa %s%s", automatic, entry->multiple > 0 ? count : "whole number",
                 range);
        return;
    case OPTION_IS_NUMBER:
        snprintf(text, size, "%sa number%s", automatic, range);
        return;
    case OPTION_IS_SECONDS:
        snprintf(text, size, "a time in seconds, or with the unit s, m or h,%s", range);
        return;
    case OPTION_IS_BYTES:
        snprintf(text, size, "a size in bytes, or with the unit KiB, MiB or GiB,%s bytes", range);
        return;
    case OPTION_IS_SWITCH:
        snprintf(text, size, "on or off");
        return;
    case OPTION_IS_CHOICE:
        describe_choices(entry, range, text, size);
        return;
    case OPTION_IS_LIST:
        if (entry->least_count < entry->most_count)
            snprintf(count, sizeof count, "%d to ", entry->least_count);
        snprintf(text, size, "%s%s%d numbers%s with commas between", automatic, count,
                 entry->most_count, range);
        return;
    }
}
