// SPDX-License-Identifier: BSD-3-Clause
/* Clocks, times as text, order of measured values. */
#include "base/clock.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/error.h"

static double seconds_of(clockid_t clock)
{
    struct timespec now;
    ENSURE(clock_gettime(clock, &now) == 0, "the system has no clock number %d", (int)clock);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double clock_now(void)
{
    return seconds_of(CLOCK_MONOTONIC);
}

double clock_thread(void)
{
    return seconds_of(CLOCK_THREAD_CPUTIME_ID);
}

double clock_wall(void)
{
    return seconds_of(CLOCK_REALTIME);
}

/* Format the current time with strftime. Return its milliseconds. */
static long moment_format(bool universal, const char *format, char *text, size_t size)
{
    struct timespec now;
    struct tm parts;
    ENSURE(clock_gettime(CLOCK_REALTIME, &now) == 0 &&
               (universal ? gmtime_r(&now.tv_sec, &parts) : localtime_r(&now.tv_sec, &parts)) !=
                   NULL,
           "the system has no time");
    ENSURE(strftime(text, size, format, &parts) > 0, "%zu bytes for a time", size);
    return now.tv_nsec / 1000000;
}

void clock_stamp(char *text, size_t size)
{
    moment_format(false, "%Y-%m-%dT%H:%M:%S", text, size);
}

void clock_stamp_utc(char *text, size_t size)
{
    char seconds[24];
    const long thousandths = moment_format(true, "%Y-%m-%dT%H:%M:%S", seconds, sizeof seconds);
    snprintf(text, size, "%s.%03ldZ", seconds, thousandths);
}

void clock_format(double seconds, char *text, size_t size)
{
    if (!isfinite(seconds) || seconds < 0 || seconds > 1e9) {
        snprintf(text, size, "?");
    } else if (seconds < 0.9995) {
        snprintf(text, size, "%.0f ms", 1e3 * seconds);
    } else if (seconds < 59.95) {
        snprintf(text, size, "%.1f s", seconds);
    } else {
        const long whole = lround(seconds);
        if (whole < 3600)
            snprintf(text, size, "%ldm%02lds", whole / 60, whole % 60);
        else
            snprintf(text, size, "%ldh%02ldm", whole / 3600, whole % 3600 / 60);
    }
}

static int values_compare(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

void values_sort(double *values, int64_t count)
{
    qsort(values, (size_t)count, sizeof *values, values_compare);
}

double values_median(double *values, int64_t count)
{
    values_sort(values, count);
    return count > 0 ? values[count / 2] : 0;
}
