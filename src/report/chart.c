/* Line charts. The ranges and the space for labels are computed first, then everything is drawn. If
 * a series has more points than the plot area has pixel columns, each column keeps its first, last,
 * lowest and highest point: the picture looks the same and the file stays small. */
#include "report/chart.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "core/atomic_file.h"
#include "core/log.h"

/* Each colour has a contrast of 3:1 on white. Any two differ by at least 16 in CIELAB, also for
 * protanopes, deuteranopes and tritanopes (Machado, Oliveira and Fernandes, IEEE TVCG 15, 2009). */
const unsigned chart_colours[CHART_COLOURS] = {0x0067ac, 0xce5400, 0x22a868, 0xa47b9b,
                                               0x60502c, 0x043551, 0x8200f9, 0x343537};

/* ---- ticks. A label has as few digits as keep neighbours distinct. */

/* Return the largest prefix of 1, k, M, G, T that is not above the number, and its value. */
static const char *prefix_of(double magnitude, double *unit)
{
    static const char *const prefixes[] = {"", "k", "M", "G", "T"};
    int i = 0;
    *unit = 1;
    while (i < 4 && magnitude >= *unit * 1000 * 0.9999) {
        *unit *= 1000;
        i++;
    }
    return prefixes[i];
}

/* Replace 1e-08 by 1e-8. */
static void exponent_shorten(char *text)
{
    char *sign = strpbrk(text, "e");
    if (sign != NULL && sign[1] != '\0' && sign[2] == '0')
        memmove(sign + 2, sign + 3, strlen(sign + 3) + 1);
}

/* `step`: distance between two ticks; `magnitude`: largest absolute value on the axis. */
static void tick_write(char *text, double value, double step, double magnitude)
{
    double unit = 1;
    const char *prefix = magnitude >= 10000 ? prefix_of(step, &unit) : "";
    if (magnitude < 0.001 || magnitude >= 1e15) {
        snprintf(text, TICK_TEXT, "%.3g", value);
        exponent_shorten(text);
        return;
    }
    int decimals = (int)-floor(log10(step / unit) + 1e-9);
    decimals = decimals < 0 ? 0 : decimals > 9 ? 9 : decimals;
    snprintf(text, TICK_TEXT, "%.*f%s", decimals, value / unit, value == 0 ? "" : prefix);
}

void ticks_linear(struct ticks *ticks, double least, double most, int wanted)
{
    /* Round the step up to 1, 2 or 5 times a power of ten. */
    const double rough = (most - least) / (wanted < 1 ? 1 : wanted) * 0.8;
    const double power = pow(10, floor(log10(rough))), times = rough / power;
    const double step = power * (times <= 1.0001   ? 1
                                 : times <= 2.0001 ? 2
                                 : times <= 5.0001 ? 5
                                                   : 10);
    const double magnitude = fmax(fabs(least), fabs(most));
    ticks->count = 0;
    for (double i = ceil(least / step - 1e-6); ticks->count < TICKS_MOST; i++) {
        const double value = i * step;
        if (value > most + step * 1e-6)
            break;
        ticks->at[ticks->count] = value;
        tick_write(ticks->text[ticks->count++], value == 0 ? 0 : value, step, magnitude);
    }
}

void ticks_log(struct ticks *ticks, double least, double most, int wanted)
{
    static const double factors[] = {1, 2, 5};
    const int low = (int)floor(log10(least)), high = (int)ceil(log10(most));
    const double decades = log10(most / least);
    if (decades < 0.7) {
        ticks_linear(ticks, least, most, wanted);
        return;
    }
    ticks->count = 0;
    wanted = wanted < 1 ? 1 : wanted;
    const int every = decades > wanted ? (int)ceil(decades / wanted) : 1;
    for (int decade = low; decade <= high; decade++) {
        if ((decade - low) % every != 0)
            continue;
        for (int i = 0; i < (decades <= wanted / 3.0 + 0.5 ? 3 : 1); i++) {
            const double value = factors[i] * pow(10, decade);
            double unit = 1;
            if (value < least * 0.9999 || value > most * 1.0001 || ticks->count == TICKS_MOST)
                continue;
            const char *prefix = value < 1e15 ? prefix_of(value, &unit) : "";
            char *text = ticks->text[ticks->count];
            snprintf(text, TICK_TEXT, "%g%s", value / unit, prefix);
            exponent_shorten(text);
            ticks->at[ticks->count++] = value;
        }
    }
}

