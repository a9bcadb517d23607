/* Positions and labels of ticks. A label has as few digits as keep neighbours distinct. */
#include "report/ticks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Round up to 1, 2 or 5 times a power of ten. */
static double step_round(double rough)
{
    const double power = pow(10, floor(log10(rough)));
    const double times = rough / power;
    const double rounded = times <= 1.0001 ? 1 : times <= 2.0001 ? 2 : times <= 5.0001 ? 5 : 10;
    return rounded * power;
}

/* Return the largest prefix of 1, k, M, G, T that is not above the number, and its value. */
static const char *prefix_of(double magnitude, double *unit)
{
    static const char *const prefixes[] = {"", "k", "M", "G", "T"};
    int i = 0;
    *unit = 1;
    while (i < 4 && magnitude >= *unit * 1000 * 0.9999) {
        *unit *= 1000;
        i++;
    }
    return prefixes[i];
}

/* Replace 1e-08 by 1e-8. */
static void exponent_shorten(char *text)
{
    char *sign = strpbrk(text, "e");
    if (sign != NULL && sign[1] != '\0' && sign[2] == '0')
        memmove(sign + 2, sign + 3, strlen(sign + 3) + 1);
}

/* `step`: distance between two ticks; `magnitude`: largest absolute value on the axis. */
static void tick_write(char *text, double value, double step, double magnitude)
{
    double unit = 1;
    const char *prefix = magnitude >= 10000 ? prefix_of(step, &unit) : "";
    if (magnitude < 0.001 || magnitude >= 1e15) {
        snprintf(text, TICK_TEXT, "%.3g", value);
        exponent_shorten(text);
        return;
    }
    int decimals = (int)-floor(log10(step / unit) + 1e-9);
    decimals = decimals < 0 ? 0 : decimals > 9 ? 9 : decimals;
    snprintf(text, TICK_TEXT, "%.*f%s", decimals, value / unit, value == 0 ? "" : prefix);
}

void ticks_linear(struct ticks *ticks, double least, double most, int wanted)
{
    const double step = step_round((most - least) / (wanted < 1 ? 1 : wanted) * 0.8);
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
            double unit = 1;
            if (value < least * 0.9999 || value > most * 1.0001 || ticks->count == TICKS_MOST)
                continue;
            const char *prefix = value < 1e15 ? prefix_of(value, &unit) : "";
            char *text = ticks->text[ticks->count];
            snprintf(text, TICK_TEXT, "%g%s", value / unit, prefix);
            exponent_shorten(text);
            ticks->at[ticks->count++] = value;
        }
    }
}
