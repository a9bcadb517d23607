// SPDX-License-Identifier: BSD-3-Clause
/* Times of the CF conventions in all calendars, against dates of the Python package cftime. Records
 * of files: pairs of samples by their numbers and by their times, in one series or in several. */
#include "arrays/series.h"
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

/* ---- Records of files ---- */

enum { FILES = 5, MOST = 64 };

static const int64_t samples[FILES] = {5, 4, 7, 3, 6};

static int offset_use(struct file_series *series, int64_t steps, bool required)
{
    const int number =
        file_series_use(series, &(struct series_offset){.steps = steps, .required = required});
    assert_true(number >= 0);
    return number;
}

static struct file_series series_of(bool joined, int64_t from, int64_t to)
{
    struct file_series series = {.joined = joined, .is_ordered = true, .name = "time"};
    offset_use(&series, 0, false);
    offset_use(&series, from, true);
    offset_use(&series, to, true);
    return series;
}

/* Add a file with these times. */
static void times_add(struct file_series *series, const char *path, const char *units,
                      const char *calendar, double *time, int64_t count)
{
    struct series_file file = {.path = path, .samples = count, .time = time};
    assert_true(time_units_parse(units, calendar, &file.units));
    if (series->count == 0)
        series->units = file.units;
    file_series_add(series, &file);
}

/* Return the paired series of one file, from this sample to the one `to` steps later. */
static struct file_series one_file(const char *units, const char *calendar, double *time,
                                   int64_t count, int64_t to)
{
    struct file_series series = series_of(false, 0, to);
    times_add(&series, "a.nc", units, calendar, time, count);
    assert_ok(file_series_pair(&series, true, &error), &error);
    return series;
}

TEST(samples_without_times_are_counted)
{
    for (int joined = 0; joined < 2; joined++) {
        struct file_series series = series_of(joined, -2, 1);
        int64_t record = 0, all = 0, total = 0, found;
        for (int f = 0; f < FILES; f++) {
            file_series_add(&series, &(struct series_file){.samples = samples[f]});
            total += samples[f];
        }
        assert_true(file_series_pair(&series, true, &error));
        for (int64_t f = 0; f < FILES; f++)
            for (int64_t s = 0; s < samples[f]; s++, all++) {
                const int64_t place = joined ? all : s, end = joined ? total : samples[f];
                if (place < 2 || place >= end - 1)
                    continue;
                for (int o = 0; o < 3; o++) {
                    int64_t file = f, sample = s + series.offset[o].steps;
                    for (; sample < 0; sample += samples[file])
                        file--;
                    for (; sample >= samples[file]; file++)
                        sample -= samples[file];
                    assert_int_equal(file_series_find(&series, record, o, &found), file);
                    assert_int_equal(found, sample);
                }
                record++;
            }
        assert_int_equal(series.records, record);
        file_series_close(&series);
    }
}

/* A gap has no pairs, times may be rounded to float32, and they may jitter. */
TEST(steps_are_found)
{
    double gap[40], narrow[48], jitter[60];
    for (int n = 0; n < 40; n++)
        gap[n] = n < 20 ? n : n + 200;
    for (int n = 0; n < 48; n++)
        narrow[n] = (double)(float)(60000 + n / 24.0);
    for (int n = 0; n < 60; n++)
        jitter[n] = 600 * n + 5 * (n % 3 - 1);
    const struct {
        const char *units;
        double *time;
        int64_t count, records;
        double step, seconds;
    } cases[] = {{"hours since 2001-01-01", gap, 40, 38, 1, 3600},
                 {"days since 1850-01-01", narrow, 48, 47, 1 / 24.0, 3600},
                 {"seconds since 2000-01-01", jitter, 60, 59, 600, 600}};
    for (int i = 0; i < 3; i++) {
        struct file_series series = one_file(cases[i].units, "", cases[i].time, cases[i].count, 1);
        assert_int_equal(series.records, cases[i].records);
        assert_true(fabs(series.step.size - cases[i].seconds) < 1);
        for (int64_t r = 0; r < series.records; r++)
            assert_true(fabs(file_series_time(&series, r, 1) - file_series_time(&series, r, 0) -
                             cases[i].step) <= 0.1 * cases[i].step);
        file_series_close(&series);
    }
}

