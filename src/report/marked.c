#include "report/marked.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/durable.h"
#include "core/text_file.h"

static const char begin_mark[] = "<!-- vittrain: begin, generated -->\n";
static const char end_mark[] = "<!-- vittrain: end -->\n";

/* Marks are recognized by these prefixes, since editors may change the rest of the line. */
static const char begin_words[] = "<!-- vittrain: begin";
static const char end_words[] = "<!-- vittrain: end";

char *marked_read(const char *path)
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
    char *last = strstr(text, end_words);
    *begin = NULL;
    for (char *at = text; last != NULL && (at = strstr(at, begin_words)) != NULL && at < last; at++)
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

bool marked_replace(const char *path, const char *title, const char *text, struct error *error)
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

bool marked_holds(const char *path, const char *text)
{
    char *whole = marked_read(path), *begin, *end;
    bool holds = false;
    if (whole != NULL && marks_find(whole, &begin, &end)) {
        const char *inside = line_after(begin);
        holds = strncmp(inside, text, strlen(text)) == 0 &&
                strncmp(inside + strlen(text), end_words, strlen(end_words)) == 0;
    }
    free(whole);
    return holds;
}
