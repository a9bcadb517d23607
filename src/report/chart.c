/* Line charts: the ranges and the room that the words take are settled first, then all is drawn. Of
 * more points than the frame has columns only each column's first, last, highest and lowest are
 * drawn, which looks the same: a run of 100,000 rows makes a small page. */
#include "report/chart.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "report/canvas.h"

static const double title_size = 13, label_size = 11, legend_line = 15, swatch = 18;

enum { LEGEND_NAME = 96, ATTRIBUTES = 512, FEW_POINTS = 40 };

struct range {
    double least, most;
    bool log;
};

struct layout {
    struct range x, y;
    struct ticks x_ticks, y_ticks;
    double left, top, right, bottom; /* of the frame */
    double legend_top;
};

/* ---- ranges */

/* Nothing that was measured is beyond: there, differences and ratios are no numbers. */
static bool is_shown(const struct chart_axis *axis, double value)
{
    return fabs(value) <= CHART_MOST && (axis->scale != CHART_LOG || value >= 1 / CHART_MOST);
}

/* Of nothing: from 0 to 1, or a decade. Of one value: something around it. */
static void range_widen(struct range *range)
{
    if (range->least > range->most)
        *range = (struct range){range->log ? 0.1 : 0, 1, range->log};
    if (range->most - range->least >
        fmax(1e-12 * fmax(fabs(range->least), fabs(range->most)), 1 / CHART_MOST))
        return;
    if (range->log) {
        range->least /= 2;
        range->most *= 2;
    } else {
        const double around = range->least == 0 ? 1 : fabs(range->least) * 0.1;
        range->least -= around;
        range->most += around;
    }
}

static struct range range_of(const struct chart *chart, bool of_y)
{
    const struct chart_axis *axis = of_y ? &chart->y : &chart->x;
    struct range range = {INFINITY, -INFINITY, axis->scale == CHART_LOG};

    for (int i = 0; i < chart->series_count; i++)
        for (int64_t k = 0; k < chart->series[i].count; k++) {
            const double x = chart->series[i].x[k], y = chart->series[i].y[k];
            if (!is_shown(&chart->x, x) || !is_shown(&chart->y, y))
                continue;
            range.least = fmin(range.least, of_y ? y : x);
            range.most = fmax(range.most, of_y ? y : x);
        }
    if (axis->least != axis->most)
        range = (struct range){axis->least, axis->most, range.log};
    else if (axis->from_zero && !range.log && range.least <= range.most) {
        range.least = fmin(range.least, 0);
        range.most = fmax(range.most, 0);
    }
    range_widen(&range);
    return range;
}

/* A little air above and below the data, but none below a 0 that they start at. */
static void range_pad(struct range *range, const struct chart_axis *axis)
{
    if (axis->least != axis->most)
        return;
    if (range->log) {
        const double factor = pow(range->most / range->least, 0.04);
        range->least /= factor;
        range->most *= factor;
        return;
    }
    const double air = (range->most - range->least) * 0.05;
    range->most += range->most == 0 ? 0 : air;
    range->least -= range->least == 0 ? 0 : air;
}

/* Where in the range, 0 to 1. */
static double range_share(const struct range *range, double value)
{
    const double share = range->log ? log(value / range->least) / log(range->most / range->least)
                                    : (value - range->least) / (range->most - range->least);
    return fmin(fmax(share, 0), 1);
}

static double place_x(const struct layout *layout, double value)
{
    return layout->left + range_share(&layout->x, value) * (layout->right - layout->left);
}

static double place_y(const struct layout *layout, double value)
{
    return layout->bottom - range_share(&layout->y, value) * (layout->bottom - layout->top);
}

/* ---- the room that words take */

/* As much of the name as fits. */
static void name_fit(const char *name, double width, char *text)
{
    snprintf(text, LEGEND_NAME, "%s", name);
    size_t length = strlen(text);
    while (length > 4 && canvas_text_width(text, label_size) > width) {
        length--;
        while (length > 0 && ((unsigned char)text[length] & 0xC0) == 0x80)
            length--; /* not inside a character */
        memcpy(text + length, "...", 4);
        if (canvas_text_width(text, label_size) <= width)
            return;
    }
}

