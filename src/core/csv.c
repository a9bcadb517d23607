// SPDX-License-Identifier: BSD-3-Clause
/* Append-only CSV tables. Opening an existing table rewrites it once to remove rows that a killed
 * run wrote after its last checkpoint. A new one is created without a temporary file and without
 * syncing: thousands of ranks do so at the same time. */
#include "core/csv.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/file.h"

/* The cell in `column` (from 0), or NULL. It ends at a comma or at the end of the line. */
static const char *cell_at(const char *line, int column)
{
    const char *cell = line;
    for (; column > 0 && cell != NULL; column--) {
        cell = strchr(cell, ',');
        cell = cell == NULL ? NULL : cell + 1;
    }
    return cell;
}

/* True if the row's text is one of keep->removed. */
static bool text_is_removed(const char *line, const struct csv_keep *keep)
{
    const char *cell = cell_at(line, keep->text_column);
    for (size_t i = 0; cell != NULL && i < CSV_REMOVED && keep->removed[i] != NULL; i++)
        if (strcspn(cell, ",\n") == strlen(keep->removed[i]) &&
            strncmp(cell, keep->removed[i], strlen(keep->removed[i])) == 0)
            return true;
    return false;
}

/* True for a complete line that `keep` keeps. */
static bool row_stays(const char *line, size_t length, const struct csv_keep *keep)
{
    char *end;

    if (length == 0 || line[length - 1] != '\n' || keep->last <= 0)
        return false;
    const char *cell = cell_at(line, keep->column);
    if (cell == NULL)
        return false;
    long long value = strtoll(cell, &end, 10);
    return end != cell && value <= keep->last &&
           (value < keep->last || !text_is_removed(line, keep));
}

/* Return the number of last columns of `header` that an existing table lacks, because an older
 * version wrote it; -1 if the headers do not match. */
static int columns_lacking(const char *line, ssize_t length, const char *header)
{
    size_t common = (size_t)length - 1;
    int count = 0;

    if (strncmp(line, header, common) != 0 || (header[common] != '\0' && header[common] != ','))
        return -1;
    for (const char *rest = header + common; *rest != '\0'; rest++)
        count += *rest == ',';
    return count;
}

static void copy_row(FILE *to, const char *line, size_t length, int lacking)
{
    fwrite(line, 1, length - 1, to);
    for (int i = 0; i < lacking; i++)
        fputc(',', to);
    fputc('\n', to);
}

/* As getline; CRLF becomes LF. */
static ssize_t read_line(char **line, size_t *size, FILE *file)
{
    ssize_t length = getline(line, size, file);
    if (length > 1 && strcmp(*line + length - 2, "\r\n") == 0) {
        strcpy(*line + length - 2, "\n");
        length--;
    }
    return length;
}

/* Copy the rows to keep. A file without a complete first line is empty. */
static bool copy_rows(FILE *from, FILE *to, const char *path, const char *header,
                      const struct csv_keep *keep, struct error *error)
{
    char *line = NULL;
    size_t size = 0;
    ssize_t length = read_line(&line, &size, from);
    bool good = true;
    int lacking = 0;

    if (length > 0 && line[length - 1] == '\n')
        lacking = columns_lacking(line, length, header);
    if (lacking < 0)
        good = error_set(
            error, ERROR_FILE,
            "cannot append to %s: its columns are not those of this program; move it away", path);
    fprintf(to, "%s\n", header);
    while (good && (length = read_line(&line, &size, from)) >= 0)
        if (row_stays(line, (size_t)length, keep))
            copy_row(to, line, (size_t)length, lacking);
    if (good && ferror(from))
        good = durable_failed(error, "read", path, errno);
    free(line);
    return good;
}

/* Rewrite an existing table: the header and the rows to keep. */
static bool csv_rewrite(const char *path, const char *header, const struct csv_keep *keep,
                        struct error *error)
{
    FILE *old = output_file_stream(path, "r");
    struct atomic_file file;

    if (old == NULL && errno == ENOENT)
        return true;
    /* A link is replaced if nothing is kept of it. */
    if (old == NULL && !(errno == ELOOP && keep->last <= 0))
        return durable_failed(error, "read", path, errno);
    if (!atomic_file_open(&file, path, error)) {
        if (old != NULL)
            fclose(old);
        return false;
    }
    bool good = true;
    if (old == NULL) {
        fprintf(file.stream, "%s\n", header);
    } else {
        good = copy_rows(old, file.stream, path, header, keep, error);
        fclose(old);
    }
    if (!good) {
        atomic_file_discard(&file);
        return false;
    }
    return atomic_file_commit(&file, error);
}

bool csv_set_aside(const char *path, const char *header, struct error *error)
{
    char *line = NULL, aside[FILE_PATH + 8];
    size_t size = 0;
    FILE *old = output_file_stream(path, "r");
    if (old == NULL)
        return true;
    const ssize_t length = read_line(&line, &size, old);
    const bool other =
        length > 0 && line[length - 1] == '\n' && columns_lacking(line, length, header) < 0;
    free(line);
    fclose(old);
    snprintf(aside, sizeof aside, "%s.old", path);
    return !other || durable_rename(path, aside, error);
}

bool csv_open(struct csv *csv, const char *path, const char *header, int column, int64_t last,
              struct error *error)
{
    return csv_reopen(csv, path, header, &(struct csv_keep){.column = column, .last = last}, error);
}

bool csv_reopen(struct csv *csv, const char *path, const char *header, const struct csv_keep *keep,
                struct error *error)
{
    memset(csv, 0, sizeof *csv);
    if (!csv_rewrite(path, header, keep, error))
        return false;
    snprintf(csv->path, sizeof csv->path, "%s", path);
    csv->stream = output_file_stream(path, "a");
    if (csv->stream == NULL)
        return durable_failed(error, "write", path, errno);
    if (fseek(csv->stream, 0, SEEK_END) == 0 && ftell(csv->stream) == 0)
        fprintf(csv->stream, "%s\n", header);
    const bool good = csv_flush(csv, error);
    if (!good)
        csv_close(csv);
    return good;
}

static void csv_separate(struct csv *csv)
{
    if (csv->row_begun)
        fputc(',', csv->stream);
    csv->row_begun = true;
}

void csv_text(struct csv *csv, const char *text)
{
    csv_separate(csv);
    bool quoted = strpbrk(text, ",\"\r\n") != NULL;
    if (quoted)
        fputc('"', csv->stream);
    for (; *text != '\0'; text++) {
        if (*text == '"')
            fputc('"', csv->stream);
        fputc(*text == '\n' || *text == '\r' ? ' ' : *text, csv->stream);
    }
    if (quoted)
        fputc('"', csv->stream);
}

void csv_integer(struct csv *csv, int64_t value)
{
    csv_separate(csv);
    fprintf(csv->stream, "%" PRId64, value);
}

void csv_number(struct csv *csv, double value)
{
    csv_separate(csv);
    if (!isnan(value))
        fprintf(csv->stream, "%.9g", value);
}

bool csv_end_row(struct csv *csv, struct error *error)
{
    csv->row_begun = false;
    fputc('\n', csv->stream);
    return !ferror(csv->stream) || durable_failed(error, "write", csv->path, errno);
}

bool csv_flush(struct csv *csv, struct error *error)
{
    return fflush(csv->stream) == 0 || durable_failed(error, "write", csv->path, errno);
}

void csv_close(struct csv *csv)
{
    if (csv->stream != NULL)
        fclose(csv->stream);
    csv->stream = NULL;
}
