// SPDX-License-Identifier: BSD-3-Clause
/* Parsing of the words that vary an option. All values are checked with the options table before
 * the first trial. */
#include "tools/sweep/sweep_space.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/option.h"
#include "config/options.h"

/* Significant digits of values of a range. */
enum { DIGITS = 4 };

enum { WORD = 4 * OPTION_TEXT };

/* ---- ranges */

/* Parse a plain number. */
static bool number_read(const char *text, size_t length, double *value)
{
    char copy[64], *end;
    if (length == 0 || length >= sizeof copy)
        return false;
    snprintf(copy, sizeof copy, "%.*s", (int)length, text);
    *value = strtod(copy, &end);
    return *end == '\0' && isfinite(*value);
}

/* Check that the option accepts the text and convert it to the options' notation, so that 0.1 and
 * 1e-1 are equal. */
static bool value_normalise(const struct option_entry *entry, const char *text,
                            char value[OPTION_TEXT], struct error *error)
{
    static struct options scratch;
    options_default(&scratch);
    if (!option_read(entry, "", text, &scratch, error))
        return false;
    option_write(entry, &scratch, value, OPTION_TEXT);
    return true;
}

static bool range_fail(const struct sweep_key *key, const char *text, const char *why,
                       struct error *error)
{
    return error_set(error, ERROR_USAGE,
                     "%s=%s: %s; a range is LOW..HIGH or LOW..HIGH:log, with :N for a list of N "
                     "values",
                     key->entry->name, text, why);
}

static bool choice_add(struct sweep_key *key, const char *text, struct error *error);

/* Convert a range to a list of evenly spaced values. */
static bool range_spread(struct sweep_key *key, int points, struct error *error)
{
    struct sweep_key range = *key;
    double low = key->log ? log(key->low) : key->low, high = key->log ? log(key->high) : key->high;
    for (int i = 0; i < points; i++) {
        char text[OPTION_TEXT];
        double value = low + (high - low) * i / (points - 1);
        sweep_value_text(&range, key->log ? exp(value) : value, text, sizeof text);
        if (!choice_add(key, text, error))
            return false;
    }
    return true;
}

/* Parse "LOW..HIGH", followed by ":log", ":N" or ":log:N". */
static bool range_read(struct sweep_key *key, const char *text, struct error *error)
{
    const char *dots = strstr(text, ".."), *high = dots + 2, *flags = high + strcspn(high, ":");
    char low_text[OPTION_TEXT], high_text[OPTION_TEXT], unused[OPTION_TEXT];
    double points = 0;
    if (!number_read(text, (size_t)(dots - text), &key->low) ||
        !number_read(high, (size_t)(flags - high), &key->high))
        return range_fail(key, text, "the ends are not numbers", error);
    key->whole = key->entry->kind == OPTION_IS_INTEGER;
    key->log = strncmp(flags, ":log", 4) == 0;
    flags += key->log ? 4 : 0;
    if (flags[0] != '\0' &&
        (flags[0] != ':' || !number_read(flags + 1, strlen(flags + 1), &points) ||
         points != rint(points) || points < 2 || points > SWEEP_CHOICES))
        return range_fail(key, text, "unknown suffix", error);
    if (!(key->low < key->high))
        return range_fail(key, text, "LOW is not below HIGH", error);
    if (key->log && key->low <= 0)
        return range_fail(key, text, "a logarithmic range must be positive", error);
    snprintf(low_text, OPTION_TEXT, "%.*s", (int)(dots - text), text);
    snprintf(high_text, OPTION_TEXT, "%.*s", (int)strcspn(high, ":"), high);
    if (!value_normalise(key->entry, low_text, unused, error) ||
        !value_normalise(key->entry, high_text, unused, error))
        return false;
    return points == 0 || range_spread(key, (int)points, error);
}

/* ---- choices */

static bool choice_add(struct sweep_key *key, const char *text, struct error *error)
{
    char value[OPTION_TEXT];
    if (!value_normalise(key->entry, text, value, error))
        return false;
    for (int i = 0; i < key->count; i++)
        if (strcmp(key->choices[i], value) == 0)
            return error_set(error, ERROR_USAGE, "%s: the value %s is given twice",
                             key->entry->name, value);
    if (key->count == SWEEP_CHOICES)
        return error_set(error, ERROR_USAGE, "%s: more than %d values", key->entry->name,
                         SWEEP_CHOICES);
    char **choices = allocate_resized(key->choices, (size_t)(key->count + 1) * sizeof *choices);
    key->choices = choices;
    choices[key->count] = allocate_copy(value);
    key->count++;
    return true;
}

static bool choices_read(struct sweep_key *key, const char *text, char separator,
                         struct error *error)
{
    char piece[OPTION_TEXT];
    for (;;) {
        const char *end = strchr(text, separator);
        size_t length = end != NULL ? (size_t)(end - text) : strlen(text);
        if (length == 0)
            return error_set(error, ERROR_USAGE, "%s: one of the values is empty",
                             key->entry->name);
        if (length >= sizeof piece)
            return error_set(error, ERROR_USAGE, "%s: a value has %zu characters", key->entry->name,
                             length);
        snprintf(piece, sizeof piece, "%.*s", (int)length, text);
        if (!choice_add(key, piece, error))
            return false;
        if (end == NULL)
            return true;
        text = end + 1;
    }
}

