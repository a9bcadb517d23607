/* The command line: commands, decks, settings and operands. */
#include "core/options.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/options_table.h"
#include "core/text.h"

static const char default_deck[] = "vittrain.ini";

/* Changes (insert, delete, replace, swap neighbours) that lead from one word to the other; words
 * longer than a key are far from all. */
static int edit_distance(const char *one, const char *other)
{
    enum { LONGEST = 2 * OPTION_KEY };
    int rows[3][LONGEST + 1];
    const int width = (int)strlen(other);
    if (strlen(one) > LONGEST || width > LONGEST)
        return LONGEST;
    for (int j = 0; j <= width; j++)
        rows[0][j] = j;
    for (int i = 1; one[i - 1] != '\0'; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *above_two = rows[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= width; j++) {
            int best = above[j - 1] + (one[i - 1] != other[j - 1]);
            best = above[j] + 1 < best ? above[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            if (i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] &&
                above_two[j - 2] + 1 < best)
                best = above_two[j - 2] + 1;
            row[j] = best;
        }
    }
    return rows[strlen(one) % 3][width];
}

/* How many changes still count as near. */
static int near_limit(const char *word)
{
    const int third = (int)strlen(word) / 3;
    return third < 1 ? 1 : third;
}

const char *options_nearest(const char *word, const char *const *candidates)
{
    const char *nearest = NULL;
    int least = near_limit(word) + 1;
    for (; *candidates != NULL; candidates++) {
        const int distance = edit_distance(word, *candidates);
        if (distance < least) {
            least = distance;
            nearest = *candidates;
        }
    }
    return nearest;
}

/* A right key in a wrong section, or in none, is nearer than any misspelt one. */
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
    const char *nearest = options_nearest(name, names);
    if (nearest != NULL || dot != NULL)
        return nearest;
    const char *nearest_key = options_nearest(key, keys);
    for (size_t i = 0; nearest_key != NULL && i < count; i++)
        if (keys[i] == nearest_key)
            return names[i];
    return NULL;
}

const char *options_nearest_topic(const char *word, const char *const *candidates)
{
    const char *nearest = options_nearest(word, candidates);
    return nearest != NULL ? nearest : option_find_nearest(word);
}

static bool unknown_key(const char *where, const char *name, struct error *error)
{
    const char *nearest = option_find_nearest(name);
    if (nearest != NULL)
        return error_set(error, ERROR_USAGE, "%sno option %s; did you mean %s?", where, name,
                         nearest);
    return error_set(error, ERROR_USAGE, "%sno option %s; `vittrain --help` lists all", where,
                     name);
}

bool option_assign(const char *name, const char *where, const char *text, struct options *options,
                   struct error *error)
{
    char plain[2 * OPTION_KEY];
    snprintf(plain, sizeof plain, "%s", name);
    size_t length = strlen(plain);
    const bool adds = length > 0 && plain[length - 1] == '+';
    if (adds)
        plain[--length] = '\0';
    while (length > 0 && isspace((unsigned char)plain[length - 1]))
        plain[--length] = '\0';
    const struct option_entry *entry = option_find(plain);
    if (entry == NULL)
        return unknown_key(where, plain, error);
    if (!adds)
        return option_read(entry, where, text, options, error);
    if (entry->kind != OPTION_IS_TEXT)
        return error_set(error, ERROR_USAGE, "%s%s: only a text can be added to", where, plain);
    char whole[2 * OPTION_TEXT], before[OPTION_TEXT];
    option_write(entry, options, before, sizeof before);
    snprintf(whole, sizeof whole, "%s%s", before, text);
    return option_read(entry, where, whole, options, error);
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
    return option_assign(name, "", value, options, error);
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

enum { PRINT_WIDTH = 100 };

/* "key=value", with a star where it is not the default. */
static void option_print_text(const struct option_entry *entry, const struct options *options,
                              const struct options *defaults, char *text, size_t size)
{
    char value[OPTION_TEXT], preset[OPTION_TEXT];
    option_write(entry, options, value, sizeof value);
    option_write(entry, defaults, preset, sizeof preset);
    snprintf(text, size, " %s=%s%s", option_key(entry), value,
             strcmp(value, preset) != 0 ? "*" : "");
}

void options_print(const struct options *options, FILE *file)
{
    struct options defaults;
    const struct option_entry *before = NULL;
    size_t column = 0;
    options_default(&defaults);
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++) {
        char text[OPTION_KEY + OPTION_TEXT];
        bool begins = before == NULL || !option_same_section(before, entry);
        option_print_text(entry, options, &defaults, text, sizeof text);
        if (begins || column + strlen(text) > PRINT_WIDTH) {
            int length = begins ? (int)(option_key(entry) - entry->name - 1) : 0;
            fprintf(file, "%s%-10.*s", before == NULL ? "" : "\n", length, entry->name);
            column = 10;
        }
        column += strlen(text);
        fputs(text, file);
        before = entry;
    }
    fputc('\n', file);
}

