// SPDX-License-Identifier: BSD-3-Clause
/* The ranges and the space for labels are computed first, then everything is drawn. If
 * a series has more points than the plot area has pixel columns, each column keeps its first, last,
 * lowest and highest point: the picture looks the same and the file stays small. */
#include "tools/report/chart.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "core/atomic_file.h"
#include "core/log.h"
#include "core/text.h"
#include "tools/report/escape.h"
#include "tools/report/format.h"
#include "tools/report/pen.h"
#include "tools/report/ticks.h"

#ifdef HAVE_CAIRO
#include <cairo.h>
#endif

/* Each colour has a contrast of 3:1 on white. Any two differ by at least 16 in CIELAB, also for
 * protanopes, deuteranopes and tritanopes (Machado, Oliveira and Fernandes, IEEE TVCG 15, 2009). */
const unsigned chart_colours[CHART_COLOURS] = {0x0067ac, 0xce5400, 0x22a868, 0xa47b9b,
                                               0x60502c, 0x043551, 0x8200f9, 0x343537};

enum { FEW_POINTS = 40, MANY_POINTS = 600, TITLES_LEAST = 8 };

static const double title_size = 13, label_size = 12, legend_line = 16, swatch = 18;
static const unsigned text_colour = 0x1b1f24, label_colour = 0x57606a, grid_colour = 0xd5dbe1;

struct range {
    double least, most;
    bool log;
};

struct drawing {
    const struct chart *chart;
    struct pen pen;
    bool embedded; /* without title, legend and label of the y axis */
    struct chart_size size;
    double left, top, right, bottom; /* of the plot area */
    double legend_top;
    struct range x, y;
    struct ticks x_ticks, y_ticks;
};

/* ---- ranges */

static bool can_be_drawn(const struct chart_axis *axis, double value)
{
    return fabs(value) <= CHART_MOST && (axis->scale != CHART_LOG || value >= 1 / CHART_MOST);
}

static struct range range_of(const struct chart *chart, bool of_y)
{
    const struct chart_axis *axis = of_y ? &chart->y : &chart->x;
    struct range range = {INFINITY, -INFINITY, axis->scale == CHART_LOG};

    for (int i = 0; i < chart->series_count; i++)
        for (int64_t k = 0; k < chart->series[i].count; k++) {
            const double x = chart->series[i].x[k], y = chart->series[i].y[k];
            /* The range of x includes points whose y cannot be drawn, such as a loss of NaN. */
            if (!can_be_drawn(&chart->x, x) || (of_y && !can_be_drawn(&chart->y, y)))
                continue;
            range.least = fmin(range.least, of_y ? y : x);
            range.most = fmax(range.most, of_y ? y : x);
        }
    if (axis->least != axis->most) {
        range.least = axis->least;
        range.most = axis->most;
    } else if (axis->from_zero && !range.log && range.least <= range.most) {
        range.least = fmin(range.least, 0);
        range.most = fmax(range.most, 0);
    }
    if (range.least > range.most) { /* no data */
        range.least = range.log ? 0.1 : 0;
        range.most = 1;
    }
    /* Widen the range around a single value. */
    const double size = fmax(fabs(range.least), fabs(range.most));
    if (range.most - range.least <= fmax(1e-12 * size, 1 / CHART_MOST)) {
        const double margin = range.least == 0 ? 1 : fabs(range.least) * 0.1;
        range.least = range.log ? range.least / 2 : range.least - margin;
        range.most = range.log ? range.most * 2 : range.most + margin;
    }
    return range;
}

/* Add a margin above and below the data, except at an edge that is 0. */
static void range_pad(struct range *range)
{
    if (range->log) {
        const double factor = pow(range->most / range->least, 0.04);
        range->least /= factor;
        range->most *= factor;
    } else {
        const double margin = (range->most - range->least) * 0.05;
        range->most += range->most == 0 ? 0 : margin;
        range->least -= range->least == 0 ? 0 : margin;
    }
}

/* Position of the value in the range, 0 to 1. */
static double range_position(const struct range *range, double value)
{
    const double position = range->log ? log(value / range->least) / log(range->most / range->least)
                                       : (value - range->least) / (range->most - range->least);
    return fmin(fmax(position, 0), 1);
}

static double x_of(const struct drawing *drawing, double value)
{
    return drawing->left + range_position(&drawing->x, value) * (drawing->right - drawing->left);
}

static double y_of(const struct drawing *drawing, double value)
{
    return drawing->bottom - range_position(&drawing->y, value) * (drawing->bottom - drawing->top);
}

