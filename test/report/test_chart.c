// SPDX-License-Identifier: BSD-3-Clause
/* Charts as SVG and as PNG: positions of points and lines; escaped text; formatted numbers. */
#include "tools/report/chart.h"

#include <png.h>
#include <unistd.h>

#include "markup.h"
#include "temporary.h"
#include "test.h"
#include "tools/report/escape.h"
#include "tools/report/format.h"
#include "tools/report/ticks.h"

static void assert_near(double value, double wanted, double tolerance)
{
    if (!(fabs(value - wanted) <= tolerance))
        fail_msg("%g, not %g", value, wanted);
}

/* ---- texts */

static char *escaped(void (*escape)(FILE *, const char *), const char *text)
{
    static char result[256];
    memset(result, 0, sizeof result);
    FILE *stream = fmemopen(result, sizeof result - 1, "w");
    escape(stream, text);
    fclose(stream);
    return result;
}

TEST(names_of_any_bytes_are_text)
{
    assert_string_equal(escaped(escape_html, "<b>&\"'"), "&lt;b&gt;&amp;&quot;&#39;");
    assert_string_equal(escaped(escape_html, "Z\xC3\xBC rich"), "Z\xC3\xBC rich");
    assert_string_equal(escaped(escape_html, "\xF0\x9F\x90\x88"), "\xF0\x9F\x90\x88");
    assert_string_equal(escaped(escape_html, "a\xFF\x01\xC3"),
                        "a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
    assert_string_equal(escaped(escape_html, "\xED\xA0\x80"), /* half of a pair */
                        "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
    assert_string_equal(escaped(escape_html, "\xC0\xAF"), "\xEF\xBF\xBD\xEF\xBF\xBD");
    assert_string_equal(escaped(markdown_text, "a|b*<i>\n\xFF"), "a\\|b\\*&lt;i> ?");
    assert_string_equal(escaped(escape_csv, "plain"), "plain");
    assert_string_equal(escaped(escape_csv, "a,\"b\""), "\"a,\"\"b\"\"\"");
}

TEST(figures_are_short)
{
    static const struct {
        enum figure figure;
        double value;
        const char *text;
    } figures[] = {
        {FIGURE_COUNT, 1234567, "1,234,567"},
        {FIGURE_COUNT, 999, "999"},
        {FIGURE_COUNT, NAN, "-"},
        {FIGURE_NUMBER, 1.93, "1.930"},
        {FIGURE_NUMBER, 0.00001, "1e-5"},
        {FIGURE_NUMBER, 0.0001234567, "1.235e-4"},
        {FIGURE_NUMBER, 12345.6, "12,346"},
        {FIGURE_NUMBER, INFINITY, "inf"},
        {FIGURE_SHARE, 0.25724, "25.72 %"},
        {FIGURE_SECONDS, 0.0042, "4.20 ms"},
        {FIGURE_SECONDS, 10.58, "10.6 s"},
        {FIGURE_SECONDS, 185, "3 min 05 s"},
        {FIGURE_SECONDS, 7625, "2 h 07 min"},
        {FIGURE_BYTES, 62888960, "60.0 MiB"},
        {FIGURE_BYTES, 12, "12 B"},
        {FIGURE_RATIO, 1.9412, "1.94x"},
        {FIGURE_RATE, 3864.41, "3,864"},
        {FIGURE_FLOPS, 21732096, "21.7 Mflop"},
        {FIGURE_WATTS, 301.5, "302 W"},
    };
    char text[FORMAT_TEXT];
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++) {
        format_figure(text, figures[i].figure, figures[i].value);
        assert_string_equal(text, figures[i].text);
    }
    for (double value = 1e-300; value < 1e300; value *= 17)
        for (int figure = 0; figure <= FIGURE_TEXT; figure++)
            format_figure(text, (enum figure)figure, -value);
}

/* ---- axes */

static void assert_ticks(const struct ticks *ticks, const char *texts)
{
    char all[TICKS_MOST * TICK_TEXT] = "";
    for (int i = 0; i < ticks->count; i++) {
        strcat(all, i == 0 ? "" : " ");
        strcat(all, ticks->text[i]);
    }
    assert_string_equal(all, texts);
}

TEST(axes_have_round_numbers)
{
    struct ticks ticks;
    ticks_linear(&ticks, 0, 10, 5);
    assert_ticks(&ticks, "0 2 4 6 8 10");
    ticks_linear(&ticks, 0.31, 2.4, 4);
    assert_ticks(&ticks, "0.5 1.0 1.5 2.0");
    ticks_linear(&ticks, 0, 100000, 5);
    assert_ticks(&ticks, "0 20,000 40,000 60,000 80,000 100,000");
    ticks_linear(&ticks, -1, 1, 4);
    assert_ticks(&ticks, "-1.0 -0.5 0.0 0.5 1.0");
    ticks_linear(&ticks, 0, 2e-5, 4);
    assert_ticks(&ticks, "0 0.5e-5 1.0e-5 1.5e-5 2.0e-5");
    ticks_linear(&ticks, 0, 0.001, 5);
    assert_ticks(&ticks, "0 0.2e-3 0.4e-3 0.6e-3 0.8e-3 1.0e-3");
    ticks_linear(&ticks, 0.1, 0.101, 5);
    assert_ticks(&ticks, "0.1000 0.1002 0.1004 0.1006 0.1008 0.1010");
    ticks_linear(&ticks, 0, 3e7, 3);
    assert_ticks(&ticks, "0 1e7 2e7 3e7");
    ticks_log(&ticks, 1e-8, 10, 9);
    assert_ticks(&ticks, "1e-8 1e-7 1e-6 1e-5 1e-4 1e-3 1e-2 1e-1 1e0 1e1");
    ticks_log(&ticks, 0.9, 60, 8);
    assert_ticks(&ticks, "1 2 5 10 20 50");
}

/* Skip the test if vittrain was built without Cairo. */
static void need_cairo(void)
{
    if (!chart_png_available)
        SKIP_BECAUSE("no Cairo");
}

/* ---- SVG */

/* Return the chart as a page has it, to be freed. */
static char *embedded(const struct chart *chart, double width, double height)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    chart_embed(chart, stream, "id", &(struct chart_size){width, height, 1, 100, 1});
    fclose(stream);
    const char *wrong = markup_fault(text);
    if (wrong != NULL)
        fail_msg("%s", wrong);
    return text;
}

