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

enum { BARS_WIDTH = 400, PARTS_MOST = 12, ROWS_MOST = 48, ROW_NAME = 96, RANKS_MOST = 64 };

/* ---- the step, by phase */

struct phase {
    const char *name, *column;
    int colour;
};

static double milliseconds(const struct record *record, const char *name)
{
    return 1000 * record_step_mean(record, name);
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
    int columns[PARTS_MOST], colours[PARTS_MOST];
    char names[PARTS_MOST][64];
};

/* The same part has the same colour in all charts. */
static int part_colour(const char *name, int place)
{
    static const char *const names[][8] = {
        {"backward", "waiting", "", "", "", "forward"},
        {"weights", "gradients", "optimizer", "gathered", "buffers", "activations"}};
    for (int kind = 0; kind < 2; kind++)
        for (int i = 0; i < 8 && names[kind][i] != NULL; i++)
            if (strcmp(names[kind][i], name) == 0)
                return i + 1;
    return place + 1;
}

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
        parts->colours[parts->count] = part_colour(parts->names[parts->count], parts->count);
        parts->columns[parts->count++] = i;
    }
}

/* Units in as many rows as the picture has: where there are more units, neighbours share one. */
struct unit_rows {
    int count;
    char names[ROWS_MOST][ROW_NAME];
    double values[ROWS_MOST * PARTS_MOST]; /* [count][parts] */
    double most;                           /* the longest row */
};

static void unit_rows_take(const struct table *units, const struct unit_parts *parts, double scale,
                           struct unit_rows *rows)
{
    const int64_t each = (units->rows + ROWS_MOST - 1) / ROWS_MOST;
    const int name = table_column(units, "unit");
    *rows = (struct unit_rows){0};
    for (int64_t row = 0; row < units->rows; row++) {
        const int place = (int)(row / each);
        double *own = rows->values + place * parts->count, sum = 0;
        for (int i = 0; i < parts->count; i++) {
            const double value = table_number(units, row, parts->columns[i]);
            own[i] += isnan(value) ? 0 : value * scale;
            sum += own[i];
        }
        rows->most = fmax(rows->most, sum);
        if (row % each == 0)
            snprintf(rows->names[place], ROW_NAME, "%.80s%s", table_text(units, row, name),
                     each > 1 ? " ..." : "");
        rows->count = place + 1;
    }
}

/* What a chart of units shows. */
struct unit_chart {
    const char *ending, *title, *label;
    double scale;
};

/* `most`: of the axis, the same for all runs. */
static void units_draw(const struct page *page, int run, const struct unit_chart *chart,
                       double most)
{
    const char *rows[ROWS_MOST], *part_names[PARTS_MOST];
    char id[32], title[64];
    struct unit_parts parts;
    struct unit_rows taken;

    unit_parts_find(&page->records[run].units, chart->ending, &parts);
    if (parts.count == 0)
        return;
    unit_rows_take(&page->records[run].units, &parts, chart->scale, &taken);
    for (int i = 0; i < taken.count; i++)
        rows[i] = taken.names[i];
    for (int i = 0; i < parts.count; i++)
        part_names[i] = parts.names[i];
    snprintf(id, sizeof id, "units-%s-%c", chart->ending + 1, html_letter(run));
    snprintf(title, sizeof title, page->count > 1 ? "%s, %c" : "%s", chart->title,
             html_letter(run));
    fputs("<figure>", page->stream);
    bars_svg_write(&(struct bars){.title = title,
                                  .id = id,
                                  .label = chart->label,
                                  .row_count = taken.count,
                                  .part_count = parts.count,
                                  .rows = rows,
                                  .parts = part_names,
                                  .values = taken.values,
                                  .most = most,
                                  .colours = parts.colours},
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

static void units_of_all(const struct page *page, const struct unit_chart *chart)
{
    double most = 0;
    struct unit_parts parts;
    struct unit_rows taken;
    if (!units_known(page)) {
        fputs("<p>By unit: not known, there is no units.csv.</p>\n", page->stream);
        return;
    }
    for (int i = 0; i < page->count; i++) {
        unit_parts_find(&page->records[i].units, chart->ending, &parts);
        unit_rows_take(&page->records[i].units, &parts, chart->scale, &taken);
        most = fmax(most, taken.most);
    }
    for (int i = 0; i < page->count; i++)
        units_draw(page, i, chart, most);
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
          "</p>\n<div class=\"charts\">\n",
          page->stream);
    phases_draw(page, "Working and waiting", "steps-work", work, 3);
    phases_draw(page, "By phase", "steps-phases", phases, 5);
    if (page->count > 1) /* those of the units begin a row of their own */
        fputs("</div>\n<div class=\"charts\">\n", page->stream);
    units_of_all(page, &(struct unit_chart){"_seconds", "By unit", "ms a step", 1000});
    fputs("</div>\n", page->stream);
    html_section_end(page);
}

/* ---- ranks.csv as it is, its units in words */

static enum figure figure_of(const char *name)
{
    static const struct {
        const char *part;
        enum figure figure;
    } parts[] = {{"_bytes", FIGURE_BYTES},
                 {"seconds", FIGURE_SECONDS},
                 {"_share", FIGURE_SHARE},
                 {"_busy", FIGURE_SHARE},
                 {"_power", FIGURE_WATTS}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (strstr(name, parts[i].part) != NULL)
            return parts[i].figure;
    return FIGURE_TEXT;
}

/* "exposed comm" of exposed_comm_seconds: the figures have their units. */
static void words_of(const char *name, char *words, size_t size)
{
    static const char *const units[] = {"_bytes", "_seconds"};
    snprintf(words, size, "%s", name);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (text_ends_with(words, units[i]))
            words[strlen(words) - strlen(units[i])] = '\0';
    for (; *words != '\0'; words++)
        *words = (char)(*words == '_' ? ' ' : *words);
}

/* Numbers stand under each other. */
static const char *alignment(const struct table *ranks, int column)
{
    return isnan(table_number(ranks, 0, column)) ? "" : " class=\"n\"";
}

static void ranks_head(const struct page *page, const struct table *ranks, const bool *shown)
{
    char words[64];
    fputs("<thead><tr>", page->stream);
    for (int i = 0; i < ranks->columns; i++) {
        if (!shown[i])
            continue;
        words_of(ranks->names[i], words, sizeof words);
        fprintf(page->stream, "<th scope=\"col\"%s>", alignment(ranks, i));
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
        fprintf(page->stream, "<td%s>", alignment(ranks, i));
        if (figure == FIGURE_TEXT) {
            escape_html(page->stream, table_text(ranks, row, i));
        } else {
            format_figure(text, figure, table_number(ranks, row, i));
            fputs(text, page->stream);
        }
        fputs("</td>", page->stream);
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
    fputs("<div class=\"charts\">\n", page->stream);
    units_of_all(page, &(struct unit_chart){"_bytes", "Memory by unit", "MiB of a rank, as planned",
                                            1.0 / (1 << 20)});
    fputs("</div>\n", page->stream);
    for (int i = 0; i < page->count; i++)
        ranks_write(page, i);
    html_section_end(page);
}
