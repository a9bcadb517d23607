// SPDX-License-Identifier: BSD-3-Clause
/* A file is read completely and split in place. */
#include "tools/sweep/table.h"

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

static void rows_cut(struct table *table, char *rest)
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
}

bool table_read(struct table *table, const char *path, struct error *error)
{
    *table = (struct table){0};
    char *text = text_file_read(path, NULL), *rest = text;
    if (text == NULL)
        return error_set(error, ERROR_FILE, "cannot read %s: %s", path, strerror(errno));
    char *line = line_next(&rest);
    if (line == NULL || *line == '\0') {
        free(text);
        return error_set(error, ERROR_FILE,
                         "cannot read %s: no first line with the names of the columns", path);
    }
    int most = (int)count_of(line, ',') + 1;
    table->names = allocate((size_t)most, sizeof *table->names);
    table->text = text;
    table->columns = line_cut(line, table->names, most);
    rows_cut(table, rest);
    return true;
}

void table_free(struct table *table)
{
    free(table->text);
    free(table->names);
    free(table->cells);
    *table = (struct table){0};
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