static double line_width(const struct chart_series *series)
{
    return series->thin ? 1 : 1.7 + 1.9 * (series->covered < 2 ? series->covered : 2);
}

static int named_series(const struct chart *chart)
{
    int count = 0;
    for (int i = 0; i < chart->series_count; i++)
        count += chart->series[i].name != NULL;
    return count;
}

/* Lays the legend's entries out; draws them where there is a canvas. Gives its height. */
static double legend_lay(const struct chart *chart, struct canvas *canvas, double width, double top)
{
    const double left = 4;
    double x = left, y = top + legend_line - 4;

    if (named_series(chart) == 0)
        return 0;
    for (int i = 0; i < chart->series_count; i++) {
        const struct chart_series *series = &chart->series[i];
        char name[LEGEND_NAME];
        if (series->name == NULL)
            continue;
        name_fit(series->name, width - left - swatch - 10, name);
        const double wide = swatch + 5 + canvas_text_width(name, label_size) + 14;
        if (x > left && x + wide - 14 > width) {
            x = left;
            y += legend_line;
        }
        if (canvas != NULL) {
            const enum ink ink = ink_of_series(series->colour > 0 ? series->colour - 1 : i);
            canvas_line(canvas, (struct pen){ink, line_width(series), series->dashed}, x, y - 4,
                        x + swatch, y - 4);
            canvas_text(canvas, (struct lettering){INK_TEXT, label_size, ANCHOR_START, false},
                        x + swatch + 5, y, name);
        }
        x += wide;
    }
    return y + 6 - top;
}

static void ticks_of(struct ticks *ticks, const struct range *range, bool whole, double length,
                     double apart)
{
    int wanted = (int)(length / apart);
    if (whole && wanted > range->most - range->least)
        wanted = (int)(range->most - range->least);
    if (range->log)
        ticks_log(ticks, range->least, range->most, wanted);
    else
        ticks_linear(ticks, range->least, range->most, wanted);
}

static double ticks_width(const struct ticks *ticks)
{
    double most = 0;
    for (int i = 0; i < ticks->count; i++)
        most = fmax(most, canvas_text_width(ticks->text[i], label_size));
    return most;
}

static void layout_make(struct layout *layout, const struct chart *chart, double width,
                        double height)
{
    layout->x = range_of(chart, false);
    layout->y = range_of(chart, true);
    range_pad(&layout->y, &chart->y);
    layout->legend_top = chart->title == NULL ? 2 : title_size + 8;
    const double legend = legend_lay(chart, NULL, width, layout->legend_top);
    layout->top = layout->legend_top + legend + (chart->y.label == NULL ? 6 : label_size + 9);
    layout->bottom = height - (chart->x.label == NULL ? 20 : 36);
    ticks_of(&layout->y_ticks, &layout->y, chart->y.whole, layout->bottom - layout->top, 30);
    layout->left = ceil(ticks_width(&layout->y_ticks)) + 10;
    layout->right = width - 14;
    ticks_of(&layout->x_ticks, &layout->x, chart->x.whole, layout->right - layout->left, 62);
}

/* ---- the lines */

/* What of a column's points is drawn: the first, the last, and between them the lowest and the
 * highest in their order. */
struct column {
    double at; /* its number */
    int64_t count, lowest, highest;
    struct point first, low, high, last;
};

static void column_end(struct column *column, struct point *points, int64_t *count)
{
    const int64_t last = column->count - 1;
    const bool low_first = column->lowest < column->highest;
    if (column->count == 0)
        return;
    points[(*count)++] = column->first;
    for (int i = 0; i < 2; i++) {
        const bool low = (i == 0) == low_first;
        const int64_t at = low ? column->lowest : column->highest;
        if (at > 0 && at < last)
            points[(*count)++] = low ? column->low : column->high;
    }
    if (last > 0)
        points[(*count)++] = column->last;
    column->count = 0;
}

static void column_add(struct column *column, struct point point)
{
    if (column->count == 0) {
        column->first = column->low = column->high = point;
        column->lowest = column->highest = 0;
    }
    if (point.y < column->low.y) {
        column->low = point;
        column->lowest = column->count;
    }
    if (point.y > column->high.y) {
        column->high = point;
        column->highest = column->count;
    }
    column->last = point;
    column->count++;
}

