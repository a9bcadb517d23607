// SPDX-License-Identifier: BSD-3-Clause
/* Forcings: the irradiance of NREL's Solar Position Algorithm (pvlib) and, in calendars of models,
 * of Kepler's equation; parts of years and days; times after the end; errors. */
#include "arrays/forcing.h"

#include "test.h"

enum { HEIGHT = 4, WIDTH = 4, PLANE = HEIGHT * WIDTH };

static double latitudes[] = {90, 45, 0, -66.5}, longitudes[] = {0, 90, 180, -75};
static struct dimension dimensions[] = {
    {.name = "lat", .kind = DIMENSION_ROW, .count = HEIGHT, .values = latitudes},
    {.name = "lon", .kind = DIMENSION_COLUMN, .count = WIDTH, .values = longitudes}};
static struct grid_array array = {.name = "u",
                                  .dimensions = 3,
                                  .dimension = {GRID_NONE, 0, 1},
                                  .role = {ROLE_SAMPLE, ROLE_ROW, ROLE_COLUMN}};
static struct grid grid = {
    .path = (char[]){"a.nc"}, .dimension = dimensions, .array = &array, .array_count = 1};

static struct file_series series;
static struct forcings forcings;

/* Open the forcings of one file, whose times are hours; NULL: it has none. */
static bool opens(const char *list, const char *units, const char *calendar, double *times,
                  int64_t count)
{
    struct series_file file = {.path = "a.nc", .samples = count, .time = times};
    forcings_close(&forcings);
    file_series_close(&series);
    assert_true(time_units_parse(units, calendar, &file.units));
    file_series_add(&series, &file);
    assert_int_equal(file_series_use(&series, &(struct series_offset){.steps = 0}), 0);
    error_clear(&error);
    if (!forcings_parse(&forcings, list, &series, &error))
        return false;
    assert_ok(file_series_pair(&series, false, &error), &error);
    return forcings_open(&forcings, &grid, &series, HEIGHT, WIDTH, &error);
}

static void reads(int64_t record, float *to)
{
    assert_ok(forcings_read(&forcings, &series, record, 0, 0, HEIGHT, WIDTH, to, &error), &error);
}

TEST(insolation)
{
    static const struct {
        const char *units, *calendar;
        double hours, value[PLANE];
    } cases[] = {
        {"hours since 2000-01-01",
         "standard",
         1903.58333, /* 2000-03-20T07:35, equinox */
         {0, 0, 0, 0, 361.69, 900.20, 0, 0, 511.53, 1273.11, 0, 0, 203.94, 507.61, 0, 0}},
        {"days since 2021-06-21",
         "proleptic_gregorian",
         0.5,
         {524.1, 524.1, 524.1, 524.1, 1225.55, 377.49, 0, 585.18, 1209.05, 9.73, 0, 303.43, 1.38, 0,
          0, 0}},
        {"minutes since 2024-02-16 18:00",
         "julian",
         0, /* 2024-02-29T18 */
         {0, 0, 0, 0, 0, 0, 0, 821.57, 73.94, 0, 0, 1344.76, 197.12, 0, 138.11, 703.85}},
        {"hours since 2024-12-21",
         "",
         0,
         {0, 0, 0, 0, 0, 0, 516.75, 0, 0, 10.96, 1290.23, 0, 0, 517.32, 1027.43, 375.52}},
        {"days since 2001-07-02",
         "noleap",
         0.25,
         {516.43, 516.43, 516.43, 516.43, 350.85, 1221.5, 379.49, 0, 0, 1211.04, 20.25, 0, 0, 9.3,
          0, 0}},
        {"days since 2001-02-30",
         "360_day",
         0.5,
         {0, 0, 0, 0, 842.33, 0, 0, 72.58, 1372.19, 74.07, 0, 283.6, 713.11, 195.49, 0, 279.04}},
    };
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        double time = cases[n].hours;
        float plane[PLANE], window[2];
        assert_ok(opens("insolation", cases[n].units, cases[n].calendar, &time, 1), &error);
        reads(0, plane);
        for (int p = 0; p < PLANE; p++)
            assert_true(fabs((double)plane[p] - cases[n].value[p]) < 0.4);
        assert_ok(forcings_read(&forcings, &series, 0, 2, 1, 1, 2, window, &error), &error);
        assert_memory_equal(window, plane + 2 * WIDTH + 1, sizeof window);
    }
}