/* ---- layout */

static struct pen_stroke series_stroke(const struct drawing *drawing, int i)
{
    const struct chart_series *series = &drawing->chart->series[i];
    const int colour = (series->colour > 0 ? series->colour - 1 : i) % CHART_COLOURS;
    return (struct pen_stroke){.colour = chart_colours[colour],
                               .width =
                                   series->thin || series->count > MANY_POINTS
                                       ? 1
                                       : 1.7 + 1.9 * (series->covered < 2 ? series->covered : 2),
                               .dashed = series->dashed};
}

/* Place the legend's entries in rows, and draw them if `draw` is set. Return its height. */
static double legend_place(const struct drawing *drawing, bool draw)
{
    const double left = 4, gap = 14;
    double x = left, y = drawing->legend_top + legend_line - 4;
    bool any = false;

    for (int i = 0; i < drawing->chart->series_count; i++) {
        const char *name = drawing->chart->series[i].name;
        const struct pen_stroke stroke = series_stroke(drawing, i);
        if (name == NULL)
            continue;
        const double width = swatch + 5 + pen_text_width(&drawing->pen, name);
        if (x > left && x + width > drawing->size.width) {
            x = left;
            y += legend_line;
        }
        if (draw) {
            pen_line(&drawing->pen, &stroke, x, y - 4, x + swatch, y - 4);
            pen_text(&drawing->pen, text_colour, PEN_LEFT, x + swatch + 5, y, 0, name);
        }
        x += width + gap;
        any = true;
    }
    return any ? y + 6 - drawing->legend_top : 0;
}

static void ticks_place(struct ticks *ticks, const struct range *range, bool whole, double length,
                        double distance)
{
    int wanted = (int)(length / distance);
    if (whole && wanted > range->most - range->least)
        wanted = (int)(range->most - range->least);
    if (range->log)
        ticks_log(ticks, range->least, range->most, wanted);
    else
        ticks_linear(ticks, range->least, range->most, wanted);
}

static double ticks_width(const struct drawing *drawing, const struct ticks *ticks)
{
    double width = 0;
    for (int i = 0; i < ticks->count; i++)
        width = fmax(width, pen_text_width(&drawing->pen, ticks->text[i]));
    return ceil(width * drawing->size.enlarged);
}

static void layout_make(struct drawing *drawing)
{
    const struct chart *chart = drawing->chart;
    const double line = 1.35 * label_size * drawing->size.enlarged;

    drawing->x = range_of(chart, false);
    drawing->y = range_of(chart, true);
    if (chart->y.least == chart->y.most)
        range_pad(&drawing->y);
    drawing->legend_top = chart->title == NULL ? 2 : title_size + 8;
    drawing->top = drawing->embedded ? line / 2
                                     : drawing->legend_top + legend_place(drawing, false) +
                                           (chart->y.label == NULL ? 6 : label_size + 9);
    drawing->bottom = drawing->size.height - (chart->x.label == NULL ? line : 2 * line) - 4;
    ticks_place(&drawing->y_ticks, &drawing->y, chart->y.whole, drawing->bottom - drawing->top,
                fmax(30, 24 * drawing->size.enlarged));
    drawing->left = ticks_width(drawing, &drawing->y_ticks) + 10;
    drawing->right = drawing->size.width - 14;
    /* The distance of labels of the x axis depends on their width: place them twice. */
    ticks_place(&drawing->x_ticks, &drawing->x, chart->x.whole, drawing->right - drawing->left, 62);
    const double width = ticks_width(drawing, &drawing->x_ticks);
    ticks_place(&drawing->x_ticks, &drawing->x, chart->x.whole, drawing->right - drawing->left,
                fmax(50, 1.5 * width));
    drawing->right = drawing->size.width - fmax(14, width / 2 + 2);
}

/* ---- the curves */

/* The points of one column of pixels. */
struct column {
    bool used;
    struct pen_point first, low, high, last;
};

static int64_t column_finish(const struct column *column, struct pen_point *points, int64_t count)
{
    const bool low_first = column->low.index < column->high.index;
    const struct pen_point kept[] = {column->first, low_first ? column->low : column->high,
                                     low_first ? column->high : column->low, column->last};
    for (int i = 0; column->used && i < 4; i++)
        if (i == 0 || kept[i].index > points[count - 1].index)
            points[count++] = kept[i];
    return count;
}

/* Reduce the series to at most four points per column; columns are wider in charts of many series.
 * Return the number of points. */
