// SPDX-License-Identifier: BSD-3-Clause
/* Operations on all options: defaults, checks, the resolved deck and comparison. */
#include "config/options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/deck.h"
#include "config/option.h"
#include "core/integer.h"
#include "core/text.h"

void options_default(struct options *options)
{
    struct error error = {0};
    memset(options, 0, sizeof *options);
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++)
        error_defer(option_read(entry, "default: ", entry->preset, options, &error));
    ENSURE(error.kind == ERROR_NONE, "%s", error.text);
}

bool options_set(const char *assignment, struct options *options, struct error *error)
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
    return option_assign(name, "", value, false, options, error);
}

struct deck_target {
    struct options *options;
    bool is_stored;
    struct option_source source;
};

static bool pair_assign(void *user, const char *where, const char *name, const char *value,
                        struct error *error)
{
    struct deck_target *target = user;
    if (!option_assign(name, where, value, target->is_stored, target->options, error))
        return false;
    option_source_add(&target->source, name, target->options);
    return true;
}

/* Also closes the file, which may be NULL. */
static bool deck_read(FILE *file, const char *name, bool is_stored, struct options *options,
                      int *settings, struct error *error)
{
    struct deck_target target = {.options = options, .is_stored = is_stored};
    const bool good = file != NULL && deck_read_pairs(file, name, pair_assign, &target, error) &&
                      option_source_check(&target.source, name, error);
    if (file != NULL)
        fclose(file);
    *settings = target.source.settings;
    return good;
}

bool options_read_deck(const char *path, struct options *options, int *settings,
                       struct error *error)
{
    return deck_read(deck_file_open(path, error), path, false, options, settings, error);
}

bool options_read_file(const char *path, struct options *options, struct error *error)
{
    return options_read_deck(path, options, &(int){0}, error);
}

bool options_read_stored(const char *path, struct options *options, struct error *error)
{
    return deck_read(deck_file_open(path, error), path, true, options, &(int){0}, error);
}

bool options_read_text(const char *text, const char *name, struct options *options,
                       struct error *error)
{
    const size_t length = strlen(text);
    if (length == 0)
        return true;
    FILE *file = fmemopen((void *)(uintptr_t)text, length, "r");
    if (file == NULL)
        return error_set(error, ERROR_MEMORY, "%s: cannot read the deck: %s", name,
                         strerror(errno));
    return deck_read(file, name, true, options, &(int){0}, error);
}

void options_visit(const struct options *options, option_visit *visit, void *user)
{
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++) {
        char value[OPTION_TEXT];
        if (!option_is_of_run(entry) || option_is_cleared(entry, options))
            continue;
        option_write(entry, options, value, sizeof value);
        visit(user, entry->name, value);
    }
}

/* Return the length of an entry's section name if it differs from the last one, which is updated;
 * 0 otherwise. */
static int section_begins(const struct option_entry *entry, const char **last)
{
    const size_t length = (size_t)(option_key(entry) - entry->name);
    if (*last != NULL && strncmp(entry->name, *last, length) == 0)
        return 0;
    *last = entry->name;
    return (int)length - 1;
}

char *options_to_run_deck(const struct options *options)
{
    struct text_stream text;
    FILE *file = text_stream_open(&text);
    const char *last = NULL;
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++) {
        if (!option_is_of_run(entry) || option_is_cleared(entry, options))
            continue;
        const char *blank = last == NULL ? "" : "\n";
        const int section = section_begins(entry, &last);
        if (section > 0)
            fprintf(file, "%s[%.*s]\n", blank, section, entry->name);
        char value[OPTION_TEXT];
        option_write(entry, options, value, sizeof value);
        deck_write_pair(file, option_key(entry), value);
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

int64_t options_grain(const struct options *options, int64_t global_batch)
{
    const int64_t grain = options->train.grain;
    if (options->train.exact == EXACT_OFF)
        return 0;
    return grain > 0 ? grain : round_up(round_up_division(global_batch, AUTO_GRAINS), GRAIN_STEP);
}

enum { PRINT_WIDTH = 100 };

/* Write the option's value. Return true if it is not the default. */
static bool value_is_changed(const struct option_entry *entry, const struct options *options,
                             const struct options *defaults, char value[OPTION_TEXT])
{
    char preset[OPTION_TEXT];
    option_write(entry, options, value, OPTION_TEXT);
    option_write(entry, defaults, preset, sizeof preset);
    return strcmp(value, preset) != 0;
}

void options_print_changed(const struct options *options, FILE *file)
{
    enum { LINES = 2, INDENT = 8 };
    struct options defaults;
    int count = 0, printed = 0, lines = 1, column = fprintf(file, "options:");
    options_default(&defaults);
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++) {
        char value[OPTION_TEXT];
        if (!option_is_of_run(entry) || option_is_cleared(entry, options) ||
            !value_is_changed(entry, options, &defaults, value))
            continue;
        count++;
        const int width = snprintf(NULL, 0, " %s=%s", entry->name, value);
        if (column + width > PRINT_WIDTH && printed > 0 && lines <= LINES && ++lines <= LINES)
            column = fprintf(file, "\n%*s", INDENT, "") - 1;
        if (lines > LINES)
            continue;
        column += fprintf(file, " %s=%s", entry->name, value);
        printed++;
    }
    if (count > printed)
        fprintf(file, " and %d more (deck.ini)", count - printed);
    fputs(count > 0 ? "\n" : " all have their defaults\n", file);
}

void options_print(const struct options *options, FILE *file)
{
    enum { INDENT = 10 };
    struct options defaults;
    size_t column = 0;
    const char *last = NULL;
    options_default(&defaults);
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++) {
        if (!option_is_of_run(entry) || option_is_cleared(entry, options))
            continue;
        char value[OPTION_TEXT], text[OPTION_KEY + OPTION_TEXT];
        const bool changed = value_is_changed(entry, options, &defaults, value);
        snprintf(text, sizeof text, " %s=%s%s", option_key(entry), value, changed ? "*" : "");
        const char *newline = last == NULL ? "" : "\n";
        const int section = section_begins(entry, &last);
        if (section > 0 || column + strlen(text) > PRINT_WIDTH) {
            fprintf(file, "%s%-*.*s", newline, INDENT, section, entry->name);
            column = INDENT;
        }
        column += strlen(text);
        fputs(text, file);
    }
    fputc('\n', file);
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
    if (options->augment.repeat > 1 && (chunks || options->data.shuffle_block > 0))
        return error_set(error, ERROR_USAGE,
                         "augment.repeat=%lld does not work with data.shuffle%s: use only one "
                         "of them",
                         (long long)options->augment.repeat, chunks ? "=chunks" : "_block");
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
