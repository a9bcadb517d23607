/* What both backends share: colours, and what is made of other primitives. */
#include "report/canvas.h"

#include "report/escape.h"

/* Colours of data after Okabe and Ito (Color Universal Design, 2008), darker on white and lighter
 * on black, so that each has a contrast of 3:1 with the paper. */
const struct ink_entry ink_table[INK_COUNT] = {
    [INK_PAPER] = {"paper", {255, 255, 255}, {22, 26, 31}},
    [INK_TEXT] = {"text", {27, 31, 36}, {230, 234, 239}},
    [INK_QUIET] = {"quiet", {87, 96, 106}, {155, 164, 175}},
    [INK_GRID] = {"grid", {225, 229, 234}, {52, 59, 68}},
    [INK_SERIES] = {"s0", {0, 103, 172}, {92, 178, 245}},
    [INK_SERIES + 1] = {"s1", {206, 84, 0}, {255, 143, 74}},
    [INK_SERIES + 2] = {"s2", {0, 138, 102}, {38, 203, 153}},
    [INK_SERIES + 3] = {"s3", {173, 66, 138}, {235, 145, 203}},
    [INK_SERIES + 4] = {"s4", {150, 115, 0}, {236, 200, 66}},
    [INK_SERIES + 5] = {"s5", {45, 155, 205}, {160, 216, 250}},
    [INK_SERIES + 6] = {"s6", {98, 76, 190}, {176, 160, 255}},
    [INK_SERIES + 7] = {"s7", {110, 117, 125}, {190, 197, 205}},
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
