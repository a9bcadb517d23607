/* Where a step's time and a rank's memory go: by phase, by unit of the model, by rank. Columns of
 * units.csv that end in _seconds are parts of the time, those in _bytes parts of the memory. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/text.h"
#include "report/bars.h"
#include "report/escape.h"
#include "report/facts.h"
#include "report/html.h"

enum { BARS_WIDTH = 520, PARTS_MOST = 12, ROWS_MOST = 48, ROW_NAME = 96, RANKS_MOST = 64 };

/* ---- the step, by phase */

struct phase {
    const char *name, *column;
    int colour;
};

/* The mean of a column over the training rows, in milliseconds; NAN: nowhere known. */
static double milliseconds(const struct record *record, const char *name)
{
    const struct table *metrics = &record->metrics;
    const int column = table_column(metrics, name), split = table_column(metrics, "split");
    double sum = 0;
    int64_t count = 0;
    for (int64_t row = 0; row < metrics->rows; row++) {
        const double value = table_number(metrics, row, column);
        if (isnan(value) || strcmp(table_text(metrics, row, split), "train") != 0)
            continue;
        sum += value;
        count++;
    }
    return count > 0 ? sum / (double)count * 1000 : NAN;
}

/* A row for each run; what the phases leave of the step is the last part. */
static void phases_draw(const struct page *page, const char *title, const char *id,
                        const struct phase *phases, int count)
{
    double values[HTML_RUNS_MOST * PARTS_MOST];
    char names[HTML_RUNS_MOST][ROW_NAME];
    const char *rows[HTML_RUNS_MOST], *parts[PARTS_MOST];
    int colours[PARTS_MOST];
    bool known = false;

    for (int run = 0; run < page->count; run++) {
        double *own = values + run * (count + 1);
        double rest = milliseconds(&page->records[run], "step_seconds");
        bool of_run = false;
        for (int i = 0; i < count; i++) {
            own[i] = milliseconds(&page->records[run], phases[i].column);
            of_run = of_run || (i > 0 && !isnan(own[i]));
            rest -= isnan(own[i]) ? 0 : own[i];
        }
        own[count] = of_run ? fmax(rest, 0) : NAN;
        known = known || of_run;
        snprintf(names[run], ROW_NAME, "%c", html_letter(run));
        rows[run] = page->count == 1 ? "" : names[run];
    }
    for (int i = 0; i < count; i++) {
        parts[i] = phases[i].name;
        colours[i] = phases[i].colour;
    }
    parts[count] = "the rest";
    colours[count] = 8;
    if (!known)
        return;
    fputs("<figure>", page->stream);
    bars_svg_write(&(struct bars){.title = title,
                                  .id = id,
                                  .label = "ms a step",
                                  .row_count = page->count,
                                  .part_count = count + 1,
                                  .rows = rows,
                                  .parts = parts,
                                  .values = values,
                                  .colours = colours},
                   page->stream, BARS_WIDTH);
    fputs("</figure>\n", page->stream);
}

/* ---- by unit */

/* The parts of units.csv with this ending that are not 0 everywhere. */
struct unit_parts {
    int count;
    int columns[PARTS_MOST];
    char names[PARTS_MOST][64];
};

static bool column_counts(const struct table *units, int column)
{
    for (int64_t row = 0; row < units->rows; row++)
        if (table_number(units, row, column) > 0)
            return true;
    return false;
}

static void unit_parts_find(const struct table *units, const char *ending, struct unit_parts *parts)
{
    parts->count = 0;
    for (int i = 0; i < units->columns && parts->count < PARTS_MOST; i++) {
        const char *name = units->names[i];
        if (!text_ends_with(name, ending) || !column_counts(units, i))
            continue;
        char *to = parts->names[parts->count];
        snprintf(to, sizeof parts->names[0], "%.*s", (int)(strlen(name) - strlen(ending)), name);
        for (; *to != '\0'; to++)
            *to = (char)(*to == '_' ? ' ' : *to);
        parts->columns[parts->count++] = i;
    }
}

/* Units one after the other share a row where there are too many for the picture. */
static void units_draw(const struct page *page, int run, const char *ending, const char *title,
                       const char *label, double scale)
{
    const struct table *units = &page->records[run].units;
    const int name = table_column(units, "unit");
    const int64_t each = (units->rows + ROWS_MOST - 1) / ROWS_MOST;
    struct unit_parts parts;
    static char names[ROWS_MOST][ROW_NAME];
    const char *rows[ROWS_MOST], *part_names[PARTS_MOST];
    double values[ROWS_MOST * PARTS_MOST] = {0};
    char id[32];
    int count = 0;

    unit_parts_find(units, ending, &parts);
    if (parts.count == 0)
        return;
    for (int64_t row = 0; row < units->rows; row++) {
        count = (int)(row / each) + 1;
        for (int i = 0; i < parts.count; i++) {
            const double value = table_number(units, row, parts.columns[i]);
            values[(count - 1) * parts.count + i] += isnan(value) ? 0 : value * scale;
        }
        if (row % each == 0)
            snprintf(names[count - 1], ROW_NAME, "%.80s%s", table_text(units, row, name),
                     each > 1 ? " ..." : "");
        rows[count - 1] = names[count - 1];
    }
    for (int i = 0; i < parts.count; i++)
        part_names[i] = parts.names[i];
    snprintf(id, sizeof id, "units-%s-%c", ending + 1, html_letter(run));
    fputs("<figure>", page->stream);
    bars_svg_write(&(struct bars){.title = title,
                                  .id = id,
                                  .label = label,
                                  .row_count = count,
                                  .part_count = parts.count,
                                  .rows = rows,
                                  .parts = part_names,
                                  .values = values},
                   page->stream, BARS_WIDTH);
    fputs("</figure>\n", page->stream);
}

