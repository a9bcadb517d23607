// SPDX-License-Identifier: BSD-3-Clause
/* Each page carries its row of the index. The index is rebuilt from the pages until both agree, so
 * no order of concurrent writes can lose a row. */
#include "tools/report/logbook.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/csv.h"
#include "core/durable.h"
#include "core/folder.h"
#include "core/output_file.h"
#include "core/text.h"
#include "core/text_file.h"
#include "core/version.h"
#include "tools/report/escape.h"
#include "tools/report/facts.h"
#include "tools/report/run_tables.h"

enum { PAGES_OF_NAME = 9999, INDEX_TRIES = 50, PATH_SIZE = 4096 + 300 };

static const char index_name[] = "README.md";

/* Comments in the first lines of the marked part: identity of the run, and its row. */
static const char run_mark[] = "<!-- vittrain: run ";
static const char row_mark[] = "<!-- vittrain: row ";
static const char mark_end[] = " -->";

/* ---- files with a generated part between two marks */

static const char begin_mark[] = "<!-- vittrain: begin, generated -->\n";
static const char end_mark[] = "<!-- vittrain: end -->\n";

/* Marks are recognized by these prefixes, since editors may change the rest of the line. */
static const char begin_prefix[] = "<!-- vittrain: begin";
static const char end_prefix[] = "<!-- vittrain: end";

/* Return the whole file, to be freed by the caller; NULL: unreadable, or contains zero bytes. */
static char *marked_read(const char *path)
{
    size_t length;
    char *text = text_file_read(path, &length);
    if (text == NULL || strlen(text) == length)
        return text;
    free(text);
    errno = EILSEQ; /* text behind a zero byte would be lost */
    return NULL;
}

/* Return the start of the next line. */
static char *line_after(char *at)
{
    char *end = strchr(at, '\n');
    return end != NULL ? end + 1 : at + strlen(at);
}

/* Find the marked part, including the marks. */
static bool marks_find(char *text, char **begin, char **end)
{
    char *last = strstr(text, end_prefix);
    *begin = NULL;
    for (char *at = text; last != NULL && (at = strstr(at, begin_prefix)) != NULL && at < last;
         at++)
        *begin = at;
    if (*begin == NULL)
        return false;
    *end = line_after(last);
    return true;
}

/* Write a temporary file with a unique name, then rename it. */
static bool file_replace(const char *path, const char *text, struct error *error)
{
    char part[4096 + 400];
    snprintf(part, sizeof part, "%s.%.64s-%ld.part", path, error_host(), (long)getpid());
    int file = durable_create(part, error);
    if (file < 0)
        return false;
    if (durable_write(file, part, text, strlen(text), 0, error))
        return durable_commit(file, part, path, error);
    close(file);
    unlink(part);
    return false;
}

/* Replace the text between the marks atomically. Without marks they are appended; a new or empty
 * file starts with `title`. Safe for concurrent writers. */
static bool marked_replace(const char *path, const char *title, const char *text,
                           struct error *error)
{
    char *old = marked_read(path), *begin, *end;
    struct text_stream text_of_file;
    if (old == NULL && errno != ENOENT)
        return durable_failed(error, "read", path, errno);
    FILE *stream = text_stream_open(&text_of_file);
    if (old == NULL || old[0] == '\0') {
        fprintf(stream, "%s\n%s%s%s", title, begin_mark, text, end_mark);
    } else if (marks_find(old, &begin, &end)) {
        fprintf(stream, "%.*s%s%s%s%s", (int)(begin - old), old, begin_mark, text, end_mark, end);
    } else {
        const char *gap = old[strlen(old) - 1] == '\n' ? "\n" : "\n\n";
        fprintf(stream, "%s%s%s%s%s", old, gap, begin_mark, text, end_mark);
    }
    char *whole = text_stream_close(&text_of_file);
    bool good = file_replace(path, whole, error);
    free(whole);
    free(old);
    return good;
}