/* ---- keys */

static bool key_fits(const struct sweep_space *space, const struct option_entry *entry,
                     struct error *error)
{
    static const char *const own[] = {
        "run.dir",        "run.name", "checkpoint.resume", "checkpoint.monitor", "data.val",
        "output.logbook", NULL};
    bool refused = strncmp(entry->name, "sweep.", 6) == 0;
    for (int i = 0; own[i] != NULL; i++)
        refused = refused || strcmp(entry->name, own[i]) == 0;
    if (refused)
        return error_set(error, ERROR_USAGE, "%s cannot vary in a sweep; give it one value",
                         entry->name);
    for (int i = 0; i < space->count; i++)
        if (space->keys[i].entry == entry)
            return error_set(error, ERROR_USAGE, "%s varies twice; give all values at once",
                             entry->name);
    return space->count < SWEEP_KEYS ||
           error_set(error, ERROR_USAGE, "more than %d keys vary", SWEEP_KEYS);
}

bool sweep_space_add(struct sweep_space *space, const char *word, bool *varies, struct error *error)
{
    const char *equals = strchr(word, '='), *text = equals + 1;
    static struct options scratch;
    char name[2 * OPTION_KEY];
    *varies = false;
    ENSURE(equals != NULL, "%s is not a setting", word);
    if (equals > word && equals[-1] == '+')
        return true; /* key+=TEXT appends */
    if (strlen(word) >= WORD)
        return error_set(error, ERROR_USAGE, "%.40s...: too long", word);
    snprintf(name, sizeof name, "%.*s", (int)(equals - word), word);
    const struct option_entry *entry = option_find(name);
    if (entry == NULL) /* a removed option, or an error that names the nearest key */
        return option_assign(name, "", "", false, &scratch, error);
    bool number = entry->kind == OPTION_IS_NUMBER || entry->kind == OPTION_IS_INTEGER ||
                  entry->kind == OPTION_IS_SECONDS;
    bool range = number && strstr(text, "..") != NULL;
    char separator = '\0'; /* of values; those of a list contain commas */
    if (strchr(text, ';') != NULL)
        separator = ';';
    else if (entry->kind != OPTION_IS_LIST && strchr(text, ',') != NULL)
        separator = ',';
    if (!range && separator == '\0')
        return true;
    *varies = true;
    if (!key_fits(space, entry, error))
        return false;
    struct sweep_key *key = &space->keys[space->count++];
    *key = (struct sweep_key){.entry = entry};
    return range ? range_read(key, text, error) : choices_read(key, text, separator, error);
}

void sweep_space_free(struct sweep_space *space)
{
    for (int k = 0; k < space->count; k++) {
        for (int i = 0; i < space->keys[k].count; i++)
            free(space->keys[k].choices[i]);
        free(space->keys[k].choices);
    }
    memset(space, 0, sizeof *space);
}

/* ---- values */

void sweep_value_text(const struct sweep_key *key, double value, char *text, size_t size)
{
    if (key->count > 0)
        snprintf(text, size, "%s", key->choices[(int)value]);
    else if (key->whole)
        snprintf(text, size, "%.0f", value);
    else
        snprintf(text, size, "%.*g", DIGITS, value);
}

double sweep_value_round(const struct sweep_key *key, double value)
{
    char text[64];
    if (key->count > 0)
        return value;
    sweep_value_text(key, value, text, sizeof text);
    value = strtod(text, NULL);
    return fmin(fmax(value, key->low), key->high);
}

bool sweep_value_read(const struct sweep_key *key, const char *text, double *value)
{
    for (int i = 0; i < key->count; i++)
        if (strcmp(key->choices[i], text) == 0) {
            *value = i;
            return true;
        }
    return key->count == 0 && number_read(text, strlen(text), value) && *value >= key->low &&
           *value <= key->high;
}

bool sweep_point_apply(const struct sweep_space *space, const struct sweep_point *point,
                       struct options *options, struct error *error)
{
    char text[OPTION_TEXT];
    for (int k = 0; k < space->count; k++) {
        sweep_value_text(&space->keys[k], point->value[k], text, sizeof text);
        if (!option_read(space->keys[k].entry, "", text, options, error))
            return false;
    }
    return true;
}

/* ---- the grid */

int64_t sweep_grid_size(const struct sweep_space *space, struct error *error)
{
    int64_t size = 1;
    for (int k = 0; k < space->count; k++) {
        const struct sweep_key *key = &space->keys[k];
        if (key->count == 0) {
            error_set(error, ERROR_USAGE,
                      "%s: a range has no grid; set the number of values with :N, or use "
                      "sweep.method=random or tpe",
                      key->entry->name);
            return -1;
        }
        size *= key->count;
        if (size > SWEEP_TRIALS) {
            error_set(error, ERROR_USAGE,
                      "the grid has more than %d points; use "
                      "sweep.method=random or tpe",
                      SWEEP_TRIALS);
            return -1;
        }
    }
    return size;
}

void sweep_grid_point(const struct sweep_space *space, int64_t number, struct sweep_point *point)
{
    for (int k = space->count - 1; k >= 0; k--) {
        point->value[k] = (double)(number % space->keys[k].count);
        number /= space->keys[k].count;
    }
}