struct frame {
    double left, top, right, bottom, x_least, x_most, y_least, y_most;
};

static struct frame frame_of(const char *svg)
{
    struct frame frame;
    const char *edges = strstr(svg, "data-frame=\""), *range = strstr(svg, "data-range=\"");
    assert_non_null(edges);
    assert_int_equal(sscanf(edges, "data-frame=\"%lf %lf %lf %lf", &frame.left, &frame.top,
                            &frame.right, &frame.bottom),
                     4);
    assert_int_equal(sscanf(range, "data-range=\"%lf %lf %lf %lf", &frame.x_least, &frame.x_most,
                            &frame.y_least, &frame.y_most),
                     4);
    return frame;
}

/* Return the last curve of the first colour; markers are wider. */
static const char *last_path(const char *svg)
{
    const char *path = NULL;
    for (const char *at = svg; (at = strstr(at, "<path d=\"M")) != NULL; at++) {
        const char *width = strstr(at, "stroke-width=\"");
        const double value = strtod(width + strlen("stroke-width=\""), NULL);
        const unsigned colour = (unsigned)strtoul(strstr(at, "stroke=\"#") + 9, NULL, 16);
        if (value < 4 && colour == chart_colours[0])
            path = at + strlen("<path d=\"");
    }
    assert_non_null(path);
    return path;
}

