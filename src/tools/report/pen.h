// SPDX-License-Identifier: BSD-3-Clause
/* Lines and text of a chart. Pages have SVG elements, whose text can be searched and selected and
 * which need no library; Cairo, which is optional, draws PNG files. Sizes are in CSS pixels. */
#ifndef VITTRAIN_TOOLS_REPORT_PEN_H
#define VITTRAIN_TOOLS_REPORT_PEN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum pen_alignment { PEN_LEFT, PEN_CENTRE, PEN_RIGHT };

/* Exactly one of the two is set. */
struct pen {
    FILE *svg;
    struct _cairo *cairo;
    double text_size;
    bool bold;
};

struct pen_point {
    double x, y;   /* x NAN: the line is interrupted */
    int64_t index; /* of the value, for the caller */
};

struct pen_stroke {
    unsigned colour; /* 0xRRGGBB */
    double width;
    bool dashed;
};

/* Return an estimate of the width: 0.62 of the size per character. */
double pen_text_width(const struct pen *pen, const char *text);

/* Write text. `lines`: added to y as a multiple of the size of the text. */
void pen_text(const struct pen *pen, unsigned colour, enum pen_alignment alignment, double x,
              double y, double lines, const char *text);

void pen_line(const struct pen *pen, const struct pen_stroke *stroke, double x0, double y0,
              double x1, double y1);

/* Draw a line through the points. A point between two interruptions becomes a dot, as wide as the
 * line. */
void pen_curve(const struct pen *pen, const struct pen_stroke *stroke,
               const struct pen_point *points, int64_t count);

#endif
