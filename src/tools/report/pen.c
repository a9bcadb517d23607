// SPDX-License-Identifier: BSD-3-Clause
#include "tools/report/pen.h"

#include <math.h>

#include "config.h"
#include "tools/report/escape.h"

#ifdef HAVE_CAIRO
#include <cairo.h>
#endif

double pen_text_width(const struct pen *pen, const char *text)
{
    int characters = 0;
    for (; *text != '\0'; text++)
        characters += (*text & 0xC0) != 0x80; /* not a continuation byte of UTF-8 */
    return 0.62 * pen->text_size * characters;
}

/* ---- SVG elements. Coordinates are multiples of 1/10, which keeps files small. */

static double tenth(double value)
{
    return round(10 * value) / 10;
}

static void svg_text(const struct pen *pen, unsigned colour, enum pen_alignment alignment, double x,
                     double y, double lines, const char *text)
{
    static const char *const anchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
    fprintf(pen->svg, "<text x=\"%g\" y=\"%g\"%s", tenth(x), tenth(y), anchors[alignment]);
    if (lines != 0)
        fprintf(pen->svg, " dy=\"%gem\"", lines);
    fprintf(pen->svg, "%s fill=\"#%06x\">", pen->bold ? " font-weight=\"bold\"" : "", colour);
    escape_html(pen->svg, text);
    fputs("</text>\n", pen->svg);
}

static void svg_curve(const struct pen *pen, const struct pen_stroke *stroke,
                      const struct pen_point *points, int64_t count)
{
    bool begun = false;
    fputs("<path d=\"", pen->svg);
    for (int64_t i = 0; i < count; i++) {
        if (isnan(points[i].x)) {
            begun = false;
            continue;
        }
        fprintf(pen->svg, begun ? " %g %g" : "M%g %g", tenth(points[i].x), tenth(points[i].y));
        if (!begun && (i + 1 == count || isnan(points[i + 1].x)))
            fputs("h0", pen->svg);
        begun = true;
    }
    fprintf(pen->svg, "\" stroke=\"#%06x\" stroke-width=\"%g\"%s/>\n", stroke->colour,
            stroke->width,
            stroke->dashed ? " stroke-dasharray=\"5 4\" stroke-linecap=\"butt\"" : "");
}

/* ---- Cairo */

#ifdef HAVE_CAIRO

static void cairo_colour(const struct pen *pen, unsigned colour)
{
    cairo_set_source_rgb(pen->cairo, (colour >> 16 & 255) / 255.0, (colour >> 8 & 255) / 255.0,
                         (colour & 255) / 255.0);
}

static void cairo_text(const struct pen *pen, unsigned colour, enum pen_alignment alignment,
                       double x, double y, double lines, const char *text)
{
    cairo_text_extents_t extents;
    cairo_select_font_face(pen->cairo, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                           pen->bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(pen->cairo, pen->text_size);
    cairo_text_extents(pen->cairo, text, &extents);
    cairo_colour(pen, colour);
    cairo_move_to(pen->cairo, x - extents.x_advance * (double)alignment / 2,
                  y + lines * pen->text_size);
    cairo_show_text(pen->cairo, text);
}

static void cairo_curve(const struct pen *pen, const struct pen_stroke *stroke,
                        const struct pen_point *points, int64_t count)
{
    static const double dashes[] = {5, 4};
    cairo_t *cairo = pen->cairo;
    cairo_colour(pen, stroke->colour);
    cairo_set_line_width(cairo, stroke->width);
    cairo_set_line_join(cairo, CAIRO_LINE_JOIN_ROUND);
    cairo_set_line_cap(cairo, stroke->dashed ? CAIRO_LINE_CAP_BUTT : CAIRO_LINE_CAP_ROUND);
    cairo_set_dash(cairo, dashes, stroke->dashed ? 2 : 0, 0);
    for (int64_t i = 0; i < count; i++) {
        if (isnan(points[i].x))
            continue;
        if (i == 0 || isnan(points[i - 1].x))
            cairo_move_to(cairo, points[i].x, points[i].y);
        cairo_line_to(cairo, points[i].x, points[i].y);
    }
    cairo_stroke(cairo);
}

#endif

/* ---- both */

void pen_text(const struct pen *pen, unsigned colour, enum pen_alignment alignment, double x,
              double y, double lines, const char *text)
{
    if (pen->svg != NULL)
        svg_text(pen, colour, alignment, x, y, lines, text);
#ifdef HAVE_CAIRO
    else
        cairo_text(pen, colour, alignment, x, y, lines, text);
#endif
}

void pen_curve(const struct pen *pen, const struct pen_stroke *stroke,
               const struct pen_point *points, int64_t count)
{
    if (pen->svg != NULL)
        svg_curve(pen, stroke, points, count);
#ifdef HAVE_CAIRO
    else
        cairo_curve(pen, stroke, points, count);
#endif
}

void pen_line(const struct pen *pen, const struct pen_stroke *stroke, double x0, double y0,
              double x1, double y1)
{
    pen_curve(pen, stroke, (struct pen_point[]){{.x = x0, .y = y0}, {.x = x1, .y = y1}}, 2);
}
