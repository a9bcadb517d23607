// SPDX-License-Identifier: BSD-3-Clause
/* Operations on all options: decks and the command line, checks, comparison. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/text.h"
#include "options/option.h"

void options_default(struct options *options)
{
    struct error error = {0};
    memset(options, 0, sizeof *options);
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++)
        error_defer(option_read(entry, "default: ", entry->preset, options, &error));
    ENSURE(error.kind == ERROR_NONE, "%s", error.text);
}

/* ---- sources of settings */

/* A source of settings: a deck or the command line. Initialize it with `options` and is_stored. */
struct option_source {
    struct options *options; /* to be set */
    bool is_stored;          /* the deck of a run or checkpoint: removed options are ignored */
    int settings;
    bool has_batch, has_global_batch;
};

/* A deck with at least this many settings is a resolved deck; those of all versions have more. */
enum { RESOLVED_DECK = 64 };

/* Copy a name without spaces and the '+' at its end. Return true if it had that. */
static bool name_copy(const char *name, char plain[2 * OPTION_KEY])
{
    snprintf(plain, 2 * OPTION_KEY, "%s", name);
    size_t length = strlen(plain);
    const bool appends = length > 0 && plain[length - 1] == '+';
    length -= appends;
    while (length > 0 && isspace((unsigned char)plain[length - 1]))
        length--;
    plain[length] = '\0';
    return appends;
}

/* Set the option of that name. A name that ends with '+' appends to a text. A removed option is an
 * error, except with its default value. So are train.batch and train.global_batch in one source. */
static bool option_assign(void *user, const char *where, const char *name, const char *text,
                          struct error *error)
{
    struct option_source *source = user;
    char plain[2 * OPTION_KEY], whole[2 * OPTION_TEXT];
    struct options *options = source->options;
    const bool appends = name_copy(name, plain);
    const struct option_entry *entry = option_find(plain);
    const struct removed *removed = removed_find(plain);
    source->settings++;
    if (entry == NULL && removed != NULL)
        return (!appends && strcmp(text, removed->preset) == 0) ||
               (source->is_stored && !removed_trains(removed)) ||
               error_set(error, ERROR_USAGE, "%soption %s was removed: %s", where, plain,
                         removed->instead);
    if (entry == NULL) {
        const char *nearest = option_find_nearest(plain);
        return error_set(error, ERROR_USAGE, "%sno option %s; %s%s%s", where, plain,
                         nearest != NULL ? "did you mean " : "`vittrain --help` lists all",
                         nearest != NULL ? nearest : "", nearest != NULL ? "?" : "");
    }
    if (appends && entry->kind != OPTION_IS_TEXT)
        return error_set(error, ERROR_USAGE, "%s%s: only a text can be appended to", where, plain);
    snprintf(whole, sizeof whole, "%s%s", appends ? (const char *)options + entry->offset : "",
             text);
    if (!option_read(entry, where, whole, options, error))
        return false;
    const void *value = (const char *)options + entry->offset;
    source->has_batch |= value == &options->train.batch;
    if (value == &options->train.global_batch)
        source->has_global_batch = options->train.global_batch > 0;
    return !source->has_batch || !source->has_global_batch || source->is_stored ||
           error_set(error, ERROR_USAGE,
                     "%strain.batch (per rank) and train.global_batch (over all ranks) are both "
                     "set: remove one",
                     where);
}

/* Set an option from "section.key=value". */
static bool option_set(struct option_source *source, const char *assignment, struct error *error)
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

/* Also closes the file, which may be NULL. */
static bool deck_read(FILE *file, const char *name, struct option_source *source,
                      struct error *error)
{
    const bool good = file != NULL && deck_read_pairs(file, name, option_assign, source, error);
    if (file != NULL)
        fclose(file);
    return good;
}

/* Read a deck; `source` then has the number of its settings. */
static bool option_read_deck(const char *path, struct option_source *source, struct error *error)
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

/* ---- the command line */

static bool is_deck(const char *word)
{
    return text_ends_with(word, ".ini") && !option_is_setting(word);
}

static const char *const command_flags[] = {"--help", "--version", "--list-models", "--verbose",
                                            NULL};

/* Set the error for an unknown flag, with the setting to write instead. `next` is the next word of
 * the command line or NULL. Return false. */
