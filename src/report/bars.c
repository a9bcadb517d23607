/* What a whole is made of. Parts are told apart by a gap between them and by their names under the
 * mouse, not by colour alone. */
#include "report/bars.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "report/canvas.h"
#include "report/chart.h"
#include "report/escape.h"

static const double title_size = 13, label_size = 11, row_height = 22, bar_height = 14;
static const double legend_line = 15, swatch = 10, names_most = 130;

enum { NAME = 128 };

static double value_of(const struct bars *bars, int row, int part)
{
    const double value = bars->values[row * bars->part_count + part];
    return value >= 1 / CHART_MOST && value <= CHART_MOST ? value : 0;
}

static double row_sum(const struct bars *bars, int row)
{
    double sum = 0;
    for (int part = 0; part < bars->part_count; part++)
        sum += value_of(bars, row, part);
    return sum;
}

static double longest(const struct bars *bars)
{
    double most = 0;
    for (int row = 0; row < bars->row_count; row++)
        most = fmax(most, row_sum(bars, row));
    return most > 0 ? most : 1;
}

static enum ink part_ink(const struct bars *bars, int part)
{
    return ink_of_series(bars->colours == NULL ? part : bars->colours[part] - 1);
}

/* Lays the legend's entries out; draws them where there is a canvas. Gives its height. */
static double legend_lay(const struct bars *bars, struct canvas *canvas, double width, double top)
{
    double x = 4, y = top + legend_line - 4;
    for (int part = 0; part < bars->part_count; part++) {
        const double wide = swatch + 5 + canvas_text_width(bars->parts[part], label_size) + 12;
        if (x > 4 && x + wide - 12 > width) {
            x = 4;
            y += legend_line;
        }
        if (canvas != NULL) {
            canvas_rectangle(canvas, part_ink(bars, part), x, y - 9, swatch, swatch, NULL);
            canvas_text(canvas, (struct lettering){INK_TEXT, label_size, ANCHOR_START, false},
                        x + swatch + 5, y, bars->parts[part]);
        }
        x += wide;
    }
    return y + 8 - top;
}

/* The name's end tells units of a model apart: the beginning is cut. */
static const char *name_fit(const char *name)
{
    while (canvas_text_width(name, label_size) > names_most) {
        const int length = escape_character(name);
        name += length > 0 ? length : 1;
    }
    return name;
}

static double names_width(const struct bars *bars)
{
    double most = 0;
    for (int row = 0; row < bars->row_count; row++)
        most = fmax(most, canvas_text_width(name_fit(bars->rows[row]), label_size));
    return most;
}

struct bars_layout {
    double left, right, top, bottom, most;
    struct ticks ticks;
};

static void row_draw(const struct bars *bars, int row, const struct bars_layout *layout,
                     struct canvas *canvas)
{
    const double y = layout->top + row * row_height + (row_height - bar_height) / 2;
    double x = layout->left;
    canvas_text(canvas, (struct lettering){INK_TEXT, label_size, ANCHOR_END, false},
                layout->left - 6, y + 11, name_fit(bars->rows[row]));
    for (int part = 0; part < bars->part_count; part++) {
        const double value = value_of(bars, row, part);
        const double wide = value / layout->most * (layout->right - layout->left);
        char name[NAME];
        if (wide >= 0.1) {
            snprintf(name, sizeof name, "%s, %s: %.4g (%s)", bars->rows[row], bars->parts[part],
                     value, bars->label);
            canvas_rectangle(canvas, part_ink(bars, part), x, y, wide > 2 ? wide - 0.7 : wide,
                             bar_height, name);
        }
        x += wide;
    }
}

static void axis_draw(const struct bars *bars, const struct bars_layout *layout,
                      struct canvas *canvas)
{
    for (int i = 0; i < layout->ticks.count; i++) {
        const double x =
            layout->left + layout->ticks.at[i] / layout->most * (layout->right - layout->left);
        canvas_line(canvas, (struct pen){INK_GRID, 1, false}, x, layout->top, x, layout->bottom);
        canvas_text(canvas, (struct lettering){INK_QUIET, label_size, ANCHOR_MIDDLE, false}, x,
                    layout->bottom + 14, layout->ticks.text[i]);
    }
    canvas_text(canvas, (struct lettering){INK_QUIET, label_size, ANCHOR_END, false}, layout->right,
                layout->bottom + 28, bars->label);
}

static char *bars_description(const struct bars *bars)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    ENSURE(stream != NULL, "no memory for a chart");
    fprintf(stream, "Stacked bars, %s.", bars->label);
    for (int row = 0; row < bars->row_count; row++)
        fprintf(stream, " %s: %.4g.", bars->rows[row], row_sum(bars, row));
    fclose(stream);
    return text;
}

void bars_svg_write(const struct bars *bars, FILE *stream, double width)
{
    struct bars_layout layout;
    struct canvas canvas;
    char attributes[128];

    layout.most = bars->most > 0 && bars->most <= CHART_MOST ? bars->most : longest(bars);
    layout.top = title_size + 8;
    layout.top += legend_lay(bars, NULL, width, layout.top);
    layout.bottom = layout.top + bars->row_count * row_height;
    layout.left = ceil(names_width(bars)) + 12;
    layout.right = width - 16;
    ticks_linear(&layout.ticks, 0, layout.most, (int)((layout.right - layout.left) / 62));
    snprintf(attributes, sizeof attributes, " class=\"chart\" id=\"%s\"", bars->id);
    char *description = bars_description(bars);
    canvas_svg_open(&canvas, stream, width, layout.bottom + 34, bars->title, description,
                    attributes, false);
    free(description);
    canvas_text(&canvas, (struct lettering){INK_TEXT, title_size, ANCHOR_START, true}, 4,
                title_size + 2, bars->title);
    legend_lay(bars, &canvas, width, title_size + 8);
    axis_draw(bars, &layout, &canvas);
    for (int row = 0; row < bars->row_count; row++)
        row_draw(bars, row, &layout, &canvas);
    canvas_svg_close(&canvas);
}