/* The same months in each calendar: their distances in days differ. */
TEST(months_are_steps)
{
    for (int c = 0; c < CALENDARS; c++) {
        struct time_units units;
        double time[36];
        char date[TIME_TEXT];
        assert_true(time_units_parse("days since 2001-01-16 12:00", calendars[c], &units));
        for (int n = 0; n < 36; n++)
            time[n] =
                time_encode(&units, time_add_months(units.calendar, units.origin, n + (n > 9)));
        struct file_series series =
            one_file("days since 2001-01-16 12:00", calendars[c], time, 36, 2);
        assert_int_equal(series.records, 36 - 2 - 1);
        time_write(&units, file_series_instant(&series, 7, 1), date);
        assert_string_equal(date, "2001-10-16T12:00");
        file_series_close(&series);
        /* Two years later, with the step of weights. */
        series = series_of(false, 0, 24);
        series.step = (struct time_step){.size = 30.44 * TIME_DAY, .months = 1};
        times_add(&series, "a.nc", "days since 2001-01-16 12:00", calendars[c], time, 36);
        assert_true(file_series_pair(&series, true, &error));
        assert_int_equal(series.records, 13 - 1);
        file_series_close(&series);
    }
}

/* Files have their own dates, and values after the end have times. */
TEST(files_of_one_series)
{
    double one[] = {0, 6, 12}, other[] = {0, 6}, last[] = {0};
    struct file_series series = {.joined = true, .is_ordered = true, .name = "time"};
    offset_use(&series, 0, false);
    offset_use(&series, 1, false);
    times_add(&series, "a.nc", "hours since 2000-02-28", "standard", one, 3);
    times_add(&series, "b.nc", "hours since 2000-02-28 18:00", "proleptic_gregorian", other, 2);
    times_add(&series, "c.nc", "days since 2000-02-29 6:00", "standard", last, 1);
    assert_true(file_series_pair(&series, true, &error));
    int64_t sample;
    assert_int_equal(series.records, 6);
    assert_int_equal(file_series_find(&series, 2, 1, &sample), 1);
    assert_int_equal(sample, 0);
    assert_int_equal(file_series_find(&series, 5, 1, &sample), -1);
    assert_true(file_series_time(&series, 4, 1) == 30);
    assert_true(file_series_time(&series, 5, 1) == 36);
    file_series_close(&series);
}

/* Years have 365 or 366 days. Values after the end have times. */
TEST(steps_are_whole_years)
{
    struct time_units units;
    double time[40];
    char date[TIME_TEXT];
    assert_true(time_units_parse("days since 1950-01-01", "standard", &units));
    for (int n = 0; n < 40; n++)
        time[n] = time_encode(&units, time_add_months(units.calendar, units.origin, 12 * n));
    struct file_series series = series_of(false, 0, 10);
    series.offset[1].required = false;
    times_add(&series, "a.nc", "days since 1950-01-01", "standard", time, 40);
    assert_true(file_series_pair(&series, true, &error));
    time_write(&units, file_series_instant(&series, 39, 1), date);
    assert_string_equal(date, "1999-01-01");
    file_series_close(&series);
}

/* Numbers in hours are not numbers in days. */
TEST(undated_units)
{
    double time[] = {0, 1, 2};
    struct file_series hours = series_of(false, 0, 1), days = series_of(false, 0, 1);
    times_add(&hours, "a.nc", "hours", "", time, 3);
    times_add(&days, "a.nc", "days", "", time, 3);
    assert_true(file_series_pair(&hours, true, &error) && file_series_pair(&days, true, &error));
    assert_false(time_step_agrees(&hours.step, &days.step));
    file_series_close(&hours);
    file_series_close(&days);
}

/* Close the series, whose times must be refused with a message that has this part. */
static void refused(struct file_series *series, const char *part)
{
    assert_false(file_series_pair(series, true, &error));
    assert_error(&error, ERROR_DATA, part);
    error_clear(&error);
    file_series_close(series);
}