static bool flag_refuse(const char *word, const char *next, struct error *error)
{
    char flag[64];
    const char *preset = "", *equals = strchr(word, '=');
    snprintf(flag, sizeof flag, "%.*s", (int)strcspn(word, "="), word);
    char *name = flag + strspn(flag, "-");
    const struct option_entry *entry = option_of_flag(name, &preset);
    const char *nearest = entry == NULL ? text_nearest(flag, command_flags) : NULL;
    if (nearest != NULL)
        return error_set(error, ERROR_USAGE, "%s: no such flag; did you mean %s?", flag, nearest);
    for (char *c = name; *c != '\0'; c++)
        *c = *c == '-' ? '_' : *c;
    const char *key = entry != NULL ? entry->name : option_find_nearest(name);
    if (key == NULL)
        return error_set(error, ERROR_USAGE,
                         "%s: no such flag; settings are section.key=value, decks FILE.ini, ranks "
                         "those of mpirun; see `vittrain --help`",
                         flag);
    const bool has_next = next != NULL && next[0] != '-' && !option_is_setting(next);
    const bool has_preset = preset[0] == '=';
    const char *value = equals != NULL ? equals + 1
                        : has_next     ? next
                        : has_preset   ? preset + 1
                                       : "VALUE";
    return error_set(error, ERROR_USAGE, "%.*s: no such flag; write %s=%.*s (`vittrain --help %s`)",
                     (int)strcspn(word, "="), word, key,
                     value == preset + 1 ? (int)strcspn(value, " ") : OPTION_TEXT, value, key);
}

static bool parse_flag(const char *word, const char *next, struct command_line *line,
                       struct error *error)
{
    bool *const targets[] = {&line->help, &line->version, &line->list_models};
    if (strcmp(word, "-v") == 0 || strcmp(word, "--verbose") == 0) {
        line->setting[line->setting_count++] = "output.verbose=on";
        return true;
    }
    if (strcmp(word, "-h") == 0)
        word = "--help";
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++)
        if (strcmp(word, command_flags[i]) == 0) {
            *targets[i] = true;
            return true;
        }
    return flag_refuse(word, next, error);
}

/* Parse one word; `next` is the one after it, or NULL. */
static bool parse_word(const char *word, const char *next, struct command_line *line,
                       struct error *error)
{
    if (word[0] == '-' && word[1] != '\0')
        return parse_flag(word, next, line, error);
    if (option_is_setting(word) || is_deck(word)) {
        line->setting[line->setting_count++] = word;
        return true;
    }
    if (line->command != NULL)
        line->operand[line->operand_count++] = word;
    else if (strcmp(word, "help") == 0)
        line->help = true;
    else
        line->command = word;
    return true;
}

bool options_apply(const struct command_line *line, struct options *options, struct error *error)
{
    struct option_source source = {.options = options};
    for (int i = 0; i < line->setting_count; i++)
        if (!(is_deck(line->setting[i]) ? options_read_file(line->setting[i], options, error)
                                        : option_set(&source, line->setting[i], error)))
            return false;
    return true;
}

bool command_line_informs(const struct command_line *line)
{
    return line->help || line->version || line->list_models;
}

bool options_parse(int argc, char **argv, struct options *options, struct command_line *line,
                   struct error *error)
{
    static const char **words;
    free(words);
    words = allocate(2 * (size_t)argc, sizeof *words);
    *line = (struct command_line){.operand = words, .setting = words + argc};
    options_default(options);
    for (int i = 1; i < argc; i++)
        if (!parse_word(argv[i], i + 1 < argc ? argv[i + 1] : NULL, line, error))
            return false;
    bool has_deck = false;
    for (int i = 0; i < line->setting_count; i++)
        has_deck = has_deck || is_deck(line->setting[i]);
    if (!has_deck && access("vittrain.ini", F_OK) == 0)
        line->default_deck = "vittrain.ini";
    if (command_line_informs(line))
        return true;
    if (line->command == NULL)
        line->command = "train";
    return (line->default_deck == NULL || options_read_file(line->default_deck, options, error)) &&
           options_apply(line, options, error);
}

/* ---- options that do not apply */

static bool requests_nothing(const char *value)
{
    static const char *const nothing[] = {"", "0", "off", "none", "auto", "class"};
    for (size_t i = 0; i < sizeof nothing / sizeof nothing[0]; i++)
        if (strcmp(value, nothing[i]) == 0)
            return true;
    return false;
}

static bool option_refuse(const char *where, const struct option_entry *entry,
                          const struct options *options, struct error *error)
{
    char value[OPTION_TEXT];
    option_write(entry, options, value, sizeof value);
    return error_set(error, ERROR_USAGE, "%s%s=%s applies only with %s: leave it out", where,
                     entry->name, value, option_unmet(entry, options)->text);
}

