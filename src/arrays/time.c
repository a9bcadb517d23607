// SPDX-License-Identifier: BSD-3-Clause
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* strcasestr */
#endif
#include "arrays/time.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- calendars ---- */

struct date {
    int64_t year, month, day; /* month and day from 1 on */
};

static int64_t floor_division(int64_t value, int64_t divisor)
{
    return value / divisor - (value % divisor < 0);
}

/* Days from 0000-01-01 of the Gregorian calendar: 1582-10-15, and 0000-01-01 of the Julian one. */
enum { GREGORIAN_BEGIN = 578101, JULIAN_BEGIN = -2 };

static bool is_leap(enum time_calendar calendar, int64_t year)
{
    const bool is_century = year % 100 == 0 && year % 400 != 0;
    return calendar == CALENDAR_366 || (calendar <= CALENDAR_JULIAN && year % 4 == 0 &&
                                        (calendar == CALENDAR_JULIAN || !is_century));
}

static int64_t month_days(enum time_calendar calendar, int64_t year, int64_t month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    if (calendar == CALENDAR_360)
        return 30;
    return days[month - 1] + (month == 2 && is_leap(calendar, year));
}

/* Return the days from the calendar's 0000-01-01 to the first day of a year. */
static int64_t year_begin(enum time_calendar calendar, int64_t year)
{
    static const int days[] = {[CALENDAR_365] = 365, [CALENDAR_366] = 366, [CALENDAR_360] = 360};
    const int64_t before = year - 1; /* leap years from 0 to `before` */
    const int64_t julian = 365 * year + floor_division(before, 4) + 1;
    if (calendar > CALENDAR_JULIAN)
        return days[calendar] * year;
    return calendar == CALENDAR_JULIAN
               ? julian
               : julian - floor_division(before, 100) + floor_division(before, 400);
}

static int64_t days_of(enum time_calendar calendar, const struct date *date)
{
    if (calendar == CALENDAR_STANDARD) {
        const bool is_julian =
            (date->year * 12 + date->month) * 31 + date->day < (1582 * 12 + 10) * 31 + 15;
        return is_julian ? days_of(CALENDAR_JULIAN, date) + JULIAN_BEGIN
                         : days_of(CALENDAR_PROLEPTIC_GREGORIAN, date);
    }
    int64_t days = year_begin(calendar, date->year) + date->day - 1;
    for (int64_t month = 1; month < date->month; month++)
        days += month_days(calendar, date->year, month);
    return days;
}

static struct date date_of(enum time_calendar calendar, int64_t days)
{
    if (calendar == CALENDAR_STANDARD)
        return days < GREGORIAN_BEGIN ? date_of(CALENDAR_JULIAN, days - JULIAN_BEGIN)
                                      : date_of(CALENDAR_PROLEPTIC_GREGORIAN, days);
    struct date date = {.year = floor_division(days, 366), .month = 1};
    while (year_begin(calendar, date.year + 1) <= days)
        date.year++;
    days -= year_begin(calendar, date.year);
    for (; days >= month_days(calendar, date.year, date.month); date.month++)
        days -= month_days(calendar, date.year, date.month);
    date.day = days + 1;
    return date;
}

int64_t time_month(enum time_calendar calendar, double instant)
{
    const struct date date = date_of(calendar, (int64_t)floor(instant / TIME_DAY));
    return date.year * 12 + date.month - 1;
}

/* Return the instant at which a month begins. */
static double month_begin(enum time_calendar calendar, int64_t month)
{
    const struct date first = {.year = floor_division(month, 12),
                               .month = month - 12 * floor_division(month, 12) + 1,
                               .day = 1};
    return (double)days_of(calendar, &first) * TIME_DAY;
}

double time_add_months(enum time_calendar calendar, double instant, int64_t months)
{
    const int64_t month = time_month(calendar, instant);
    const double begin = month_begin(calendar, month + months);
    const double last = month_begin(calendar, month + months + 1) - TIME_DAY;
    const double time = instant - floor(instant / TIME_DAY) * TIME_DAY;
    return fmin(begin + instant - month_begin(calendar, month), last + time);
}

double time_year_part(enum time_calendar calendar, double instant)
{
    const int64_t january = 12 * floor_division(time_month(calendar, instant), 12);
    const double begin = month_begin(calendar, january);
    return (instant - begin) / (month_begin(calendar, january + 12) - begin);
}