bool option_is_setting(const char *word)
{
    const size_t length = strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                       "0123456789._-");
    return length > 0 && word[length] == '=' && word[0] != '-';
}

static bool is_deck(const char *word)
{
    return text_ends_with(word, ".ini") && !option_is_setting(word);
}

static bool is_one_of(const char *word, const char *const *words)
{
    for (; *words != NULL; words++)
        if (strcmp(word, *words) == 0)
            return true;
    return false;
}

static bool take_flag(const char *word, struct command_line *line, struct error *error)
{
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        line->help = true;
    else if (strcmp(word, "--version") == 0)
        line->version = true;
    else if (strcmp(word, "--manual") == 0)
        line->manual = true;
    else if (strcmp(word, "--json") == 0)
        line->json = true;
    else
        return error_set(error, ERROR_USAGE,
                         "%s: no such flag; settings are section.key=value, see `vittrain --help`",
                         word);
    return true;
}

static bool take_operand(const char *word, struct command_line *line, struct error *error)
{
    if (line->operand_count == COMMAND_OPERANDS)
        return error_set(error, ERROR_USAGE, "%s: more than %d files or names", word,
                         COMMAND_OPERANDS);
    line->operand[line->operand_count++] = word;
    return true;
}

static bool unknown_command(const char *word, const char *const *commands, struct error *error)
{
    const char *nearest = options_nearest(word, commands);
    if (nearest != NULL)
        return error_set(error, ERROR_USAGE, "%s: no such command; did you mean %s?", word,
                         nearest);
    return error_set(error, ERROR_USAGE,
                     "%s: neither a command nor a deck (a file *.ini) nor section.key=value; see "
                     "`vittrain --help`",
                     word);
}

/* Puts one word of the command line where it belongs. */
static bool take_word(const char *word, const char *const *commands, struct command_line *line,
                      struct error *error)
{
    if (word[0] == '-' && word[1] != '\0')
        return take_flag(word, line, error);
    if (option_is_setting(word) || is_deck(word)) {
        if (line->setting_count == COMMAND_SETTINGS)
            return error_set(error, ERROR_USAGE, "%s: more than %d decks and settings", word,
                             COMMAND_SETTINGS);
        line->setting[line->setting_count++] = word;
        return true;
    }
    if (line->command == NULL && line->operand_count == 0) {
        if (strcmp(word, "help") == 0) {
            line->help = true;
            return true;
        }
        if (is_one_of(word, commands)) {
            line->command = word;
            return true;
        }
    }
    return take_operand(word, line, error);
}

static bool apply(const char *setting, struct options *options, struct error *error)
{
    if (is_deck(setting))
        return options_read_file(setting, options, error);
    return options_set(setting, options, error);
}

bool options_apply(const struct command_line *line, struct options *options, struct error *error)
{
    for (int i = 0; i < line->setting_count; i++)
        if (!apply(line->setting[i], options, error))
            return false;
    return true;
}

static bool names_deck(const struct command_line *line)
{
    for (int i = 0; i < line->setting_count; i++)
        if (is_deck(line->setting[i]))
            return true;
    return false;
}

bool options_parse(int argc, char **argv, const char *const *commands, struct options *options,
                   struct command_line *line, struct error *error)
{
    memset(line, 0, sizeof *line);
    options_default(options);
    for (int i = 1; i < argc; i++)
        if (!take_word(argv[i], commands, line, error))
            return false;
    if (line->help || line->version || line->manual)
        return true;
    if (line->command == NULL && line->operand_count > 0)
        return unknown_command(line->operand[0], commands, error);
    if (line->command == NULL)
        line->command = "train";
    if (!names_deck(line) && access(default_deck, F_OK) == 0 &&
        !options_read_file(default_deck, options, error))
        return false;
    return options_apply(line, options, error) && options_check(options, error);
}