/* The series on the canvas, thinned; gives how many points. */
static int64_t series_points(const struct chart *chart, const struct chart_series *series,
                             const struct layout *layout, struct point *points)
{
    struct column column = {.count = 0};
    int64_t count = 0;
    bool broken = false;

    for (int64_t i = 0; i < series->count; i++) {
        if (!is_shown(&chart->x, series->x[i]) || !is_shown(&chart->y, series->y[i])) {
            broken = true;
            continue;
        }
        const struct point point = {place_x(layout, series->x[i]), place_y(layout, series->y[i])};
        const double at = floor(point.x);
        if (column.count > 0 && at != column.at) {
            column_end(&column, points, &count);
            if (broken)
                points[count++] = (struct point){NAN, NAN};
        }
        broken = false; /* a gap inside a column is not to be seen */
        column.at = at;
        column_add(&column, point);
    }
    column_end(&column, points, &count);
    return count;
}

/* Few points are marked each, as what lies between them was not measured. */
static void markers_draw(struct canvas *canvas, enum ink ink, const struct point *points,
                         int64_t count)
{
    struct point *dots = calloc((size_t)count * 2, sizeof *dots);
    ENSURE(dots != NULL, "no memory for a chart");
    for (int64_t i = 0; i < count; i++) {
        dots[2 * i] = points[i];
        dots[2 * i + 1] = (struct point){NAN, NAN};
    }
    canvas_polyline(canvas, (struct pen){ink, 4.5, false}, dots, count * 2);
    free(dots);
}

static void series_draw(const struct chart *chart, int place, const struct layout *layout,
                        struct canvas *canvas)
{
    const struct chart_series *series = &chart->series[place];
    const enum ink ink = ink_of_series(series->colour > 0 ? series->colour - 1 : place);
    /* A column gives at most four and a break, or as many as it has. */
    struct point *points = calloc((size_t)series->count * 2 + 1, sizeof *points);
    ENSURE(points != NULL, "no memory for a chart");
    const int64_t count = series_points(chart, series, layout, points);
    canvas_polyline(canvas, (struct pen){ink, line_width(series), series->dashed}, points, count);
    if (count > 0 && count <= FEW_POINTS && !series->thin)
        markers_draw(canvas, ink, points, count);
    free(points);
}

/* ---- what is around them */

static void grid_draw(const struct layout *layout, struct canvas *canvas)
{
    const struct pen grid = {INK_GRID, 1, false};
    for (int i = 0; i < layout->y_ticks.count; i++) {
        const double y = place_y(layout, layout->y_ticks.at[i]);
        canvas_line(canvas, grid, layout->left, y, layout->right, y);
        canvas_text(canvas, (struct lettering){INK_QUIET, label_size, ANCHOR_END, false},
                    layout->left - 6, y + 4, layout->y_ticks.text[i]);
    }
    for (int i = 0; i < layout->x_ticks.count; i++) {
        const double x = place_x(layout, layout->x_ticks.at[i]);
        canvas_line(canvas, grid, x, layout->top, x, layout->bottom);
        canvas_text(canvas, (struct lettering){INK_QUIET, label_size, ANCHOR_MIDDLE, false}, x,
                    layout->bottom + 15, layout->x_ticks.text[i]);
    }
    canvas_line(canvas, (struct pen){INK_QUIET, 1, false}, layout->left, layout->bottom,
                layout->right, layout->bottom);
}

static void words_draw(const struct chart *chart, const struct layout *layout,
                       struct canvas *canvas)
{
    if (chart->title != NULL)
        canvas_text(canvas, (struct lettering){INK_TEXT, title_size, ANCHOR_START, true}, 4,
                    title_size + 2, chart->title);
    if (chart->y.label != NULL)
        canvas_text(canvas, (struct lettering){INK_QUIET, label_size, ANCHOR_START, false}, 4,
                    layout->top - 8, chart->y.label);
    if (chart->x.label != NULL)
        canvas_text(canvas, (struct lettering){INK_QUIET, label_size, ANCHOR_END, false},
                    layout->right, canvas->height - 5, chart->x.label);
    legend_lay(chart, canvas, canvas->width, layout->legend_top);
}

