/* Line charts, drawn by Cairo as SVG and as PNG. */
#ifndef VITTRAIN_REPORT_CHART_H
#define VITTRAIN_REPORT_CHART_H

#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"

enum chart_scale { CHART_LINEAR, CHART_LOG };

struct chart_axis {
    const char *label; /* with the unit: "time, min" */
    enum chart_scale scale;
    double least, most; /* both 0: the range of the data; points outside are drawn at the edge */
    bool from_zero;     /* linear axes without a fixed range: include 0 */
    bool whole;         /* ticks at whole numbers only, as for epochs */
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

/* The plot area inside the drawing, and the values at its edges. */
struct chart_frame {
    double left, top, right, bottom;
    double x_least, x_most, y_least, y_most;
};

/* Colours of the series, 0xRRGGBB. Repeated when there are more series. */
enum { CHART_COLOURS = 8 };
extern const unsigned chart_colours[CHART_COLOURS];

/* False if vittrain was built without Cairo. */
extern const bool chart_available;

/* Return an SVG file with a transparent background as text, to be freed by the caller; NULL without
 * Cairo. Sizes are in CSS pixels. `frame`: output, may be NULL. */
char *chart_svg(const struct chart *chart, double width, double height, struct chart_frame *frame);

/* Write charts side by side, with equal widths, into one PNG on white paper, atomically. Without
 * Cairo nothing is written, one warning is logged and the result is true. ERROR_FILE, ERROR_MEMORY.
 */
MUST_CHECK bool chart_png(const struct chart *charts, int count, const char *path, int width,
                          int height, struct error *error);

/* Tick marks of an axis. */
enum { TICKS_MOST = 32, TICK_TEXT = 24 };

struct ticks {
    int count;
    double at[TICKS_MOST];
    char text[TICKS_MOST][TICK_TEXT];
};

/* Place about `wanted` ticks between least and most, at 1, 2 or 5 times a power of ten. */
void ticks_linear(struct ticks *ticks, double least, double most, int wanted);
void ticks_log(struct ticks *ticks, double least, double most, int wanted);

#endif
