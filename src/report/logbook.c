/* Each page carries its row of the index. The index is rebuilt from the pages until both agree, so
 * no order of concurrent writes can lose a row. The lock only avoids repeated work. */
#include "report/logbook.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/durable.h"
#include "core/folder.h"
#include "core/text.h"
#include "core/text_file.h"
#include "report/escape.h"
#include "report/markdown.h"
#include "report/page.h"

/* Longest wait for the lock, and limits of repetitions. */
static const double lock_seconds = 5;
enum { PAGES_OF_NAME = 9999, INDEX_TRIES = 50, PATH_SIZE = 4096 + 300 };

static const char index_name[] = "README.md";
static const char advice[] = "choose another by output.logbook";

/* Comments in the first lines of the marked part: identity of the run, and its row. */
static const char run_mark[] = "<!-- vittrain: run ";
static const char row_mark[] = "<!-- vittrain: row ";
static const char mark_end[] = " -->";

/* ---- the lock */

int logbook_lock(const char *logbook)
{
    char path[PATH_SIZE];
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    const double until = clock_now() + lock_seconds;
    snprintf(path, sizeof path, "%s/.lock", logbook);
    int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock < 0)
        return -1;
    while (fcntl(lock, F_SETLK, &whole) != 0) {
        bool held = errno == EACCES || errno == EAGAIN || errno == EINTR;
        if (!held || clock_now() > until) {
            close(lock);
            return -1;
        }
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
    }
    return lock;
}

void logbook_unlock(int lock)
{
    if (lock >= 0)
        close(lock);
}

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
    bool good =
        durable_write(file, part, text, strlen(text), 0, error) && durable_sync(file, part, error);
    good = durable_close(file, part, error) && good;
    good = good && durable_rename(part, path, error);
    if (!good)
        unlink(part);
    return good;
}

/* Replace the text between the marks atomically. Without marks they are appended; a new or empty
 * file starts with `title`. Safe for concurrent writers. */
static bool marked_replace(const char *path, const char *title, const char *text,
                           struct error *error)
{
    char *old = marked_read(path), *begin, *end, *whole = NULL;
    size_t length = 0;
    if (old == NULL && errno != ENOENT)
        return durable_failed(error, "read", path, errno);
    FILE *stream = open_memstream(&whole, &length);
    ENSURE(stream != NULL, "no memory for %s", path);
    if (old == NULL || old[0] == '\0') {
        fprintf(stream, "%s\n%s%s%s", title, begin_mark, text, end_mark);
    } else if (marks_find(old, &begin, &end)) {
        fprintf(stream, "%.*s%s%s%s%s", (int)(begin - old), old, begin_mark, text, end_mark, end);
    } else {
        const char *gap = old[strlen(old) - 1] == '\n' ? "\n" : "\n\n";
        fprintf(stream, "%s%s%s%s%s", old, gap, begin_mark, text, end_mark);
    }
    ENSURE(fclose(stream) == 0, "no memory for %s", path);
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

/* Write the row as a comment, in which "--" is not allowed. */
static void row_write(FILE *stream, const struct record *record)
{
    char *row = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&row, &length);
    ENSURE(memory != NULL, "no memory for a page of the log book");
    page_row_write(memory, record);
    ENSURE(fclose(memory) == 0, "no memory for a page of the log book");
    for (char *dashes = row; (dashes = strstr(dashes, "--")) != NULL;)
        dashes[0] = '_';
    fprintf(stream, "%s%s%s\n", row_mark, row, mark_end);
    free(row);
}

static bool page_make(const char *logbook, const struct record *record, struct error *error)
{
    char path[PATH_SIZE], identity[512], *text = NULL, *title = NULL;
    struct stat status;
    size_t length = 0;
    run_identity(record, identity, sizeof identity);
    if (!page_claim(logbook, record, identity, path, sizeof path, error))
        return false;
    FILE *stream = open_memstream(&text, &length);
    ENSURE(stream != NULL, "no memory for a page of the log book");
    fprintf(stream, "%s%s%s\n", run_mark, identity, mark_end);
    row_write(stream, record);
    page_write(stream, record, logbook);
    ENSURE(fclose(stream) == 0, "no memory for a page of the log book");
    stream = open_memstream(&title, &length);
    ENSURE(stream != NULL, "no memory for a page of the log book");
    fputs("# ", stream);
    markdown_text(stream, record->name);
    fputs("\n\nNotes (text outside the marks is kept):\n", stream);
    ENSURE(fclose(stream) == 0, "no memory for a page of the log book");
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
    *entries = realloc(*entries, (size_t)(*count + 1) * sizeof **entries);
    ENSURE(*entries != NULL, "no memory for the log book's index");
    (*entries)[*count] = (struct entry){.file = strdup(file), .row = row};
    ENSURE((*entries)[*count].file != NULL, "no memory for the log book's index");
    ++*count;
}

/* Return the table of all present pages, to be freed by the caller. */
static char *index_text(const char *logbook)
{
    struct entry *entries = NULL;
    int count = 0;
    char *text = NULL;
    size_t length = 0;
    DIR *folder = opendir(logbook);
    for (struct dirent *one; folder != NULL && (one = readdir(folder)) != NULL;)
        if (text_ends_with(one->d_name, ".md") && strcmp(one->d_name, index_name) != 0)
            entry_add(&entries, &count, logbook, one->d_name);
    if (folder != NULL)
        closedir(folder);
    if (count > 1)
        qsort(entries, (size_t)count, sizeof *entries, entry_compare);
    FILE *stream = open_memstream(&text, &length);
    ENSURE(stream != NULL, "no memory for the log book's index");
    page_row_head(stream);
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
    ENSURE(fclose(stream) == 0, "no memory for the log book's index");
    return text;
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

bool logbook_add(const char *logbook, const struct record *record, struct error *error)
{
    if (!folder_make(logbook, advice, error))
        return false;
    int lock = logbook_lock(logbook);
    bool good = page_make(logbook, record, error) && index_make(logbook, error);
    logbook_unlock(lock);
    return good;
}