static bool units_known(const struct page *page)
{
    for (int i = 0; i < page->count; i++)
        if (page->records[i].units.rows > 0)
            return true;
    return false;
}

static void units_of_all(const struct page *page, const char *ending, const char *title,
                         const char *label, double scale)
{
    char own[64];
    for (int i = 0; i < page->count; i++) {
        if (page->count > 1)
            snprintf(own, sizeof own, "%s, %c", title, html_letter(i));
        units_draw(page, i, ending, page->count > 1 ? own : title, label, scale);
    }
}

void html_steps(const struct page *page)
{
    static const struct phase work[] = {{"data", "data_seconds", 5},
                                        {"computing", "compute_seconds", 1},
                                        {"waiting for ranks", "exposed_comm_seconds", 2}};
    static const struct phase phases[] = {{"data", "data_seconds", 5},
                                          {"forward", "forward_seconds", 6},
                                          {"backward", "backward_seconds", 1},
                                          {"reducing", "reduce_seconds", 2},
                                          {"update", "update_seconds", 3}};
    html_section(page, "steps", "Step time");
    fputs("<p class=\"note\">Means of all training steps. Phases include the waiting in them."
          "</p>\n<div class=\"charts few\">\n",
          page->stream);
    phases_draw(page, "Working and waiting", "steps-work", work, 3);
    phases_draw(page, "By phase", "steps-phases", phases, 5);
    units_of_all(page, "_seconds", "By unit", "ms a step", 1000);
    fputs("</div>\n", page->stream);
    if (!units_known(page))
        fputs("<p>By unit: not known, there is no units.csv.</p>\n", page->stream);
    html_section_end(page);
}

/* ---- ranks.csv as it is, its units in words */

static enum figure figure_of(const char *name)
{
    static const struct {
        const char *ending;
        enum figure figure;
    } endings[] = {{"_bytes", FIGURE_BYTES},
                   {"_seconds", FIGURE_SECONDS},
                   {"_share", FIGURE_SHARE},
                   {"_busy", FIGURE_SHARE},
                   {"_power", FIGURE_WATTS}};
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
        if (text_ends_with(name, endings[i].ending))
            return endings[i].figure;
    return FIGURE_TEXT;
}

static void ranks_head(const struct page *page, const struct table *ranks, const bool *shown)
{
    fputs("<thead><tr>", page->stream);
    for (int i = 0; i < ranks->columns; i++) {
        if (!shown[i])
            continue;
        fprintf(page->stream, "<th scope=\"col\"%s>",
                figure_of(ranks->names[i]) == FIGURE_TEXT ? "" : " class=\"n\"");
        const char *name = ranks->names[i];
        const char *end = figure_of(name) == FIGURE_BYTES || figure_of(name) == FIGURE_SECONDS
                              ? strrchr(name, '_')
                              : name + strlen(name);
        char words[64];
        snprintf(words, sizeof words, "%.*s", (int)(end - name), name);
        for (char *at = words; *at != '\0'; at++)
            *at = (char)(*at == '_' ? ' ' : *at);
        escape_html(page->stream, words);
        fputs("</th>", page->stream);
    }
    fputs("</tr></thead>\n<tbody>\n", page->stream);
}

static void ranks_row(const struct page *page, const struct table *ranks, int64_t row,
                      const bool *shown)
{
    char text[FORMAT_TEXT];
    fputs("<tr>", page->stream);
    for (int i = 0; i < ranks->columns; i++) {
        const enum figure figure = figure_of(ranks->names[i]);
        if (!shown[i])
            continue;
        if (figure == FIGURE_TEXT) {
            html_cell(page, table_text(ranks, row, i));
            continue;
        }
        format_figure(text, figure, table_number(ranks, row, i));
        fprintf(page->stream, "<td class=\"n\">%s</td>", text);
    }
    fputs("</tr>\n", page->stream);
}

static void ranks_write(const struct page *page, int run)
{
    const struct table *ranks = &page->records[run].ranks;
    bool *shown = calloc((size_t)ranks->columns + 1, sizeof *shown);
    ENSURE(shown != NULL, "no memory for a table");
    for (int i = 0; i < ranks->columns; i++)
        for (int64_t row = 0; row < ranks->rows; row++)
            shown[i] = shown[i] || table_text(ranks, row, i)[0] != '\0';
    if (ranks->rows > 0) {
        html_run_title(page, run);
        html_table_begin(page, "ranks", "figures of each rank");
        ranks_head(page, ranks, shown);
        for (int64_t row = 0; row < ranks->rows && row < RANKS_MOST; row++)
            ranks_row(page, ranks, row, shown);
        fputs("</tbody>", page->stream);
        html_table_end(page);
        if (ranks->rows > RANKS_MOST)
            fprintf(page->stream, "<p class=\"note\">The first %d of %lld rows of ranks.csv.</p>\n",
                    RANKS_MOST, (long long)ranks->rows);
    }
    free(shown);
}

void html_memory(const struct page *page)
{
    html_section(page, "memory", "Memory and ranks");
    fputs("<div class=\"charts few\">\n", page->stream);
    units_of_all(page, "_bytes", "Memory by unit", "MiB of a rank, as planned", 1.0 / (1 << 20));
    fputs("</div>\n", page->stream);
    if (!units_known(page))
        fputs("<p>By unit: not known, there is no units.csv.</p>\n", page->stream);
    for (int i = 0; i < page->count; i++)
        ranks_write(page, i);
    html_section_end(page);
}
