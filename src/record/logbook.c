// SPDX-License-Identifier: BSD-3-Clause
#include "record/metrics.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"

static const char title[] =
    "# Log book\n\nOne row per run, newest first. Text outside the marks is kept.\n\n";
static const char begin_mark[] = "<!-- vittrain: begin"; /* editors may change the rest */
static const char end_line[] = "<!-- vittrain: end -->\n";
static const char head[] =
    "\n| Run | Started | Model | Ranks | Nodes | Strategy | Precision | Global batch | Epochs | "
    "Validation | Test | Images/s | Total time | Status | Reason |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";

void logbook_cell(FILE *row, const char *format, ...)
{
    enum { LONGEST = 128 };
    char text[ERROR_TEXT_SIZE], cut[LONGEST];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    text_shorten(text, cut, sizeof cut);
    text_remove_control(cut);
    fputs(" ", row);
    for (const char *next = cut; *next != '\0'; next++)
        fprintf(row, strchr("|\\`*[]<", *next) != NULL ? "\\%c" : "%c", *next);
    fputs(" |", row);
}

/* Write the index with the cells of `row` as its first row, and the rest of `old`. again: without
 * the row of the same run. */
static void index_write(FILE *stream, const char *old, const char *row, bool again)
{
    const size_t key = (size_t)(strstr(row, " |") - row) + 2;
    const char *rest = strstr(old, head);
    if (rest == NULL) {
        fprintf(stream, "%s%s%s, generated -->%s|%s\n%s", old, old[0] != '\0' ? "\n\n" : title,
                begin_mark, head, row, end_line);
        return;
    }
    rest += strlen(head);
    fprintf(stream, "%.*s|%s\n", (int)(rest - old), old, row);
    for (const char *line = rest; *line != '\0'; line = rest) {
        rest = line + strcspn(line, "\n");
        rest += *rest == '\n';
        if (!again || *line != '|' || strncmp(line + 1, row, key) != 0)
            fprintf(stream, "%.*s", (int)(rest - line), line);
    }
}

/* The lock of the new file excludes other processes. */
bool logbook_add(const char *logbook, const char *row, bool again, struct error *error)
{
    struct atomic_file file;
    size_t length = 0;
    OWNED char *path = allocate_text("%s/README.md", logbook);
    OWNED char *aside = allocate_text("%s/README.md.old", logbook);
    if (!folder_make(logbook, "choose another by output.logbook", error) ||
        !atomic_file_open(&file, path, error))
        return false;
    OWNED char *old = text_file_read(path, &length);
    if (old != NULL && strlen(old) < length) /* the text behind a zero byte would be lost */
        errno = EILSEQ;
    bool good = old != NULL ? strlen(old) == length : errno == ENOENT;
    if (!good)
        durable_failed(error, "read", path, errno);
    const bool other = good && old != NULL && strstr(old, begin_mark) != NULL &&
                       strstr(old, head) == NULL; /* columns of another version */
    good = good && (!other || durable_rename(path, aside, error));
    if (good && other)
        log_warn("%s has other columns: it is renamed to README.md.old", path);
    if (good)
        index_write(file.stream, old != NULL && !other ? old : "", row, again);
    else
        atomic_file_discard(&file);
    return good && atomic_file_commit(&file, error);
}
