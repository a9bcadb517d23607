// SPDX-License-Identifier: BSD-3-Clause
/* Find options by name, read their values from text and write them. A number must be plain decimal
 * and in range: trailing letters, NaN and hexadecimal are errors. */
#include "config/option.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/deck.h"
#include "config/options.h"
#include "core/text.h"

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
    return strchr(entry->name, '.') + 1;
}

bool option_begins_section(const struct option_entry *entry)
{
    const size_t length = (size_t)(option_key(entry) - entry->name);
    return entry == option_table || strncmp(entry->name, entry[-1].name, length) != 0;
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
    const char *dot = strchr(name, '.');
    const char *key = dot != NULL ? dot + 1 : name;
    const char *names[512], *keys[512];
    size_t count = 0;
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++) {
        if (strcmp(option_key(entry), key) == 0 && key[0] != '\0')
            return entry->name;
        ENSURE(count < 511, "more options than expected");
        names[count] = entry->name;
        keys[count++] = option_key(entry);
    }
    names[count] = keys[count] = NULL;
    const char *last_dot = strrchr(name, '.'), *value;
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

bool option_assign(const char *name, const char *where, const char *text, bool is_stored,
                   struct options *options, struct error *error)
{
    char plain[2 * OPTION_KEY];
    snprintf(plain, sizeof plain, "%s", name);
    size_t length = strlen(plain);
    const bool appends = length > 0 && plain[length - 1] == '+';
    if (appends)
        plain[--length] = '\0';
    while (length > 0 && isspace((unsigned char)plain[length - 1]))
        plain[--length] = '\0';
    const struct option_entry *entry = option_find(plain);
    const struct removed *removed = removed_find(plain);
    if (entry == NULL && removed != NULL)
        return is_stored || (!appends && strcmp(text, removed->preset) == 0) ||
               error_set(error, ERROR_USAGE, "%soption %s was removed: %s", where, plain,
                         removed->instead);
    if (entry == NULL) {
        const char *nearest = option_find_nearest(plain);
        if (nearest != NULL)
            return error_set(error, ERROR_USAGE, "%sno option %s; did you mean %s?", where, plain,
                             nearest);
        return error_set(error, ERROR_USAGE, "%sno option %s; `vittrain --help` lists all", where,
                         plain);
    }
    if (!appends)
        return option_read(entry, where, text, options, error);
    if (entry->kind != OPTION_IS_TEXT)
        return error_set(error, ERROR_USAGE, "%s%s: only a text can be appended to", where, plain);
    char whole[2 * OPTION_TEXT];
    snprintf(whole, sizeof whole, "%s%s", (const char *)options + entry->offset, text);
    return option_read(entry, where, whole, options, error);
}

/* ---- values from text */

static bool is_automatic(const struct option_entry *entry, const char *text)
{
    return entry->has_automatic && strcasecmp(text, "auto") == 0;
}

static bool in_range(const struct option_entry *entry, double value)
{
    if (entry->above_least ? value <= entry->least : value < entry->least)
        return false;
    return entry->below_most ? value < entry->most : value <= entry->most;
}

/* Read the decimal number at the start of text; *end points behind it. */
static bool read_decimal(const char *text, double *value, char **end)
{
    /* strtod also accepts "inf", "nan" and "0x1p3". */
    const size_t length = strspn(text, "+-.0123456789eE");
    errno = 0;
    *value = strtod(text, end);
    return *end != text && *end <= text + length && isfinite(*value);
}

static bool read_integer(const struct option_entry *entry, const char *text, int64_t *value)
{
    char *end;
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || isspace((unsigned char)text[0]))
        return false;
    *value = number;
    return in_range(entry, (double)number) &&
           (entry->multiple == 0 || number % entry->multiple == 0);
}

static bool read_seconds(const struct option_entry *entry, const char *text, double *value)
{
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}};
    char *end;
    if (!read_decimal(text, value, &end))
        return false;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(end, units[i].unit) == 0) {
            *value *= units[i].seconds;
            return in_range(entry, *value);
        }
    }
    return false;
}

