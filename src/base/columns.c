// SPDX-License-Identifier: BSD-3-Clause
/* Opening an existing CSV table rewrites it once to remove rows that a killed run wrote after its
 * last checkpoint. If no row or all rows are removed, it is opened without a temporary file and
 * without syncing: thousands of nodes do so at the same time. */
#include "base/columns.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

/* ---- files */

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
    const char *cell = keep->last > 0 ? cell_at(line, keep->column) : NULL;
    char *end;
    if (line[length - 1] != '\n' || cell == NULL)
        return false;
    const long long value = strtoll(cell, &end, 10);
    return end != cell && value <= keep->last &&
           (value < keep->last || !text_is_removed(line, keep));
}

/* Read the first line of a table. Return the number of last columns of `header` that it lacks,
 * because an older version wrote it; -1 if the headers do not match. A file without a complete
 * first line is empty. */
static int columns_lacking(FILE *table, const char *header)
{
    OWNED char *line = NULL;
    size_t size = 0;
    const ssize_t length = getline(&line, &size, table);
    int count = 0;
    if (length > 0 && line[length - 1] == '\n') {
        const char *rest = header + length - 1;
        if (strncmp(header, line, (size_t)length - 1) != 0 || (*rest != '\0' && *rest != ','))
            count = -1;
        for (; count >= 0 && *rest != '\0'; rest++)
            count += *rest == ',';
    }
    return count;
}

/* Copy the rows to keep, each with `lacking` more cells. */
static void copy_rows(FILE *from, FILE *to, const struct csv_keep *keep, int lacking)
{
    OWNED char *line = NULL;
    size_t size = 0;
    for (ssize_t length; (length = getline(&line, &size, from)) >= 0;) {
        if (!row_stays(line, (size_t)length, keep))
            continue;
        fwrite(line, 1, (size_t)length - 1, to);
        for (int i = 0; i < lacking; i++)
            fputc(',', to);
        fputc('\n', to);
    }
}

/* True if `keep` keeps all rows after the current position, which does not change. */
static bool rows_stay(FILE *table, const struct csv_keep *keep)
{
    OWNED char *line = NULL;
    size_t size = 0;
    const long first = ftell(table);
    bool stay = true;
    for (ssize_t length; stay && (length = getline(&line, &size, table)) >= 0;)
        stay = row_stays(line, (size_t)length, keep);
    fseek(table, first, SEEK_SET);
    return stay;
}

/* Prepare an existing table. Remove it if nothing is kept; else rewrite it with the header and the
 * rows to keep, unless it stays as it is. */
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
    const int lacking = old != NULL ? columns_lacking(old, header) : 0;
    bool good = false;
    if (lacking < 0 && keep->sets_aside) {
        OWNED char *aside = allocate_text("%s.old", path);
        good = durable_rename(path, aside, error);
    } else if (lacking < 0) {
        error_set(error, ERROR_FILE,
                  "cannot append to %s: its columns are not those of this program; move it away",
                  path);
    } else if (keep->last <= 0) {
        good = unlink(path) == 0 || durable_failed(error, "replace", path, errno);
    } else if (ftell(old) == (long)strlen(header) + 1 && rows_stay(old, keep)) {
        good = true;
    } else if (atomic_file_open(&file, path, error)) {
        fprintf(file.stream, "%s\n", header);
        copy_rows(old, file.stream, keep, lacking);
        if (ferror(old)) {
            durable_failed(error, "read", path, errno);
            atomic_file_discard(&file);
        } else {
            good = atomic_file_commit(&file, error);
        }
    }
    if (old != NULL)
        fclose(old);
    return good;
}

bool csv_join(struct csv *csv, const char *path, struct error *error)
{
    snprintf(csv->path, sizeof csv->path, "%s", path);
    csv->stream = output_file_stream(path, "a");
    return csv->stream != NULL || durable_failed(error, "write", path, errno);
}

bool csv_open(struct csv *csv, const char *path, const char *header, const struct csv_keep *keep,
              struct error *error)
{
    static const struct csv_keep nothing;
    memset(csv, 0, sizeof *csv);
    if (!csv_rewrite(path, header, keep != NULL ? keep : &nothing, error))
        return false;
    if (!csv_join(csv, path, error))
        return false;
    if (fseek(csv->stream, 0, SEEK_END) == 0 && ftell(csv->stream) == 0)
        fprintf(csv->stream, "%s\n", header);
    const bool good = csv_flush(csv, error);
    if (!good)
        csv_close(csv);
    return good;
}