TEST(svg_has_points_where_they_belong)
{
    const double x[] = {0, 1, 2, 3, 4}, y[] = {2.5, 1.5, NAN, 0.75, 0.5};
    const struct chart_series series[] = {
        {.name = "<train> & \"val\"", .x = x, .y = y, .count = 5}};
    const struct chart chart = {.title = "loss > 0",
                                .x = {.label = "step", .whole = true},
                                .y = {.label = "nats", .from_zero = true},
                                .series_count = 1,
                                .series = series};
    double points[8];
    char *svg = embedded(&chart, 400, 250);
    const struct frame frame = frame_of(svg);
    assert_has(svg, "viewBox=\"0 0 400 250\"");
    assert_int_equal(sscanf(last_path(svg), "M%lf %lf %lf %lfM%lf %lf %lf %lf\"", &points[0],
                            &points[1], &points[2], &points[3], &points[4], &points[5], &points[6],
                            &points[7]),
                     8);
    assert_near(frame.x_least, 0, 0);
    assert_near(frame.x_most, 4, 0);
    assert_near(frame.y_least, 0, 0);
    assert_near(points[0], frame.left, 0.1);
    assert_near(points[6], frame.right, 0.1);
    const double height = frame.bottom - frame.top;
    assert_near(points[1], frame.bottom - 2.5 / frame.y_most * height, 0.1);
    assert_near(points[7], frame.bottom - 0.5 / frame.y_most * height, 0.1);
    free(svg);
    svg = chart_svg(&chart, 400, 250); /* a file has title and legend */
    assert_null(markup_fault(svg));
    assert_int_equal(text_count(svg, ">loss &gt; 0</text>"), 1);
    assert_int_equal(text_count(svg, ">&lt;train&gt; &amp; &quot;val&quot;</text>"), 1);
    assert_int_equal(text_count(svg, "class=\"at\""), 0);
    free(svg);
}

/* The labels of both axes are inside the drawing, also if the page enlarges them. */
TEST(labels_have_room)
{
    const double x[] = {0, 1234567}, y[] = {0, 0.00098765};
    const struct chart_series series[] = {{.x = x, .y = y, .count = 2}};
    const struct chart chart = {
        .x = {.label = "step", .whole = true}, .series_count = 1, .series = series};
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    chart_embed(&chart, stream, "id", &(struct chart_size){600, 330, 1.6, 100, 1});
    fclose(stream);
    int labels = 0;
    for (const char *at = text; (at = strstr(at, "<text x=\"")) != NULL; at++) {
        double left, top;
        char label[64];
        assert_int_equal(sscanf(at, "<text x=\"%lf\" y=\"%lf\"", &left, &top), 2);
        assert_int_equal(sscanf(strchr(at, '>'), ">%63[^<]", label), 1);
        const bool right = strstr(at, "text-anchor=\"end\"") < strchr(at, '>');
        const double width = 1.6 * 12 * 0.6 * (double)strlen(label);
        assert_true(left - (right ? width : width / 2) >= 0);
        assert_true(left + (right ? 0 : width / 2) <= 600);
        labels++;
    }
    assert_in_range(labels, 6, 30);
    free(text);
}

TEST(values_are_titles)
{
    const double x[] = {100, 200, 300}, y[] = {2.5, NAN, 0.5}, at[] = {200}, rare[] = {1234.6};
    const struct chart_series series[] = {{.name = "<a>", .x = x, .y = y, .count = 3},
                                          {.name = "b", .x = at, .y = rare, .count = 1}};
    const struct chart chart = {.title = "t",
                                .x = {.label = "step", .whole = true},
                                .y = {.label = "%"},
                                .series_count = 2,
                                .series = series};
    char *svg = embedded(&chart, 400, 250);
    assert_int_equal(text_count(svg, "class=\"at\""), 3);
    assert_int_equal(text_count(svg, "<title>step 100\n&lt;a&gt; 2.500 %\nb 1,235 % at step 200<"),
                     1);
    assert_int_equal(text_count(svg, "<title>step 200\n&lt;a&gt; not finite\nb 1,235 %<"), 1);
    free(svg);
}

