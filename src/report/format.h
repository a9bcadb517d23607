/* Figures as people read them: three or four digits, and a unit that fits. */
#ifndef VITTRAIN_REPORT_FORMAT_H
#define VITTRAIN_REPORT_FORMAT_H

enum { FORMAT_TEXT = 48 };

enum figure {
    FIGURE_COUNT,   /* 213,578 */
    FIGURE_NUMBER,  /* 1.981 */
    FIGURE_SHARE,   /* 25.72 %, of a share from 0 to 1 */
    FIGURE_SECONDS, /* 84 ms, 10.6 s, 3 min 05 s, 2 h 07 min */
    FIGURE_BYTES,   /* 34.6 MiB */
    FIGURE_RATIO,   /* 1.94x */
    FIGURE_RATE,    /* 1,552, of what is counted a second */
    FIGURE_FLOPS,   /* 21.7 Mflop */
    FIGURE_WATTS,
    FIGURE_WATT_HOURS,
    FIGURE_TEXT /* no number */
};

/* NAN: "-". */
void format_figure(char text[FORMAT_TEXT], enum figure figure, double value);

#endif