bool csv_end_row(struct csv *csv, struct error *error)
{
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

/* ---- rows */

char *columns_header(const struct column *columns)
{
    struct text_stream text;
    FILE *stream = text_stream_open(&text);
    for (int i = 0; columns[i].name != NULL; i++)
        fprintf(stream, "%s%s", i > 0 ? "," : "", columns[i].name);
    return text_stream_close(&text);
}

bool columns_open(struct csv *csv, const char *path, const struct column *columns,
                  const struct csv_keep *keep, struct error *error)
{
    OWNED char *header = columns_header(columns);
    return csv_open(csv, path, header, keep, error);
}

/* The value of a column; the member of its kind is set. */
struct cell {
    double number;
    int64_t integer;
    const char *text;
};

static struct cell cell_of(const struct column *column, const void *row)
{
    const char *member = (const char *)row + column->offset;
    struct cell cell = {0};
    if (column->kind == COLUMN_TEXT)
        memcpy(&cell.text, member, sizeof cell.text);
    else if (column->kind == COLUMN_INTEGER)
        memcpy(&cell.integer, member, sizeof cell.integer);
    else
        memcpy(&cell.number, member, sizeof cell.number);
    return cell;
}

static void text_write(FILE *stream, const char *text)
{
    const bool quoted = strpbrk(text, ",\"\r\n") != NULL;
    if (quoted)
        fputc('"', stream);
    for (; *text != '\0'; text++) {
        if (*text == '"')
            fputc('"', stream);
        fputc(*text == '\n' || *text == '\r' ? ' ' : *text, stream);
    }
    if (quoted)
        fputc('"', stream);
}

bool columns_write(const struct column *columns, const void *row, struct csv *csv,
                   struct error *error)
{
    for (const struct column *column = columns; column->name != NULL; column++) {
        const struct cell cell = cell_of(column, row);
        if (column > columns)
            fputc(',', csv->stream);
        if (column->kind == COLUMN_TEXT)
            text_write(csv->stream, cell.text != NULL ? cell.text : "");
        else if (column->kind == COLUMN_INTEGER)
            fprintf(csv->stream, "%" PRId64, cell.integer);
        else if (column->kind == COLUMN_EXACT && !isnan(cell.number))
            fprintf(csv->stream, "%.17g", cell.number);
        else if (fabs(cell.number) < 9e15 && cell.number == floor(cell.number))
            fprintf(csv->stream, "%.0f", cell.number);
        else if (!isnan(cell.number))
            fprintf(csv->stream, "%.9g", cell.number);
    }
    return csv_end_row(csv, error);
}

void columns_to_json(const struct column *columns, const void *row, json_t *object)
{
    for (const struct column *column = columns; column->name != NULL; column++) {
        const struct cell cell = cell_of(column, row);
        value_put(object, column->name,
                  column->kind == COLUMN_TEXT      ? value_text(cell.text)
                  : column->kind == COLUMN_INTEGER ? json_integer(cell.integer)
                                                   : value_number(cell.number));
    }
}

/* ---- JSON values */

/* Digits that distinguish any two floats. */
enum { DIGITS = 9 };

/* jansson calls that create or store a value fail only if memory is short. */
void value_put(json_t *object, const char *key, json_t *value)
{
    ENSURE_MEMORY(value != NULL && json_object_set_new(object, key, value) == 0,
                  "no memory for JSON");
}

void value_append(json_t *array, json_t *value)
{
    ENSURE_MEMORY(value != NULL && json_array_append_new(array, value) == 0, "no memory for JSON");
}

json_t *value_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *value_count(int64_t value)
{
    return value >= 0 ? json_integer(value) : json_null();
}

json_t *value_text(const char *text)
{
    return text == NULL ? json_null() : value_name(text);
}

json_t *value_name(const char *text)
{
    json_t *value = json_string(text);
    if (value != NULL)
        return value;
    OWNED char *plain = allocate_copy(text);
    for (char *letter = plain; *letter != '\0'; letter++)
        if ((unsigned char)*letter >= 0x80)
            *letter = '?';
    value = json_string(plain);
    ENSURE_MEMORY(value != NULL, "no memory for JSON");
    return value;
}

/* Write each array of numbers, such as a row of a matrix, on one line. */
static void rows_join(char *text)
{
    char *to = text;
    bool quoted = false;
    for (const char *from = text; *from != '\0'; from++) {
        if (quoted && *from == '\\')
            *to++ = *from++;
        else
            quoted ^= *from == '"';
        *to++ = *from;
        const size_t length = quoted || *from != '[' ? 0 : strspn(from + 1, "0123456789+-.eE, \n");
        if (length == 0 || from[1 + length] != ']')
            continue;
        for (const char *end = from + length; from < end;) {
            if (*++from > ' ')
                *to++ = *from;
            if (*from == ',')
                *to++ = ' ';
        }
    }
    *to = '\0';
}

char *value_to_text(json_t *object)
{
    char *text = json_dumps(object, JSON_INDENT(1) | JSON_REAL_PRECISION(DIGITS));
    ENSURE_MEMORY(text != NULL, "no memory for JSON");
    json_decref(object);
    rows_join(text);
    return text;
}
