// SPDX-License-Identifier: BSD-3-Clause
/* Options that do not apply, and combinations of options that cannot work. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "base/text.h"
#include "options/option.h"
#include "options/options.h"

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

void options_settle(struct options *options)
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
