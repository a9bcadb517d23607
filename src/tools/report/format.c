// SPDX-License-Identifier: BSD-3-Clause
#include "tools/report/format.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Write 3e-4 or 1.235e-5. */
static void format_exponent(char *text, double value, int digits, const char *unit)
{
    char mantissa[FORMAT_TEXT];
    snprintf(mantissa, sizeof mantissa, "%.*e", digits - 1, value);
    char *end = strchr(mantissa, 'e');
    if (end == NULL) { /* infinite */
        snprintf(text, FORMAT_TEXT, "%s%s", mantissa, unit);
        return;
    }
    const int exponent = atoi(end + 1);
    while (end[-1] == '0')
        end--;
    end -= end[-1] == '.';
    snprintf(text, FORMAT_TEXT, "%.*se%d%s", (int)(end - mantissa), mantissa, exponent, unit);
}

/* Three or four significant digits; never rounds the integer part. */
static void format_digits(char *text, double value, int digits, const char *unit)
{
    const double size = fabs(value);
    int decimals = 3;
    for (double limit = digits == 3 ? 1 : 10; decimals > 0 && size >= limit; limit *= 10)
        decimals--;
    if (size != 0 && (size < 0.001 || size >= 1e7))
        format_exponent(text, value, digits, unit);
    else
        snprintf(text, FORMAT_TEXT, "%.*f%s", decimals, value, unit);
}

/* 1,234,567 */
static void format_grouped(char *text, double value, const char *unit)
{
    char digits[FORMAT_TEXT];
    int length = snprintf(digits, sizeof digits, "%.0f", fabs(value)), used = 0;
    if (length > 18) {
        format_exponent(text, value, 4, unit);
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
        format_digits(text, seconds * 1000, 3, " ms");
    } else if (fabs(seconds) < 99.95) {
        format_digits(text, seconds, 3, " s");
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

/* Divide by `step` until the value is below it; `units`: from small to large, then NULL. */
static void format_scaled(char *text, double value, double step, const char *const *units)
{
    for (; units[1] != NULL && fabs(value) >= step - 0.5; units++)
        value /= step;
    if (strcmp(*units, " B") == 0)
        snprintf(text, FORMAT_TEXT, "%.0f B", value);
    else
        format_digits(text, value, 3, *units);
}

void format_figure(char text[FORMAT_TEXT], enum figure figure, double value)
{
    static const char *const bytes[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB", NULL};
    static const char *const flops[] = {" flop", " kflop", " Mflop", " Gflop", " Tflop", NULL};
    static const char *const suffixes[] = {[FIGURE_RATIO] = "x",
                                           [FIGURE_RATE] = "",
                                           [FIGURE_WATTS] = " W",
                                           [FIGURE_WATT_HOURS] = " Wh",
                                           [FIGURE_TEXT] = ""};
    if (isnan(value))
        strcpy(text, "-");
    else if (figure == FIGURE_COUNT || (figure == FIGURE_RATE && fabs(value) >= 999.5) ||
             (figure == FIGURE_NUMBER && fabs(value) >= 999.5 && fabs(value) < 1e7))
        format_grouped(text, value, "");
    else if (figure == FIGURE_NUMBER)
        format_digits(text, value, 4, "");
    else if (figure == FIGURE_SHARE)
        snprintf(text, FORMAT_TEXT, "%.2f %%", value * 100);
    else if (figure == FIGURE_SECONDS)
        format_seconds(text, value);
    else if (figure == FIGURE_BYTES)
        format_scaled(text, value, 1024, bytes);
    else if (figure == FIGURE_FLOPS)
        format_scaled(text, value, 1000, flops);
    else
        format_digits(text, value, 3, suffixes[figure]);
}

void format_time(char text[FORMAT_TEXT], time_t time)
{
    struct tm local;
    if (strftime(text, FORMAT_TEXT, "%Y-%m-%d %H:%M:%S %Z", localtime_r(&time, &local)) == 0)
        text[0] = '\0';
}

double format_stamp_seconds(const char *stamp)
{
    struct tm date = {0};
    double seconds;
    if (stamp == NULL ||
        sscanf(stamp, "%d-%d-%dT%d:%d:%lf", &date.tm_year, &date.tm_mon, &date.tm_mday,
               &date.tm_hour, &date.tm_min, &seconds) != 6 ||
        date.tm_year < 1970 || date.tm_year > 9999 || !(seconds >= 0 && seconds <= 60))
        return NAN;
    date.tm_year -= 1900;
    date.tm_mon -= 1;
    return (double)timegm(&date) + seconds;
}

const char *format_stamp(char text[FORMAT_TEXT], const char *stamp)
{
    const double seconds = format_stamp_seconds(stamp);
    if (isnan(seconds))
        return stamp;
    format_time(text, (time_t)seconds);
    return text;
}