static int64_t series_thin(const struct drawing *drawing, const struct chart_series *series,
                           struct pen_point *points)
{
    const double column_width = drawing->size.coarse * fmax(1, drawing->chart->series_count / 4.0);
    struct column column = {.used = false};
    double place = 0;
    int64_t count = 0;
    bool interrupted = false;

    for (int64_t i = 0; i < series->count; i++) {
        if (!can_be_drawn(&drawing->chart->x, series->x[i]) ||
            !can_be_drawn(&drawing->chart->y, series->y[i])) {
            interrupted = true;
            continue;
        }
        const struct pen_point point = {x_of(drawing, series->x[i]), y_of(drawing, series->y[i]),
                                        i};
        if (column.used && floor(point.x / column_width) != place) {
            count = column_finish(&column, points, count);
            column.used = false;
            if (interrupted)
                points[count++] = (struct pen_point){.x = NAN};
        }
        interrupted = false; /* a gap inside a column is not visible */
        place = floor(point.x / column_width);
        if (!column.used)
            column = (struct column){true, point, point, point, point};
        if (point.y < column.low.y)
            column.low = point;
        if (point.y > column.high.y)
            column.high = point;
        column.last = point;
    }
    return column_finish(&column, points, count);
}

/* Draw a dot at each point. */
static void dots_draw(const struct drawing *drawing, unsigned colour,
                      const struct pen_point *points, int64_t count)
{
    const struct pen_stroke stroke = {.colour = colour, .width = 4.5};
    struct pen_point dots[4 * FEW_POINTS];
    int64_t used = 0;
    for (int64_t i = 0; i < count; i++) {
        dots[used++] = points[i];
        dots[used++] = (struct pen_point){.x = NAN};
    }
    if (used > 0)
        pen_curve(&drawing->pen, &stroke, dots, used);
}

static void series_draw(const struct drawing *drawing, int place)
{
    const struct chart_series *series = &drawing->chart->series[place];
    const struct pen_stroke stroke = series_stroke(drawing, place);
    /* At most two per point: a column has at most four points and one interruption. */
    struct pen_point *points = allocate((size_t)series->count * 2 + 1, sizeof *points);
    const int64_t count = series_thin(drawing, series, points);
    if (count > 0)
        pen_curve(&drawing->pen, &stroke, points, count);
    if (series->count <= FEW_POINTS && !series->thin)
        dots_draw(drawing, stroke.colour, points, count);
    free(points);
}

/* ---- values under the pointer */

/* Return the index of the point whose x is nearest. */
static int64_t series_nearest(const struct chart_series *series, double x)
{
    int64_t low = 0, high = series->count - 1;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (series->x[middle] < x)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 && x - series->x[low - 1] < series->x[low] - x ? low - 1 : low;
}

/* Write "step 120" or "2.5 minutes". */
static void x_write(const struct drawing *drawing, double x)
{
    const struct chart_axis *axis = &drawing->chart->x;
    char text[FORMAT_TEXT];
    format_figure(text, axis->whole ? FIGURE_COUNT : FIGURE_NUMBER, x);
    const char *label = axis->label != NULL ? axis->label : "x";
    fprintf(drawing->pen.svg, axis->whole ? "%s %s" : "%2$s %1$s", label, text);
}

/* Write the values of all series at x. For the nearest point of a series at another x, add its x.
 */
static void values_write(const struct drawing *drawing, double x)
{
    const struct chart *chart = drawing->chart;
    FILE *stream = drawing->pen.svg;
    char text[FORMAT_TEXT];
    x_write(drawing, x);
    for (int i = 0; i < chart->series_count; i++) {
        const struct chart_series *series = &chart->series[i];
        if (series->count == 0)
            continue;
        const int64_t nearest = series_nearest(series, x);
        const double value = series->y[nearest];
        format_figure(text, FIGURE_NUMBER, value);
        fputc('\n', stream);
        escape_html(stream, series->name != NULL   ? series->name
                            : chart->title != NULL ? chart->title
                                                   : "value");
        fprintf(stream, " %s", isfinite(value) ? text : "not finite");
        if (isfinite(value) && chart->y.label != NULL)
            fprintf(stream, " %s", chart->y.label);
        if (series->x[nearest] != x && chart->x.whole) {
            fputs(" at ", stream);
            x_write(drawing, series->x[nearest]);
        }
    }
}