static void chart_draw(const struct chart *chart, const struct layout *layout,
                       struct canvas *canvas)
{
    int64_t points = 0;
    grid_draw(layout, canvas);
    words_draw(chart, layout, canvas);
    for (int i = 0; i < chart->series_count; i++) {
        points += chart->series[i].count;
        series_draw(chart, i, layout, canvas);
    }
    if (points == 0)
        canvas_text(canvas, (struct lettering){INK_QUIET, title_size, ANCHOR_MIDDLE, false},
                    (layout->left + layout->right) / 2, (layout->top + layout->bottom) / 2,
                    "nothing measured");
}

/* ---- SVG and PNG */

/* The last value of a series that is one; NAN: none. */
static double series_last(const struct chart_series *series)
{
    for (int64_t i = series->count; i > 0; i--)
        if (!isnan(series->y[i - 1]))
            return series->y[i - 1];
    return NAN;
}

static char *chart_description(const struct chart *chart, const struct layout *layout)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    ENSURE(stream != NULL, "no memory for a chart");
    fprintf(stream, "%s from %.4g to %.4g, %s from %.4g to %.4g.",
            chart->x.label == NULL ? "x" : chart->x.label, layout->x.least, layout->x.most,
            chart->y.label == NULL ? "y" : chart->y.label, layout->y.least, layout->y.most);
    for (int i = 0; i < chart->series_count; i++)
        if (chart->series[i].name != NULL)
            fprintf(stream, " %s: %lld points, last %.4g.", chart->series[i].name,
                    (long long)chart->series[i].count, series_last(&chart->series[i]));
    fclose(stream);
    return text;
}

static void chart_to_svg(const struct chart *chart, FILE *stream, double width, double height,
                         bool alone)
{
    struct layout layout;
    struct canvas canvas;
    char attributes[ATTRIBUTES];

    layout_make(&layout, chart, width, height);
    snprintf(attributes, sizeof attributes,
             " class=\"chart\"%s%s%s data-frame=\"%.2f %.2f %.2f %.2f\""
             " data-range=\"%.9g %.9g %.9g %.9g\"",
             chart->id == NULL ? "" : " id=\"", chart->id == NULL ? "" : chart->id,
             chart->id == NULL ? "" : "\"", layout.left, layout.top, layout.right, layout.bottom,
             layout.x.least, layout.x.most, layout.y.least, layout.y.most);
    char *description = chart_description(chart, &layout);
    canvas_svg_open(&canvas, stream, width, height, chart->title == NULL ? "" : chart->title,
                    description, attributes, alone);
    free(description);
    chart_draw(chart, &layout, &canvas);
    canvas_svg_close(&canvas);
}

void chart_svg_write(const struct chart *chart, FILE *stream, double width, double height)
{
    chart_to_svg(chart, stream, width, height, false);
}

char *chart_svg(const struct chart *chart, double width, double height)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    ENSURE(stream != NULL, "no memory for a chart");
    chart_to_svg(chart, stream, width, height, true);
    fclose(stream);
    return text;
}

/* Words are as large as on a page 640 wide, or smaller where the picture is. */
static bool part_draw(const struct chart *chart, struct canvas *whole, int left, int width,
                      int height, struct error *error)
{
    const double scale = fmax(1, fmin(width / 640.0, height / 400.0));
    struct layout layout;
    struct canvas canvas;

    if (!canvas_pixels_open(&canvas, width, height, scale, error))
        return false;
    layout_make(&layout, chart, canvas.width, canvas.height);
    chart_draw(chart, &layout, &canvas);
    canvas_pixels_paste(whole, &canvas, left);
    canvas_pixels_free(&canvas);
    return true;
}

bool charts_png(const struct chart *charts, int count, const char *path, int width, int height,
                struct error *error)
{
    struct canvas whole;
    bool good = canvas_pixels_open(&whole, width, height, 1, error);

    if (!good)
        return false;
    for (int i = 0; i < count && good; i++)
        good = part_draw(&charts[i], &whole, i * (width / count), width / count, height, error);
    good = good && canvas_pixels_write(&whole, path, error);
    canvas_pixels_free(&whole);
    return good;
}

bool chart_png(const struct chart *chart, const char *path, int width, int height,
               struct error *error)
{
    return charts_png(chart, 1, path, width, height, error);
}
