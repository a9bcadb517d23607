// SPDX-License-Identifier: BSD-3-Clause
/* Records of files: pairs of samples by their numbers and by their times, in one series or in
 * several. */
#include "arrays/series.h"

#include "test.h"

enum { FILES = 5, MOST = 64 };

static const int64_t samples[FILES] = {5, 4, 7, 3, 6};
static struct error error;

static struct file_series series_of(bool joined, int64_t from, int64_t to)
{
    struct file_series series = {.joined = joined, .is_ordered = true, .name = "time"};
    assert_true(file_series_use(&series, 0, false));
    assert_true(file_series_use(&series, from, true));
    assert_true(file_series_use(&series, to, true));
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
                for (int64_t offset = -2; offset <= 1; offset += 2 - (offset == 0)) {
                    int64_t file = f, sample = s + offset;
                    for (; sample < 0; sample += samples[file])
                        file--;
                    for (; sample >= samples[file]; file++)
                        sample -= samples[file];
                    assert_int_equal(file_series_find(&series, record, offset, &found), file);
                    assert_int_equal(found, sample);
                }
                record++;
            }
        assert_int_equal(series.records, record);
        file_series_close(&series);
    }
}

TEST(a_gap_has_no_pairs)
{
    double time[40];
    for (int n = 0; n < 40; n++)
        time[n] = n < 20 ? n : n + 200;
    struct file_series series = one_file("hours since 2001-01-01", "", time, 40, 1);
    assert_int_equal(series.records, 38);
    for (int64_t r = 0; r < series.records; r++)
        assert_true(file_series_time(&series, r, 1) == file_series_time(&series, r, 0) + 1);
    file_series_close(&series);
}

/* The same months in each calendar: their distances in days differ. */
TEST(months_are_steps)
{
    static const char *const calendars[] = {"standard", "noleap", "all_leap", "360_day", "julian"};
    for (int c = 0; c < 5; c++) {
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
        time_write(&units, file_series_instant(&series, 7, 2), date);
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

TEST(float32_times_have_a_step)
{
    double time[48];
    for (int n = 0; n < 48; n++)
        time[n] = (double)(float)(60000 + n / 24.0);
    struct file_series series = series_of(false, 0, 1);
    times_add(&series, "a.nc", "days since 1850-01-01", "", time, 48);
    assert_true(file_series_pair(&series, true, &error));
    assert_int_equal(series.records, 47);
    assert_true(series.step.size == 3600);
    file_series_close(&series);
}

/* Files have their own dates, and values after the end have times. */
TEST(files_of_one_series)
{
    double one[] = {0, 6, 12}, other[] = {0, 6}, last[] = {0};
    struct file_series series = {.joined = true, .is_ordered = true, .name = "time"};
    assert_true(file_series_use(&series, 0, false) && file_series_use(&series, 1, false));
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

/* Years have 365 or 366 days, and times may jitter. */
TEST(steps_are_whole_years_and_means)
{
    struct time_units units;
    double time[40], jitter[60];
    char date[TIME_TEXT];
    assert_true(time_units_parse("days since 1950-01-01", "standard", &units));
    for (int n = 0; n < 40; n++)
        time[n] = time_encode(&units, time_add_months(units.calendar, units.origin, 12 * n));
    struct file_series series = series_of(false, 0, 10);
    series.required[1] = false;
    times_add(&series, "a.nc", "days since 1950-01-01", "standard", time, 40);
    assert_true(file_series_pair(&series, true, &error));
    time_write(&units, file_series_instant(&series, 39, 10), date);
    assert_string_equal(date, "1999-01-01");
    file_series_close(&series);
    for (int n = 0; n < 60; n++)
        jitter[n] = 600 * n + 5 * (n % 3 - 1);
    series = one_file("seconds since 2000-01-01", "", jitter, 60, 1);
    assert_int_equal(series.records, 59);
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

TEST_MAIN()
