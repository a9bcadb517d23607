// SPDX-License-Identifier: BSD-3-Clause
/* The list of commands, --help (all, a command, a section or a key), --version, --list-models. */
#include "commands/app.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/launcher.h"
#include "base/log.h"
#include "base/text.h"
#include "model/model.h"
#include "options/option.h"

static const struct command *const app_commands[] = {
    &command_train, &command_eval,   &command_predict, &command_report,
    &command_plan,  &command_find,   &command_convert, &command_data,
    &command_bench, &command_launch, &command_doctor,  &command_verify,
    NULL,
};

enum { COMMANDS = sizeof app_commands / sizeof app_commands[0] };

const char *const app_exit_codes[] = {
    [ERROR_NONE] = "success; also a run that was asked to stop (see finished in result.json)",
    [ERROR_INTERNAL] = "bug in the program, or a library failed without a reason",
    [ERROR_USAGE] = "wrong command line, deck or combination of options",
    [ERROR_DATA] = "data set missing, truncated or with a label out of range",
    [ERROR_CHECKPOINT] = "checkpoint or weights damaged, or of another model or version",
    [ERROR_FILE] = "a file cannot be written: disk full, no permission",
    [ERROR_MEMORY] = "too little memory, or another limit of the machine",
    [ERROR_NUMERIC] = "NaN or infinity in training, eval or predict",
    [ERROR_NUMERIC + 1] = "not used",
    [ERROR_PEER] = "another rank failed or does not respond",
    [ERROR_UNFIT] = "`doctor` found a problem that must be fixed before a run",
    [ERROR_DIFFERENT] = "`verify` found a step whose replay gives other bits, or "
                        "train.check_every a wrong gradient",
    [ERROR_DIFFERENT + 1] = NULL,
};

/* Return the names of the commands; NULL-terminated. */
static const char *const *command_names(void)
{
    static const char *names[COMMANDS];
    for (int i = 0; app_commands[i] != NULL; i++)
        names[i] = app_commands[i]->name;
    return names;
}

const struct command *app_find(const char *name)
{
    for (int i = 0; app_commands[i] != NULL; i++)
        if (strcmp(app_commands[i]->name, name) == 0)
            return app_commands[i];
    return NULL;
}

bool app_refuse(const char *word, struct error *error)
{
    const char *nearest = text_nearest(word, command_names());
    const struct removed *removed = removed_find(word);
    if (removed != NULL)
        return error_set(error, ERROR_USAGE, "%s: the command was removed: %s", word,
                         removed->instead);
    if (nearest != NULL)
        return error_set(error, ERROR_USAGE, "%s: no such command; did you mean %s?", word,
                         nearest);
    return error_set(error, ERROR_USAGE,
                     "%s: neither a command nor a deck (a file *.ini) nor section.key=value; see "
                     "`vittrain --help`",
                     word);
}

bool app_output_arrived(struct error *error)
{
    if (fflush(stdout) != 0)
        return error_set(error, ERROR_FILE, "cannot write to standard output: %s", strerror(errno));
    return ferror(stdout) == 0 ||
           error_set(error, ERROR_FILE, "cannot write to standard output: an earlier write failed");
}

enum { HELP_WIDTH = 88 };

/* ---- help */

/* Print a paragraph in lines that are indented by `indent` spaces. */
static void wrapped_print(int indent, const char *text)
{
    int column = printf("%*s", indent, "");
    for (size_t word; *text != '\0'; text += word + strspn(text + word, " ")) {
        word = strcspn(text, " ");
        if (column + 1 + (int)word > HELP_WIDTH)
            column = printf("\n%*s", indent, "") - 1;
        else if (column > indent)
            column += printf(" ");
        column += printf("%.*s", (int)word, text);
    }
    printf("\n");
}

static const char *preset_text(const struct option_entry *entry)
{
    return entry->preset[0] == '\0' ? "(empty)" : entry->preset;
}

/* Print the options of a section with their defaults and help, or (NULL) all. Return false if the
 * section does not exist. */
static bool options_help(const char *name)
{
    const struct option_section *section = NULL;
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++) {
        if (name != NULL && strcmp(entry->section->name, name) != 0)
            continue;
        if (entry->section != section)
            printf("\n%s: %s\n", entry->section->name, entry->section->help);
        section = entry->section;
        printf("  %s = %s\n", entry->name, preset_text(entry));
        wrapped_print(6, entry->help);
    }
    return section != NULL;
}

/* Print help, allowed values, default and conditions of an option, and its value if `options` is
 * not NULL. */
