/* Stacked bars, a row each, as SVG. */
#ifndef VITTRAIN_REPORT_BARS_H
#define VITTRAIN_REPORT_BARS_H

#include <stdio.h>

struct bars {
    const char *title, *id; /* id: of the SVG element */
    const char *label;      /* of the axis, with the unit */
    int row_count, part_count;
    const char *const *rows;  /* names */
    const char *const *parts; /* names, in the legend */
    const double *values;     /* [rows][parts], at least 0; NAN: unknown, as 0 */
    double most;              /* of the axis; 0: the longest row */
    const int *colours;       /* [parts]: 1, 2, ...; NULL: in their order */
};

/* As wide as this; as high as it needs to be. */
void bars_svg_write(const struct bars *bars, FILE *stream, double width);

#endif