/* True if the file has this text between its marks. */
static bool marked_holds(const char *path, const char *text)
{
    char *whole = marked_read(path), *begin, *end;
    bool holds = false;
    if (whole != NULL && marks_find(whole, &begin, &end)) {
        const char *inside = line_after(begin);
        holds = strncmp(inside, text, strlen(text)) == 0 &&
                strncmp(inside + strlen(text), end_prefix, strlen(end_prefix)) == 0;
    }
    free(whole);
    return holds;
}

/* ---- the generated part of a page */

static void line_write(FILE *stream, const char *before, const char *text)
{
    fprintf(stream, "* %s", before);
    markdown_text(stream, text);
    fputc('\n', stream);
}

/* The checkpoints in the run's folder, and where the folder is uploaded. */
static void checkpoints_write(FILE *stream, const struct record *record)
{
    static const char *const link_names[] = {"last.h5", "best.h5"};
    char path[sizeof record->path + 300], links[2][300] = {"", ""};
    const char *url = record_option(record, "output.upload");

    fputs("\n## Checkpoints\n\n", stream);
    if (record->checkpoints.count == 0)
        fputs("None.\n", stream);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/checkpoints/%s", record->path, link_names[i]);
        const ssize_t length = readlink(path, links[i], sizeof links[i] - 1);
        links[i][length > 0 ? length : 0] = '\0';
    }
    for (int i = 0; i < record->checkpoints.count; i++) {
        const char *name = record->checkpoints.line[i];
        struct stat status;
        snprintf(path, sizeof path, "%s/checkpoints/%s", record->path, name);
        fputs("* checkpoints/", stream);
        markdown_text(stream, name);
        if (stat(path, &status) == 0)
            fprintf(stream, ", %.1f MB", (double)status.st_size / 1e6);
        fprintf(stream, "%s%s\n", strcmp(links[0], name) == 0 ? ", last" : "",
                strcmp(links[1], name) == 0 ? ", best" : "");
    }
    if (url != NULL && url[0] != '\0')
        line_write(stream, "uploaded to ", url);
}

/* The tables that nvidia-smi printed about the middle of the run, one file per node. */
static void nvidia_smi_write(FILE *stream, const struct record *record)
{
    struct lines names = record_names(record, ".", "nvidia-smi", ".txt");
    if (names.count > 0)
        fputs("\n## nvidia-smi, about the middle of the run\n", stream);
    for (int i = 0; i < names.count; i++) {
        char path[sizeof record->path + 300];
        size_t length;
        snprintf(path, sizeof path, "%s/%s", record->path, names.line[i]);
        char *text = text_file_read(path, &length);
        if (text != NULL) {
            fputs("\n```text\n", stream);
            escape_block(stream, text);
            fprintf(stream, "%s```\n", text_ends_with(text, "\n") ? "" : "\n");
        }
        free(text);
    }
    lines_free(&names);
}

static void page_write(FILE *stream, const struct record *record, const char *logbook)
{
    static void (*const tables[])(struct sheet *, const struct record *) = {
        run_table_splits, run_table_classes, run_table_outputs, run_table_units,
        run_table_ranks,  run_table_sensors, run_table_deck,    run_table_attempts,
    };
    struct sheet sheet = {0};

    fputs("\nRun folder: ", stream);
    markdown_text(stream, record->path);
    fputs("\n\n", stream);
    facts_markdown(record, stream);
    run_table_found(&sheet, record, logbook);
    sheet_markdown(&sheet, stream);
    sheet_free(&sheet);
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        tables[i](&sheet, record);
        sheet_markdown(&sheet, stream);
        sheet_free(&sheet);
    }
    checkpoints_write(stream, record);
    nvidia_smi_write(stream, record);
    fputs("\n## Warnings and errors\n\n", stream);
    for (int i = 0; i < record->trouble.count; i++)
        line_write(stream, "", record->trouble.line[i]);
    if (record->trouble.count == 0)
        fputs("None in the log.\n", stream);
    if (record->missing.count > 0)
        fputs("\n## Missing or damaged files\n\n", stream);
    for (int i = 0; i < record->missing.count; i++)
        line_write(stream, "", record->missing.line[i]);
    fputc('\n', stream);
}