static const struct {
    const char *unit;
    int64_t bytes;
} byte_units[] = {
    {"GiB", (int64_t)1 << 30}, {"MiB", (int64_t)1 << 20}, {"KiB", (int64_t)1 << 10}, {"", 1}};
enum { BYTE_UNITS = sizeof byte_units / sizeof byte_units[0] };

static bool read_bytes(const struct option_entry *entry, const char *text, int64_t *value)
{
    char *end;
    double number;
    if (!read_decimal(text, &number, &end))
        return false;
    for (int i = 0; i < BYTE_UNITS; i++) {
        if (strcmp(end, byte_units[i].unit) != 0)
            continue;
        number *= (double)byte_units[i].bytes;
        if (!in_range(entry, number) || number != rint(number))
            return false;
        *value = (int64_t)number;
        return true;
    }
    return false;
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

static bool read_choice(const struct option_entry *entry, const char *text, int *value)
{
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
    return false;
}

/* Read a choice that also accepts a number. A word sets the number to 0, so that options with the
 * same meaning have the same bytes. */
static bool read_choice_or_number(const struct option_entry *entry, const char *text,
                                  struct options *options)
{
    int *choice = (int *)(void *)((char *)options + entry->offset);
    double *number = (double *)(void *)((char *)options + entry->number_offset);
    char *end;
    if (read_choice(entry, text, choice)) {
        *number = 0;
        return true;
    }
    *choice = entry->number_choice;
    return read_decimal(text, number, &end) && *end == '\0' && in_range(entry, *number);
}

static bool read_list(const struct option_entry *entry, const char *text, struct option_list *list)
{
    memset(list, 0, sizeof *list);
    if (is_automatic(entry, text))
        return true;
    while (list->count < entry->most_count) {
        char *end;
        double value;
        if (!read_decimal(text, &value, &end) || !in_range(entry, value))
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

/* Read a text that a deck can hold. */
static bool read_text(const char *text, char value[OPTION_TEXT])
{
    const size_t length = strlen(text);
    if (length >= OPTION_TEXT || !deck_can_hold(text))
        return false;
    memset(value, 0, OPTION_TEXT);
    memcpy(value, text, length);
    return true;
}

static bool read_value(const struct option_entry *entry, const char *text, struct options *options)
{
    void *value = (char *)options + entry->offset;
    char *end;
    switch (entry->kind) {
    case OPTION_IS_TEXT:
        return read_text(text, value);
    case OPTION_IS_INTEGER:
        if (is_automatic(entry, text)) {
            *(int64_t *)value = (int64_t)entry->automatic;
            return true;
        }
        return read_integer(entry, text, value);
    case OPTION_IS_NUMBER:
        if (is_automatic(entry, text)) {
            *(double *)value = entry->automatic;
            return true;
        }
        return read_decimal(text, value, &end) && *end == '\0' && in_range(entry, *(double *)value);
    case OPTION_IS_SECONDS:
        return read_seconds(entry, text, value);
    case OPTION_IS_BYTES:
        return read_bytes(entry, text, value);
    case OPTION_IS_SWITCH:
        return read_switch(text, value);
    case OPTION_IS_CHOICE:
        return entry->number_offset > 0 ? read_choice_or_number(entry, text, options)
                                        : read_choice(entry, text, value);
    case OPTION_IS_LIST:
        return read_list(entry, text, value);
    }
    return false;
}

/* train.batch and train.global_batch are two ways to set the batch size: setting one clears the
 * other. */
static void batch_settle(const struct option_entry *entry, struct options *options)
{
    struct train_options *train = &options->train;
    const void *value = (const char *)options + entry->offset;
    if (value == &train->batch)
        train->global_batch = 0;
    else if (value == &train->global_batch && train->global_batch > 0)
        train->batch = BATCH_DEFAULT;
}

bool option_is_cleared(const struct option_entry *entry, const struct options *options)
{
    const struct train_options *train = &options->train;
    const void *value = (const char *)options + entry->offset;
    return value == &train->batch          ? train->global_batch > 0
           : value == &train->global_batch ? train->global_batch == 0
                                           : false;
}

bool option_read(const struct option_entry *entry, const char *where, const char *text,
                 struct options *options, struct error *error)
{
    const struct options before = *options;
    if (read_value(entry, text, options)) {
        batch_settle(entry, options);
        return true;
    }
    *options = before;
    char expected[512];
    option_describe(entry, expected, sizeof expected);
    return error_set(error, ERROR_USAGE, "%s%s=%s: must be %s", where, entry->name, text, expected);
}

/* ---- sources of settings */

void option_source_add(struct option_source *source, const char *name,
                       const struct options *options)
{
    const struct option_entry *entry = option_find(name);
    const void *value = entry != NULL ? (const char *)options + entry->offset : NULL;
    source->settings++;
    if (value == &options->train.batch)
        source->batch = options->train.batch;
    else if (value == &options->train.global_batch)
        source->global_batch = options->train.global_batch;
}

bool option_source_check(const struct option_source *source, const char *name, struct error *error)
{
    if (source->batch == 0 || source->global_batch == 0 || source->settings >= RESOLVED_DECK)
        return true;
    return error_set(
        error, ERROR_USAGE,
        "%s: train.batch=%lld and train.global_batch=%lld are both set: remove one (batch "
        "is per rank, global_batch over all ranks)",
        name, (long long)source->batch, (long long)source->global_batch);
}

/* ---- values to text */

/* Write a size in the largest unit that gives a whole number. */
static void write_bytes(int64_t value, char *text, size_t size)
{
    int i = 0;
    while (value % byte_units[i].bytes != 0 || (value == 0 && i < BYTE_UNITS - 1))
        i++;
    snprintf(text, size, "%lld%s", (long long)(value / byte_units[i].bytes), byte_units[i].unit);
}

void option_write(const struct option_entry *entry, const struct options *options, char *text,
                  size_t size)
{
    const void *value = (const char *)options + entry->offset;
    const struct option_list *list = value; /* if the option is a list */
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
        if (entry->has_automatic && *(const double *)value == entry->automatic)
            snprintf(text, size, "auto");
        else
            text_shortest_decimal(*(const double *)value, false, text, size);
        return;
    case OPTION_IS_BYTES:
        write_bytes(*(const int64_t *)value, text, size);
        return;
    case OPTION_IS_SWITCH:
        snprintf(text, size, "%s", *(const bool *)value ? "on" : "off");
        return;
    case OPTION_IS_CHOICE:
        for (const struct option_choice *choice = entry->choices; choice->word != NULL; choice++)
            if (choice->value == *(const int *)value)
                snprintf(text, size, "%s", choice->word);
        if (entry->number_offset > 0 && *(const int *)value == entry->number_choice)
            text_shortest_decimal(
                *(const double *)(const void *)((const char *)options + entry->number_offset),
                false, text, size);
        return;
    case OPTION_IS_LIST:
        snprintf(text, size, "%s", list->count == 0 ? "auto" : "");
        for (int i = 0; i < list->count; i++) {
            char number[32];
            text_shortest_decimal(list->value[i], false, number, sizeof number);
            const size_t used = strlen(text);
            snprintf(text + used, size - used, "%s%s", i > 0 ? "," : "", number);
        }
        return;
    }
}

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

void option_describe(const struct option_entry *entry, char *text, size_t size)
{
    const char *automatic = entry->has_automatic ? "auto, or " : "";
    char range[128], least[32], most[32];
    describe_range(entry, range, sizeof range);
    switch (entry->kind) {
    case OPTION_IS_TEXT:
        snprintf(text, size, "a text of at most %d characters, without # or ; after a space",
                 OPTION_TEXT - 1);
        return;
    case OPTION_IS_INTEGER:
        if (entry->multiple > 0)
            snprintf(text, size, "%sa multiple of %lld%s", automatic, (long long)entry->multiple,
                     range);
        else
            snprintf(text, size, "%sa whole number%s", automatic, range);
        return;
    case OPTION_IS_NUMBER:
        snprintf(text, size, "%sa number%s", automatic, range);
        return;
    case OPTION_IS_SECONDS:
        snprintf(text, size, "a time in seconds, or with the unit s, m or h,%s", range);
        return;
    case OPTION_IS_BYTES:
        write_bytes((int64_t)entry->least, least, sizeof least);
        write_bytes((int64_t)entry->most, most, sizeof most);
        snprintf(text, size, "a size in bytes, or with the unit KiB, MiB or GiB, from %s to %s",
                 least, most);
        return;
    case OPTION_IS_SWITCH:
        snprintf(text, size, "on or off");
        return;
    case OPTION_IS_CHOICE:
        text[0] = '\0';
        for (int i = 0; entry->choices[i].word != NULL; i++) {
            const bool is_last = entry->choices[i + 1].word == NULL && entry->number_offset == 0;
            const size_t used = strlen(text);
            snprintf(text + used, size - used, "%s%s",
                     i == 0    ? ""
                     : is_last ? " or "
                               : ", ",
                     entry->choices[i].word);
        }
        if (entry->number_offset > 0) {
            const size_t used = strlen(text);
            snprintf(text + used, size - used, ", or a number%s", range);
        }
        return;
    case OPTION_IS_LIST:
        if (entry->least_count == entry->most_count)
            snprintf(text, size, "%s%d numbers%s with commas between", automatic,
                     entry->least_count, range);
        else
            snprintf(text, size, "%s%d to %d numbers%s with commas between", automatic,
                     entry->least_count, entry->most_count, range);
        return;
    }
}

/* One table of what was removed since version 0.2. Sorted by name. */

static const char shards[] = "write tar shards with tar (docs/data.md)";

static const struct removed removed[] = {
    {"bench.quick", "off", "use bench device product:SIDE or attention:BATCH:TOKENS"},
    {"convert.file_size", "0", shards},
    {"convert.kind", "auto", shards},
    {"convert.output", "", shards},
    {"convert.resize_to", "shorter", shards},
    {"convert.shuffle", "off", shards},
    {"convert.size", "0", shards},
    {"fetch", NULL, "use tools/fetch.sh cifar10, or tools/fetch.sh weights NAME"},
    {"fetch.dir", "data", "use tools/fetch.sh --dir FOLDER"},
    {"fetch.url", "", "use tools/fetch.sh --url URL"},
    {"output.prometheus", "",
     "use a node exporter; metrics.csv and monitor.csv have the values of a run"},
    {"output.upload_every", "1m", "the run is copied after each checkpoint"},
    {"output.upload_rate", "0", "set RCLONE_BWLIMIT=50M in the environment"},
    {"report.csv", "", "pass it to `vittrain report RUN`"},
    {"report.format", "html", "pass it to `vittrain report RUN`"},
    {"report.output", "", "pass it to `vittrain report RUN`"},
    {"sweep", NULL, "use tools/sweep.py"},
    {"sweep.dir", "", "use tools/sweep.py FOLDER"},
    {"sweep.method", "grid", "use tools/sweep.py --method=METHOD"},
    {"sweep.seed", "42", "use tools/sweep.py --seed=N"},
    {"sweep.slurm", "", "set VITTRAIN_SWEEP and call sbatch --array (docs/tuning.md)"},
    {"sweep.tasks", "4", "set VITTRAIN_SWEEP and call sbatch --array (docs/tuning.md)"},
    {"sweep.trials", "20", "use tools/sweep.py --trials=N"},
    {"upload", NULL, "use rclone copy --links RUN REMOTE:RUN"},
    {NULL, NULL, NULL},
};

const struct removed *removed_find(const char *name)
{
    for (const struct removed *entry = removed; entry->name != NULL; entry++)
        if (strcmp(entry->name, name) == 0)
            return entry;
    return NULL;
}