void time_write(const struct time_units *units, double instant, char text[TIME_TEXT])
{
    const double whole = rint(instant), day = floor(whole / TIME_DAY);
    const int seconds = (int)(whole - day * TIME_DAY);
    if (!units->has_date) {
        snprintf(text, TIME_TEXT, "%.10g", time_encode(units, instant));
        return;
    }
    const struct date date = date_of(units->calendar, (int64_t)day);
    int used = snprintf(text, TIME_TEXT, "%04lld-%02d-%02d", (long long)date.year, (int)date.month,
                        (int)date.day);
    if (seconds > 0)
        used += snprintf(text + used, (size_t)(TIME_TEXT - used), "T%02d:%02d", seconds / 3600,
                         seconds / 60 % 60);
    if (seconds % 60 > 0)
        snprintf(text + used, (size_t)(TIME_TEXT - used), ":%02d", seconds % 60);
}

/* ---- units ---- */

bool time_word_is_in(const char *words, const char *word, size_t length)
{
    char between[80];
    return length > 0 && memchr(word, ' ', length) == NULL &&
           snprintf(between, sizeof between, " %.*s ", (int)length, word) < (int)sizeof between &&
           strcasestr(words, between) != NULL;
}

static bool unit_parse(const char *name, size_t length, struct time_units *parsed)
{
    static const struct {
        const char *names;
        double seconds;
        int months;
    } units[] = {
        {" nanosecond nanoseconds nanosec nsec ns ", 1e-9, 0},
        {" microsecond microseconds microsec usec us ", 1e-6, 0},
        {" millisecond milliseconds millisec millisecs msec msecs ms ", 1e-3, 0},
        {" second seconds sec secs s ", 1, 0},
        {" minute minutes min mins ", 60, 0},
        {" hour hours hr hrs h ", 3600, 0},
        {" day days d ", TIME_DAY, 0},
        {" week weeks ", 7 * TIME_DAY, 0},
        {" month months mon mons ", 0, 1},
        {" year years yr yrs y ", 0, 12},
    };
    size_t n = 0;
    while (n < sizeof units / sizeof units[0] && !time_word_is_in(units[n].names, name, length))
        n++;
    if (n == sizeof units / sizeof units[0])
        return false;
    parsed->seconds = units[n].seconds;
    parsed->months = units[n].months;
    return true;
}

/* Parse "2001-01-09", "2001-1-9 12:00:00.0", "2001-01-09T12Z", "... +01:00". */
static bool origin_parse(const char *text, struct time_units *parsed)
{
    long long year;
    int month, day, minute = 0, zone_hour = 0, zone_minute = 0, used = 0;
    double second = 0;
    char hour[3] = "0", sign[2] = "+";
    if (sscanf(text, " %lld-%d-%d%n%*[ T]%2[0-9]%n:%d%n:%lf%n", &year, &month, &day, &used, hour,
               &used, &minute, &used, &second, &used) < 3)
        return false;
    text += used;
    text += strspn(text, " T");
    if (strncasecmp(text, "UTC", 3) == 0 || strncasecmp(text, "GMT", 3) == 0)
        text += 3;
    text += *text == 'Z' || *text == 'z';
    if (sscanf(text, "%1[+-]%2d%n", sign, &zone_hour, &used) == 2) {
        text += used;
        text += *text == ':';
        if (sscanf(text, "%2d%n", &zone_minute, &used) == 1)
            text += used;
    }
    text += strspn(text, " ");
    const bool is_julian = parsed->calendar == CALENDAR_STANDARD && year < 1582;
    if (*text != '\0' || llabs(year) > 1000000 || month < 1 || month > 12 || day < 1 ||
        atoi(hour) > 24 || minute < 0 || minute > 59 || !(second >= 0 && second < 61) ||
        day > month_days(is_julian ? CALENDAR_JULIAN : parsed->calendar, year, month))
        return false;
    const struct date date = {.year = year, .month = month, .day = day};
    const int zone = (*sign == '-' ? -60 : 60) * (60 * zone_hour + zone_minute);
    parsed->origin = (double)days_of(parsed->calendar, &date) * TIME_DAY + atoi(hour) * 3600 +
                     minute * 60 + second - zone;
    return true;
}