TEST(lines_are_interrupted_at_unknown_values)
{
    double x[9], y[9] = {1, 2, NAN, 4, NAN, INFINITY, 7, 8, -INFINITY};
    const struct chart_series series[] = {{.x = x, .y = y, .count = 9}};
    const struct chart chart = {.series_count = 1, .series = series};
    for (int i = 0; i < 9; i++)
        x[i] = i;
    char *svg = chart_svg(&chart, 300, 200);
    char *path = strndup(last_path(svg), strcspn(last_path(svg), "\""));
    assert_int_equal(text_count(path, "M"), 3);
    free(path);
    free(svg);
}

TEST(many_points_keep_their_extremes)
{
    enum { COUNT = 100000 };
    double *x = calloc(COUNT, sizeof *x), *y = calloc(COUNT, sizeof *y);
    char spike[32];
    for (int i = 0; i < COUNT; i++) {
        x[i] = i;
        y[i] = i % 2;
    }
    y[61234] = 4.7; /* the only point of this height */
    const struct chart_series series[] = {{.x = x, .y = y, .count = COUNT}};
    char *svg =
        embedded(&(struct chart){.title = "t", .series_count = 1, .series = series}, 400, 250);
    assert_true(strlen(svg) < 30000);
    const struct frame frame = frame_of(svg);
    const double height = frame.bottom - frame.top;
    const double top =
        frame.bottom - (4.7 - frame.y_least) / (frame.y_most - frame.y_least) * height;
    snprintf(spike, sizeof spike, " %g ", round(10 * top) / 10);
    assert_true(text_count(last_path(svg), spike) >= 1);
    free(svg);
    free(x);
    free(y);
}

TEST(nothing_and_one_value_are_drawn)
{
    const double x[] = {3}, y[] = {7}, zero[] = {0};
    const struct chart_series one[] = {{.name = "one", .x = x, .y = y, .count = 1}};
    const struct chart_series none[] = {{.name = "none", .x = x, .y = zero, .count = 0}};
    const struct chart_series bad[] = {{.name = "log of 0", .x = x, .y = zero, .count = 1}};
    const double steps[] = {1, 2, 3, 4, 1e308}, wild[] = {1e308, -1e308, 1e-320, 2, INFINITY};
    const struct chart_series huge[] = {{.name = "huge", .x = steps, .y = wild, .count = 5}};
    const struct chart charts[] = {
        {.series_count = 1, .series = one},
        {.series_count = 1, .series = none},
        {.title = "nothing"},
        {.y = {.scale = CHART_LOG}, .x = {.scale = CHART_LOG}, .series_count = 1, .series = bad},
        {.y = {.least = 2, .most = 3}, .series_count = 1, .series = one},
        {.series_count = 1, .series = huge},
        {.y = {.scale = CHART_LOG}, .series_count = 1, .series = huge},
    };
    for (size_t i = 0; i < sizeof charts / sizeof charts[0]; i++)
        for (int page = 0; page < 2; page++) { /* hardly any space */
            char *svg = page ? embedded(&charts[i], 60, 40) : chart_svg(&charts[i], 60, 40);
            assert_has(svg, "</svg>");
            assert_null(strstr(svg, "nan"));
            assert_null(strstr(svg, "\"inf"));
            free(svg);
        }
}

/* ---- PNG */

struct picture {
    int width, height;
    uint8_t *rgb;
};

static struct picture picture_read(const char *name)
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    assert_true(png_image_begin_read_from_file(&image, temporary_path(name)));
    image.format = PNG_FORMAT_RGB;
    struct picture picture = {(int)image.width, (int)image.height, malloc(PNG_IMAGE_SIZE(image))};
    assert_true(png_image_finish_read(&image, NULL, picture.rgb, 0, NULL));
    return picture;
}

