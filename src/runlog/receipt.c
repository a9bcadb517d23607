// SPDX-License-Identifier: BSD-3-Clause
#include "runlog/receipt.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text.h"

static const char first_columns[] = "step,loss,grad_norm,", last_column[] = ",grains";

char *receipt_header(const struct unit *units, int count)
{
    struct text_stream text;
    FILE *stream = text_stream_open(&text);
    fputs("step,loss,grad_norm", stream);
    for (int i = 0; i < 2 * count; i++)
        fprintf(stream, ",%s%s", units[i % count].name, i < count ? "" : ".state");
    fputs(last_column, stream);
    return text_stream_close(&text);
}

void receipt_cell(const struct receipt *receipt, int column, char text[RECEIPT_CELL])
{
    double number = column == RECEIPT_LOSS ? receipt->loss : receipt->norm;
    if (column == RECEIPT_STEP)
        snprintf(text, RECEIPT_CELL, "%" PRId64, receipt->step);
    else if (column >= RECEIPT_HASHES)
        snprintf(text, RECEIPT_CELL, "%016" PRIx64, receipt->hash[column - RECEIPT_HASHES]);
    else if (isnan(number)) /* printf may write a sign */
        snprintf(text, RECEIPT_CELL, "nan");
    else
        snprintf(text, RECEIPT_CELL, "%a", number);
}

/* Read one cell; it must be what receipt_cell writes. */
static bool cell_read(struct receipt *receipt, int column, const char *cell)
{
    char text[RECEIPT_CELL];
    if (column == RECEIPT_STEP)
        receipt->step = strtoll(cell, NULL, 10);
    else if (column == RECEIPT_LOSS)
        receipt->loss = strtod(cell, NULL);
    else if (column == RECEIPT_NORM)
        receipt->norm = strtod(cell, NULL);
    else
        receipt->hash[column - RECEIPT_HASHES] = strtoull(cell, NULL, 16);
    receipt_cell(receipt, column, text);
    return strcmp(text, cell) == 0;
}

void receipt_grains_text(const uint64_t *hash, int64_t count, char text[RECEIPT_GRAINS])
{
    text[0] = '\0';
    for (int64_t i = 0; i < count; i++)
        text += sprintf(text, "%s%016" PRIx64, i > 0 ? " " : "", hash[i]);
}

void receipt_grain_cell(const struct receipt *receipt, int grain, char text[RECEIPT_CELL])
{
    const size_t place = (size_t)grain * (RECEIPT_DIGITS + 1), length = strlen(receipt->grains);
    snprintf(text, RECEIPT_DIGITS + 1, "%s", place < length ? receipt->grains + place : "");
}

int receipt_different_grain(const struct receipt *one, const struct receipt *other)
{
    int place = 0;
    if (one->grains[0] == '\0' || other->grains[0] == '\0')
        return -1;
    while (one->grains[place] != '\0' && one->grains[place] == other->grains[place])
        place++;
    return one->grains[place] == other->grains[place] ? -1 : (place + 1) / (RECEIPT_DIGITS + 1);
}

/* True if the cell is what receipt_grains_text writes. */
static bool grains_are_valid(const char *cell)
{
    const size_t length = strlen(cell);
    for (size_t i = 0; i < length; i++)
        if (strchr(i % (RECEIPT_DIGITS + 1) == RECEIPT_DIGITS ? " " : "0123456789abcdef",
                   cell[i]) == NULL)
            return false;
    return length == 0 ||
           (length < RECEIPT_GRAINS && length % (RECEIPT_DIGITS + 1) == RECEIPT_DIGITS);
}

/* Read a line, which is changed. */
static bool row_read(struct receipt *receipt, const struct receipt_table *table, char *line)
{
    int column = 0;
    receipt->grains = "";
    for (char *cell = strsep(&line, ","); cell != NULL; cell = strsep(&line, ","), column++) {
        bool good = table->has_grains && grains_are_valid(cell);
        if (column < table->columns)
            good = cell_read(receipt, column, cell);
        else
            receipt->grains = cell;
        if (!good)
            return false;
    }
    return column == table->columns + table->has_grains;
}

/* Return the next line without its end (LF or CRLF); *text is NULL after an incomplete one. */
static char *next_line(char **text)
{
    char *line = strsep(text, "\n");
    const size_t length = strlen(line);
    if (*text != NULL && length > 0 && line[length - 1] == '\r')
        line[length - 1] = '\0';
    return line;
}

static bool table_parse(struct receipt_table *table, char *text, int64_t *number)
{
    char *line = next_line(&text);
    if (text == NULL || strncmp(line, first_columns, strlen(first_columns)) != 0)
        return false;
    table->has_grains = text_ends_with(line, last_column);
    table->columns = table->has_grains ? 0 : 1;
    for (const char *c = line; *c != '\0'; c++)
        table->columns += *c == ',';
    const size_t hashes = (size_t)(table->columns - RECEIPT_HASHES);
    size_t lines = 1;
    for (const char *c = text; *c != '\0'; c++)
        lines += *c == '\n';
    table->rows = allocate(lines, sizeof *table->rows);
    table->hashes = allocate(lines * hashes, sizeof *table->hashes);
    int64_t last = 0;
    for (line = next_line(&text); text != NULL; line = next_line(&text)) {
        struct receipt *row = &table->rows[table->count];
        row->hash = table->hashes + (size_t)table->count * hashes;
        ++*number;
        if (!row_read(row, table, line) || row->step <= last)
            return false;
        last = row->step;
        table->count++;
    }
    return true;
}

bool receipt_table_read(struct receipt_table *table, const char *text, const char *path,
                        struct error *error)
{
    int64_t number = 1;
    *table = (struct receipt_table){.count = 0};
    char *copy = allocate_copy(text);
    bool good = table_parse(table, copy, &number);
    table->header = copy; /* the first line */
    return good || error_set(error, ERROR_DATA,
                             "%s:%" PRId64 ": this is not a line of receipts: the file is damaged; "
                             "restore it",
                             path, number);
}

void receipt_table_free(struct receipt_table *table)
{
    free(table->header);
    free(table->rows);
    free(table->hashes);
    *table = (struct receipt_table){.count = 0};
}