static void option_help(const struct option_entry *entry, const struct options *options)
{
    const struct option_condition *conditions[] = {entry->section->applies, entry->applies};
    char text[OPTION_TEXT];
    option_describe(entry, text, sizeof text);
    printf("%s\n", entry->name);
    wrapped_print(2, entry->help);
    printf("  value:   %s\n  default: %s\n", text, preset_text(entry));
    for (int i = 0; i < 2; i++)
        if (conditions[i] != NULL)
            printf("  applies: with %s\n", conditions[i]->text);
    if (options != NULL) {
        option_write(entry, options, text, sizeof text);
        printf("  set to:  %s\n", text);
    }
}

static void help_all(void)
{
    printf(
        "vittrain trains Vision Transformers and CNNs on CPUs and NVIDIA GPUs with any number of\n"
        "MPI ranks.\n\n"
        "  vittrain [COMMAND] [DECK.ini ...] [section.key=value ...]\n"
        "  mpirun -np RANKS vittrain ...\n\n"
        "Later decks and settings override earlier ones. Without a deck, vittrain.ini in the\n"
        "working directory is read if it exists. The defaults train a small ViT on a sample of\n"
        "CIFAR-10.\n\n"
        "Commands (default: train):\n");
    for (int i = 0; app_commands[i] != NULL; i++)
        printf("  %-10s %s\n", app_commands[i]->name, app_commands[i]->summary);
    printf("  %-10s %s\n", "help", "print this help, or that of a COMMAND, SECTION or KEY");
    printf("\n-v, --verbose: print all start-up lines (output.verbose=on)\n"
           "--help, --version, --list-models\n"
           "Exit codes:\n");
    for (int i = 0; app_exit_codes[i] != NULL; i++)
        printf("  %2d  %s\n", i, app_exit_codes[i]);
    printf("\nOptions and their defaults. In a deck: a line [section], then lines key = value.\n"
           "On the command line: section.key=value. `vittrain --help KEY` prints the values of a "
           "key.\n");
    options_help(NULL);
}

static bool help_about(const char *word, const struct command_line *line, struct error *error)
{
    static struct options options;
    const struct command *command = app_find(word);
    const struct option_entry *entry = option_find(word);
    if (command != NULL) {
        printf("vittrain %s\n\n", command->synopsis);
        wrapped_print(0, command->detail);
        return true;
    }
    if (options_help(word))
        return true;
    if (entry != NULL) {
        const bool is_set = line->default_deck != NULL || line->setting_count > 0;
        options_default(&options);
        if (is_set && ((line->default_deck != NULL &&
                        !options_read_file(line->default_deck, &options, error)) ||
                       !options_apply(line, &options, error)))
            return false;
        option_help(entry, is_set ? &options : NULL);
        return true;
    }
    const char *nearest = text_nearest(word, command_names());
    if (nearest == NULL)
        nearest = option_find_nearest(word);
    return error_set(error, ERROR_USAGE,
                     "%s: neither a command nor a section or key of the options%s%s%s", word,
                     nearest != NULL ? "; did you mean " : "", nearest != NULL ? nearest : "",
                     nearest != NULL ? "?" : "");
}

/* ---- the models */

static bool models_list(struct error *error)
{
    static struct options options;
    printf("%-30s %12s  input\n", "model.name", "parameters");
    for (const char *const *name = model_names(); *name != NULL; name++) {
        options_default(&options);
        snprintf(options.model.name, sizeof options.model.name, "%s", *name);
        struct model *model = model_open(&options, NULL, TYPE_FP32, error);
        if (model == NULL)
            return false;
        printf("%-30s %12lld  ", *name, (long long)model_parameter_count(model, false));
        if (model->image.height == 1) /* it reads vectors */
            printf("%lld numbers\n", (long long)model->channels);
        else
            printf("%lld x %lld x %lld\n", (long long)model->channels,
                   (long long)model->image.height, (long long)model->image.width);
        model_close(model);
    }
    return true;
}

/* ---- answers */

int app_inform(const struct command_line *line)
{
    struct error error = {0};
    if (launcher_rank() > 0)
        return ERROR_NONE;
    if (line->version)
        printf("vittrain %s%s%s%s\n", version_number, version_commit[0] != '\0' ? " (commit " : "",
               version_commit, version_commit[0] != '\0' ? ")" : "");
    else if (line->list_models)
        error_defer(models_list(&error));
    else if (line->command != NULL)
        error_defer(help_about(line->command, line, &error));
    else
        help_all();
    if (error.kind != ERROR_NONE || !app_output_arrived(&error))
        log_error(&error);
    return (int)error.kind;
}