/* Count the pixels of the area that have nearly this colour. */
static int pixels_of(const struct picture *picture, unsigned colour, int x0, int y0, int x1, int y1)
{
    int count = 0;
    for (int y = y0; y < y1; y++)
        for (int x = x0; x < x1; x++) {
            const uint8_t *at = picture->rgb + (y * picture->width + x) * 3;
            count += abs(at[0] - (int)(colour >> 16 & 255)) +
                         abs(at[1] - (int)(colour >> 8 & 255)) + abs(at[2] - (int)(colour & 255)) <
                     60;
        }
    return count;
}

/* Return the middle of the rows that have this colour in column 50. */
static int line_find(const struct picture *picture, unsigned colour)
{
    int first = -1, last = -1;
    for (int y = 0; y < picture->height; y++)
        if (pixels_of(picture, colour, 40, y, 60, y + 1) > 8) {
            first = first < 0 ? y : first;
            last = y;
        }
    assert_true(first >= 0);
    return (first + last) / 2;
}

static struct picture picture_of(const struct chart *chart, int width, int height)
{
    struct error error = {0};
    assert_ok(chart_png(chart, 1, temporary_path("chart.png"), width, height, &error), &error);
    return picture_read("chart.png");
}

/* A solid line below and a dashed one above: each colour is found along its line and nowhere else;
 * the title is dark. */
TEST(png_has_lines_and_text)
{
    const double x[] = {0, 10}, low[] = {1, 1}, high[] = {9, 9};
    const struct chart_series series[] = {{.x = x, .y = low, .count = 2},
                                          {.x = x, .y = high, .count = 2, .dashed = true}};
    const struct chart chart = {.title = "What it is",
                                .x = {.label = "step"},
                                .y = {.least = 0, .most = 10},
                                .series_count = 2,
                                .series = series};
    const unsigned first = chart_colours[0], second = chart_colours[1], dark = 0x1b1f24;
    need_cairo();
    struct picture picture = picture_of(&chart, 640, 400);
    assert_int_equal(picture.width, 640);
    assert_int_equal(picture.height, 400);
    /* The lines are found by their colours. Between them are 8 of the 10 units of the y axis. */
    const int low_y = line_find(&picture, first), high_y = line_find(&picture, second);
    const int left = 40, right = 600, wide = right - left;
    assert_in_range(low_y - high_y, 240, 290);
    assert_true(pixels_of(&picture, first, left, low_y - 2, right, low_y + 3) >= wide);
    assert_int_equal(pixels_of(&picture, first, 0, 0, 640, low_y - 4), 0);
    const int dashed = pixels_of(&picture, second, left, high_y - 2, right, high_y + 3);
    assert_in_range(dashed, wide / 2, wide * 3 / 2);
    assert_int_equal(pixels_of(&picture, second, 0, high_y + 4, 640, 400), 0);
    assert_true(pixels_of(&picture, dark, 0, 0, 120, 20) > 60);
    free(picture.rgb);
    picture = picture_of(&chart, 1280, 800); /* twice as fine, not twice as much on it */
    assert_true(pixels_of(&picture, first, 0, 0, 1280, 800) > wide * 2 * 2);
    free(picture.rgb);
}

TEST(png_that_cannot_be_written_is_an_error)
{
    struct error error = {0};
    need_cairo();
    assert_false(chart_png(&(struct chart){.title = "x"}, 1, temporary_path("no/such/a.png"), 80,
                           60, &error));
    assert_int_equal(error.kind, ERROR_FILE);
    error_clear(&error);
    temporary_directory("folder.png");
    assert_false(
        chart_png(&(struct chart){.title = "x"}, 1, temporary_path("folder.png"), 80, 60, &error));
    assert_int_equal(error.kind, ERROR_FILE);
    assert_int_not_equal(access(temporary_path("folder.png.part"), F_OK), 0);
}

TEST_MAIN(.setup = temporary_setup, .teardown = temporary_teardown)