/* Set the instants at which a date begins and ends. */
static bool date_parse(enum time_calendar calendar, const char *text, double range[2])
{
    static const char first[] = "0000-01-01T00:00:00"; /* replaces what a date leaves out */
    static const struct {
        size_t length;
        int months, seconds;
    } precisions[] = {{4, 12, 0},    {7, 1, 0},   {10, 0, TIME_DAY},
                      {13, 0, 3600}, {16, 0, 60}, {19, 0, 1}};
    struct time_units units = {.calendar = calendar};
    const size_t length = strlen(text);
    char date[sizeof first];
    for (size_t i = 0; i < sizeof first; i++) {
        date[i] = i < length ? text[i] : first[i];
        if (isdigit((unsigned char)first[i]) ? !isdigit((unsigned char)date[i])
                                             : date[i] != first[i])
            return false;
    }
    for (size_t p = 0; p < sizeof precisions / sizeof precisions[0]; p++) {
        if (precisions[p].length != length || !origin_parse(date, &units))
            continue;
        range[0] = units.origin;
        range[1] =
            time_add_months(calendar, units.origin, precisions[p].months) + precisions[p].seconds;
        return true;
    }
    return false;
}

bool time_period_parse(enum time_calendar calendar, const char *text, size_t length,
                       double range[2])
{
    double first[2] = {(double)-INFINITY}, last[2] = {0, (double)INFINITY};
    char begin[64];
    snprintf(begin, sizeof begin, "%.*s", (int)length, text);
    char *dots = strstr(begin, ".."), *end = dots != NULL ? dots + 2 : begin;
    if (dots != NULL)
        *dots = '\0';
    if ((*begin != '\0' && !date_parse(calendar, begin, first)) ||
        (*end != '\0' && !date_parse(calendar, end, last)))
        return false;
    range[0] = first[0];
    range[1] = last[1];
    return range[0] < range[1];
}

bool time_units_parse(const char *units, const char *calendar, struct time_units *parsed)
{
    static const char word[] = " since";
    static const char *const calendars[CALENDARS] = {
        " standard gregorian ", " proleptic_gregorian ", " julian ",
        " noleap 365_day ",     " all_leap 366_day ",    " 360_day "};
    const char *since = strcasestr(units, word);
    *parsed = (struct time_units){0};
    units += strspn(units, " ");
    if (since == NULL)
        return unit_parse(units, strlen(units), parsed) ||
               strchr(units, '%') == NULL; /* "day as %Y%m%d.%f" */
    parsed->has_date = true;
    while (*calendar != '\0' && parsed->calendar < CALENDARS &&
           !time_word_is_in(calendars[parsed->calendar], calendar, strlen(calendar)))
        parsed->calendar++;
    return parsed->calendar < CALENDARS && unit_parse(units, strcspn(units, " "), parsed) &&
           origin_parse(since + strlen(word), parsed);
}

/* ---- numbers ---- */

bool time_units_comparable(const struct time_units *one, const struct time_units *other)
{
    const bool same_calendar =
        one->calendar == other->calendar || (one->calendar <= CALENDAR_PROLEPTIC_GREGORIAN &&
                                             other->calendar <= CALENDAR_PROLEPTIC_GREGORIAN);
    return one->has_date == other->has_date && same_calendar &&
           (one->has_date ||
            (one->months == other->months && (one->seconds > 0) == (other->seconds > 0)));
}

double time_decode(const struct time_units *units, double value)
{
    if (!units->has_date)
        return units->seconds > 0 ? value * units->seconds : value;
    if (units->months == 0)
        return units->origin + value * units->seconds;
    const double months = floor(value * units->months);
    const double begin = time_add_months(units->calendar, units->origin, (int64_t)months);
    const double end = time_add_months(units->calendar, units->origin, (int64_t)months + 1);
    return begin + (value * units->months - months) * (end - begin);
}

double time_encode(const struct time_units *units, double instant)
{
    if (!units->has_date)
        return units->seconds > 0 ? instant / units->seconds : instant;
    if (units->months == 0)
        return (instant - units->origin) / units->seconds;
    const enum time_calendar calendar = units->calendar;
    int64_t months = time_month(calendar, instant) - time_month(calendar, units->origin);
    if (time_add_months(calendar, units->origin, months) > instant)
        months--;
    const double begin = time_add_months(calendar, units->origin, months);
    const double end = time_add_months(calendar, units->origin, months + 1);
    return ((double)months + (instant - begin) / (end - begin)) / units->months;
}
