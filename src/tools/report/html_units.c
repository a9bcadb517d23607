// SPDX-License-Identifier: BSD-3-Clause
/* Time per step by phase, time and memory by unit of the model, and the ranks. Columns of units.csv
 * that end in _seconds are parts of the time, columns that end in _bytes are parts of the memory.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/text.h"
#include "tools/report/html.h"
#include "tools/report/run_tables.h"

enum { PARTS_MOST = 12, ROWS_MOST = 48, ROW_NAME = 96 };

/* ---- stacked bars */

struct bars {
    const char *title, *id;
    const char *unit;
    int row_count, part_count;
    char (*rows)[ROW_NAME];     /* names */
    char parts[PARTS_MOST][64]; /* names, for the legend */
    int colours[PARTS_MOST];    /* of the parts: 0 to 7 */
    double *values;             /* [rows][parts], NAN: unknown */
    double most;                /* length of the axis; 0: the longest row */
};

/* Allocate memory for the rows. */
static void bars_open(struct bars *bars, int rows)
{
    bars->rows = allocate((size_t)rows, sizeof *bars->rows);
    bars->values = allocate((size_t)rows * PARTS_MOST, sizeof *bars->values);
}

static void bars_free(struct bars *bars)
{
    free(bars->rows);
    free(bars->values);
}

static double bars_sum(const struct bars *bars, int row)
{
    double sum = 0;
    for (int part = 0; part < bars->part_count; part++) {
        const double value = bars->values[row * bars->part_count + part];
        sum += value > 0 && isfinite(value) ? value : 0;
    }
    return sum;
}

static double bars_longest(const struct bars *bars)
{
    double longest = 0;
    for (int row = 0; row < bars->row_count; row++)
        longest = fmax(longest, bars_sum(bars, row));
    return longest;
}

/* Write a table with one bar per row, and the legend above it. */
static void bars_write(const struct page *page, const struct bars *bars)
{
    FILE *stream = page->stream;
    char text[FORMAT_TEXT];
    const double most = bars->most > 0 ? bars->most : bars_longest(bars);
    fprintf(stream,
            "<figure id=\"%s\"><figcaption>%s <small>%s</small></figcaption>\n<p class=\"legend\">",
            bars->id, bars->title, bars->unit);
    for (int part = 0; part < bars->part_count; part++) {
        fprintf(stream, "<span><i class=\"s%d\"></i>", bars->colours[part]);
        html_text(page, "", bars->parts[part], "</span>\n");
    }
    fprintf(stream, "</p><table class=\"bars\" aria-label=\"%s, %s\">\n", bars->title, bars->unit);
    for (int row = 0; row < bars->row_count; row++) {
        html_text(page, "<tr><th scope=\"row\"><span>", bars->rows[row],
                  "</span></th><td class=\"track\">");
        for (int part = 0; part < bars->part_count; part++) {
            const double value = bars->values[row * bars->part_count + part];
            if (!(value / most >= 0.0003) || !isfinite(value / most))
                continue;
            fprintf(stream, "<i class=\"s%d\" style=\"width:%.2f%%\" title=\"", bars->colours[part],
                    100 * value / most);
            html_text(page, "", bars->rows[row], bars->rows[row][0] == '\0' ? "" : ", ");
            html_text(page, "", bars->parts[part], "");
            format_figure(text, FIGURE_NUMBER, value);
            fprintf(stream, ": %s %s\"></i>", text, bars->unit);
        }
        format_figure(text, FIGURE_NUMBER, bars_sum(bars, row));
        fprintf(stream, "</td><td class=\"n\">%s</td></tr>\n", text);
    }
    fputs("</table></figure>\n", stream);
}

/* ---- the step, by phase */

static const struct phase {
    const char *name, *column;
    int colour;
} phases[] = {{"data", "data_seconds", 4},
              {"forward", "forward_seconds", 5},
              {"backward", "backward_seconds", 0},
              {"gradient reduction", "reduce_seconds", 1},
              {"optimizer step", "update_seconds", 2}};
enum { PHASES = sizeof phases / sizeof phases[0] };

/* Draw one row per run. The last part is the time of the step outside of all phases. */
static void phases_draw(const struct page *page)
{
    struct bars bars = {.title = "Step time by phase",
                        .id = "steps-phases",
                        .unit = "ms",
                        .row_count = page->count,
                        .part_count = PHASES + 1};
    bool any = false;

    bars_open(&bars, page->count);
    for (int run = 0; run < page->count; run++) {
        const struct record *record = &page->records[run];
        double *values = bars.values + run * (PHASES + 1);
        double rest = 1000 * record_step_mean(record, "step_seconds");
        bool known = false;
        for (int i = 0; i < PHASES; i++) {
            values[i] = 1000 * record_step_mean(record, phases[i].column);
            known = known || (i > 0 && !isnan(values[i]));
            rest -= isnan(values[i]) ? 0 : values[i];
        }
        values[PHASES] = known ? fmax(rest, 0) : NAN;
        any = any || known;
        if (page->count > 1)
            snprintf(bars.rows[run], ROW_NAME, "%s", html_letters(run).text);
    }
    for (int i = 0; i < PHASES; i++) {
        snprintf(bars.parts[i], sizeof bars.parts[i], "%s", phases[i].name);
        bars.colours[i] = phases[i].colour;
    }
    strcpy(bars.parts[PHASES], "other");
    bars.colours[PHASES] = 7;
    if (any)
        bars_write(page, &bars);
    bars_free(&bars);
}

