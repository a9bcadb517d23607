// SPDX-License-Identifier: BSD-3-Clause
/* Line charts: a part of an HTML page, an SVG file, or a PNG file drawn by Cairo. */
#ifndef VITTRAIN_TOOLS_REPORT_CHART_H
#define VITTRAIN_TOOLS_REPORT_CHART_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "core/error.h"

enum chart_scale { CHART_LINEAR, CHART_LOG };

struct chart_axis {
    const char *label; /* with the unit: "time, min" */
    enum chart_scale scale;
    double least, most; /* both 0: the range of the data; points outside are drawn at the edge */
    bool from_zero;     /* linear axes without a fixed range: include 0 */
    bool whole;         /* whole numbers only, as for steps and epochs */
};

/* Values with a larger magnitude are not drawn, on a logarithmic axis also not below its inverse.
 */
#define CHART_MOST 1e100

/* The points are sorted by x. The line is interrupted at NAN and at values that cannot be drawn.
 * The arrays belong to the caller and must live until the chart is drawn. */
struct chart_series {
    const char *name; /* in the legend; NULL: no entry */
    const double *x, *y;
    int64_t count;
    bool dashed;
    bool thin;
    int covered; /* number of later series with the same curve; the line is drawn wider */
    int colour;  /* 1, 2, ...: index into chart_colours plus 1; 0: by position */
};

struct chart {
    const char *title; /* NULL: none */
    struct chart_axis x, y;
    int series_count;
    const struct chart_series *series;
};

/* Colours of the series, 0xRRGGBB. Repeated when there are more series. */
enum { CHART_COLOURS = 8 };
extern const unsigned chart_colours[CHART_COLOURS];

/* Size of a chart in a page, in CSS pixels. */
struct chart_size {
    double width, height;
    double enlarged; /* largest factor by which the page enlarges the text, on narrow screens */
    int places;      /* maximum number of x positions with a title */
    int coarse;      /* width in pixels of a column, in which a curve keeps four points */
};

/* Write an <svg> element of class "chart" for an HTML page, without title, legend and label of the
 * y axis. Areas of class "at" have the values at their x position as titles. The attributes
 * data-frame (left, top, right, bottom) and data-range (least and most x, least and most y)
 * describe the plot area. */
void chart_embed(const struct chart *chart, FILE *stream, const char *id,
                 const struct chart_size *size);

/* Return an SVG file with a transparent background as text, to be freed by the caller. Sizes are in
 * CSS pixels. */
char *chart_svg(const struct chart *chart, double width, double height);

/* Write charts side by side, with equal widths, into one PNG on white paper, atomically. Without
 * Cairo nothing is written, one warning is logged and the result is true. ERROR_FILE, ERROR_MEMORY.
 */
MUST_CHECK bool chart_png(const struct chart *charts, int count, const char *path, int width,
                          int height, struct error *error);

/* False if vittrain was built without Cairo. */
extern const bool chart_png_available;

#endif
