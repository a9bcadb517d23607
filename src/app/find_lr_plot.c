/* The picture of a range test: losses over the rate's logarithm, and the suggestion as a line. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "app/find.h"
#include "core/atomic_file.h"
#include "report/chart.h"
#include "train/range_test.h"

enum { WIDTH = 800, HEIGHT = 450 };

struct curve {
    int64_t count;
    double *rates, *losses, *smoothed; /* [count] each, in one piece of memory */
    double lowest, highest;            /* that are shown */
};

/* What explodes would press the rest into a line. */
static void curve_fill(struct curve *curve, const struct range_test *test,
                       const struct range_suggestion *suggestion)
{
    curve->lowest = INFINITY;
    curve->highest = -INFINITY;
    for (int64_t i = 0; i < test->count; i++) {
        const struct range_point *point = &test->points[i];
        curve->rates[i] = point->rate;
        curve->losses[i] = point->loss;
        curve->smoothed[i] = point->smoothed;
        if (i > suggestion->lowest && i > 0)
            continue;
        curve->lowest = fmin(curve->lowest, point->loss);
        curve->highest = fmax(curve->highest, point->loss);
    }
    double margin = curve->highest > curve->lowest ? (curve->highest - curve->lowest) / 8 : 1;
    curve->lowest -= margin;
    curve->highest += margin;
}

static bool svg_write(const struct chart *chart, const char *path, struct error *error)
{
    char *text = chart_svg(chart, WIDTH, HEIGHT, NULL);
    bool good = text == NULL || atomic_file_write(path, text, error);
    free(text);
    return good;
}

static bool curve_draw(const struct curve *curve, const char *name, double suggested,
                       struct error *error)
{
    char path[FILE_PATH], title[128] = "Learning-rate range test: no suggestion";
    double where[] = {suggested, suggested}, ends[] = {curve->lowest, curve->highest};
    const struct chart_series series[] = {
        {.name = "loss",
         .x = curve->rates,
         .y = curve->losses,
         .count = curve->count,
         .thin = true,
         .colour = 2},
        {.name = "smoothed",
         .x = curve->rates,
         .y = curve->smoothed,
         .count = curve->count,
         .colour = 1},
        {.name = "suggestion", .x = where, .y = ends, .count = 2, .dashed = true, .colour = 3}};
    if (!isnan(suggested))
        snprintf(title, sizeof title, "Learning-rate range test: steepest at %.2g", suggested);
    const struct chart chart = {
        .title = title,
        .x = {.label = "learning rate", .scale = CHART_LOG},
        .y = {.label = "loss", .least = curve->lowest, .most = curve->highest},
        .series_count = isnan(suggested) ? 2 : 3,
        .series = series};
    snprintf(path, sizeof path, "%s.svg", name);
    if (!svg_write(&chart, path, error))
        return false;
    snprintf(path, sizeof path, "%s.png", name);
    return chart_png(&chart, path, WIDTH, HEIGHT, error);
}

bool find_lr_plot(const char *name, const struct range_test *test,
                  const struct range_suggestion *suggestion, struct error *error)
{
    struct curve curve = {.count = test->count};
    if (test->count == 0)
        return true;
    curve.rates = calloc((size_t)test->count * 3, sizeof *curve.rates);
    if (curve.rates == NULL)
        return error_set(error, ERROR_MEMORY, "no memory for the curve of %lld points",
                         (long long)test->count);
    curve.losses = curve.rates + test->count;
    curve.smoothed = curve.losses + test->count;
    curve_fill(&curve, test, suggestion);
    bool good = curve_draw(&curve, name, suggestion->steepest_rate, error);
    free(curve.rates);
    return good;
}