/* Columns of the index: keys of facts. New columns are appended, since pages of older versions do
 * not have them. */
static const char *const row_keys[] = {
    "started",       "model",     "ranks",    "nodes",     "strategy",          "precision",
    "global_batch",  "epochs",    "val_top1", "test_top1", "images_per_second", "peak_share",
    "total_seconds", "energy_wh", "ending",   "reason",    "data_used",         "init"};
enum { ROW_KEYS = sizeof row_keys / sizeof row_keys[0] };

/* ---- pages */

/* Identify the run by name and start time, which stay when its folder is moved. */
static void run_identity(const struct record *record, char *text, size_t size)
{
    char name[256];
    size_t used = 0;
    for (const char *letter = record->name; *letter != '\0' && used + 4 < sizeof name;) {
        int length = escape_character(letter);
        bool kept = length > 0 && strchr("-<>", *letter) == NULL;
        for (int i = 0; kept && i < length; i++)
            name[used++] = letter[i];
        if (!kept)
            name[used++] = '_';
        letter += length > 0 ? length : 1;
    }
    name[used] = '\0';
    const char *started = record_text(record, "parts.0.started");
    snprintf(text, size, "%s of %s", name, started != NULL ? started : "unknown");
}

/* Return a copy of the text behind the mark in its first line; NULL: not found. */
static char *marked_line(const char *text, const char *mark)
{
    const char *begin = strstr(text, mark);
    if (begin == NULL)
        return NULL;
    begin += strlen(mark);
    const char *end = strpbrk(begin, "\n\r");
    size_t length = end != NULL ? (size_t)(end - begin) : strlen(begin);
    size_t tail = strlen(mark_end);
    if (length < tail || strncmp(begin + length - tail, mark_end, tail) != 0)
        return NULL;
    return strndup(begin, length - tail);
}

/* True if the page belongs to this run. An empty page was just created by another program. */
static bool page_is_of(const char *path, const char *identity)
{
    char *text = marked_read(path);
    char *found = text != NULL ? marked_line(text, run_mark) : NULL;
    bool same = found != NULL && strcmp(found, identity) == 0;
    free(found);
    free(text);
    return same;
}

/* Find the run's page, or create an empty one under the first free name. */
static bool page_claim(const char *logbook, const struct record *record, const char *identity,
                       char *path, size_t size, struct error *error)
{
    const char *name = record->name[0] == '.' ? record->name + 1 : record->name;
    if (name[0] == '\0' || strcasecmp(name, "README") == 0)
        name = "run";
    for (int number = 1; number <= PAGES_OF_NAME; number++) {
        char tail[16] = "";
        if (number > 1)
            snprintf(tail, sizeof tail, "-%d", number);
        snprintf(path, size, "%s/%.200s%s.md", logbook, name, tail);
        int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file >= 0) {
            close(file);
            return true;
        }
        if (errno != EEXIST)
            return durable_failed(error, "create", path, errno);
        if (page_is_of(path, identity))
            return true;
    }
    return error_set(error, ERROR_FILE, "%s: more than %d pages of runs of this name", path,
                     PAGES_OF_NAME);
}

/* Write the run's row of the index without its first cell, the link, as a comment, in which "--" is
 * not allowed. */
static void row_write(FILE *stream, const struct record *record)
{
    struct text_stream cells;
    FILE *memory = text_stream_open(&cells);
    for (int i = 0; i < ROW_KEYS; i++) {
        char cell[61], figure[FORMAT_TEXT];
        snprintf(cell, sizeof cell, "%s",
                 fact_text(fact_find(row_keys[i]), record, record, figure));
        fputs(i > 0 ? " " : "", memory);
        markdown_text(memory, cell);
        fputs(" |", memory);
    }
    char *row = text_stream_close(&cells);
    for (char *dashes = row; (dashes = strstr(dashes, "--")) != NULL;)
        dashes[0] = '_';
    fprintf(stream, "%s%s%s\n", row_mark, row, mark_end);
    free(row);
}