/* ---- by unit */

/* Return the colour of a part, the same in all charts. */
static int part_colour(const char *name, int place)
{
    static const char *const names[][6] = {
        {"backward", "waiting", "", "", "", "forward"},
        {"weights", "gradients", "optimizer", "gathered", "buffers", "activations"}};
    for (int kind = 0; kind < 2; kind++)
        for (int i = 0; i < 6; i++)
            if (strcmp(names[kind][i], name) == 0)
                return i;
    return place % 8;
}

struct unit_chart {
    const char *ending, *title, *unit; /* ending: of the columns in units.csv */
    double scale;
};

/* Fill the rows and parts from the columns of units.csv that are not 0 everywhere. If there are
 * more units than rows, neighbours share a row. */
static void unit_bars_fill(const struct table *units, const struct unit_chart *chart,
                           struct bars *bars)
{
    const int64_t each = (units->rows + ROWS_MOST - 1) / ROWS_MOST;
    const int name = table_column(units, "unit");
    int columns[PARTS_MOST];

    for (int i = 0; i < units->columns && bars->part_count < PARTS_MOST; i++) {
        const int part = bars->part_count;
        if (!text_ends_with(units->names[i], chart->ending) ||
            !(table_facts(units, units->names[i]).most > 0))
            continue;
        run_table_words(units->names[i], chart->ending, bars->parts[part]);
        bars->colours[part] = part_colour(bars->parts[part], part);
        columns[bars->part_count++] = i;
    }
    for (int64_t row = 0; row < units->rows; row++) {
        const int place = (int)(row / each);
        double *values = bars->values + place * bars->part_count;
        for (int i = 0; i < bars->part_count; i++) {
            const double value = table_number(units, row, columns[i]);
            values[i] += isnan(value) ? 0 : value * chart->scale;
        }
        if (row % each == 0)
            snprintf(bars->rows[place], ROW_NAME, "%.80s%s", table_text(units, row, name),
                     each > 1 ? " ..." : "");
        bars->row_count = place + 1;
    }
}

/* Draw one chart per run, with the same axis in all. */
static void units_draw(const struct page *page, const struct unit_chart *chart)
{
    struct bars *all = allocate((size_t)page->count, sizeof *all);
    double most = 0;
    for (int run = 0; run < page->count; run++) {
        bars_open(&all[run], ROWS_MOST);
        unit_bars_fill(&page->records[run].units, chart, &all[run]);
        most = fmax(most, bars_longest(&all[run]));
    }
    for (int run = 0; run < page->count; run++) {
        char id[32], title[64];
        snprintf(id, sizeof id, "units-%s-%s", chart->ending + 1, html_letters(run).text);
        snprintf(title, sizeof title, page->count > 1 ? "%s, %s" : "%s", chart->title,
                 html_letters(run).text);
        all[run].id = id;
        all[run].title = title;
        all[run].unit = chart->unit;
        all[run].most = most;
        if (all[run].part_count > 0)
            bars_write(page, &all[run]);
        bars_free(&all[run]);
    }
    free(all);
}

void html_units(const struct page *page)
{
    fputs("<p class=\"note\">Times are means of a training step; phases include time spent "
          "waiting. Memory is the planned memory of rank 0.</p>\n<div class=\"charts\">\n",
          page->stream);
    phases_draw(page);
    units_draw(page, &(struct unit_chart){"_seconds", "Step time by unit", "ms", 1000});
    units_draw(page,
               &(struct unit_chart){"_bytes", "Planned memory by unit", "MiB", 1.0 / (1 << 20)});
    fputs("</div>\n", page->stream);
    for (int run = 0; run < page->count; run++)
        if (page->records[run].units.rows == 0) {
            html_run_title(page, run);
            fputs("<p>Time and memory by unit are unknown: units.csv is missing.</p>\n",
                  page->stream);
        }
}

void html_ranks(const struct page *page)
{
    for (int run = 0; run < page->count; run++) {
        html_run_title(page, run);
        if (!html_table(page, run_table_ranks, run))
            fputs("<p>Unknown: ranks.csv is missing.</p>\n", page->stream);
    }
}
