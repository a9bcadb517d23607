// SPDX-License-Identifier: BSD-3-Clause
/* Times of the CF conventions in all calendars, against dates of the Python package cftime. */
#include "arrays/time.h"

#include "test.h"

static const char *const calendars[CALENDARS] = {
    "standard", "proleptic_gregorian", "julian", "noleap", "all_leap", "360_day"};

/* A value and its date in each calendar. */
static const struct {
    const char *units;
    double value;
    const char *date[CALENDARS];
} values[] = {
    {"days since 1850-01-01",
     59.25,
     {"1850-03-01T06:00", "1850-03-01T06:00", "1850-03-01T06:00", "1850-03-01T06:00",
      "1850-02-29T06:00", "1850-02-30T06:00"}},
    {"days since 1850-01-01",
     73047.5,
     {"2049-12-30T12:00", "2049-12-30T12:00", "2049-12-29T12:00", "2050-02-17T12:00",
      "2049-08-01T12:00", "2052-11-28T12:00"}},
    {"days since 1850-01-01",
     -97500.0,
     {"1583-01-21", "1583-01-21", "1583-01-23", "1582-11-17", "1583-08-10", "1579-03-01"}},
    {"hours since 1900-01-01 00:00:0.0",
     876576.0,
     {"2000-01-01", "2000-01-01", "1999-12-31", "2000-01-25", "1999-10-17", "2001-06-15"}},
    {"hours since 1900-01-01 00:00:0.0",
     -2781000.0,
     {"1582-09-20", "1582-09-30", "1582-10-02", "1582-07-15", "1583-05-27", "1578-02-16"}},
    {"seconds since 1970-01-01T00:00:00Z",
     951782400.0,
     {"2000-02-29", "2000-02-29", "2000-02-29", "2000-03-08", "2000-02-06", "2000-08-07"}},
    {"seconds since 1970-01-01T00:00:00Z",
     1000000000.0,
     {"2001-09-09T01:46:40", "2001-09-09T01:46:40", "2001-09-09T01:46:40", "2001-09-17T01:46:40",
      "2001-08-16T01:46:40", "2002-02-25T01:46:40"}},
    {"minutes since 1582-10-04 12:00",
     720.0,
     {"1582-10-15", "1582-10-05", "1582-10-05", "1582-10-05", "1582-10-05", "1582-10-05"}},
    {"minutes since 1582-10-04 12:00",
     43200.0,
     {"1582-11-13T12:00", "1582-11-03T12:00", "1582-11-03T12:00", "1582-11-03T12:00",
      "1582-11-03T12:00", "1582-11-04T12:00"}},
};

/* Other units and names of calendars. */
static const struct {
    const char *units, *calendar;
    double value;
    const char *date;
} dates[] = {
    {"months since 1960-01-01", "standard", 0.5, "1960-01-16T12:00"},
    {"months since 2000-01-31", "standard", 1, "2000-02-29"},
    {"years since 2000-03-01", "360_day", 1.25, "2001-06-01"},
    {"Days since 2000-02-28 06:00:00 +01:30", "gregorian", 1, "2000-02-29T04:30"},
    {"d since 2000-2-28", "365_DAY", 1, "2000-03-01"},
    {"h since 2000-02-28 18 UTC", "366_day", 6.5, "2000-02-29T00:30"},
    {"milliseconds since 2000-01-01", "", 2000, "2000-01-01T00:00:02"},
};

static void check_date(const char *in, const char *calendar, double value, const char *date)
{
    struct time_units units;
    char text[TIME_TEXT];
    assert_true(time_units_parse(in, calendar, &units));
    const double instant = time_decode(&units, value);
    time_write(&units, instant, text);
    assert_string_equal(text, date);
    assert_true(fabs(time_encode(&units, instant) - value) <= 1e-9 * fmax(1, fabs(value)));
}

TEST(dates_are_those_of_cftime)
{
    for (size_t n = 0; n < sizeof values / sizeof values[0]; n++)
        for (int c = 0; c < CALENDARS; c++)
            check_date(values[n].units, calendars[c], values[n].value, values[n].date[c]);
    for (size_t n = 0; n < sizeof dates / sizeof dates[0]; n++)
        check_date(dates[n].units, dates[n].calendar, dates[n].value, dates[n].date);
}

TEST(numbers_without_a_date)
{
    struct time_units units;
    char text[TIME_TEXT];
    assert_true(time_units_parse("s", "", &units) && !units.has_date);
    time_write(&units, time_decode(&units, 2.5), text);
    assert_string_equal(text, "2.5");
}

TEST(invalid_units)
{
    static const char *const wrong[] = {"days since yesterday",
                                        "fortnights since 2001-01-01",
                                        "hours since 2001-02-30",
                                        "hours since 2001-13-01",
                                        "day as %Y%m%d.%f",
                                        "hours since 2001-01-01 25:00",
                                        "hours since 2001-01-01 1 x",
                                        "days since 20010101",
                                        "days since"};
    struct time_units units;
    for (size_t n = 0; n < sizeof wrong / sizeof wrong[0]; n++)
        assert_false(time_units_parse(wrong[n], "", &units));
    assert_false(time_units_parse("days since 2001-01-01", "lunar", &units));
    assert_true(time_units_parse("days since 2001-02-30", "360_day", &units));
}

TEST_MAIN()