static bool page_make(const char *logbook, const struct record *record, struct error *error)
{
    char path[PATH_SIZE], identity[512];
    struct stat status;
    struct text_stream page;
    run_identity(record, identity, sizeof identity);
    if (!page_claim(logbook, record, identity, path, sizeof path, error))
        return false;
    FILE *stream = text_stream_open(&page);
    fprintf(stream, "%s%s%s\n", run_mark, identity, mark_end);
    row_write(stream, record);
    page_write(stream, record, logbook);
    char *text = text_stream_close(&page);
    stream = text_stream_open(&page);
    fputs("# ", stream);
    markdown_text(stream, record->name);
    fputs("\n\nNotes (text outside the marks is kept):\n", stream);
    char *title = text_stream_close(&page);
    bool good = marked_replace(path, title, text, error);
    if (!good && stat(path, &status) == 0 && status.st_size == 0)
        unlink(path); /* created above, but not written */
    free(title);
    free(text);
    return good;
}

/* ---- the index */

struct entry {
    char *file, *row; /* row: "2026-... | cells |" */
};

static int entry_compare(const void *one, const void *other)
{
    const struct entry *left = one, *right = other;
    int order = strcmp(right->row, left->row);
    return order != 0 ? order : strcmp(left->file, right->file);
}

static void entry_add(struct entry **entries, int *count, const char *logbook, const char *file)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "%s/%s", logbook, file);
    char *text = marked_read(path), *row = text != NULL ? marked_line(text, row_mark) : NULL;
    free(text);
    if (row == NULL)
        return;
    *entries = allocate_resized(*entries, (size_t)(*count + 1) * sizeof **entries);
    (*entries)[*count] = (struct entry){.file = allocate_copy(file), .row = row};
    ++*count;
}

/* Return the table of all present pages, to be freed by the caller. */
static char *index_text(const char *logbook)
{
    struct entry *entries = NULL;
    int count = 0;
    struct text_stream text;
    DIR *folder = NULL;
    for (const char *name; (name = folder_next(&folder, logbook)) != NULL;)
        if (text_ends_with(name, ".md") && strcmp(name, index_name) != 0)
            entry_add(&entries, &count, logbook, name);
    if (count > 1)
        qsort(entries, (size_t)count, sizeof *entries, entry_compare);
    FILE *stream = text_stream_open(&text);
    fputs("| Run |", stream);
    for (int i = 0; i < ROW_KEYS; i++)
        fprintf(stream, " %s |", fact_find(row_keys[i])->name);
    fputs("\n|---|", stream);
    for (int i = 0; i < ROW_KEYS; i++)
        fputs("---|", stream);
    fputc('\n', stream);
    for (int i = 0; i < count; i++) {
        char name[300];
        snprintf(name, sizeof name, "%.*s", (int)strlen(entries[i].file) - 3, entries[i].file);
        fputs("| ", stream);
        markdown_link(stream, name, entries[i].file);
        fprintf(stream, " | %s\n", entries[i].row);
        free(entries[i].file);
        free(entries[i].row);
    }
    free(entries);
    return text_stream_close(&text);
}

/* Write the index. Another program may overwrite it with one that lacks our page, so read it back
 * and repeat if it differs. */
static bool index_make(const char *logbook, struct error *error)
{
    char path[PATH_SIZE];
    bool good = true, done = false;
    snprintf(path, sizeof path, "%s/%s", logbook, index_name);
    for (int i = 0; good && !done && i < INDEX_TRIES; i++) {
        char *text = index_text(logbook);
        good = marked_replace(path,
                              "# Log book\n\nOne row per run, newest first. Text outside the marks "
                              "is kept.\n",
                              text, error);
        char *now = index_text(logbook);
        done = good && strcmp(text, now) == 0 && marked_holds(path, now);
        free(now);
        free(text);
    }
    return good;
}

/* True for a temporary file of file_replace or found_make. */
static bool is_temporary(const char *name)
{
    return text_ends_with(name, ".part") &&
           (strstr(name, ".md.") != NULL || strncmp(name, "found.csv.", 10) == 0);
}

