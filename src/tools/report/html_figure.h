// SPDX-License-Identifier: BSD-3-Clause
/* A chart in the report, with title and legend; internal to html*.c. */
#ifndef VITTRAIN_TOOLS_REPORT_HTML_FIGURE_H
#define VITTRAIN_TOOLS_REPORT_HTML_FIGURE_H

#include "tools/report/chart.h"
#include "tools/report/html.h"

enum { SERIES_NAME = 24 };

enum figure_size { FIGURE_LARGE, FIGURE_SMALL };

/* Write title, legend and chart. `brief`: the legend has one entry per run, the first letter of the
 * name of its solid line, and one entry for all dashed lines. */
void figure_write(const struct page *page, const char *id, const struct chart *chart,
                  enum figure_size size, bool brief);

/* A series with memory for `most` points, to be freed by series_free. */
void series_open(struct chart_series *series, int64_t most);
void series_add(struct chart_series *series, double x, double y);
void series_free(struct chart_series *series);

struct time_unit {
    double seconds;
    const char *label;
};

/* Return the unit of a time axis of this length. */
struct time_unit time_unit_of(double seconds);

#endif
