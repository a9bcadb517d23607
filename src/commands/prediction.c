// SPDX-License-Identifier: BSD-3-Clause
/* Predictions as text. Names of classes and files come from folders and may contain characters
 * that have a meaning in CSV or JSON, so they are quoted. */
#include "commands/prediction.h"

#include <float.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/columns.h"
#include "base/text.h"

/* `unknown` is written for a number that is not finite. With an origin, a number has all digits. */
static void write_numbers(FILE *text, const struct prediction_line *line, const float *numbers,
                          int digits, const char *unknown)
{
    for (int64_t c = 0; c < line->classes; c++) {
        const double origin = line->origin != NULL ? line->origin[c] : 0;
        if (c > 0)
            fputc(',', text);
        if (numbers != NULL && isfinite(numbers[c]))
            fprintf(text, "%.*g", origin != 0 ? DBL_DIG : digits, origin + (double)numbers[c]);
        else
            fputs(unknown, text);
    }
}

static void write_cell(FILE *text, const char *cell)
{
    if (strpbrk(cell, ",\"\r\n") == NULL) {
        fputs(cell, text);
        return;
    }
    fputc('"', text);
    for (const char *letter = cell; *letter != '\0'; letter++) {
        if (*letter == '"')
            fputc('"', text);
        fputc(*letter, text);
    }
    fputc('"', text);
}

/* Return the name of the predicted class, "" if it has none. */
static const char *class_of(const struct prediction_line *line)
{
    return line->predicted < line->named ? line->class_name[line->predicted] : "";
}

void prediction_write_header(FILE *text, const struct prediction_line *line)
{
    fputs(line->file != NULL ? "file" : "record", text);
    if (line->file == NULL && line->has_targets)
        for (int64_t c = 0; c < line->classes; c++)
            line->classes == 1 ? fputs(",target", text) : fprintf(text, ",target%" PRId64, c);
    else if (line->file == NULL)
        fputs(",label", text);
    if (!line->has_targets)
        fputs(",predicted,class", text);
    for (int64_t c = 0; c < line->classes; c++)
        fprintf(text, ",%c%" PRId64, line->is_number ? 'y' : 'p', c);
    fputc('\n', text);
}

void prediction_write_csv(FILE *text, const struct prediction_line *line)
{
    if (line->file != NULL)
        write_cell(text, line->file);
    else
        fprintf(text, "%" PRIu32 ",", line->record);
    if (line->file == NULL && line->has_targets)
        write_numbers(text, line, line->targets, FLT_DECIMAL_DIG, "");
    else if (line->file == NULL && line->label >= 0)
        fprintf(text, "%" PRId32, line->label);
    if (!line->has_targets) {
        fprintf(text, ",%" PRId32 ",", line->predicted);
        write_cell(text, class_of(line));
    }
    fputc(',', text);
    write_numbers(text, line, line->probabilities, FLT_DIG, "");
    fputc('\n', text);
}

static void write_json_name(FILE *text, const char *name)
{
    json_t *value = value_name(name);
    char *json = json_dumps(value, JSON_ENCODE_ANY);
    ENSURE_MEMORY(json != NULL, "no memory for JSON");
    fputs(json, text);
    free(json);
    json_decref(value);
}

void prediction_write_json(FILE *text, const struct prediction_line *line)
{
    if (line->file != NULL) {
        fputs("{\"file\":", text);
        write_json_name(text, line->file);
    } else {
        fprintf(text, "{\"record\":%" PRIu32, line->record);
    }
    if (line->file == NULL && line->has_targets) {
        fputs(line->classes == 1 ? ",\"target\":" : ",\"targets\":[", text);
        write_numbers(text, line, line->targets, FLT_DECIMAL_DIG, "null");
        fputs(line->classes == 1 ? "" : "]", text);
    } else if (line->file == NULL && line->label >= 0) {
        fprintf(text, ",\"label\":%" PRId32, line->label);
    } else if (line->file == NULL) {
        fputs(",\"label\":null", text);
    }
    if (!line->has_targets) {
        fprintf(text, ",\"predicted\":%" PRId32 ",\"class\":", line->predicted);
        write_json_name(text, class_of(line));
    }
    fputs(line->is_number ? ",\"outputs\":[" : ",\"probabilities\":[", text);
    write_numbers(text, line, line->probabilities, FLT_DIG, "null");
    fputs("]}\n", text);
}

/* ---- the table */

/* Control characters could control a terminal. */
static void write_plain(FILE *text, const char *name)
{
    OWNED char *plain = allocate_copy(name);
    text_remove_control(plain);
    fputs(plain, text);
}

/* Return the sort key of a class: its probability, or -1 for NaN. */
static float sort_key(const struct prediction_line *line, int64_t c)
{
    return isnan(line->probabilities[c]) ? -1 : line->probabilities[c];
}

/* Return the class that follows `last` in descending order of probability (ties in ascending order
 * of number), or -1 if `last` is the last one. last=-1 returns the first class. */
static int64_t next_class(const struct prediction_line *line, int64_t last)
{
    const float limit = last < 0 ? INFINITY : sort_key(line, last);
    int64_t best = -1;
    for (int64_t c = 0; c < line->classes; c++) {
        const float p = sort_key(line, c);
        if ((p < limit || (p == limit && c > last)) && (best < 0 || p > sort_key(line, best)))
            best = c;
    }
    return best;
}

void prediction_write_table(FILE *text, const struct prediction_line *line)
{
    write_plain(text, line->file);
    fputc('\n', text);
    if (line->has_targets) {
        fputs("  ", text);
        write_numbers(text, line, line->probabilities, FLT_DIG, "unknown");
        fputc('\n', text);
        return;
    }
    for (int64_t i = 0, c = -1; i < PREDICTION_TOP && (c = next_class(line, c)) >= 0; i++) {
        if (isfinite(line->probabilities[c]))
            fprintf(text, "  %6.2f %%  ", 100 * (double)line->probabilities[c]);
        else
            fputs("  unknown   ", text);
        if (c < line->named)
            write_plain(text, line->class_name[c]);
        else
            fprintf(text, "class %" PRId64, c);
        fputc('\n', text);
    }
}
