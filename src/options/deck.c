// SPDX-License-Identifier: BSD-3-Clause
/* Read decks. */
#include "options/option.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/file.h"
#include "options/option_types.h"

/* Decks that are installed with the program. */
static const char installed_folder[] = "input/";

/* Some editors write it at the beginning of a file. */
static const char byte_order_mark[] = "\xef\xbb\xbf";

/* Strip space at the end, and a comment: '#' or ';' at the beginning or after a space. */
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

/* Parse a line without space and comment at its end. Set `section`, or call `pair`. */
static bool line_parse(char *line, const char *where, char section[OPTION_KEY], deck_pair *pair,
                       void *user, struct error *error)
{
    char name[2 * OPTION_KEY], *end = strchr(line, ']'), *value = line + strcspn(line, "=:");
    if (isspace((unsigned char)line[0]))
        return error_set(error, ERROR_USAGE, "%sthe line begins with a space", where);
    if (line[0] == '[' && end != NULL && end[1] != '\0')
        return error_set(error, ERROR_USAGE,
                         "%stext after the section's name: put the key on the next line", where);
    if (line[0] == '[' && end != NULL) {
        snprintf(section, OPTION_KEY, "%.*s", (int)(end - line - 1), line + 1);
        return true;
    }
    if (line[0] == '[' || *value == '\0')
        return error_set(error, ERROR_USAGE, "%sneither [section] nor key = value", where);
    *value++ = '\0';
    strip_end(line);
    if (section[0] == '\0')
        return error_set(error, ERROR_USAGE, "%s%s: a key must follow a [section]", where, line);
    snprintf(name, sizeof name, "%s.%s", section, line);
    return pair(user, where, name, value + strspn(value, " \t"), error);
}

bool deck_read_pairs(FILE *file, const char *name, deck_pair *pair, void *user, struct error *error)
{
    char section[OPTION_KEY] = "", where[OPTION_TEXT + 32], *line = NULL;
    size_t size = 0;
    ssize_t length;
    bool good = true;
    for (int number = 1; good && (length = getline(&line, &size, file)) >= 0; number++) {
        snprintf(where, sizeof where, "%s:%d: ", name, number);
        if (strlen(line) != (size_t)length) {
            good = error_set(error, ERROR_USAGE,
                             "%sthe deck is not a text file: it contains a zero byte", where);
            break;
        }
        char *start = line + (number == 1 && strncmp(line, byte_order_mark, 3) == 0 ? 3 : 0);
        strip_end(start);
        good = start[0] == '\0' || line_parse(start, where, section, pair, user, error);
    }
    if (good && ferror(file))
        good = error_set(error, ERROR_USAGE, "%s: cannot read the deck: %s", name, strerror(errno));
    free(line);
    return good;
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

bool deck_can_hold(const char *text)
{
    bool after_space = true;
    for (const char *c = text; *c != '\0'; c++) {
        if (iscntrl((unsigned char)*c) || (after_space && (*c == ';' || *c == '#')))
            return false;
        after_space = *c == ' ';
    }
    return text[0] == '\0' || (text[0] != ' ' && !after_space);
}
