// SPDX-License-Identifier: BSD-3-Clause
/* Tick marks of a chart's axis. */
#ifndef VITTRAIN_TOOLS_REPORT_TICKS_H
#define VITTRAIN_TOOLS_REPORT_TICKS_H

enum { TICKS_MOST = 32, TICK_TEXT = 24 };

/* All labels of an axis have the same form: decimals, thousands (20,000), or a common exponent
 * (0.5e-3, 1.0e-3) for steps below 0.001 and from 10 million on. */
struct ticks {
    int count;
    double at[TICKS_MOST];
    char text[TICKS_MOST][TICK_TEXT];
};

/* Place about `wanted` ticks between least and most, at 1, 2 or 5 times a power of ten. */
void ticks_linear(struct ticks *ticks, double least, double most, int wanted);
void ticks_log(struct ticks *ticks, double least, double most, int wanted);

#endif
