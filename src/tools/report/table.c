// SPDX-License-Identifier: BSD-3-Clause
/* A file is read completely and split in place. The tables of a run have a few megabytes at most.
 */
#include "tools/report/table.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text_file.h"

static char empty_cell[1];

/* ---- reading */

/* Remove the quotes of a cell in place. `from`: behind the first quote. Return the end of the cell.
 */
static char *cell_unquote(char *from)
{
    char *to = from;
    for (; *from != '\0'; from++) {
        if (*from == '"' && from[1] != '"')
            break;
        from += *from == '"';
        *to++ = *from;
    }
    char *end = *from == '"' ? from + 1 : from;
    memset(to, '\0', (size_t)(from - to));
    *from = '\0';
    return end;
}

/* Split a line into at most `most` cells. Return the number of cells in the line. */
static int line_cut(char *line, char **cells, int most)
{
    int count = 0;
    for (;;) {
        bool quoted = *line == '"';
        char *cell = quoted ? line + 1 : line;
        line = quoted ? cell_unquote(cell) : line;
        line += strcspn(line, ",");
        bool last = *line == '\0';
        *line = '\0';
        if (count < most)
            cells[count] = cell;
        count++;
        if (last)
            return count;
        line++;
    }
}

/* Return the next line without its end and advance *rest; NULL: no complete line is left. */
static char *line_next(char **rest)
{
    char *line = *rest, *end = strchr(line, '\n');
    if (end == NULL)
        return NULL;
    *rest = end + 1;
    *end = '\0';
    if (end > line && end[-1] == '\r')
        end[-1] = '\0';
    return line;
}

static int64_t count_of(const char *text, char wanted)
{
    int64_t count = 0;
    for (; (text = strchr(text, wanted)) != NULL; text++)
        count++;
    return count;
}

static void rows_cut(struct table *table, char *rest, const char *end)
{
    char *line;
    int64_t most = count_of(rest, '\n');
    table->cells = allocate((size_t)(most * table->columns) + 1, sizeof *table->cells);
    while ((line = line_next(&rest)) != NULL) {
        char **cells = table->cells + table->rows * table->columns;
        int count = *line != '\0' ? line_cut(line, cells, table->columns) : 0;
        for (int i = count; i < table->columns; i++)
            cells[i] = empty_cell;
        table->rows += count > 0;
    }
    table->torn = rest < end; /* also after a crash that left a block of zeros */
}

bool table_read(struct table *table, const char *path, struct error *error)
{
    size_t length;
    *table = (struct table){0};
    char *text = text_file_read(path, &length), *rest = text;
    if (text == NULL)
        return error_set(error, ERROR_FILE, "cannot read %s: %s", path, strerror(errno));
    char *line = line_next(&rest);
    table->torn = line == NULL && length > 0;
    if (line == NULL || *line == '\0') {
        free(text);
        return error_set(error, ERROR_FILE,
                         "cannot read %s: no first line with the names of the columns", path);
    }
    int most = (int)count_of(line, ',') + 1;
    table->names = allocate((size_t)most, sizeof *table->names);
    table->texts = allocate(1, sizeof *table->texts);
    table->texts[table->text_count++] = text;
    table->columns = line_cut(line, table->names, most);
    rows_cut(table, rest, text + length);
    return true;
}

void table_free(struct table *table)
{
    for (int i = 0; i < table->text_count; i++)
        free(table->texts[i]);
    free(table->texts);
    free(table->names);
    free(table->cells);
    *table = (struct table){0};
}

/* ---- joining */

/* Copy the rows of `from` into the joined columns. */
static void rows_copy(const struct table *from, char **names, int columns, char **cells)
{
    for (int column = 0; column < columns; column++) {
        int at = table_column(from, names[column]);
        for (int64_t row = 0; row < from->rows; row++)
            cells[row * columns + column] =
                at < 0 ? empty_cell : from->cells[row * from->columns + at];
    }
}

void table_join(struct table *table, struct table *more)
{
    struct table joined = {.rows = table->rows + more->rows,
                           .columns = table->columns,
                           .text_count = table->text_count + more->text_count,
                           .torn = table->torn || more->torn};
    joined.names = allocate((size_t)(table->columns + more->columns) + 1, sizeof *joined.names);
    joined.texts = allocate((size_t)joined.text_count + 1, sizeof *joined.texts);
    for (int i = 0; i < table->columns; i++)
        joined.names[i] = table->names[i];
    for (int i = 0; i < more->columns; i++)
        if (table_column(table, more->names[i]) < 0)
            joined.names[joined.columns++] = more->names[i];
    joined.cells = allocate((size_t)(joined.rows * joined.columns) + 1, sizeof *joined.cells);
    rows_copy(table, joined.names, joined.columns, joined.cells);
    rows_copy(more, joined.names, joined.columns, joined.cells + table->rows * joined.columns);
    for (int i = 0; i < joined.text_count; i++)
        joined.texts[i] =
            i < table->text_count ? table->texts[i] : more->texts[i - table->text_count];
    table->text_count = more->text_count = 0; /* now owned by `joined` */
    table_free(table);
    table_free(more);
    *table = joined;
}

/* ---- access */

int table_column(const struct table *table, const char *name)
{
    for (int i = 0; i < table->columns; i++)
        if (strcmp(table->names[i], name) == 0)
            return i;
    return -1;
}

const char *table_text(const struct table *table, int64_t row, int column)
{
    if (column < 0 || column >= table->columns || row < 0 || row >= table->rows)
        return "";
    return table->cells[row * table->columns + column];
}

void table_clear(struct table *table, int column)
{
    for (int64_t row = 0; column >= 0 && row < table->rows; row++)
        table->cells[row * table->columns + column] = empty_cell;
}

double table_number(const struct table *table, int64_t row, int column)
{
    const char *text = table_text(table, row, column);
    char *end;
    double value = strtod(text, &end);
    return end != text && *end == '\0' ? value : NAN;
}

double table_number_at(const struct table *table, int64_t row, const char *name)
{
    return table_number(table, row, table_column(table, name));
}

const char *table_text_at(const struct table *table, int64_t row, const char *name)
{
    return table_text(table, row, table_column(table, name));
}

struct column_facts table_facts(const struct table *table, const char *name)
{
    const int column = table_column(table, name);
    struct column_facts facts = {NAN, NAN, NAN, NAN};
    int64_t count = 0;
    for (int64_t row = 0; row < table->rows; row++) {
        const double value = table_number(table, row, column);
        if (isnan(value))
            continue;
        facts.least = fmin(facts.least, value); /* fmin and fmax ignore NAN */
        facts.most = fmax(facts.most, value);
        facts.sum = count == 0 ? value : facts.sum + value;
        count++;
    }
    if (count > 0)
        facts.mean = facts.sum / (double)count;
    return facts;
}
