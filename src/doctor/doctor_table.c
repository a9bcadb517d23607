/* The rows of `vittrain doctor`, printed as a table or as JSON. */
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/value.h"
#include "doctor/doctor.h"

static const char *const verdict_name[] = {"skip", "pass", "warn", "fail"};

static void add(char *text, const char *more)
{
    size_t used = strlen(text);
    if (strstr(text, more) == NULL)
        snprintf(text + used, DOCTOR_TEXT - used, "%s%s", used > 0 ? "; " : "", more);
}

void doctor_say(struct doctor_row *row, enum doctor_verdict verdict, const char *advice,
                const char *format, ...)
{
    char text[DOCTOR_TEXT];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (verdict < row->verdict)
        return;
    if (verdict > row->verdict)
        row->found[0] = row->advice[0] = '\0';
    row->verdict = verdict;
    add(row->found, text);
    if (advice != NULL)
        add(row->advice, advice);
}

int doctor_count(const struct doctor_row *rows, int count, enum doctor_verdict verdict)
{
    int found = 0;
    for (int i = 0; i < count; i++)
        found += rows[i].verdict == verdict;
    return found;
}

void doctor_print_table(const struct doctor_row *rows, int count,
                        const struct doctor_summary *summary, FILE *file)
{
    for (int i = 0; i < count; i++) {
        const struct doctor_row *row = &rows[i];
        fprintf(file, "%s  %-13s %s\n", verdict_name[row->verdict], row->check, row->found);
        if (row->advice[0] != '\0')
            fprintf(file, "%20s-> %s\n", "", row->advice);
    }
    fprintf(file, "%d rank%s", summary->ranks, summary->ranks == 1 ? "" : "s");
    if (summary->nodes > 0)
        fprintf(file, " on %d node%s", summary->nodes, summary->nodes == 1 ? "" : "s");
    fprintf(file, ", %.1f s: %d pass, %d warn, %d fail, %d skipped\n", summary->seconds,
            doctor_count(rows, count, DOCTOR_PASS), doctor_count(rows, count, DOCTOR_WARN),
            doctor_count(rows, count, DOCTOR_FAIL), doctor_count(rows, count, DOCTOR_SKIP));
}

static json_t *row_json(const struct doctor_row *row)
{
    json_t *object = json_object();
    value_put(object, "check", json_string(row->check));
    value_put(object, "verdict", json_string(verdict_name[row->verdict]));
    value_put(object, "found", value_name(row->found));
    value_put(object, "advice", value_name(row->advice));
    return object;
}

void doctor_print_json(const struct doctor_row *rows, int count,
                       const struct doctor_summary *summary, FILE *file)
{
    json_t *object = json_object(), *checks = json_array();
    value_put(object, "ranks", json_integer(summary->ranks));
    value_put(object, "nodes", summary->nodes > 0 ? json_integer(summary->nodes) : json_null());
    value_put(object, "seconds", json_real(round(summary->seconds * 1e3) / 1e3));
    for (int verdict = DOCTOR_PASS; verdict <= DOCTOR_FAIL; verdict++)
        value_put(object, verdict_name[verdict],
                  json_integer(doctor_count(rows, count, (enum doctor_verdict)verdict)));
    for (int i = 0; i < count; i++)
        value_append(checks, row_json(&rows[i]));
    value_put(object, "checks", checks);
    char *text = value_to_text(object);
    fprintf(file, "%s\n", text);
    free(text);
}
