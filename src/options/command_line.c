// SPDX-License-Identifier: BSD-3-Clause
/* Parse the command line: commands, decks, settings and operands. */
#include "options/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "options/option.h"

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
