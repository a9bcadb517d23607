#include "report/format.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Three significant digits; never rounds the integer part. */
static void format_short(char *text, double value, const char *unit)
{
    const double size = fabs(value);
    if (size != 0 && (size < 0.001 || size >= 1e7))
        snprintf(text, FORMAT_TEXT, "%.2e%s", value, unit);
    else
        snprintf(text, FORMAT_TEXT, "%.*f%s",
                 size >= 100  ? 0
                 : size >= 10 ? 1
                 : size >= 1  ? 2
                              : 3,
                 value, unit);
}

/* Four significant digits. */
static void format_fine(char *text, double value)
{
    const double size = fabs(value);
    if (size != 0 && (size < 0.001 || size >= 1e7))
        snprintf(text, FORMAT_TEXT, "%.3e", value);
    else
        snprintf(text, FORMAT_TEXT, "%.*f",
                 size >= 1000  ? 0
                 : size >= 100 ? 1
                 : size >= 10  ? 2
                               : 3,
                 value);
}

/* 1,234,567 */
static void format_grouped(char *text, double value, const char *unit)
{
    char digits[FORMAT_TEXT];
    int length = snprintf(digits, sizeof digits, "%.0f", fabs(value)), used = 0;
    if (length > 18) {
        snprintf(text, FORMAT_TEXT, "%.3e%s", value, unit);
        return;
    }
    if (value <= -0.5)
        text[used++] = '-';
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            text[used++] = ',';
        text[used++] = digits[i];
    }
    snprintf(text + used, (size_t)(FORMAT_TEXT - used), "%s", unit);
}

static void format_seconds(char *text, double seconds)
{
    if (seconds == 0) {
        strcpy(text, "0 s");
    } else if (fabs(seconds) < 0.9995) {
        format_short(text, seconds * 1000, " ms");
    } else if (fabs(seconds) < 99.95) {
        format_short(text, seconds, " s");
    } else if (seconds < 0 || seconds >= 1e12) {
        format_grouped(text, seconds, " s");
    } else {
        const long long whole = llround(seconds);
        if (whole < 3600)
            snprintf(text, FORMAT_TEXT, "%lld min %02lld s", whole / 60, whole % 60);
        else
            snprintf(text, FORMAT_TEXT, "%lld h %02lld min", whole / 3600, whole / 60 % 60);
    }
}

static void format_bytes(char *text, double bytes)
{
    static const char *const units[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB"};
    int i = 0;
    while (i < 5 && fabs(bytes) >= 1023.5) {
        bytes /= 1024;
        i++;
    }
    if (i == 0)
        snprintf(text, FORMAT_TEXT, "%.0f B", bytes);
    else
        format_short(text, bytes, units[i]);
}

static void format_flops(char *text, double count)
{
    static const char *const units[] = {" flop", " kflop", " Mflop", " Gflop", " Tflop"};
    int i = 0;
    for (; i < 4 && fabs(count) >= 999.5; i++)
        count /= 1000;
    format_short(text, count, units[i]);
}

static void format_rate(char *text, double value)
{
    if (fabs(value) >= 999.5)
        format_grouped(text, value, "");
    else
        format_short(text, value, "");
}

void format_figure(char text[FORMAT_TEXT], enum figure figure, double value)
{
    if (isnan(value)) {
        strcpy(text, "-");
        return;
    }
    switch (figure) {
    case FIGURE_COUNT:
        format_grouped(text, value, "");
        break;
    case FIGURE_SHARE:
        snprintf(text, FORMAT_TEXT, "%.2f %%", value * 100);
        break;
    case FIGURE_SECONDS:
        format_seconds(text, value);
        break;
    case FIGURE_BYTES:
        format_bytes(text, value);
        break;
    case FIGURE_RATIO:
        format_short(text, value, "x");
        break;
    case FIGURE_RATE:
        format_rate(text, value);
        break;
    case FIGURE_FLOPS:
        format_flops(text, value);
        break;
    case FIGURE_WATTS:
        format_short(text, value, " W");
        break;
    case FIGURE_WATT_HOURS:
        format_short(text, value, " Wh");
        break;
    case FIGURE_NUMBER:
        format_fine(text, value);
        break;
    case FIGURE_TEXT:
        format_short(text, value, "");
        break;
    }
}
