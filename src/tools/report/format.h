// SPDX-License-Identifier: BSD-3-Clause
/* Format numbers for people: three or four significant digits and a matching unit. */
#ifndef VITTRAIN_TOOLS_REPORT_FORMAT_H
#define VITTRAIN_TOOLS_REPORT_FORMAT_H

#include <time.h>

enum { FORMAT_TEXT = 48 };

enum figure {
    FIGURE_COUNT,   /* 213,578 */
    FIGURE_NUMBER,  /* 1.981 */
    FIGURE_SHARE,   /* 25.72 %, given as 0.2572 */
    FIGURE_SECONDS, /* 84 ms, 10.6 s, 3 min 05 s, 2 h 07 min */
    FIGURE_BYTES,   /* 34.6 MiB */
    FIGURE_RATIO,   /* 1.94x */
    FIGURE_RATE,    /* 1,552 per second */
    FIGURE_FLOPS,   /* 21.7 Mflop */
    FIGURE_WATTS,
    FIGURE_WATT_HOURS,
    FIGURE_TEXT /* not a number */
};

/* Parse a time stamp in UTC such as 2026-11-22T00:02:47.515Z. Return seconds; NAN: not a time. */
double format_stamp_seconds(const char *stamp);

/* Write a time in the local form: "2026-11-21 15:03:59 CET". */
void format_time(char text[FORMAT_TEXT], time_t time);

/* The same for a stamp of run.json, in UTC. Return text, or the stamp if it has another form. */
const char *format_stamp(char text[FORMAT_TEXT], const char *stamp);

/* NAN becomes "-". */
void format_figure(char text[FORMAT_TEXT], enum figure figure, double value);

#endif