#ifdef HAVE_CAIRO

#include <cairo-svg.h>

const bool chart_available = true;

static const double title_size = 13, label_size = 11, legend_line = 15, swatch = 18;
static const unsigned text_colour = 0x1b1f24, label_colour = 0x57606a, grid_colour = 0xd5dbe1;

enum { FEW_POINTS = 40 };

enum alignment { LEFT, CENTRE, RIGHT };

struct range {
    double least, most;
    bool log;
};

struct drawing {
    const struct chart *chart;
    cairo_t *cairo;
    double width, height;
    double left, top, right, bottom; /* of the plot area */
    double legend_top;
    struct range x, y;
    struct ticks x_ticks, y_ticks;
};

struct point {
    double x, y;   /* x NAN: the line is interrupted */
    int64_t index; /* in the series */
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
            if (!can_be_drawn(&chart->x, x) || !can_be_drawn(&chart->y, y))
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

/* Coordinates are multiples of 1/8, which keeps SVG files small. */
static double x_of(const struct drawing *drawing, double value)
{
    const double width = drawing->right - drawing->left;
    return round(8 * (drawing->left + range_position(&drawing->x, value) * width)) / 8;
}

static double y_of(const struct drawing *drawing, double value)
{
    const double height = drawing->bottom - drawing->top;
    return round(8 * (drawing->bottom - range_position(&drawing->y, value) * height)) / 8;
}

/* ---- text and lines */

static void colour_set(cairo_t *cairo, unsigned colour)
{
    cairo_set_source_rgb(cairo, (colour >> 16 & 255) / 255.0, (colour >> 8 & 255) / 255.0,
                         (colour & 255) / 255.0);
}

static double text_width(cairo_t *cairo, const char *text)
{
    cairo_text_extents_t extents;
    cairo_text_extents(cairo, text, &extents);
    return extents.x_advance;
}

static void text_draw(cairo_t *cairo, unsigned colour, enum alignment alignment, double x, double y,
                      const char *text)
{
    const double width = alignment == LEFT ? 0 : text_width(cairo, text);
    colour_set(cairo, colour);
    cairo_move_to(cairo, alignment == CENTRE ? x - width / 2 : x - width, y);
    cairo_show_text(cairo, text);
}

static void line_draw(cairo_t *cairo, unsigned colour, double x0, double y0, double x1, double y1)
{
    colour_set(cairo, colour);
    cairo_set_line_width(cairo, 1);
    cairo_move_to(cairo, x0, y0);
    cairo_line_to(cairo, x1, y1);
    cairo_stroke(cairo);
}

/* Stroke the current path in the series' colour, width and dashes. */
static void series_stroke(const struct drawing *drawing, int i)
{
    static const double dashes[] = {5, 4};
    const struct chart_series *series = &drawing->chart->series[i];
    cairo_t *cairo = drawing->cairo;
    colour_set(cairo, chart_colours[(series->colour > 0 ? series->colour - 1 : i) % CHART_COLOURS]);
    cairo_set_line_width(
        cairo, series->thin ? 1 : 1.7 + 1.9 * (series->covered < 2 ? series->covered : 2));
    cairo_set_dash(cairo, dashes, series->dashed ? 2 : 0, 0);
    cairo_set_line_cap(cairo, series->dashed ? CAIRO_LINE_CAP_BUTT : CAIRO_LINE_CAP_ROUND);
    cairo_stroke(cairo);
    cairo_set_dash(cairo, NULL, 0, 0);
}

/* Place the legend's entries in rows, and draw them if `draw` is set. Return its height. */
static double legend_place(const struct drawing *drawing, bool draw)
{
    const double left = 4, gap = 14;
    double x = left, y = drawing->legend_top + legend_line - 4;
    bool any = false;

    for (int i = 0; i < drawing->chart->series_count; i++) {
        const char *name = drawing->chart->series[i].name;
        if (name == NULL)
            continue;
        const double width = swatch + 5 + text_width(drawing->cairo, name);
        if (x > left && x + width > drawing->width) {
            x = left;
            y += legend_line;
        }
        if (draw) {
            cairo_move_to(drawing->cairo, x, y - 4);
            cairo_line_to(drawing->cairo, x + swatch, y - 4);
            series_stroke(drawing, i);
            text_draw(drawing->cairo, text_colour, LEFT, x + swatch + 5, y, name);
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

static void layout_make(struct drawing *drawing)
{
    const struct chart *chart = drawing->chart;
    double ticks_width = 0;

    drawing->x = range_of(chart, false);
    drawing->y = range_of(chart, true);
    if (chart->y.least == chart->y.most)
        range_pad(&drawing->y);
    drawing->legend_top = chart->title == NULL ? 2 : title_size + 8;
    drawing->top = drawing->legend_top + legend_place(drawing, false) +
                   (chart->y.label == NULL ? 6 : label_size + 9);
    drawing->bottom = drawing->height - (chart->x.label == NULL ? 20 : 36);
    ticks_place(&drawing->y_ticks, &drawing->y, chart->y.whole, drawing->bottom - drawing->top, 30);
    for (int i = 0; i < drawing->y_ticks.count; i++)
        ticks_width = fmax(ticks_width, text_width(drawing->cairo, drawing->y_ticks.text[i]));
    drawing->left = ceil(ticks_width) + 10;
    drawing->right = drawing->width - 14;
    ticks_place(&drawing->x_ticks, &drawing->x, chart->x.whole, drawing->right - drawing->left, 62);
}

/* ---- the curves */

/* The points of one pixel column. */
struct column {
    bool used;
    struct point first, low, high, last;
};

static int64_t column_finish(const struct column *column, struct point *points, int64_t count)
{
    const bool low_first = column->low.index < column->high.index;
    const struct point kept[] = {column->first, low_first ? column->low : column->high,
                                 low_first ? column->high : column->low, column->last};
    for (int i = 0; column->used && i < 4; i++)
        if (i == 0 || kept[i].index > points[count - 1].index)
            points[count++] = kept[i];
    return count;
}

/* Thin the series to what can be seen. Return the number of points. */
static int64_t series_thin(const struct drawing *drawing, const struct chart_series *series,
                           struct point *points)
{
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
        const struct point point = {x_of(drawing, series->x[i]), y_of(drawing, series->y[i]), i};
        if (column.used && floor(point.x) != place) {
            count = column_finish(&column, points, count);
            column.used = false;
            if (interrupted)
                points[count++] = (struct point){.x = NAN};
        }
        interrupted = false; /* a gap inside a column is not visible */
        place = floor(point.x);
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

static void series_draw(const struct drawing *drawing, int place)
{
    const struct chart_series *series = &drawing->chart->series[place];
    cairo_t *cairo = drawing->cairo;
    /* At most two per point: a column has at most four points and one interruption. */
    struct point *points = calloc((size_t)series->count * 2 + 1, sizeof *points);
    ENSURE(points != NULL, "no memory for a chart");
    const int64_t count = series_thin(drawing, series, points);
    for (int64_t i = 0; i < count; i++) {
        if (isnan(points[i].x))
            continue;
        if (i == 0 || isnan(points[i - 1].x)) /* a point between two gaps becomes a dot */
            cairo_move_to(cairo, points[i].x, points[i].y);
        cairo_line_to(cairo, points[i].x, points[i].y);
    }
    series_stroke(drawing, place);
    /* Mark each of a few points, since nothing was measured between them. */
    for (int64_t i = 0; i < count && count <= FEW_POINTS && !series->thin; i++)
        if (!isnan(points[i].x)) {
            cairo_arc(cairo, points[i].x, points[i].y, 2.25, 0, 2 * M_PI);
            cairo_fill(cairo);
        }
    free(points);
}

/* ---- the whole chart */

static void grid_draw(const struct drawing *drawing)
{
    cairo_t *cairo = drawing->cairo;
    for (int i = 0; i < drawing->y_ticks.count; i++) {
        const double y = y_of(drawing, drawing->y_ticks.at[i]);
        line_draw(cairo, grid_colour, drawing->left, y, drawing->right, y);
        text_draw(cairo, label_colour, RIGHT, drawing->left - 6, y + 4, drawing->y_ticks.text[i]);
    }
    for (int i = 0; i < drawing->x_ticks.count; i++) {
        const double x = x_of(drawing, drawing->x_ticks.at[i]);
        line_draw(cairo, grid_colour, x, drawing->top, x, drawing->bottom);
        text_draw(cairo, label_colour, CENTRE, x, drawing->bottom + 15, drawing->x_ticks.text[i]);
    }
    line_draw(cairo, label_colour, drawing->left, drawing->bottom, drawing->right, drawing->bottom);
}

/* Draw the chart on the surface with the given size in CSS pixels. */
static void chart_draw(const struct chart *chart, cairo_t *cairo, double width, double height,
                       struct chart_frame *frame)
{
    struct drawing drawing = {.chart = chart, .cairo = cairo, .width = width, .height = height};
    int64_t points = 0;

    cairo_set_line_join(cairo, CAIRO_LINE_JOIN_ROUND);
    cairo_select_font_face(cairo, "sans-serif", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(cairo, label_size);
    layout_make(&drawing);
    grid_draw(&drawing);
    if (chart->y.label != NULL)
        text_draw(cairo, label_colour, LEFT, 4, drawing.top - 7, chart->y.label);
    if (chart->x.label != NULL)
        text_draw(cairo, label_colour, RIGHT, drawing.right, height - 5, chart->x.label);
    legend_place(&drawing, true);
    for (int i = 0; i < chart->series_count; i++) {
        points += chart->series[i].count;
        series_draw(&drawing, i);
    }
    if (points == 0)
        text_draw(cairo, label_colour, CENTRE, (drawing.left + drawing.right) / 2,
                  (drawing.top + drawing.bottom) / 2, "no data");
    if (chart->title != NULL) {
        cairo_select_font_face(cairo, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                               CAIRO_FONT_WEIGHT_BOLD);
        cairo_set_font_size(cairo, title_size);
        text_draw(cairo, text_colour, LEFT, 4, title_size + 2, chart->title);
    }
    if (frame != NULL)
        *frame =
            (struct chart_frame){drawing.left,    drawing.top,    drawing.right,   drawing.bottom,
                                 drawing.x.least, drawing.x.most, drawing.y.least, drawing.y.most};
}

/* Errors are detected when the stream is closed. */
static cairo_status_t bytes_write(void *stream, const unsigned char *bytes, unsigned length)
{
    return fwrite(bytes, 1, length, stream) == length ? CAIRO_STATUS_SUCCESS
                                                      : CAIRO_STATUS_WRITE_ERROR;
}

char *chart_svg(const struct chart *chart, double width, double height, struct chart_frame *frame)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    ENSURE(stream != NULL, "no memory for a chart");
    cairo_surface_t *surface =
        cairo_svg_surface_create_for_stream(bytes_write, stream, width, height);
    cairo_svg_surface_set_document_unit(surface, CAIRO_SVG_UNIT_PX);
    cairo_t *cairo = cairo_create(surface);
    chart_draw(chart, cairo, width, height, frame);
    cairo_destroy(cairo);
    cairo_surface_finish(surface);
    const cairo_status_t status = cairo_surface_status(surface);
    cairo_surface_destroy(surface);
    ENSURE(fclose(stream) == 0 && status == CAIRO_STATUS_SUCCESS, "a chart cannot be drawn: %s",
           cairo_status_to_string(status));
    return text;
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
        chart_draw(&charts[i], cairo, part / scale, height / scale, NULL);
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

const bool chart_available = false;

char *chart_svg(const struct chart *chart, double width, double height, struct chart_frame *frame)
{
    (void)chart;
    (void)width;
    (void)height;
    (void)frame;
    return NULL;
}

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
        log_warn("%s and other pictures are not written: vittrain was built without Cairo "
                 "(libcairo2-dev)",
                 path);
    warned = true;
    return true;
}

#endif
