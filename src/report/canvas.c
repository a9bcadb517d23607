/* What both backends share: colours, and what is made of other primitives. */
#include "report/canvas.h"

#include "report/escape.h"

/* Colours of data: each has a contrast of 3:1 with the paper, and any two differ by 16 (light) or
 * 24 (dark) in CIELAB also for protanopes, deuteranopes and tritanopes, as Machado, Oliveira and
 * Fernandes (IEEE TVCG 15, 2009) simulate what they see. */
const struct ink_entry ink_table[INK_COUNT] = {
    [INK_PAPER] = {"paper", {255, 255, 255}, {22, 26, 31}},
    [INK_TEXT] = {"text", {27, 31, 36}, {230, 234, 239}},
    [INK_QUIET] = {"quiet", {87, 96, 106}, {155, 164, 175}},
    [INK_GRID] = {"grid", {225, 229, 234}, {52, 59, 68}},
    [INK_SERIES] = {"s0", {0, 103, 172}, {92, 178, 245}},
    [INK_SERIES + 1] = {"s1", {206, 84, 0}, {255, 143, 74}},
    [INK_SERIES + 2] = {"s2", {34, 168, 104}, {13, 121, 76}},
    [INK_SERIES + 3] = {"s3", {164, 123, 155}, {154, 80, 144}},
    [INK_SERIES + 4] = {"s4", {96, 80, 44}, {245, 215, 162}},
    [INK_SERIES + 5] = {"s5", {4, 53, 81}, {181, 226, 241}},
    [INK_SERIES + 6] = {"s6", {130, 0, 249}, {142, 69, 254}},
    [INK_SERIES + 7] = {"s7", {52, 53, 55}, {156, 156, 156}},
};

enum ink ink_of_series(int64_t i)
{
    return (enum ink)(INK_SERIES + i % (INK_COUNT - INK_SERIES));
}

void canvas_polyline(struct canvas *canvas, struct pen pen, const struct point *points,
                     int64_t count)
{
    if (count > 0)
        canvas->backend->polyline(canvas, pen, points, count);
}

void canvas_line(struct canvas *canvas, struct pen pen, double x0, double y0, double x1, double y1)
{
    canvas_polyline(canvas, pen, (struct point[]){{x0, y0}, {x1, y1}}, 2);
}

void canvas_rectangle(struct canvas *canvas, enum ink ink, double x, double y, double width,
                      double height, const char *name)
{
    canvas->backend->rectangle(canvas, ink, x, y, width, height, name);
}

void canvas_text(struct canvas *canvas, struct lettering lettering, double x, double y,
                 const char *text)
{
    canvas->backend->text(canvas, lettering, x, y, text);
}

double canvas_text_width(const char *text, double size)
{
    double steps = 0;
    while (*text != '\0') {
        const int length = escape_character(text);
        steps += stroke_glyph_width(stroke_glyph(length == 1 ? *text : '\0'));
        text += length > 0 ? length : 1;
    }
    return steps * STROKE_STEP * size;
}
