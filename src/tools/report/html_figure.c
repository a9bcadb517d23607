// SPDX-License-Identifier: BSD-3-Clause
#include "tools/report/html_figure.h"

#include <stdlib.h>
#include <string.h>

/* The third value is the largest factor by which the style sheet enlarges text on narrow screens.
 */
static const struct chart_size sizes[] = {[FIGURE_LARGE] = {600, 330, 1.6, .places = 100},
                                          [FIGURE_SMALL] = {400, 220, 1.2, .places = 60}};

/* Write the names of the curves. */
static void legend_write(const struct page *page, const struct chart *chart, bool brief)
{
    char name[SERIES_NAME];
    fputs("<p class=\"legend\">", page->stream);
    for (int i = 0; i < chart->series_count; i++) {
        const struct chart_series *series = &chart->series[i];
        const int colour = (series->colour > 0 ? series->colour - 1 : i) % CHART_COLOURS;
        if (series->name == NULL || (brief && series->dashed))
            continue;
        fprintf(page->stream, "<span><i class=\"%s s%d\"></i>", series->dashed ? "dash" : "line",
                colour);
        snprintf(name, sizeof name, "%s", series->name);
        if (brief)
            name[strcspn(name, " ")] = '\0'; /* the letters of the run */
        html_text(page, "", name, "</span>\n");
    }
    fprintf(page->stream, "%s</p>",
            brief ? "<span><i class=\"dash any\"></i>validation</span>\n" : "");
}

void figure_write(const struct page *page, const char *id, const struct chart *chart,
                  enum figure_size size, bool brief)
{
    struct chart_size exact = sizes[size];
    exact.coarse = 1 + page->count / 8; /* pages of many runs stay small */
    exact.places /= exact.coarse;
    html_text(page, "<figure><figcaption>", chart->title, "");
    if (chart->y.label != NULL)
        html_text(page, " <small>", chart->y.label, "</small>");
    fputs("</figcaption>\n", page->stream);
    if (chart->series_count > 1 || chart->series[0].name != NULL)
        legend_write(page, chart, brief);
    chart_embed(chart, page->stream, id, &exact);
    fputs("</figure>\n", page->stream);
}

void series_open(struct chart_series *series, int64_t most)
{
    double *x = allocate((size_t)most * 2 + 1, sizeof *x);
    *series = (struct chart_series){.x = x, .y = x + most};
}

void series_add(struct chart_series *series, double x, double y)
{
    ((double *)series->x)[series->count] = x;
    ((double *)series->y)[series->count++] = y;
}

void series_free(struct chart_series *series)
{
    free((double *)series->x);
}

struct time_unit time_unit_of(double seconds)
{
    if (seconds < 300)
        return (struct time_unit){1, "seconds"};
    return seconds < 4 * 3600 ? (struct time_unit){60, "minutes"}
                              : (struct time_unit){3600, "hours"};
}
