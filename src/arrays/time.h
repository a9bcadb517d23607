// SPDX-License-Identifier: BSD-3-Clause
/* Times of the CF conventions: numbers in units such as "hours since 1900-01-01" and one of six
 * calendars. An instant is a number of seconds since the calendar's 0000-01-01. */
#ifndef VITTRAIN_ARRAYS_TIME_H
#define VITTRAIN_ARRAYS_TIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum time_calendar {
    CALENDAR_STANDARD, /* Julian before 1582-10-15, Gregorian from then on */
    CALENDAR_PROLEPTIC_GREGORIAN,
    CALENDAR_JULIAN,
    CALENDAR_365,
    CALENDAR_366,
    CALENDAR_360,
    CALENDARS
};

enum { TIME_TEXT = 40, TIME_DAY = 86400 /* seconds */ };

/* Units "UNIT since DATE". Initialize with zeros: numbers without a date, whose
 * instants are seconds if `seconds` is set, else themselves. */
struct time_units {
    bool has_date;
    enum time_calendar calendar;
    int months;     /* of a unit of months or years, else 0 */
    double seconds; /* of any other unit */
    double origin;  /* instant of DATE */
};

/* Parse the attributes `units` and `calendar` ("": standard). Units without the word "since" are
 * numbers without a date. Return false if units or calendar are unknown, or the date is invalid. */
bool time_units_parse(const char *units, const char *calendar, struct time_units *parsed);

/* True if both have dates in one calendar, or both are durations, or both are plain numbers. */
bool time_units_comparable(const struct time_units *one, const struct time_units *other);

/* Convert a number to its instant and back. Parts of a month are parts of its length. */
double time_decode(const struct time_units *units, double value);
double time_encode(const struct time_units *units, double instant);

/* Parse a period: a date, or two with ".." between them, one of which may be left out. A date is
 * "2019", "2019-07", "2019-07-31", or has hours, minutes and seconds after a T. Set the instant of
 * its begin and the instant after its end. Return false if the calendar has no such dates. */
bool time_period_parse(enum time_calendar calendar, const char *text, size_t length,
                       double range[2]);

/* Return the months from 0000-01 to that of an instant. */
int64_t time_month(enum time_calendar calendar, double instant);

/* Return the instant `months` months later, on the same day of the month or on its last day. */
double time_add_months(enum time_calendar calendar, double instant, int64_t months);

/* Return the part of the calendar's year that has passed at an instant, in [0, 1). */
double time_year_part(enum time_calendar calendar, double instant);

/* Write an instant as precisely as it needs: "2001-01-09", "2001-01-09T12:00" or
 * "2001-01-09T12:00:30"; the number if the units have no date. */
void time_write(const struct time_units *units, double instant, char text[TIME_TEXT]);

/* True if a list of words between spaces, " m metre ", has a word, in any case. */
bool time_word_is_in(const char *words, const char *word, size_t length);

#endif
