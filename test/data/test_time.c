// SPDX-License-Identifier: BSD-3-Clause
/* Times of the CF conventions in all calendars, against dates of the Python package cftime. */
#include "data/time.h"

#include <math.h>
#include <string.h>

#include "test.h"

static const struct {
    const char *units, *calendar;
    double value;
    const char *date;
} dates[] = {
    {"days since 1850-01-01", "standard", 0.0, "1850-01-01"},
    {"days since 1850-01-01", "standard", 59.25, "1850-03-01T06:00:00"},
    {"days since 1850-01-01", "standard", 73047.5, "2049-12-30T12:00:00"},
    {"days since 1850-01-01", "standard", -97500.0, "1583-01-21"},
    {"hours since 1900-01-01 00:00:0.0", "standard", 1.0, "1900-01-01T01:00:00"},
    {"hours since 1900-01-01 00:00:0.0", "standard", 876576.0, "2000-01-01"},
    {"hours since 1900-01-01 00:00:0.0", "standard", -2781000.0, "1582-09-20"},
    {"seconds since 1970-01-01T00:00:00Z", "standard", 951782400.0, "2000-02-29"},
    {"seconds since 1970-01-01T00:00:00Z", "standard", 1000000000.0, "2001-09-09T01:46:40"},
    {"minutes since 1582-10-04 12:00", "standard", 720.0, "1582-10-15"},
    {"minutes since 1582-10-04 12:00", "standard", 43200.0, "1582-11-13T12:00:00"},
    {"days since 1850-01-01", "proleptic_gregorian", 0.0, "1850-01-01"},
    {"days since 1850-01-01", "proleptic_gregorian", 59.25, "1850-03-01T06:00:00"},
    {"days since 1850-01-01", "proleptic_gregorian", 73047.5, "2049-12-30T12:00:00"},
    {"days since 1850-01-01", "proleptic_gregorian", -97500.0, "1583-01-21"},
    {"hours since 1900-01-01 00:00:0.0", "proleptic_gregorian", 1.0, "1900-01-01T01:00:00"},
    {"hours since 1900-01-01 00:00:0.0", "proleptic_gregorian", 876576.0, "2000-01-01"},
    {"hours since 1900-01-01 00:00:0.0", "proleptic_gregorian", -2781000.0, "1582-09-30"},
    {"seconds since 1970-01-01T00:00:00Z", "proleptic_gregorian", 951782400.0, "2000-02-29"},
    {"seconds since 1970-01-01T00:00:00Z", "proleptic_gregorian", 1000000000.0,
     "2001-09-09T01:46:40"},
    {"minutes since 1582-10-04 12:00", "proleptic_gregorian", 720.0, "1582-10-05"},
    {"minutes since 1582-10-04 12:00", "proleptic_gregorian", 43200.0, "1582-11-03T12:00:00"},
    {"days since 1850-01-01", "julian", 0.0, "1850-01-01"},
    {"days since 1850-01-01", "julian", 59.25, "1850-03-01T06:00:00"},
    {"days since 1850-01-01", "julian", 73047.5, "2049-12-29T12:00:00"},
    {"days since 1850-01-01", "julian", -97500.0, "1583-01-23"},
    {"hours since 1900-01-01 00:00:0.0", "julian", 1.0, "1900-01-01T01:00:00"},
    {"hours since 1900-01-01 00:00:0.0", "julian", 876576.0, "1999-12-31"},
    {"hours since 1900-01-01 00:00:0.0", "julian", -2781000.0, "1582-10-02"},
    {"seconds since 1970-01-01T00:00:00Z", "julian", 951782400.0, "2000-02-29"},
    {"seconds since 1970-01-01T00:00:00Z", "julian", 1000000000.0, "2001-09-09T01:46:40"},
    {"minutes since 1582-10-04 12:00", "julian", 720.0, "1582-10-05"},
    {"minutes since 1582-10-04 12:00", "julian", 43200.0, "1582-11-03T12:00:00"},
    {"days since 1850-01-01", "noleap", 0.0, "1850-01-01"},
    {"days since 1850-01-01", "noleap", 59.25, "1850-03-01T06:00:00"},
    {"days since 1850-01-01", "noleap", 73047.5, "2050-02-17T12:00:00"},
    {"days since 1850-01-01", "noleap", -97500.0, "1582-11-17"},
    {"hours since 1900-01-01 00:00:0.0", "noleap", 1.0, "1900-01-01T01:00:00"},
    {"hours since 1900-01-01 00:00:0.0", "noleap", 876576.0, "2000-01-25"},
    {"hours since 1900-01-01 00:00:0.0", "noleap", -2781000.0, "1582-07-15"},
    {"seconds since 1970-01-01T00:00:00Z", "noleap", 951782400.0, "2000-03-08"},
    {"seconds since 1970-01-01T00:00:00Z", "noleap", 1000000000.0, "2001-09-17T01:46:40"},
    {"minutes since 1582-10-04 12:00", "noleap", 720.0, "1582-10-05"},
    {"minutes since 1582-10-04 12:00", "noleap", 43200.0, "1582-11-03T12:00:00"},
    {"days since 1850-01-01", "all_leap", 0.0, "1850-01-01"},
    {"days since 1850-01-01", "all_leap", 59.25, "1850-02-29T06:00:00"},
    {"days since 1850-01-01", "all_leap", 73047.5, "2049-08-01T12:00:00"},
    {"days since 1850-01-01", "all_leap", -97500.0, "1583-08-10"},
    {"hours since 1900-01-01 00:00:0.0", "all_leap", 1.0, "1900-01-01T01:00:00"},
    {"hours since 1900-01-01 00:00:0.0", "all_leap", 876576.0, "1999-10-17"},
    {"hours since 1900-01-01 00:00:0.0", "all_leap", -2781000.0, "1583-05-27"},
    {"seconds since 1970-01-01T00:00:00Z", "all_leap", 951782400.0, "2000-02-06"},
    {"seconds since 1970-01-01T00:00:00Z", "all_leap", 1000000000.0, "2001-08-16T01:46:40"},
    {"minutes since 1582-10-04 12:00", "all_leap", 720.0, "1582-10-05"},
    {"minutes since 1582-10-04 12:00", "all_leap", 43200.0, "1582-11-03T12:00:00"},
    {"days since 1850-01-01", "360_day", 0.0, "1850-01-01"},
    {"days since 1850-01-01", "360_day", 59.25, "1850-02-30T06:00:00"},
    {"days since 1850-01-01", "360_day", 73047.5, "2052-11-28T12:00:00"},
    {"days since 1850-01-01", "360_day", -97500.0, "1579-03-01"},
    {"hours since 1900-01-01 00:00:0.0", "360_day", 1.0, "1900-01-01T01:00:00"},
    {"hours since 1900-01-01 00:00:0.0", "360_day", 876576.0, "2001-06-15"},
    {"hours since 1900-01-01 00:00:0.0", "360_day", -2781000.0, "1578-02-16"},
    {"seconds since 1970-01-01T00:00:00Z", "360_day", 951782400.0, "2000-08-07"},
    {"seconds since 1970-01-01T00:00:00Z", "360_day", 1000000000.0, "2002-02-25T01:46:40"},
    {"minutes since 1582-10-04 12:00", "360_day", 720.0, "1582-10-05"},
    {"minutes since 1582-10-04 12:00", "360_day", 43200.0, "1582-11-04T12:00:00"},
    {"months since 1960-01-01", "standard", 0.5, "1960-01-16T12:00:00"},
    {"months since 2000-01-31", "standard", 1, "2000-02-29"},
    {"years since 2000-03-01", "360_day", 1.25, "2001-06-01"},
    {"Days since 2000-02-28 06:00:00 +01:30", "gregorian", 1, "2000-02-29T04:30:00"},
    {"d since 2000-2-28", "365_DAY", 1, "2000-03-01"},
    {"h since 2000-02-28 18 UTC", "366_day", 6.5, "2000-02-29T00:30:00"},
    {"milliseconds since 2000-01-01", "", 1500, "2000-01-01T00:00:01.500"},
};

enum { DATES = sizeof dates / sizeof dates[0] };

TEST(dates_are_those_of_cftime)
{
    for (int n = 0; n < DATES; n++) {
        struct time_units units;
        char text[TIME_TEXT];
        assert_true(time_units_parse(dates[n].units, dates[n].calendar, &units));
        const double instant = time_decode(&units, dates[n].value);
        time_write(&units, instant, text);
        assert_string_equal(text, dates[n].date);
        const double value = time_encode(&units, instant);
        assert_true(fabs(value - dates[n].value) <= 1e-9 * fmax(1, fabs(value)));
    }
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

int main(void)
{
    return TESTS_RUN();
}
