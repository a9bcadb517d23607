// SPDX-License-Identifier: BSD-3-Clause
#include "runlog/logbook.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/atomic_file.h"
#include "core/clock.h"
#include "core/csv.h"
#include "core/durable.h"
#include "core/folder.h"
#include "core/output_file.h"
#include "core/text.h"
#include "core/text_file.h"
#include "core/version.h"

enum { LOCK_TRIES = 500, LOCK_PAUSE = 20 * 1000 * 1000, LOCK_SECONDS = 60 };

static const char title[] =
    "# Log book\n\nOne row per run, newest first. Text outside the marks is kept.\n\n";
static const char begin_mark[] = "<!-- vittrain: begin"; /* editors may change the rest */
static const char end_line[] = "<!-- vittrain: end -->\n";
static const char head[] =
    "<!-- vittrain: begin, generated -->\n"
    "| Run | Started | Model | Ranks | Nodes | Strategy | Precision | Global batch | Epochs | "
    "Validation | Test | Images/s | MFU | Total time | Status | Reason | Data used | "
    "Initial weights "
    "|\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";

/* Lock the log book by creating a file: not all file systems have locks. A lock that a killed
 * process left is removed after LOCK_SECONDS. */
static bool book_lock(const char *logbook, char lock[FILE_PATH], struct error *error)
{
    const struct timespec pause = {.tv_nsec = LOCK_PAUSE};
    struct stat status;
    if (!folder_make(logbook, "choose another by output.logbook", error))
        return false;
    snprintf(lock, FILE_PATH, "%s/.index.lock", logbook);
    for (int i = 0; i < LOCK_TRIES; i++) {
        const int file = output_file_open(lock, O_WRONLY | O_CREAT | O_EXCL);
        if (file >= 0)
            return durable_close(file, lock, error);
        if (errno != EEXIST)
            break;
        if (stat(lock, &status) != 0 || time(NULL) - status.st_mtime <= LOCK_SECONDS)
            nanosleep(&pause, NULL);
        else
            unlink(lock);
    }
    return durable_failed(error, "lock the log book with", lock, errno);
}

const char *logbook_cell(const char *text, char cell[LOGBOOK_CELL])
{
    char cut[LOGBOOK_CELL / 2], *end = cell;
    text_shorten(text, cut, sizeof cut);
    text_remove_control(cut);
    for (const char *next = cut; *next != '\0'; next++) {
        if (strchr("|\\`*[]<", *next) != NULL)
            *end++ = '\\';
        *end++ = *next;
    }
    *end = '\0';
    return cell;
}

/* Write the index with `row` as its first row, and the rest of `old`. again: without the row of the
 * same run. */
static void index_write(FILE *stream, const char *old, const char *row, bool again)
{
    const size_t key = (size_t)(strstr(row + 1, " |") - row) + 2;
    const char *begin = strstr(old, begin_mark);
    const char *rule = begin != NULL ? strstr(begin, "\n|--") : NULL;
    const char *rest = rule != NULL ? strchr(rule + 1, '\n') : NULL;
    if (rest == NULL) { /* no table yet */
        fprintf(stream, "%s%s%s%s%s", old, old[0] != '\0' ? "\n\n" : title, head, row, end_line);
        return;
    }
    fprintf(stream, "%.*s%s%s", (int)(begin - old), old, head, row);
    for (const char *line = rest + 1; *line != '\0'; line = rest) {
        rest = line + strcspn(line, "\n");
        rest += *rest == '\n';
        if (!again || strncmp(line, row, key) != 0)
            fprintf(stream, "%.*s", (int)(rest - line), line);
    }
}

bool logbook_add(const char *logbook, const char *row, bool again, struct error *error)
{
    char path[FILE_PATH], lock[FILE_PATH];
    struct text_stream text;
    size_t length = 0;
    if (!book_lock(logbook, lock, error))
        return false;
    snprintf(path, sizeof path, "%s/README.md", logbook);
    char *old = text_file_read(path, &length);
    if (old != NULL && strlen(old) < length) /* the text behind a zero byte would be lost */
        errno = EILSEQ;
    bool good = old != NULL ? strlen(old) == length : errno == ENOENT;
    if (!good)
        durable_failed(error, "read", path, errno);
    index_write(text_stream_open(&text), old != NULL ? old : "", row, again);
    char *index = text_stream_close(&text);
    good = good && atomic_file_write(path, index, error);
    unlink(lock);
    free(index);
    free(old);
    return good;
}

bool found_add(const char *logbook, const struct found *found, struct error *error)
{
    static const char header[] = "date,host,commit,what,model,image,precision,strategy,ranks,nodes,"
                                 "value,global_batch,peak_bytes,limit,detail";
    enum { IMAGE_COLUMN = 5 };
    char path[FILE_PATH], lock[FILE_PATH], date[32];
    struct csv csv = {0};
    if (!book_lock(logbook, lock, error))
        return false;
    snprintf(path, sizeof path, "%s/found.csv", logbook);
    bool good = csv_open(&csv, path, header, IMAGE_COLUMN, INT64_MAX, error);
    if (good) {
        clock_stamp_utc(date, sizeof date);
        const char *const texts[] = {date, error_host(), version_commit, found->what, found->model};
        for (int i = 0; i < IMAGE_COLUMN; i++)
            csv_text(&csv, texts[i]);
        csv_integer(&csv, found->image);
        csv_text(&csv, found->precision);
        csv_text(&csv, found->strategy);
        csv_integer(&csv, found->ranks);
        csv_integer(&csv, found->nodes);
        csv_number(&csv, found->value);
        csv_integer(&csv, found->global_batch);
        csv_number(&csv, found->peak_bytes);
        csv_number(&csv, found->limit);
        csv_text(&csv, found->detail);
        good = csv_end_row(&csv, error) && csv_flush(&csv, error);
    }
    csv_close(&csv);
    unlink(lock);
    return good;
}
