// SPDX-License-Identifier: BSD-3-Clause
/* Read and write decks. The parser is inih, which silently truncates lines that do not fit its
 * buffer and appends an indented line to the previous value. Its line reader is therefore replaced
 * by one that counts lines and rejects both. A value that is longer than a line continues with
 * "key += more". */
#include "config/deck.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <ini.h>

#include "config/option_types.h"
#include "core/folder.h"

/* Bytes of a value on one line. inih's buffer has 200 bytes in the builds of the distributions; it
 * also holds the key. */
enum { TEXT_PIECE = 120 };

/* Decks that are installed with the program. */
static const char installed_folder[] = "input/";

struct deck {
    FILE *file;
    const char *name;
    int line_number;
    char *line; /* allocated by getline */
    size_t size;
    deck_pair *pair;
    void *user;
    struct error *error;
};

static void where_in(const struct deck *deck, char *text, size_t size)
{
    snprintf(text, size, "%s:%d: ", deck->name, deck->line_number);
}

/* Strip trailing space and a comment: '#' or ';' at the beginning or after a space. */
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

static bool line_check(const struct deck *deck, ssize_t length, int room)
{
    char where[OPTION_TEXT + 32];
    where_in(deck, where, sizeof where);
    if (strlen(deck->line) != (size_t)length)
        return error_set(deck->error, ERROR_USAGE,
                         "%sthe deck is not a text file: it contains a zero byte", where);
    strip_end(deck->line);
    if (strlen(deck->line) + 2 > (size_t)room)
        return error_set(deck->error, ERROR_USAGE,
                         "%sthe line has %zu characters, the maximum is %d: continue with "
                         "\"KEY += MORE\" on the next line",
                         where, strlen(deck->line), room - 2);
    if (deck->line[0] == '[' && strchr(deck->line, ']') != NULL &&
        strchr(deck->line, ']')[1] != '\0')
        return error_set(deck->error, ERROR_USAGE,
                         "%stext after the section's name: put the key on the next line", where);
    if (isspace((unsigned char)deck->line[0]))
        return error_set(
            deck->error, ERROR_USAGE,
            "%sthe line begins with a space: begin sections and keys in the first column", where);
    return true;
}

/* Line reader for inih, with the signature of fgets. */
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
    if (!line_check(deck, length, room))
        return NULL;
    strcpy(buffer, deck->line);
    return buffer;
}

/* Handler of inih; returns 1 on success. */
static int deck_set(void *user, const char *section, const char *key, const char *value)
{
    struct deck *deck = user;
    char where[OPTION_TEXT + 32], name[2 * OPTION_KEY];
    where_in(deck, where, sizeof where);
    if (section[0] == '\0')
        return error_set(deck->error, ERROR_USAGE, "%s%s: a key must follow a [section]", where,
                         key);
    snprintf(name, sizeof name, "%s.%s", section, key);
    return deck->pair(deck->user, where, name, value, deck->error);
}

bool deck_read_pairs(FILE *file, const char *name, deck_pair *pair, void *user, struct error *error)
{
    struct deck deck = {.file = file, .name = name, .pair = pair, .user = user, .error = error};
    const int bad_line = ini_parse_stream(deck_read_line, &deck, deck_set, &deck);
    free(deck.line);
    /* inih continues after a syntax error, so an error of a later line is not the first one. */
    if (bad_line != 0 && (error->kind == ERROR_NONE || bad_line < deck.line_number)) {
        error_clear(error);
        error_set(error, ERROR_USAGE, "%s:%d: neither [section] nor key = value", name, bad_line);
    }
    return error->kind == ERROR_NONE;
}

/* Set the error for a deck that does not exist, with a similar name in its folder or input/. */
static void deck_missing(const char *path, struct error *error)
{
    char folder[PATH_MAX], installed[PATH_MAX], nearest[NAME_MAX + 1];
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    snprintf(folder, sizeof folder, "%.*s", (int)(name - path), path);
    bool found =
        folder_nearest(slash != NULL ? folder : ".", name, ".ini", nearest, sizeof nearest);
    if (!found && (slash == NULL || strcmp(folder, installed_folder) == 0)) {
        snprintf(folder, sizeof folder, "%s", installed_folder);
        const bool is_installed = folder_installed(folder, installed, sizeof installed);
        found = folder_nearest(is_installed ? installed : folder, name, ".ini", nearest,
                               sizeof nearest);
    }
    error_set(error, ERROR_USAGE, "%s: cannot read the deck: %s%s%s%s%s", path, strerror(ENOENT),
              found ? "; did you mean " : "", found ? folder : "", found ? nearest : "",
              found ? ".ini?" : "");
}

FILE *deck_file_open(const char *path, struct error *error)
{
    struct stat status;
    char installed[PATH_MAX];
    FILE *file = NULL;
    if (strncmp(path, installed_folder, strlen(installed_folder)) == 0 && access(path, F_OK) != 0 &&
        folder_installed(path, installed, sizeof installed))
        path = installed;
    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode)) {
        error_set(error, ERROR_USAGE, "%s: cannot read the deck: it is not a regular file", path);
        return NULL;
    }
    file = fopen(path, "re");
    if (file == NULL && errno == ENOENT)
        deck_missing(path, error);
    else if (file == NULL)
        error_set(error, ERROR_USAGE, "%s: cannot read the deck: %s", path, strerror(errno));
    return file;
}

/* Return the number of bytes of a value that go on one line. A cut must have no space on either
 * side and no comment sign after it; 0 if there is no such place. */
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

void deck_write_pair(FILE *file, const char *key, const char *value)
{
    size_t cut = text_cut(value);
    fprintf(file, "%s = %.*s\n", key, (int)cut, value);
    while (value[cut] != '\0') {
        value += cut;
        cut = text_cut(value);
        fprintf(file, "%s += %.*s\n", key, (int)cut, value);
    }
}
