// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/forcing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/base.h"
#include "base/text.h"

enum need { NEED_LATITUDE = 1, NEED_LONGITUDE = 2, NEED_TIME = 4 };

enum kind { LATITUDE, LONGITUDE, DAY_OF_YEAR, TIME_OF_DAY, INSOLATION, KINDS };

static const struct {
    const char *name;
    int channels, needs;
} kinds[KINDS] = {
    [LATITUDE] = {"latitude", 1, NEED_LATITUDE},
    [LONGITUDE] = {"longitude", 2, NEED_LONGITUDE},
    [DAY_OF_YEAR] = {"day_of_year", 2, NEED_TIME},
    [TIME_OF_DAY] = {"time_of_day", 2, NEED_TIME}, /* and longitudes, if there are any */
    [INSOLATION] = {"insolation", 1, NEED_LATITUDE | NEED_LONGITUDE | NEED_TIME},
};

static const double pi = 3.14159265358979323846;

/* Parse "insolation", "insolation@+1" or "insolation@+6h". */
static bool forcing_parse(struct forcing *forcing, const char *text, struct file_series *series)
{
    const size_t length = strcspn(text, "@");
    while (forcing->kind < KINDS && (strlen(kinds[forcing->kind].name) != length ||
                                     strncmp(text, kinds[forcing->kind].name, length) != 0))
        forcing->kind++;
    if (forcing->kind == KINDS ||
        (text[length] != '\0' && !series_offset_parse(text + length + 1, &forcing->shift)))
        return false;
    if (forcing->shift.seconds == 0)
        forcing->offset = file_series_use(series, &forcing->shift);
    return forcing->offset >= 0;
}

bool forcings_parse(struct forcings *self, const char *list, struct file_series *series,
                    struct error *error)
{
    char text[OPTION_TEXT];
    size_t length;
    self->list = allocate(strlen(list) + 1, sizeof *self->list);
    for (const char *item = text_next_item(list, &length); item != NULL;
         item = text_next_item(item + length, &length)) {
        struct forcing *forcing = &self->list[self->count++];
        snprintf(text, sizeof text, "%.*s", (int)length, item);
        if (!forcing_parse(forcing, text, series))
            return error_set(
                error, ERROR_USAGE,
                "data.forcings=%s: not a forcing, or one of more than %d offsets (@); set "
                "latitude, longitude, day_of_year, time_of_day or insolation, or one "
                "of them with an offset, as in insolation@+1 or insolation@+6h",
                text, SERIES_OFFSETS);
        self->channels += kinds[forcing->kind].channels;
        self->counts_steps |= forcing->offset > 0;
    }
    return true;
}

/* Return the latitudes of the rows or the longitudes of the columns in degrees, or NULL. */
static const double *degrees_of(const struct grid *grid, enum dimension_kind kind)
{
    const bool is_row = kind == DIMENSION_ROW;
    const struct dimension *found = grid_role_dimension(grid, 0, is_row ? ROLE_ROW : ROLE_COLUMN);
    if (found == NULL || found->values == NULL || !dimension_in_degrees(found, kind) ||
        strncmp(array_attribute_text(found->attributes, "standard_name"), "grid_", 5) == 0)
        return NULL;
    for (int64_t i = 0; i < found->count; i++)
        if (!(fabs(found->values[i]) <= (is_row ? 90.001 : 1e6)))
            return NULL;
    return found->values;
}

bool forcings_open(struct forcings *self, const struct grid *grid, const struct file_series *series,
                   int64_t height, int64_t width, struct error *error)
{
    const double *latitude = degrees_of(grid, DIMENSION_ROW);
    const double *longitude = degrees_of(grid, DIMENSION_COLUMN);
    int64_t f = 0; /* the first file without dates */
    while (f < series->count && series->file[f].time != NULL && series->file[f].units.has_date)
        f++;
    for (int n = 0; n < self->count; n++) {
        const int needs = kinds[self->list[n].kind].needs;
        self->is_utc |= self->list[n].kind == TIME_OF_DAY && longitude == NULL;
        const char *missing =
            (needs & NEED_LATITUDE) != 0 && latitude == NULL ? "latitudes of the rows in degrees"
            : (needs & NEED_LONGITUDE) != 0 && longitude == NULL
                ? "longitudes of the columns in degrees"
            : (needs & NEED_TIME) != 0 && f < series->count ? "dates of the samples"
                                                            : NULL;
        if (missing != NULL)
            return error_set(error, ERROR_DATA,
                             "%s: data.forcings=%s: there are no %s; write them as a coordinate of "
                             "one dimension, or remove the forcing",
                             series->file[f < series->count ? f : 0].path,
                             kinds[self->list[n].kind].name, missing);
    }
    self->row = allocate((size_t)height, sizeof *self->row);
    self->column = allocate((size_t)width, sizeof *self->column);
    for (int64_t y = 0; y < height; y++) {
        const double degrees = latitude != NULL ? latitude[y] : 0, angle = degrees * pi / 180;
        const double terms[] = {1, degrees, sin(angle), cos(angle)};
        for (int t = 0; t < ROW_TERMS; t++)
            self->row[y][t] = (float)terms[t];
    }
    for (int64_t x = 0; x < width; x++) {
        const double angle = longitude != NULL ? longitude[x] * pi / 180 : 0;
        self->column[x][0] = (float)cos(angle);
        self->column[x][1] = (float)sin(angle);
    }
    return true;
}

