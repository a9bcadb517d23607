/* Where charts are drawn: a few primitives with two backends, SVG (for pages and files) and pixels
 * (PNG). Coordinates and sizes are in units of a CSS pixel, y downwards. Colours are roles, so that
 * a page can show them light and dark. */
#ifndef VITTRAIN_REPORT_CANVAS_H
#define VITTRAIN_REPORT_CANVAS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "core/error.h"

enum ink {
    INK_PAPER, /* what all is drawn on */
    INK_TEXT,
    INK_QUIET,                 /* labels of axes */
    INK_GRID,                  /* thin lines behind the data */
    INK_SERIES,                /* the first of the data's colours, told apart also by who */
    INK_COUNT = INK_SERIES + 8 /* does not see all colours */
};

/* The i-th colour of data; they begin anew after the last. */
enum ink ink_of_series(int64_t i);

struct point {
    double x, y; /* x NAN: the line is broken here */
};

struct pen {
    enum ink ink;
    double width;
    bool dashed;
};

enum anchor { ANCHOR_START, ANCHOR_MIDDLE, ANCHOR_END };

struct lettering {
    enum ink ink;
    double size; /* of the font */
    enum anchor anchor;
    bool bold;
};

struct canvas;
struct canvas_backend {
    void (*polyline)(struct canvas *canvas, struct pen pen, const struct point *points,
                     int64_t count);
    void (*rectangle)(struct canvas *canvas, enum ink ink, double x, double y, double width,
                      double height, const char *name);
    void (*text)(struct canvas *canvas, struct lettering lettering, double x, double y,
                 const char *text);
};

struct pixels;
struct canvas {
    const struct canvas_backend *backend;
    double width, height;
    FILE *stream;          /* of SVG */
    struct pixels *pixels; /* of PNG */
};

void canvas_line(struct canvas *canvas, struct pen pen, double x0, double y0, double x1, double y1);

/* Round ends and joints. A point alone between two breaks is a dot of the pen's width. */
void canvas_polyline(struct canvas *canvas, struct pen pen, const struct point *points,
                     int64_t count);

/* Filled. `name`, or NULL: what a browser says of it under the mouse. */
void canvas_rectangle(struct canvas *canvas, enum ink ink, double x, double y, double width,
                      double height, const char *name);

/* (x, y): on the baseline. UTF-8; in pixels what is not ASCII is a box. */
void canvas_text(struct canvas *canvas, struct lettering lettering, double x, double y,
                 const char *text);

/* About as wide as the text will be. */
double canvas_text_width(const char *text, double size);

/* ---- SVG */

/* `title`, `description`: for those who do not see it. `attributes`: more of the element's, as
 * they are. Alone, it brings its colours; in a page they come once, from canvas_svg_style. */
void canvas_svg_open(struct canvas *canvas, FILE *stream, double width, double height,
                     const char *title, const char *description, const char *attributes,
                     bool alone);
void canvas_svg_close(struct canvas *canvas);

/* The CSS of the colours, light and dark: custom properties --paper, --text, --quiet, --grid, --s0
 * ... --s7 and classes of the same names. */
void canvas_svg_style(FILE *stream);

/* ---- pixels */

/* An image of these pixels; `scale` of them are a unit. ERROR_MEMORY. */
bool canvas_pixels_open(struct canvas *canvas, int width, int height, double scale,
                        struct error *error);

/* Copies another image of the same height into this one, so many pixels from the left. */
void canvas_pixels_paste(struct canvas *canvas, const struct canvas *part, int left);

/* Writes the PNG, whole or not at all. ERROR_FILE. */
bool canvas_pixels_write(const struct canvas *canvas, const char *path, struct error *error);
void canvas_pixels_free(struct canvas *canvas);

/* ---- between canvas*.c */

struct colour {
    uint8_t red, green, blue;
};
struct ink_entry {
    const char *name; /* of the class */
    struct colour light, dark;
};
extern const struct ink_entry ink_table[INK_COUNT];

/* A character of the stroke font: strokes on a grid, see stroke_font.c. */
const char *stroke_glyph(char character);
int stroke_glyph_width(const char *glyph); /* with the gap behind it, in steps of the grid */
enum { STROKE_BASELINE = 4 };
#define STROKE_STEP 0.08 /* of the grid, in sizes of the font */

#endif