/* Divide the plot area into columns around points of the longest series. */
static void hover_write(const struct drawing *drawing)
{
    const struct chart *chart = drawing->chart;
    const struct chart_series *longest = &chart->series[0];
    for (int i = 1; i < chart->series_count; i++)
        if (chart->series[i].count > longest->count)
            longest = &chart->series[i];
    /* Fewer titles if each has many lines. */
    const int64_t most =
        (int64_t)fmax(drawing->size.places / (1 + chart->series_count / 8), TITLES_LEAST);
    const int64_t count = longest->count < most ? longest->count : most;
    double from = drawing->left;
    for (int64_t i = 0; i < count; i++) {
        const double x = longest->x[count > 1 ? i * (longest->count - 1) / (count - 1) : 0];
        const double next =
            i + 1 < count ? longest->x[(i + 1) * (longest->count - 1) / (count - 1)] : INFINITY;
        const double to =
            i + 1 < count ? (x_of(drawing, x) + x_of(drawing, next)) / 2 : drawing->right;
        fprintf(drawing->pen.svg, "<rect class=\"at\" x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" ", from,
                drawing->top, fmax(to - from, 0));
        fprintf(drawing->pen.svg, "height=\"%.0f\"><title>", drawing->bottom - drawing->top);
        values_write(drawing, x);
        fputs("</title></rect>\n", drawing->pen.svg);
        from = to;
    }
}

/* ---- the whole chart */

static void grid_draw(const struct drawing *drawing)
{
    const struct pen_stroke grid = {.colour = grid_colour, .width = 1};
    const struct pen_stroke axis = {.colour = label_colour, .width = 1};
    const struct pen *pen = &drawing->pen;
    for (int i = 0; i < drawing->y_ticks.count; i++) {
        const double y = y_of(drawing, drawing->y_ticks.at[i]);
        pen_line(pen, &grid, drawing->left, y, drawing->right, y);
        pen_text(pen, label_colour, PEN_RIGHT, drawing->left - 6, y, 0.35,
                 drawing->y_ticks.text[i]);
    }
    for (int i = 0; i < drawing->x_ticks.count; i++) {
        const double x = x_of(drawing, drawing->x_ticks.at[i]);
        pen_line(pen, &grid, x, drawing->top, x, drawing->bottom);
        pen_text(pen, label_colour, PEN_CENTRE, x, drawing->bottom + 4, 1,
                 drawing->x_ticks.text[i]);
    }
    pen_line(pen, &axis, drawing->left, drawing->bottom, drawing->right, drawing->bottom);
}

static void chart_draw(struct drawing *drawing)
{
    const struct chart *chart = drawing->chart;
    struct pen *pen = &drawing->pen;
    int64_t points = 0;

    grid_draw(drawing);
    if (chart->x.label != NULL)
        pen_text(pen, label_colour, PEN_RIGHT, drawing->right, drawing->bottom + 4, 2.3,
                 chart->x.label);
    if (chart->y.label != NULL && !drawing->embedded)
        pen_text(pen, label_colour, PEN_LEFT, 4, drawing->top - 7, 0, chart->y.label);
    if (!drawing->embedded)
        legend_place(drawing, true);
    for (int i = 0; i < chart->series_count; i++) {
        points += chart->series[i].count;
        series_draw(drawing, i);
    }
    if (points == 0)
        pen_text(pen, label_colour, PEN_CENTRE, (drawing->left + drawing->right) / 2,
                 (drawing->top + drawing->bottom) / 2, 0, "no data");
    pen->text_size = title_size;
    pen->bold = true;
    if (chart->title != NULL && !drawing->embedded)
        pen_text(pen, text_colour, PEN_LEFT, 4, title_size + 2, 0, chart->title);
}

static void svg_open(const struct drawing *drawing, const char *attributes)
{
    fprintf(
        drawing->pen.svg,
        "<svg%s viewBox=\"0 0 %g %g\" fill=\"none\" font-size=\"%g\" "
        "font-family=\"system-ui,sans-serif\" stroke-linejoin=\"round\" stroke-linecap=\"round\"",
        attributes, drawing->size.width, drawing->size.height, drawing->pen.text_size);
}

/* Write a description for screen readers. */
static void label_write(const struct drawing *drawing)
{
    const struct chart *chart = drawing->chart;
    FILE *stream = drawing->pen.svg;
    char text[FORMAT_TEXT];
    fputs(" role=\"img\" aria-label=\"", stream);
    escape_html(stream, chart->title != NULL ? chart->title : "chart");
    fprintf(stream, " by %s.", chart->x.label != NULL ? chart->x.label : "x");
    for (int i = 0; i < chart->series_count; i++) {
        const struct chart_series *series = &chart->series[i];
        int64_t last = series->count;
        while (last > 0 && isnan(series->y[last - 1]))
            last--;
        if (series->name == NULL || last == 0)
            continue;
        format_figure(text, FIGURE_NUMBER, series->y[last - 1]);
        fputc(' ', stream);
        escape_html(stream, series->name);
        fprintf(stream, ": %lld points, last %s.", (long long)series->count, text);
    }
    fputc('"', stream);
}

