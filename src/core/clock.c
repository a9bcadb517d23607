/* Time for the step's phases, for TensorBoard and for people. */
#include "core/clock.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

#include "core/error.h"

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

void clock_stamp(char *text, size_t size)
{
    const time_t now = time(NULL);
    struct tm local;
    ENSURE(localtime_r(&now, &local) != NULL, "the system's time has no local form");
    ENSURE(strftime(text, size, "%Y-%m-%dT%H:%M:%S", &local) > 0, "%zu bytes for a time", size);
}

void clock_stamp_milliseconds(char *text, size_t size)
{
    struct timespec now;
    struct tm local;
    char seconds[24];
    ENSURE(clock_gettime(CLOCK_REALTIME, &now) == 0 && localtime_r(&now.tv_sec, &local) != NULL,
           "the system has no time");
    ENSURE(strftime(seconds, sizeof seconds, "%Y-%m-%d %H:%M:%S", &local) > 0,
           "%zu bytes for a time", sizeof seconds);
    snprintf(text, size, "%s,%03ld - ", seconds, now.tv_nsec / 1000000);
}

void clock_stamp_utc(char *text, size_t size)
{
    struct timespec now;
    struct tm parts;
    char seconds[24];
    ENSURE(clock_gettime(CLOCK_REALTIME, &now) == 0 && gmtime_r(&now.tv_sec, &parts) != NULL,
           "the system has no time");
    ENSURE(strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &parts) > 0,
           "%zu bytes for a time", sizeof seconds);
    snprintf(text, size, "%s.%03ldZ", seconds, now.tv_nsec / 1000000);
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
