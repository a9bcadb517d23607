/* Lines of predictions. Names of classes and files come from folders and may contain characters
 * that have a meaning in CSV or JSON, so they are quoted. */
#include "app/prediction.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/value.h"

/* `unknown` is what stands where a probability is not finite. */
static void write_probabilities(FILE *text, const struct prediction_line *line, const char *unknown)
{
    for (int64_t c = 0; c < line->classes; c++) {
        if (c > 0)
            fputc(',', text);
        if (isfinite(line->probabilities[c]))
            fprintf(text, "%.6g", (double)line->probabilities[c]);
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

void prediction_write_header(FILE *text, int64_t classes)
{
    fputs("record,label,predicted,class", text);
    for (int64_t c = 0; c < classes; c++)
        fprintf(text, ",p%" PRId64, c);
    fputc('\n', text);
}

void prediction_write_csv(FILE *text, const struct prediction_line *line)
{
    fprintf(text, "%" PRIu32 ",%" PRId32 ",%" PRId32 ",", line->record, line->label,
            line->predicted);
    write_cell(text, line->class_name);
    fputc(',', text);
    write_probabilities(text, line, "");
    fputc('\n', text);
}

void prediction_write_json(FILE *text, const struct prediction_line *line)
{
    json_t *value = value_name(line->class_name);
    char *name = json_dumps(value, JSON_ENCODE_ANY);
    ENSURE(name != NULL, "no memory for JSON");
    fprintf(text,
            "{\"record\":%" PRIu32 ",\"label\":%" PRId32 ",\"predicted\":%" PRId32
            ",\"class\":%s,\"probabilities\":[",
            line->record, line->label, line->predicted, name);
    write_probabilities(text, line, "null");
    fputs("]}\n", text);
    free(name);
    json_decref(value);
}