/* Check the options that a deck sets. Accepted are also defaults, options that applied until a
 * later deck or setting changed the condition, and resolved decks. */
static bool deck_check(const char *path, const struct options *options, struct error *error)
{
    static struct options own, defaults;
    struct option_source source = {.options = &own};
    char where[OPTION_TEXT];
    options_default(&own);
    options_default(&defaults);
    if (!option_read_deck(path, &source, error) || source.settings >= RESOLVED_DECK)
        return error->kind == ERROR_NONE;
    snprintf(where, sizeof where, "%s: ", path);
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++) {
        char value[OPTION_TEXT], preset[OPTION_TEXT], final[OPTION_TEXT];
        if (option_unmet(entry, options) == NULL || option_unmet(entry, &own) == NULL)
            continue;
        option_write(entry, &own, value, sizeof value);
        option_write(entry, &defaults, preset, sizeof preset);
        option_write(entry, options, final, sizeof final);
        if (strcmp(value, final) == 0 && strcmp(value, preset) != 0 && !requests_nothing(value))
            return option_refuse(where, entry, options, error);
    }
    return true;
}

/* Check an option that a word of the command line sets, or the options of its deck. */
static bool word_check(const char *word, const struct options *options, struct error *error)
{
    char name[2 * OPTION_KEY], value[OPTION_TEXT];
    if (!option_is_setting(word))
        return deck_check(word, options, error);
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    const struct option_entry *entry = option_find(name);
    if (entry == NULL || option_unmet(entry, options) == NULL)
        return true;
    option_write(entry, options, value, sizeof value);
    return requests_nothing(value) || option_refuse("", entry, options, error);
}

/* Set all options that do not apply to their defaults. */
static void options_settle(struct options *options)
{
    struct error error = {0};
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++)
        if (option_unmet(entry, options) != NULL)
            error_defer(option_read(entry, "default: ", entry->preset, options, &error));
    ENSURE(error.kind == ERROR_NONE, "%s", error.text);
}

bool options_check_line(const struct command_line *line, struct options *options,
                        struct error *error)
{
    if (line->default_deck != NULL && !word_check(line->default_deck, options, error))
        return false;
    for (int i = 0; i < line->setting_count; i++)
        if (!word_check(line->setting[i], options, error))
            return false;
    options_settle(options);
    return options_check(options, error);
}

int64_t options_grain(const struct options *options, int64_t global_batch)
{
    const int64_t grain = options->train.grain;
    if (options->train.exact == EXACT_OFF)
        return 0;
    return grain > 0 ? grain : round_up(round_up_division(global_batch, AUTO_GRAINS), GRAIN_STEP);
}

/* ---- combinations that cannot work */

