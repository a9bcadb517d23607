// SPDX-License-Identifier: BSD-3-Clause
/* Print options: their values for the console and the log, and the table as help for a terminal and
 * as part of the manual page (mdoc). */
#include <string.h>

#include "config/option.h"

enum { PRINT_WIDTH = 100, HELP_WIDTH = 88, MANUAL_WIDTH = 64 };

/* ---- values */

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
        if (!option_is_in_deck(entry, options) ||
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
    const struct option_section *section = NULL;
    options_default(&defaults);
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++) {
        if (!option_is_in_deck(entry, options))
            continue;
        char value[OPTION_TEXT], text[OPTION_KEY + OPTION_TEXT];
        const bool changed = value_is_changed(entry, options, &defaults, value);
        snprintf(text, sizeof text, " %s=%s%s", option_key(entry), value, changed ? "*" : "");
        if (entry->section != section || column + strlen(text) > PRINT_WIDTH) {
            fprintf(file, "%s%-*s", section == NULL ? "" : "\n", INDENT,
                    entry->section != section ? entry->section->name : "");
            section = entry->section;
            column = INDENT;
        }
        column += strlen(text);
        fputs(text, file);
    }
    fputc('\n', file);
}

/* ---- help */

void options_print_wrapped(FILE *file, int indent, const char *text)
{
    int column = 0;
    while (*text != '\0') {
        const size_t word = strcspn(text, " ");
        if (column == 0)
            column = fprintf(file, "%*s", indent, "");
        else if (column + 1 + (int)word > HELP_WIDTH)
            column = fprintf(file, "\n%*s", indent, "") - 1;
        else
            column += fprintf(file, " ");
        column += fprintf(file, "%.*s", (int)word, text);
        text += word + strspn(text + word, " ");
    }
    fprintf(file, "\n");
}

static const char *preset_text(const struct option_entry *entry)
{
    return entry->preset[0] == '\0' ? "(empty)" : entry->preset;
}

bool options_help(const char *name, FILE *file)
{
    const struct option_section *section = NULL;
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++) {
        if (name != NULL && strcmp(entry->section->name, name) != 0)
            continue;
        if (entry->section != section)
            fprintf(file, "\n%s: %s\n", entry->section->name, entry->section->help);
        section = entry->section;
        fprintf(file, "  %s = %s\n", entry->name, preset_text(entry));
        options_print_wrapped(file, 6, entry->help);
    }
    return section != NULL;
}

bool options_help_key(const char *key, const struct options *options, FILE *file)
{
    const struct option_entry *entry = option_find(key);
    char text[OPTION_TEXT];
    if (entry == NULL)
        return false;
    option_describe(entry, text, sizeof text);
    fprintf(file, "%s\n", entry->name);
    options_print_wrapped(file, 2, entry->help);
    fprintf(file, "  value:   %s\n  default: %s\n", text, preset_text(entry));
    if (entry->section->applies != NULL)
        fprintf(file, "  applies: with %s\n", entry->section->applies->text);
    if (entry->applies != NULL)
        fprintf(file, "  applies: with %s\n", entry->applies->text);
    if (options != NULL) {
        option_write(entry, options, text, sizeof text);
        fprintf(file, "  set to:  %s\n", text);
    }
    return true;
}

/* ---- the manual page */

/* Print a word escaped for mdoc: it is no request and hyphens stay hyphens. Return the number of
 * characters printed. */
static int manual_word(FILE *file, const char *word, size_t length, bool begins_line)
{
    int printed = 0;
    if (begins_line && (*word == '.' || *word == '\''))
        printed += fprintf(file, "\\&");
    for (size_t i = 0; i < length; i++)
        printed += word[i] == '\\'  ? fprintf(file, "\\e")
                   : word[i] == '-' ? fprintf(file, "\\-")
                                    : fprintf(file, "%c", word[i]);
    return printed;
}

void options_manual_words(FILE *file, const char *text)
{
    while (*text != '\0') {
        const size_t word = strcspn(text, " ");
        manual_word(file, text, word, false);
        text += word + strspn(text + word, " ");
        fprintf(file, *text != '\0' ? "\\& " : "\\&");
    }
}

/* Lines have at most MANUAL_WIDTH characters; each sentence begins a new one. */
void options_manual_text(FILE *file, const char *text)
{
    int column = 0;
    while (*text != '\0') {
        const size_t word = strcspn(text, " ");
        const bool sentence_ended = column > 0 && text[-2] == '.';
        if (column > 0 && (sentence_ended || column + 1 + (int)word > MANUAL_WIDTH))
            column = fprintf(file, "\n") - 1;
        else if (column > 0)
            column += fprintf(file, " ");
        column += manual_word(file, text, word, column == 0);
        text += word + strspn(text + word, " ");
    }
}

void options_manual(FILE *file)
{
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++) {
        const struct option_section *section = entry->section;
        char allowed[512];
        if (entry == option_table || entry[-1].section != section)
            fprintf(file, ".Ss %s: %s\n.Bl -tag -width Ds\n", section->name, section->help);
        option_describe(entry, allowed, sizeof allowed);
        fprintf(file, ".It Cm %s\n", entry->name);
        options_manual_text(file, entry->help);
        fprintf(file, "\nValue: ");
        options_manual_text(file, allowed);
        fprintf(file, ".\nDefault: ");
        options_manual_text(file, preset_text(entry));
        fprintf(file, ".\n");
        if (entry[1].section != section)
            fprintf(file, ".El\n");
    }
}