/* Return the series of a file with 8 times: offsets of 0 and, in seconds, of this size. */
static struct file_series series_in_seconds(const char *units, double *time, double seconds,
                                            bool required)
{
    const struct series_offset offset = {
        .steps = seconds > 0 ? 1 : -1, .seconds = seconds, .required = required};
    struct file_series series = series_of(false, 0, 0);
    assert_int_equal(file_series_use(&series, &offset), 1);
    times_add(&series, "a.nc", units, "", time, 8);
    return series;
}

TEST(offsets_in_seconds_are_steps)
{
    double hours[8], months[] = {0, 31, 59, 90, 120, 151, 181, 212};
    const char *since = "hours since 2001-01-01";
    int64_t sample;
    for (int n = 0; n < 8; n++)
        hours[n] = 6 * n;
    for (int sign = -1; sign <= 1; sign += 2) {
        struct file_series series = series_in_seconds(since, hours, sign * 12 * 3600, true);
        assert_ok(file_series_pair(&series, true, &error), &error);
        assert_int_equal(series.records, 6);
        assert_int_equal(series.offset[1].steps, 2 * sign);
        assert_int_equal(file_series_find(&series, 3, 1, &sample), 0);
        assert_int_equal(sample, sign > 0 ? 5 : 3);
        file_series_close(&series);
    }
    /* Without the step of weights, an offset that is not required has a time and no sample. */
    struct file_series series = series_in_seconds(since, hours, 9 * 3600, false);
    for (int n = 0; n < 2; n++) {
        assert_ok(file_series_pair(&series, true, &error), &error);
        assert_int_equal(series.records, 8);
        assert_int_equal(file_series_find(&series, 7, 1, &sample), -1);
        assert_true(file_series_time(&series, 7, 1) == 51);
        series.step.size = 4.5 * 3600;
    }
    assert_int_equal(series.offset[1].steps, 2);
    file_series_close(&series);
    series = series_in_seconds(since, hours, 3 * 3600, true);
    refused(&series,
            "an offset (@) of 3 hours is not a multiple of the step of 'time', which is 6 hours");
    series = series_in_seconds("days since 2001-01-01", months, 30 * TIME_DAY, true);
    refused(&series, "of 30 days is not a multiple of the step of 'time', which is 1 month");
    series = series_in_seconds("level", hours, 3600, false);
    refused(&series, "the times have no units, such as");
    series = series_in_seconds(since, hours, 3600, false);
    series.counts = true;
    refused(&series, "data.coordinates=ignore counts samples");
    series = series_in_seconds(since, hours, 3600, false);
    series.is_ordered = false;
    times_add(&series, "b.nc", "days", "", hours, 8);
    refused(&series, "times of the files cannot be compared");
}

TEST(wrong_times_are_refused)
{
    static double rising[] = {0, 1, 2}, falling[] = {0, 2, 1}, twice[] = {0, 1, 1};
    static double uneven[] = {0, 1, 3, 4, 8};
    static const struct {
        double *first;
        int64_t count;
        const char *units, *calendar; /* of a second file with rising times, or NULL */
        const char *part;
    } cases[] = {
        {falling, 3, NULL, NULL, "a.nc: 'time' decreases at sample 2"},
        {twice, 3, NULL, NULL, "a.nc: 'time' repeats at sample 2"},
        {uneven, 5, NULL, NULL, "1 hour (50 %), 2 hours (25 %), 4 hours (25 %); use regular"},
        {rising, 3, "hours since 2001-01-01", "", "b.nc: 'time' decreases at sample 0"},
        {rising, 3, "hours since 2001-01-02", "noleap", "b.nc: the units or the calendar"}};
    struct file_series series;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        series = series_of(cases[i].units != NULL, 0, 1);
        times_add(&series, "a.nc", "hours since 2001-01-01", "", cases[i].first, cases[i].count);
        if (cases[i].units != NULL)
            times_add(&series, "b.nc", cases[i].units, cases[i].calendar, rising, 3);
        refused(&series, cases[i].part);
    }
    series = series_of(false, 0, 1);
    times_add(&series, "a.nc", "hours since 2001-01-01", "", rising, 3);
    file_series_add(&series, &(struct series_file){.path = "b.nc", .samples = 3});
    refused(&series, "b.nc has no times 'time'");
    /* Members have the same times. */
    series = series_of(false, 0, 1);
    times_add(&series, "a.nc", "hours since 2001-01-01", "", rising, 3);
    times_add(&series, "b.nc", "hours since 2001-01-01", "", rising, 3);
    assert_true(file_series_pair(&series, true, &error));
    assert_int_equal(series.records, 4);
    file_series_close(&series);
}