TEST(coordinates_and_parts_of_years_and_days)
{
    static const struct {
        const char *calendar;
        double day, part; /* from 2020-03-01 06:00 on; of the year */
    } cases[] = {{"standard", 0, 60.25 / 366},   {"standard", 305, 365.25 / 366},
                 {"standard", 306, 0.25 / 365},  {"noleap", 0, 59.25 / 365},
                 {"all_leap", 366, 60.25 / 366}, {"360_day", 0, 60.25 / 360}};
    const double turn = 2 * 3.14159265358979323846;
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        double time = cases[n].day;
        float to[7][PLANE];
        assert_ok(opens("latitude, longitude,day_of_year,time_of_day@-3h",
                        "days since 2020-03-01 06:00", cases[n].calendar, &time, 1),
                  &error);
        assert_int_equal(forcings.channels, 7);
        reads(0, to[0]);
        for (int p = 0; p < PLANE; p++) {
            const double angle = longitudes[p % WIDTH] / 360 * turn, part = cases[n].part * turn;
            const double value[] = {
                latitudes[p / WIDTH],  sin(angle),           cos(angle), sin(part), cos(part),
                sin(turn / 8 + angle), cos(turn / 8 + angle)};
            for (int c = 0; c < 7; c++)
                assert_true(fabs((double)to[c][p] - value[c]) < 1e-6);
        }
    }
    /* Without longitudes: UTC. */
    double time = 0;
    float utc[2][PLANE];
    dimensions[1].name[1] = '_';
    assert_ok(opens("time_of_day", "days since 2020-03-01 06:00", "", &time, 1), &error);
    reads(0, utc[0]);
    assert_true(forcings.is_utc && fabs(utc[0][3] - 1) < 1e-6 && fabs(utc[1][2]) < 1e-6);
    dimensions[1].name[1] = 'o';
}

/* Each sample has the value of its offset, also after the end; a file of one sample has no step. */
TEST(offsets)
{
    double times[] = {0, 6, 12, 18};
    float now[4][PLANE], later[2][PLANE];
    assert_ok(opens("insolation", "hours since 2020-03-01", "", times, 4), &error);
    for (int n = 0; n < 4; n++)
        reads(n, now[n]);
    assert_ok(opens("insolation@+2,insolation@+12h", "hours since 2020-03-01", "", times, 3),
              &error);
    assert_int_equal(series.records, 3);
    for (int n = 0; n < 3; n++) {
        reads(n, later[0]);
        assert_memory_equal(later[0], later[1], sizeof later[0]);
        if (n < 2)
            assert_memory_equal(later[0], now[n + 2], sizeof later[0]);
    }
    assert_true(later[0][0] < later[0][2 * WIDTH + 2]);
    assert_ok(opens("insolation@+1", "hours since 2020-03-01", "", times, 1), &error);
    assert_false(forcings_read(&forcings, &series, 0, 0, 0, HEIGHT, WIDTH, later[0], &error));
    assert_error(&error, ERROR_DATA, "a.nc: sample 0: data.forcings=insolation has no time");
}

TEST(wrong_forcings_are_refused)
{
    static const char *const wrong[] = {"moon",           "latitude,insolation@", "insolation@6h",
                                        "insolation@+6x", "insolation@+h",        "Latitude"};
    double time = 0;
    OWNED char *many = allocate(1000, 1);
    for (size_t n = 0, used = 0; n < 33; n++)
        used +=
            (size_t)snprintf(many + used, 1000 - used, "%sinsolation@+%zu", n > 0 ? "," : "", n);
    assert_false(opens(many, "hours since 2020-03-01", "", &time, 1));
    assert_error(&error, ERROR_USAGE, "insolation@+32: not a forcing, or one of more than 32");
    for (size_t n = 0; n < sizeof wrong / sizeof wrong[0]; n++) {
        assert_false(opens(wrong[n], "hours since 2020-03-01", "", &time, 1));
        assert_error(&error, ERROR_USAGE, "set latitude, longitude");
    }
    assert_false(opens("day_of_year", "hours", "", &time, 1));
    assert_error(&error, ERROR_DATA,
                 "a.nc: data.forcings=day_of_year: there are no dates of the samples");
    assert_false(opens("day_of_year", "hours since 2020-03-01", "", NULL, 1));
    dimensions[1].values = NULL; /* as of two-dimensional coordinates */
    assert_false(opens("insolation", "hours since 2020-03-01", "", &time, 1));
    assert_error(&error, ERROR_DATA, "there are no longitudes of the columns in degrees; write");
    dimensions[1].values = longitudes;
    latitudes[1] = 145;
    assert_false(opens("latitude", "hours since 2020-03-01", "", &time, 1));
    assert_error(&error, ERROR_DATA, "there are no latitudes of the rows in degrees; write");
    latitudes[1] = 45;
    forcings_close(&forcings);
    file_series_close(&series);
}

TEST_MAIN()