static bool check_augment(const struct options *options, struct error *error)
{
    const struct augment_options *augment = &options->augment;
    const struct {
        const char *name;
        const struct option_list *range;
    } ranges[] = {{"crop_scale", &augment->crop_scale},
                  {"crop_ratio", &augment->crop_ratio},
                  {"erase_scale", &augment->erase_scale},
                  {"erase_ratio", &augment->erase_ratio}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (ranges[i].range->value[0] > ranges[i].range->value[1])
            return error_set(error, ERROR_USAGE,
                             "augment.%s: the first number must not be above the second",
                             ranges[i].name);
    const bool crops = augment->crop == CROP_CENTER || augment->crop == CROP_RANDOM;
    if (crops && augment->random_resized_crop == SWITCH_ON)
        return error_set(error, ERROR_USAGE,
                         "augment.random_resized_crop=on replaces augment.crop: use only one of "
                         "them");
    if (crops && augment->resize == 0 &&
        (strcmp(options->data.format, "arrays") != 0 || options->eval.resize > 0))
        return error_set(
            error, ERROR_USAGE,
            "augment.crop needs augment.resize; set augment.resize to the size before the crop");
    if (!crops && augment->resize_to == RESIZE_SHORTER)
        return error_set(error, ERROR_USAGE,
                         "augment.resize_to=shorter needs augment.crop=center or random, as the "
                         "model's images are square");
    return true;
}

static bool check_train(const struct options *options, struct error *error)
{
    const struct train_options *train = &options->train;
    if (train->epochs == 0 && train->steps == 0)
        return error_set(error, ERROR_USAGE,
                         "train.epochs=0 and train.steps=0; set how long to train");
    if (train->global_batch > 0 && train->accumulate > train->global_batch)
        return error_set(error, ERROR_USAGE,
                         "train.accumulate=%lld is more than train.global_batch=%lld",
                         (long long)train->accumulate, (long long)train->global_batch);
    const bool chunks = options->data.shuffle == SHUFFLE_CHUNKS;
    if (options->augment.repeat > 1 && chunks)
        return error_set(error, ERROR_USAGE,
                         "augment.repeat=%lld does not work with data.shuffle=chunks: use only one "
                         "of them",
                         (long long)options->augment.repeat);
    const char *order = options->data.shuffle == SHUFFLE_OFF ? "data.shuffle=off"
                        : chunks                             ? "data.shuffle=chunks"
                        : options->augment.repeat > 1        ? "augment.repeat"
                        : options->debug.overfit > 0         ? "debug.overfit"
                                                             : NULL;
    if (options->data.balance && order != NULL)
        return error_set(error, ERROR_USAGE,
                         "data.balance=on does not work with %s: use only one of them", order);
    if (chunks && strcmp(options->data.format, "arrays") != 0)
        return error_set(error, ERROR_USAGE,
                         "data.shuffle=chunks does not apply with data.format=%s: set "
                         "data.shuffle=on",
                         options->data.format);
    /* Multiplying and dividing by a power of two does not round. */
    int exponent;
    if (frexp(train->loss_scale, &exponent) != 0.5)
        return error_set(error, ERROR_USAGE,
                         "train.loss_scale=%.15g is not a power of two; the nearest below is %.15g",
                         train->loss_scale, ldexp(1, exponent - 1));
    const bool evaluates = train->eval_every > 0 && options->data.val != VALIDATION_NONE;
    const bool observes = options->schedule.name == SCHEDULE_PLATEAU || train->early_stop > 0;
    const char *observer = train->early_stop > 0 ? "train.early_stop" : "schedule.name=plateau";
    if (observes && !evaluates)
        return error_set(
            error, ERROR_USAGE,
            "%s needs evaluations; set train.eval_every above 0 and data.val other than none",
            observer);
    if (observes && options->checkpoint.monitor == MONITOR_NONE)
        return error_set(error, ERROR_USAGE,
                         "%s needs a metric; set checkpoint.monitor=top1 or loss instead of none",
                         observer);
    return true;
}

bool options_check_grain(const struct options *options, int64_t global_batch, struct error *error)
{
    const int64_t grain = options_grain(options, global_batch);
    const int64_t least = round_up(round_up_division(global_batch, GRAINS_MOST), GRAIN_STEP);
    return grain == 0 || round_up_division(global_batch, grain) <= GRAINS_MOST ||
           error_set(error, ERROR_USAGE,
                     "train.grain=%lld: a global batch of %lld has more than %d grains; set "
                     "train.grain=%lld or more",
                     (long long)grain, (long long)global_batch, GRAINS_MOST, (long long)least);
}

/* Check the options that train.exact=layout excludes. session.c checks batch norms. */
static bool check_exact(const struct options *options, struct error *error)
{
    const struct train_options *train = &options->train;
    if (train->exact == EXACT_OFF)
        return true;
    if (train->global_batch == 0)
        return error_set(
            error, ERROR_USAGE,
            "train.exact=layout needs train.global_batch; with train.batch, the global "
            "batch depends on the number of ranks");
    if (!options_check_grain(options, train->global_batch, error))
        return false;
    if (options->mesh.reduce == REDUCE_COMPUTE)
        return error_set(error, ERROR_USAGE,
                         "train.exact=layout adds gradients in fp32; leave out "
                         "mesh.reduce=compute");
    return true;
}

bool options_check(const struct options *options, struct error *error)
{
    const struct find_options *find = &options->find;
    const struct output_options *output = &options->output;
    if (!check_augment(options, error) || !check_train(options, error) ||
        !check_exact(options, error))
        return false;
    if (strpbrk(options->run.tags, "'\"\\") != NULL)
        return error_set(error, ERROR_USAGE,
                         "run.tags=%s: a tag must not have quotes or backslashes",
                         options->run.tags);
    if (find->first >= find->last)
        return error_set(error, ERROR_USAGE, "find.first=%g must be below find.last=%g",
                         find->first, find->last);
    if (find->steps == 1)
        return error_set(error, ERROR_USAGE,
                         "find.steps=1: the learning rate needs two steps to grow");
    if (output->monitor > 0 && output->monitor < 0.1)
        return error_set(
            error, ERROR_USAGE,
            "output.monitor=%g is less than 0.1 seconds; set 0.1 or more, or 0 for no sensors",
            output->monitor);
    return true;
}

/* ---- resolved decks, comparison */

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
