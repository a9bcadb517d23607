/* The canvas as SVG: small, and without a colour in it, so that one style sheet says light, dark
 * and print. */
#include <math.h>
#include <stdlib.h>

#include "report/canvas.h"
#include "report/escape.h"

/* At most one decimal, and none where it is 0: charts are mostly numbers. */
static void number_write(FILE *stream, double value)
{
    const long tenths = lround(value * 10);
    if (tenths % 10 == 0)
        fprintf(stream, "%ld", tenths / 10);
    else
        fprintf(stream, "%s%ld.%ld", tenths < 0 ? "-" : "", labs(tenths) / 10, labs(tenths) % 10);
}

static void pair_write(FILE *stream, char command, double x, double y)
{
    fputc(command, stream);
    number_write(stream, x);
    fputc(' ', stream);
    number_write(stream, y);
}

static void svg_polyline(struct canvas *canvas, struct pen pen, const struct point *points,
                         int64_t count)
{
    FILE *stream = canvas->stream;
    bool begun = false;
    fprintf(stream,
            "<path class=\"%s\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"%g\"%s d=\"",
            ink_table[pen.ink].name, pen.width,
            pen.dashed ? " stroke-dasharray=\"5 4\" stroke-linecap=\"butt\"" : "");
    for (int64_t i = 0; i < count; i++) {
        if (isnan(points[i].x)) {
            begun = false;
            continue;
        }
        pair_write(stream, begun ? 'L' : 'M', points[i].x, points[i].y);
        if (!begun && (i + 1 == count || isnan(points[i + 1].x)))
            fputs("h0", stream);
        begun = true;
    }
    fputs("\"/>\n", stream);
}

static void attribute_write(FILE *stream, const char *name, double value)
{
    fprintf(stream, " %s=\"", name);
    number_write(stream, value);
    fputc('"', stream);
}

static void svg_rectangle(struct canvas *canvas, enum ink ink, double x, double y, double width,
                          double height, const char *name)
{
    FILE *stream = canvas->stream;
    fprintf(stream, "<rect class=\"%s\" fill=\"currentColor\"", ink_table[ink].name);
    attribute_write(stream, "x", x);
    attribute_write(stream, "y", y);
    attribute_write(stream, "width", width);
    attribute_write(stream, "height", height);
    if (name == NULL) {
        fputs("/>\n", stream);
        return;
    }
    fputs("><title>", stream);
    escape_html(stream, name);
    fputs("</title></rect>\n", stream);
}

static void svg_text(struct canvas *canvas, struct lettering lettering, double x, double y,
                     const char *text)
{
    static const char *const anchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
    FILE *stream = canvas->stream;
    fprintf(stream, "<text class=\"%s\" fill=\"currentColor\" font-size=\"%g\"%s%s",
            ink_table[lettering.ink].name, lettering.size, anchors[lettering.anchor],
            lettering.bold ? " font-weight=\"600\"" : "");
    attribute_write(stream, "x", x);
    attribute_write(stream, "y", y);
    fputc('>', stream);
    escape_html(stream, text);
    fputs("</text>\n", stream);
}

static const struct canvas_backend svg_backend = {
    .polyline = svg_polyline, .rectangle = svg_rectangle, .text = svg_text};

static void colours_write(FILE *stream, bool dark)
{
    for (int i = 0; i < INK_COUNT; i++) {
        const struct colour colour = dark ? ink_table[i].dark : ink_table[i].light;
        fprintf(stream, "--%s:#%02x%02x%02x;", ink_table[i].name, colour.red, colour.green,
                colour.blue);
    }
}

void canvas_svg_style(FILE *stream)
{
    fputs(":root{color-scheme:light dark;", stream);
    colours_write(stream, false);
    fputs("}\n@media screen and (prefers-color-scheme:dark){:root{", stream);
    colours_write(stream, true);
    fputs("}}\n", stream);
    for (int i = 0; i < INK_COUNT; i++)
        fprintf(stream, ".%s{color:var(--%s)}\n", ink_table[i].name, ink_table[i].name);
}

void canvas_svg_open(struct canvas *canvas, FILE *stream, double width, double height,
                     const char *title, const char *description, const char *attributes, bool alone)
{
    *canvas = (struct canvas){
        .backend = &svg_backend, .width = width, .height = height, .stream = stream};
    fprintf(
        stream,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" role=\"img\" "
        "font-family=\"system-ui,sans-serif\" stroke-linecap=\"round\" stroke-linejoin=\"round\"",
        width, height);
    if (alone)
        fprintf(stream, " width=\"%g\" height=\"%g\"", width, height);
    fprintf(stream, "%s>\n<title>", attributes);
    escape_html(stream, title);
    fputs("</title>\n<desc>", stream);
    escape_html(stream, description);
    fputs("</desc>\n", stream);
    if (!alone)
        return;
    fputs("<style>\n", stream);
    canvas_svg_style(stream);
    fputs("</style>\n", stream);
    canvas_rectangle(canvas, INK_PAPER, 0, 0, width, height, NULL);
}

void canvas_svg_close(struct canvas *canvas)
{
    fputs("</svg>\n", canvas->stream);
}
