// SPDX-License-Identifier: BSD-3-Clause
#include "core/columns.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "core/json_value.h"
#include "core/text.h"

char *columns_header(const struct column *columns, int count)
{
    struct text_stream text;
    FILE *stream = text_stream_open(&text);
    for (int i = 0; i < count; i++)
        fprintf(stream, "%s%s", i > 0 ? "," : "", columns[i].name);
    return text_stream_close(&text);
}

static double double_at(const void *row, const struct column *column)
{
    double value;
    memcpy(&value, (const char *)row + column->offset, sizeof value);
    return value;
}

static int64_t integer_at(const void *row, const struct column *column)
{
    int64_t value;
    memcpy(&value, (const char *)row + column->offset, sizeof value);
    return value;
}

static const char *text_at(const void *row, const struct column *column)
{
    const char *value;
    memcpy(&value, (const char *)row + column->offset, sizeof value);
    return value;
}

void columns_to_csv(const struct column *columns, int count, const void *row, struct csv *csv)
{
    for (int i = 0; i < count; i++) {
        const struct column *column = &columns[i];
        char digits[32] = "";
        if (column->kind == COLUMN_INTEGER) {
            csv_integer(csv, integer_at(row, column));
        } else if (column->kind == COLUMN_TEXT) {
            csv_text(csv, text_at(row, column) != NULL ? text_at(row, column) : "");
        } else if (column->kind == COLUMN_NUMBER) {
            csv_number(csv, double_at(row, column));
        } else {
            if (!isnan(double_at(row, column)))
                snprintf(digits, sizeof digits, "%.17g", double_at(row, column));
            csv_text(csv, digits);
        }
    }
}

void columns_to_json(const struct column *columns, int count, const void *row, json_t *object)
{
    for (int i = 0; i < count; i++) {
        const struct column *column = &columns[i];
        json_t *value;
        if (column->kind == COLUMN_INTEGER)
            value = json_integer(integer_at(row, column));
        else if (column->kind == COLUMN_TEXT)
            value = value_text(text_at(row, column));
        else if (column->kind == COLUMN_WHOLE && isfinite(double_at(row, column)))
            value = json_integer((json_int_t)double_at(row, column));
        else
            value = value_number(double_at(row, column));
        value_put(object, column->name, value);
    }
}
