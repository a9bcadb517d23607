/* Decks: INI files read by inih, and the resolved deck. inih cuts lines that do not fit its buffer
 * and takes an indented line as more of the value before, both without a word; so it gets its lines
 * from a reader of ours, which counts them and refuses those. A text that is longer than a line
 * goes on with "key += more". */
#include "core/options_table.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <ini.h>

/* inih's buffer has 200 bytes in the distributions' builds; "section key += " and a margin go off.
 */
enum { TEXT_PIECE = 120 };

struct deck {
    FILE *file;
    const char *name;
    int line_number;
    char *line; /* getline's */
    size_t size;
    deck_pair *pair; /* gets what is read */
    void *user;
    struct error *error;
};

static void where_in(const struct deck *deck, char *text, size_t size)
{
    snprintf(text, size, "%s:%d: ", deck->name, deck->line_number);
}

/* Takes off the line's end and a comment: '#' or ';' at the beginning or after a space. */
static void strip_end(char *line)
{
    bool after_space = true;
    char *end = line;
    for (char *c = line; *c != '\0' && !(after_space && (*c == '#' || *c == ';')); c++) {
        after_space = isspace((unsigned char)*c);
        if (!after_space)
            end = c + 1;
    }
    *end = '\0';
}

static bool line_is_fit(const struct deck *deck, ssize_t length, int room)
{
    char where[OPTION_TEXT + 32];
    where_in(deck, where, sizeof where);
    if (strlen(deck->line) != (size_t)length)
        return error_set(deck->error, ERROR_USAGE, "%sthis is no text: a zero byte", where);
    strip_end(deck->line);
    if (strlen(deck->line) + 2 > (size_t)room)
        return error_set(deck->error, ERROR_USAGE,
                         "%sthe line has %zu characters, at most %d fit: go on with \"KEY += "
                         "MORE\" on the next line",
                         where, strlen(deck->line), room - 2);
    if (deck->line[0] == '[' && strchr(deck->line, ']') != NULL &&
        strchr(deck->line, ']')[1] != '\0')
        return error_set(deck->error, ERROR_USAGE,
                         "%sthere is something after the section's name: keys begin on lines of "
                         "their own",
                         where);
    if (isspace((unsigned char)deck->line[0]))
        return error_set(deck->error, ERROR_USAGE,
                         "%sthe line begins with a space: sections and keys begin at the left",
                         where);
    return true;
}

/* inih's fgets. */
static char *deck_read_line(char *buffer, int room, void *stream)
{
    struct deck *deck = stream;
    if (deck->error->kind != ERROR_NONE)
        return NULL;
    errno = 0;
    const ssize_t length = getline(&deck->line, &deck->size, deck->file);
    if (length < 0) {
        if (ferror(deck->file))
            error_set(deck->error, ERROR_USAGE, "%s: cannot read the deck: %s", deck->name,
                      strerror(errno));
        return NULL;
    }
    deck->line_number++;
    if (!line_is_fit(deck, length, room))
        return NULL;
    strcpy(buffer, deck->line);
    return buffer;
}

/* inih's handler: 1 is good. */
static int deck_set(void *user, const char *section, const char *key, const char *value)
{
    struct deck *deck = user;
    char where[OPTION_TEXT + 32], name[2 * OPTION_KEY];
    where_in(deck, where, sizeof where);
    if (section[0] == '\0')
        return error_set(deck->error, ERROR_USAGE, "%s%s: a [section] must come before it", where,
                         key);
    snprintf(name, sizeof name, "%s.%s", section, key);
    return deck->pair(deck->user, where, name, value, deck->error);
}

static bool option_pair(void *user, const char *where, const char *name, const char *value,
                        struct error *error)
{
    return option_assign(name, where, value, user, error);
}

static bool deck_read(struct deck *deck)
{
    const int bad_line = ini_parse_stream(deck_read_line, deck, deck_set, deck);
    free(deck->line);
    /* inih goes on after a line that it does not understand: what comes later is not the cause. */
    if (bad_line != 0 && (deck->error->kind == ERROR_NONE || bad_line < deck->line_number)) {
        error_clear(deck->error);
        error_set(deck->error, ERROR_USAGE, "%s:%d: neither [section] nor key = value", deck->name,
                  bad_line);
    }
    return deck->error->kind == ERROR_NONE;
}

bool deck_read_pairs(FILE *file, const char *name, deck_pair *pair, void *user, struct error *error)
{
    struct deck deck = {.file = file, .name = name, .pair = pair, .user = user, .error = error};
    return deck_read(&deck);
}

FILE *deck_file_open(const char *path, struct error *error)
{
    struct stat status;
    FILE *file = NULL;
    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode)) {
        error_set(error, ERROR_USAGE, "%s: cannot read the deck: it is not a file", path);
        return NULL;
    }
    file = fopen(path, "re");
    if (file == NULL)
        error_set(error, ERROR_USAGE, "%s: cannot read the deck: %s", path, strerror(errno));
    return file;
}

bool options_read_file(const char *path, struct options *options, struct error *error)
{
    FILE *file = deck_file_open(path, error);
    if (file == NULL)
        return false;
    const bool good = deck_read_pairs(file, path, option_pair, options, error);
    fclose(file);
    return good;
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
    const bool good = deck_read_pairs(file, name, option_pair, options, error);
    fclose(file);
    return good;
}

/* How much of a text a line of a deck can take: all of it, or up to a place with no space and no
 * comment sign at either side. 0: there is no such place. */
static size_t text_cut(const char *text)
{
    const size_t length = strlen(text);
    if (length <= TEXT_PIECE)
        return length;
    for (size_t cut = TEXT_PIECE; cut > 0; cut--)
        if (!isspace((unsigned char)text[cut - 1]) && !isspace((unsigned char)text[cut]) &&
            strchr(";#", text[cut]) == NULL)
            return cut;
    return 0;
}

bool deck_can_hold(const char *text)
{
    bool after_space = true;
    for (const char *c = text; *c != '\0'; c++) {
        if (iscntrl((unsigned char)*c) || (after_space && (*c == ';' || *c == '#')))
            return false;
        after_space = *c == ' ';
    }
    if (text[0] != '\0' && (text[0] == ' ' || after_space))
        return false;
    while (text[0] != '\0') {
        const size_t cut = text_cut(text);
        if (cut == 0)
            return false;
        text += cut;
    }
    return true;
}

static void write_entry(const struct option_entry *entry, const char *text, FILE *file)
{
    size_t cut = text_cut(text);
    fprintf(file, "%s = %.*s\n", option_key(entry), (int)cut, text);
    while (text[cut] != '\0') {
        text += cut;
        cut = text_cut(text);
        fprintf(file, "%s += %.*s\n", option_key(entry), (int)cut, text);
    }
}

void options_visit(const struct options *options, option_visit *visit, void *user)
{
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++) {
        char value[OPTION_TEXT];
        option_write(entry, options, value, sizeof value);
        visit(user, entry->name, value);
    }
}

char *options_to_text(const struct options *options)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    ENSURE(file != NULL, "no memory for the resolved deck");
    for (const struct option_entry *entry = option_table; entry->name != NULL; entry++) {
        if (entry == option_table || !option_same_section(entry, entry - 1))
            fprintf(file, "%s[%.*s]\n", entry == option_table ? "" : "\n",
                    (int)(option_key(entry) - entry->name - 1), entry->name);
        char value[OPTION_TEXT];
        option_write(entry, options, value, sizeof value);
        write_entry(entry, value, file);
    }
    ENSURE(fclose(file) == 0, "no memory for the resolved deck");
    return text;
}