bool logbook_add(const char *logbook, const struct record *record, struct error *error)
{
    if (!folder_make(logbook, "choose another by output.logbook", error))
        return false;
    output_file_clean(logbook, is_temporary);
    return page_make(logbook, record, error) && index_make(logbook, error);
}

/* ---- found.csv. A row is appended by a single write. The file with its header is created under
 * another name and linked, so concurrent writers lose nothing. */

static const char found_header[] =
    "date,host,commit,what,model,image,precision,strategy,ranks,nodes,"
    "value,global_batch,peak_bytes,limit,detail\n";

/* Create the file with its header if it does not exist. */
static bool found_make(const char *path, struct error *error)
{
    char part[FILE_PATH + 128];
    if (access(path, F_OK) == 0)
        return true;
    snprintf(part, sizeof part, "%s.%s-%ld.part", path, error_host(), (long)getpid());
    int file = durable_create(part, error);
    if (file < 0)
        return false;
    bool good = durable_write(file, part, found_header, sizeof found_header - 1, 0, error);
    good = durable_close(file, part, error) && good;
    if (good && link(part, path) != 0 && access(path, F_OK) != 0)
        good = durable_rename(part, path, error); /* file systems without hard links */
    unlink(part);
    return good;
}

static void found_write(const struct found *found, FILE *stream)
{
    char date[32];
    struct csv row = {.stream = stream};
    clock_stamp_utc(date, sizeof date);
    csv_text(&row, date);
    csv_text(&row, error_host());
    csv_text(&row, version_commit);
    csv_text(&row, found->what);
    csv_text(&row, found->model);
    csv_integer(&row, found->image);
    csv_text(&row, found->precision);
    csv_text(&row, found->strategy);
    csv_integer(&row, found->ranks);
    csv_integer(&row, found->nodes);
    csv_number(&row, found->value);
    csv_integer(&row, found->global_batch);
    csv_number(&row, found->peak_bytes < 0 ? NAN : (double)found->peak_bytes);
    csv_number(&row, found->limit < 0 ? NAN : (double)found->limit);
    csv_text(&row, found->detail);
    fputc('\n', stream);
}

static bool row_append(const char *path, const char *row, size_t length, struct error *error)
{
    int file = output_file_open(path, O_WRONLY | O_APPEND);
    if (file < 0)
        return durable_failed(error, "write", path, errno);
    ssize_t written = write(file, row, length);
    int reason = written < 0 ? errno : ENOSPC;
    if (close(file) != 0 && written == (ssize_t)length)
        return durable_failed(error, "write", path, errno);
    return written == (ssize_t)length || durable_failed(error, "write", path, reason);
}

bool found_add(const char *logbook, const struct found *found, struct error *error)
{
    char path[FILE_PATH];
    struct text_stream cells;
    if (!folder_make(logbook, "choose another by output.logbook", error))
        return false;
    snprintf(path, sizeof path, "%s/found.csv", logbook);
    found_write(found, text_stream_open(&cells));
    char *row = text_stream_close(&cells);
    bool good = found_make(path, error) && row_append(path, row, cells.length, error);
    free(row);
    return good;
}

static bool same_text(const struct table *table, int64_t row, const char *column, const char *text)
{
    return text != NULL && strcmp(table_text_at(table, row, column), text) == 0;
}

static bool same_number(const struct table *table, int64_t row, const char *column, double number)
{
    return table_number_at(table, row, column) == number;
}

int64_t found_newest(const struct table *table, const char *what, const struct record *record)
{
    for (int64_t row = table->rows - 1; row >= 0; row--)
        if (same_text(table, row, "what", what) &&
            same_text(table, row, "model", record_option(record, "model.name")) &&
            same_number(table, row, "image", record_number(record, "image")) &&
            same_text(table, row, "precision", record_text(record, "precision")) &&
            same_text(table, row, "strategy", record_option(record, "mesh.strategy")) &&
            same_number(table, row, "ranks", record_number(record, "ranks")))
            return row;
    return -1;
}