void chart_embed(const struct chart *chart, FILE *stream, const char *id,
                 const struct chart_size *size)
{
    struct drawing drawing = {.chart = chart,
                              .pen = {.svg = stream, .text_size = label_size},
                              .embedded = true,
                              .size = *size};
    layout_make(&drawing);
    svg_open(&drawing, " class=\"chart\"");
    fprintf(stream, " id=\"%s\" data-frame=\"%.2f %.2f %.2f %.2f\"", id, drawing.left, drawing.top,
            drawing.right, drawing.bottom);
    fprintf(stream, " data-range=\"%.9g %.9g %.9g %.9g\"", drawing.x.least, drawing.x.most,
            drawing.y.least, drawing.y.most);
    label_write(&drawing);
    fputs(">\n", stream);
    chart_draw(&drawing);
    if (chart->series_count > 0)
        hover_write(&drawing);
    fputs("</svg>", stream);
}

char *chart_svg(const struct chart *chart, double width, double height)
{
    struct drawing drawing = {.chart = chart,
                              .pen = {.text_size = label_size},
                              .size = {width, height, .enlarged = 1, .coarse = 1}};
    struct text_stream text;
    drawing.pen.svg = text_stream_open(&text);
    layout_make(&drawing);
    svg_open(&drawing, " xmlns=\"http://www.w3.org/2000/svg\"");
    fputs(">\n", drawing.pen.svg);
    chart_draw(&drawing);
    fputs("</svg>\n", drawing.pen.svg);
    return text_stream_close(&text);
}

#ifdef HAVE_CAIRO

const bool chart_png_available = true;

/* A failed write is found when the file is closed. */
static cairo_status_t bytes_write(void *stream, const unsigned char *bytes, unsigned length)
{
    return fwrite(bytes, 1, length, stream) == length ? CAIRO_STATUS_SUCCESS
                                                      : CAIRO_STATUS_WRITE_ERROR;
}

bool chart_png(const struct chart *charts, int count, const char *path, int width, int height,
               struct error *error)
{
    /* Large pictures have larger text: it is scaled as on a page 640 pixels wide. */
    const int part = width / count;
    const double scale = fmax(1, fmin(part / 640.0, height / 400.0));
    struct atomic_file file;

    if (!atomic_file_open(&file, path, error))
        return false;
    cairo_surface_t *surface = cairo_image_surface_create(CAIRO_FORMAT_RGB24, width, height);
    cairo_t *cairo = cairo_create(surface);
    cairo_set_source_rgb(cairo, 1, 1, 1);
    cairo_paint(cairo);
    cairo_scale(cairo, scale, scale);
    for (int i = 0; i < count; i++) {
        struct drawing drawing = {
            .chart = &charts[i],
            .pen = {.cairo = cairo, .text_size = label_size},
            .size = {part / scale, height / scale, .enlarged = 1, .coarse = 1}};
        layout_make(&drawing);
        chart_draw(&drawing);
        cairo_translate(cairo, part / scale, 0);
    }
    cairo_status_t status = cairo_status(cairo);
    cairo_destroy(cairo);
    if (status == CAIRO_STATUS_SUCCESS)
        status = cairo_surface_write_to_png_stream(surface, bytes_write, file.stream);
    cairo_surface_destroy(surface);
    /* atomic_file_commit reports a failed write with its reason. */
    if (status == CAIRO_STATUS_SUCCESS || status == CAIRO_STATUS_WRITE_ERROR)
        return atomic_file_commit(&file, error);
    atomic_file_discard(&file);
    return error_set(error, status == CAIRO_STATUS_NO_MEMORY ? ERROR_MEMORY : ERROR_FILE,
                     "cannot draw %s: %s", path, cairo_status_to_string(status));
}

#else

const bool chart_png_available = false;

bool chart_png(const struct chart *charts, int count, const char *path, int width, int height,
               struct error *error)
{
    static bool warned;
    (void)charts;
    (void)count;
    (void)width;
    (void)height;
    (void)error;
    if (!warned)
        log_warn("%s and other PNG files are not written: vittrain was built without Cairo "
                 "(libcairo2-dev)",
                 path);
    warned = true;
    return true;
}

#endif
