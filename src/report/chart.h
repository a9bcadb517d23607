/* Line charts, as SVG and as PNG, of the same drawing code. */
#ifndef VITTRAIN_REPORT_CHART_H
#define VITTRAIN_REPORT_CHART_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "core/error.h"

enum chart_scale { CHART_LINEAR, CHART_LOG };

struct chart_axis {
    const char *label; /* with the unit: "time, min" */
    enum chart_scale scale;
    double least, most; /* both 0: from the data; what lies outside is drawn at the edge */
    bool from_zero;     /* linear, of the data: 0 is on it */
    bool whole;         /* epochs: no marks between whole numbers */
};

/* The largest and, by its inverse, the least size of what can be drawn. */
#define CHART_MOST 1e100

/* Points in the order of x. A NAN, what is beyond CHART_MOST, or
 * what a logarithm has no place for breaks the line. Not
 * owned: what it points to lives until the chart is drawn. */
struct chart_series {
    const char *name; /* in the legend; NULL: not there */
    const double *x, *y;
    int64_t count;
    bool dashed;
    bool thin;
    int covered; /* by so many others, below which it is to be seen: drawn as much wider */
    int colour;  /* 1, 2, ...: the n-th colour; 0: that of its place */
};

struct chart {
    const char *title;
    struct chart_axis x, y;
    int series_count;
    const struct chart_series *series;
    const char *id; /* of the SVG element; NULL: none. Letters, digits and - */
};

/* Into a page, which has the colours once (canvas_svg_style). Width and height: of the drawing,
 * which is then as wide as its place. The element's data-frame has left, top, right, bottom of the
 * axes' frame in the drawing, data-range the values there: x from, to, y from, to. */
void chart_svg_write(const struct chart *chart, FILE *stream, double width, double height);

/* A whole SVG file as text, light and dark; the caller frees it. */
char *chart_svg(const struct chart *chart, double width, double height);

/* A PNG of so many pixels, light; whole or not at all. ERROR_FILE, ERROR_MEMORY. */
bool chart_png(const struct chart *chart, const char *path, int width, int height,
               struct error *error);

/* Several in one picture, from left to right, each as wide as the others. */
bool charts_png(const struct chart *charts, int count, const char *path, int width, int height,
                struct error *error);

/* ---- between chart*.c, bars.c */

struct canvas;

enum { TICKS_MOST = 32, TICK_TEXT = 24 };
struct ticks {
    int count;
    double at[TICKS_MOST];
    char text[TICKS_MOST][TICK_TEXT];
};

/* Round numbers from least to most, about `wanted`: 1, 2, 5 times powers of ten. */
void ticks_linear(struct ticks *ticks, double least, double most, int wanted);
void ticks_log(struct ticks *ticks, double least, double most, int wanted);

#endif
