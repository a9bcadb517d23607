// SPDX-License-Identifier: BSD-3-Clause
/* Print the table of options as help for a terminal and as part of the manual page (mdoc). */
#include "config/options.h"

#include <string.h>

#include "config/option.h"
#include "config/option_conditions.h"

enum { HELP_WIDTH = 88, MANUAL_WIDTH = 64 };

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

static void section_name(const struct option_entry *entry, char name[OPTION_KEY])
{
    snprintf(name, OPTION_KEY, "%.*s", (int)strcspn(entry->name, "."), entry->name);
}

static void help_heading(const struct option_entry *entry, FILE *file)
{
    char section[OPTION_KEY];
    section_name(entry, section);
    fprintf(file, "\n%s: %s\n", section, option_section_help(section));
}

static void help_line(const struct option_entry *entry, FILE *file)
{
    fprintf(file, "  %s = %s\n", entry->name, preset_text(entry));
    options_print_wrapped(file, 6, entry->help);
}

void options_help(FILE *file)
{
    fprintf(file, "Options and their defaults. In a deck: a line [section], then lines key = "
                  "value.\nOn the command line: section.key=value. `vittrain --help KEY` prints "
                  "the values of a key.\n");
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++) {
        if (option_begins_section(entry))
            help_heading(entry, file);
        help_line(entry, file);
    }
}

bool options_help_key(const char *key, FILE *file)
{
    const struct option_entry *found = option_find(key);
    if (found != NULL) {
        char allowed[512], conditions[512];
        option_describe(found, allowed, sizeof allowed);
        option_conditions_text(found->name, conditions, sizeof conditions);
        fprintf(file, "%s\n", found->name);
        options_print_wrapped(file, 2, found->help);
        fprintf(file, "  value:   %s\n  default: %s\n", allowed, preset_text(found));
        if (conditions[0] != '\0')
            fprintf(file, "  applies: %s\n", conditions);
        return true;
    }
    bool any = false;
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++) {
        char section[OPTION_KEY];
        section_name(entry, section);
        if (strcmp(section, key) != 0)
            continue;
        if (!any)
            help_heading(entry, file);
        help_line(entry, file);
        any = true;
    }
    return any;
}

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
        char section[OPTION_KEY], allowed[512];
        section_name(entry, section);
        if (option_begins_section(entry))
            fprintf(file, ".Ss %s: %s\n.Bl -tag -width Ds\n", section,
                    option_section_help(section));
        option_describe(entry, allowed, sizeof allowed);
        fprintf(file, ".It Cm %s\n", entry->name);
        options_manual_text(file, entry->help);
        fprintf(file, "\nValue: ");
        options_manual_text(file, allowed);
        fprintf(file, ".\nDefault: ");
        options_manual_text(file, preset_text(entry));
        fprintf(file, ".\n");
        if (entry[1].name == NULL || option_begins_section(entry + 1))
            fprintf(file, ".El\n");
    }
}
