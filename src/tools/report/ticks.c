// SPDX-License-Identifier: BSD-3-Clause
#include "tools/report/ticks.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tools/report/format.h"

/* `step`: distance between two ticks; `magnitude`: largest absolute value on the axis. */
static void tick_write(char *text, double value, double step, double magnitude)
{
    char figure[FORMAT_TEXT];
    const double power = floor(log10(magnitude) + 1e-9);
    if ((magnitude < 0.01 && step < 0.001) || magnitude >= 1e7) {
        int decimals = (int)(power - floor(log10(step) + 1e-9));
        decimals = decimals < 0 ? 0 : decimals > 9 ? 9 : decimals;
        snprintf(text, TICK_TEXT, value == 0 ? "0" : "%.*fe%.0f", decimals, value / pow(10, power),
                 power);
        return;
    }
    int decimals = (int)-floor(log10(step) + 1e-9);
    if (decimals <= 0) {
        format_figure(figure, FIGURE_COUNT, value);
        snprintf(text, TICK_TEXT, "%.*s", TICK_TEXT - 1, figure);
    } else {
        snprintf(text, TICK_TEXT, "%.*f", decimals > 9 ? 9 : decimals, value);
    }
}

void ticks_linear(struct ticks *ticks, double least, double most, int wanted)
{
    /* Round the step up to 1, 2 or 5 times a power of ten. */
    const double rough = (most - least) / (wanted < 1 ? 1 : wanted) * 0.8;
    const double power = pow(10, floor(log10(rough))), times = rough / power;
    const double step = power * (times <= 1.0001   ? 1
                                 : times <= 2.0001 ? 2
                                 : times <= 5.0001 ? 5
                                                   : 10);
    const double magnitude = fmax(fabs(least), fabs(most));
    ticks->count = 0;
    for (double i = ceil(least / step - 1e-6); ticks->count < TICKS_MOST; i++) {
        const double value = i * step;
        if (value > most + step * 1e-6)
            break;
        ticks->at[ticks->count] = value;
        tick_write(ticks->text[ticks->count++], value == 0 ? 0 : value, step, magnitude);
    }
}

void ticks_log(struct ticks *ticks, double least, double most, int wanted)
{
    static const double factors[] = {1, 2, 5};
    const int low = (int)floor(log10(least)), high = (int)ceil(log10(most));
    const double decades = log10(most / least);
    const bool exponents = least < 0.001 || most >= 1e7;
    if (decades < 0.7) {
        ticks_linear(ticks, least, most, wanted);
        return;
    }
    ticks->count = 0;
    wanted = wanted < 1 ? 1 : wanted;
    const int every = decades > wanted ? (int)ceil(decades / wanted) : 1;
    for (int decade = low; decade <= high; decade++) {
        if ((decade - low) % every != 0)
            continue;
        for (int i = 0; i < (decades <= wanted / 3.0 + 0.5 ? 3 : 1); i++) {
            const double value = factors[i] * pow(10, decade);
            if (value < least * 0.9999 || value > most * 1.0001 || ticks->count == TICKS_MOST)
                continue;
            char *text = ticks->text[ticks->count];
            if (exponents)
                snprintf(text, TICK_TEXT, "%.0fe%d", factors[i], decade);
            else
                tick_write(text, value, pow(10, decade), value < 0.001 ? 0.001 : value);
            ticks->at[ticks->count++] = value;
        }
    }
}