/* Numbers of the samples that xarray selects: their number, the first, the last and the sum. The
 * samples are 6 hours apart, from 2019-12-01 on. No number: the calendar has no such date. */
TEST(periods_are_those_of_xarray)
{
    static const struct {
        const char *calendar, *periods;
        int64_t count, first, last, sum;
    } cases[] = {
        {"standard", "2019", 124, 0, 123, 7626},
        {"standard", "2020-02", 116, 248, 363, 35438},
        {"standard", "2020-02-28..2020-03-01", 12, 356, 367, 4338},
        {"standard", "..2019-12-31T06", 122, 0, 121, 7381},
        {"standard", "2020-02-29..", 440, 360, 799, 254980},
        {"standard", "2019-12-30..2020-01-02,2020-03-31T06", 17, 116, 485, 2461},
        {"noleap", "2020-02", 112, 248, 359, 33992},
        {"noleap", "2020-02-28..2020-03-01", 8, 356, 363, 2876},
        {"noleap", "2020-02-29..", 0, 0, 0, 0},
        {"360_day", "2019", 120, 0, 119, 7140},
        {"360_day", "2020-02-28..2020-03-01", 16, 348, 363, 5688},
        {"360_day", "..2019-12-31T06", 0, 0, 0, 0},
    };
    enum { SAMPLES = 800 };
    static double time[SAMPLES];
    for (int n = 0; n < SAMPLES; n++)
        time[n] = n / 4.0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct file_series series = series_of(false, 0, 0);
        bool held[SAMPLES] = {false};
        int64_t count = 0, sum = 0, last = 0;
        times_add(&series, "a.nc", "days since 2019-12-01", cases[i].calendar, time, SAMPLES);
        assert_ok(file_series_pair(&series, true, &error), &error);
        const bool good = file_series_find_periods(&series, cases[i].periods, held, &error);
        assert_int_equal(good, cases[i].count > 0);
        error_clear(&error);
        for (int n = 0; good && n < SAMPLES; n++) {
            count += held[n];
            sum += held[n] ? n : 0;
            last = held[n] ? n : last;
        }
        assert_int_equal(count, cases[i].count);
        assert_int_equal(sum, cases[i].sum);
        assert_int_equal(last, cases[i].last);
        assert_true(!good || held[cases[i].first]);
        file_series_close(&series);
    }
}

TEST(wrong_periods_are_refused)
{
    static const struct {
        const char *units, *periods, *part;
    } cases[] = {
        {"hours since 2020-01-01", "2020,2021", "'2020' leaves no training sample"},
        {"hours since 2020-01-01", "2020-01-01T00,2021",
         "'2021' holds out no sample; choose a part of the times, which are 2020-01-01 to "
         "2020-01-01T02:00"},
        {"hours since 2020-01-01", "2020-13",
         "'2020-13' is not a period in the calendar of the files, as 2019-07-31T06..2020"},
        {"hours since 2020-01-01", "2020-1-1..2021", "is not a period"},
        {"hours since 2020-01-01", "2021..2020", "is not a period"},
        {"hours", "2020", "data.val=2020 cannot be used: the times have no units"},
    };
    double time[] = {0, 1, 2};
    bool held[3];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct file_series series = series_of(false, 0, 0);
        times_add(&series, "a.nc", cases[i].units, "", time, 3);
        assert_ok(file_series_pair(&series, true, &error), &error);
        memset(held, 0, sizeof held);
        assert_false(file_series_find_periods(&series, cases[i].periods, held, &error));
        assert_has(error.text, cases[i].part);
        error_clear(&error);
        file_series_close(&series);
    }
}

TEST_MAIN()