void forcings_close(struct forcings *self)
{
    free(self->list);
    free(self->row);
    free(self->column);
    *self = (struct forcings){0};
}

/* Factors of the terms of a channel. With the terms r of its row and c of its column, a point has
 * the value max(least, row . r + (product . r) * (column . c)). */
struct factors {
    double row[ROW_TERMS], product[ROW_TERMS], column[COLUMN_TERMS];
    float least;
};

/* Set the factors of the irradiance at an instant. Return the hour angle at longitude 0. */
static double insolation_set(struct factors *factors, enum time_calendar calendar, double instant)
{
    const double constant = 1361, degree = pi / 180;
    const double day = instant / TIME_DAY;
    /* Days since noon of 2000-01-01; in calendars of models, since the equinox of that year. */
    const double days = calendar > CALENDAR_JULIAN
                            ? 78.816 + 365.2422 * (time_year_part(calendar, instant) - 79.5 / 365)
                            : day - 730485.5 - (calendar == CALENDAR_JULIAN ? 2 : 0);
    const double anomaly = degree * (357.528 + 0.9856003 * days);
    const double mean_longitude = degree * (280.460 + 0.9856474 * days);
    const double longitude =
        mean_longitude + degree * (1.915 * sin(anomaly) + 0.020 * sin(2 * anomaly));
    const double obliquity = degree * (23.439 - 4e-7 * days);
    const double ascension = atan2(cos(obliquity) * sin(longitude), cos(longitude));
    const double declination = asin(sin(obliquity) * sin(longitude));
    const double distance = 1.00014 - 0.01671 * cos(anomaly) - 0.00014 * cos(2 * anomaly);
    factors->row[TERM_SINE] = constant / (distance * distance) * sin(declination);
    factors->product[TERM_COSINE] = constant / (distance * distance) * cos(declination);
    factors->least = 0;
    return 2 * pi * (day - floor(day) - 0.5) + mean_longitude - ascension;
}

/* Set the factors of a channel of a forcing. Channel 0 is a sine: the cosine of the angle - pi / 2.
 */
static struct factors factors_of(int kind, int channel, enum time_calendar calendar, double instant)
{
    struct factors factors = {.least = -INFINITY};
    double angle = channel == 0 ? -pi / 2 : 0; /* to which the longitude is added */
    if (kind == LATITUDE)
        factors.row[TERM_DEGREES] = 1;
    else if (kind == DAY_OF_YEAR)
        factors.row[TERM_ONE] = cos(2 * pi * time_year_part(calendar, instant) + angle);
    else if (kind == INSOLATION)
        angle = insolation_set(&factors, calendar, instant);
    else
        factors.product[TERM_ONE] = 1;
    if (kind == TIME_OF_DAY)
        angle += 2 * pi * (instant / TIME_DAY - floor(instant / TIME_DAY));
    factors.column[0] = cos(angle);
    factors.column[1] = -sin(angle);
    return factors;
}

/* Compute a window. Row 0 has the sums of the columns until it is computed, after all others. */
VECTORISED static void plane_fill(const struct factors *factors, const float (*row)[ROW_TERMS],
                                  const float (*column)[COLUMN_TERMS], int64_t height,
                                  int64_t width, float *to)
{
    const float least = factors->least;
    for (int64_t x = 0; x < width; x++)
        to[x] = (float)(factors->column[0] * (double)column[x][0] +
                        factors->column[1] * (double)column[x][1]);
    for (int64_t y = height; y-- > 0;) {
        double sum = 0, product = 0;
        for (int t = 0; t < ROW_TERMS; t++) {
            sum += factors->row[t] * (double)row[y][t];
            product += factors->product[t] * (double)row[y][t];
        }
        for (int64_t x = 0; x < width; x++) {
            const float value = (float)sum + (float)product * to[x];
            to[y * width + x] = value > least ? value : least;
        }
    }
}

bool forcings_read(const struct forcings *self, const struct file_series *series, int64_t record,
                   int64_t top, int64_t left, int64_t height, int64_t width, float *to,
                   struct error *error)
{
    int64_t sample;
    if (self->count == 0)
        return true;
    const int64_t f = file_series_find(series, record, 0, &sample);
    const enum time_calendar calendar = series->file[f].units.calendar;
    for (int n = 0; n < self->count; n++) {
        const struct forcing *forcing = &self->list[n];
        const double instant =
            file_series_instant(series, record, forcing->offset) + forcing->shift.seconds;
        if ((kinds[forcing->kind].needs & NEED_TIME) != 0 && !isfinite(instant))
            return error_set(
                error, ERROR_DATA,
                "%s: sample %lld: data.forcings=%s has no time: the sample has none, or "
                "times have no constant step; write all times, or set an offset in "
                "hours (@+6h)",
                series->file[f].path, (long long)sample, kinds[forcing->kind].name);
        for (int c = 0; c < kinds[forcing->kind].channels; c++, to += height * width) {
            const struct factors factors = factors_of(forcing->kind, c, calendar, instant);
            plane_fill(&factors, self->row + top, self->column + left, height, width, to);
        }
    }
    return true;
}
