// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/forcing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/base.h"
#include "base/log.h"
#include "base/text.h"

enum need { NEED_LATITUDE = 1, NEED_LONGITUDE = 2, NEED_TIME = 4 };

static const struct {
    const char *name;
    int channels, needs;
    const char *channel[2];
} kinds[FORCINGS] = {
    [FORCING_LATITUDE] = {"latitude", 1, NEED_LATITUDE, {"latitude"}},
    [FORCING_LONGITUDE] = {"longitude", 2, NEED_LONGITUDE, {"sin longitude", "cos longitude"}},
    [FORCING_DAY_OF_YEAR] = {"day_of_year", 2, NEED_TIME, {"sin day_of_year", "cos day_of_year"}},
    [FORCING_TIME_OF_DAY] = {"time_of_day", 2, NEED_TIME, {"sin time_of_day", "cos time_of_day"}},
    [FORCING_INSOLATION] = {"insolation",
                            1,
                            NEED_LATITUDE | NEED_LONGITUDE | NEED_TIME,
                            {"insolation"}},
};

static const double pi = 3.14159265358979323846;

/* ---- the list ---- */

/* Parse "insolation", "insolation@+1" or "insolation@+6h". */
static bool forcing_parse(struct forcing *forcing, const char *text)
{
    const size_t length = strcspn(text, "@");
    while (forcing->kind < FORCINGS && (strlen(kinds[forcing->kind].name) != length ||
                                        strncmp(text, kinds[forcing->kind].name, length) != 0))
        forcing->kind++;
    snprintf(forcing->at, sizeof forcing->at, "%.*s", OFFSET_TEXT - 1, text + length);
    return forcing->kind < FORCINGS &&
           (text[length] == '\0' || (strlen(text + length) < sizeof forcing->at &&
                                     series_offset_parse(text + length + 1, &forcing->shift)));
}

bool forcings_parse(struct forcings *self, const char *list, struct error *error)
{
    char text[OPTION_TEXT];
    size_t length;
    self->list = allocate(strlen(list) + 1, sizeof *self->list);
    for (const char *item = text_next_item(list, &length); item != NULL;
         item = text_next_item(item + length, &length)) {
        struct forcing *forcing = &self->list[self->count++];
        snprintf(text, sizeof text, "%.*s", (int)length, item);
        if (!forcing_parse(forcing, text))
            return error_set(error, ERROR_USAGE,
                             "data.forcings=%s: it must be latitude, longitude, day_of_year, "
                             "time_of_day or insolation, or one of them at another time, as in "
                             "insolation@+1 or insolation@+6h",
                             text);
        self->channels += kinds[forcing->kind].channels;
    }
    return true;
}

bool forcings_use_offsets(struct forcings *self, struct file_series *series)
{
    for (int n = 0; n < self->count; n++) {
        struct forcing *forcing = &self->list[n];
        if (forcing->shift.seconds == 0)
            forcing->offset = file_series_use(series, &forcing->shift);
        if (forcing->offset < 0)
            return false;
        self->counts_steps |= forcing->offset > 0;
    }
    return true;
}

/* ---- coordinates ---- */

/* Return the latitudes or longitudes of the rows or columns of the first array in degrees, or NULL.
 */
static const double *degrees_of(const struct grid *grid, enum dimension_kind kind)
{
    const struct dimension *found =
        grid_role_dimension(grid, 0, kind == DIMENSION_ROW ? ROLE_ROW : ROLE_COLUMN);
    if (found == NULL || found->values == NULL || !dimension_in_degrees(found, kind) ||
        strncmp(array_attribute_text(found->attributes, "standard_name"), "grid_", 5) == 0)
        return NULL;
    for (int64_t i = 0; i < found->count; i++)
        if (!(fabs(found->values[i]) <= (kind == DIMENSION_ROW ? 90.001 : 1e6)))
            return NULL;
    return found->values;
}

/* Return the first file whose samples have no dates, or NULL. */
static const char *undated_find(const struct file_series *series)
{
    for (int64_t f = 0; f < series->count; f++)
        if (series->file[f].time == NULL || !series->file[f].units.has_date)
            return series->file[f].path;
    return NULL;
}

static void channels_log(const struct forcings *self, int64_t channel, bool is_local)
{
    struct text_stream text;
    FILE *out = text_stream_open(&text);
    for (int n = 0; n < self->count; n++) {
        const struct forcing *forcing = &self->list[n];
        for (int c = 0; c < kinds[forcing->kind].channels; c++)
            fprintf(out, "%s%s%s%s", n + c > 0 ? ", " : "", kinds[forcing->kind].channel[c],
                    forcing->at, forcing->kind == FORCING_TIME_OF_DAY && !is_local ? " (UTC)" : "");
    }
    OWNED char *names = text_stream_close(&text);
    log_info("data.forcings: channels %lld to %lld are %s", (long long)channel,
             (long long)(channel + self->channels - 1), names);
}

bool forcings_open(struct forcings *self, const struct grid *grid, const struct file_series *series,
                   int64_t height, int64_t width, int64_t channel, bool logs, struct error *error)
{
    const double *latitude = degrees_of(grid, DIMENSION_ROW);
    const double *longitude = degrees_of(grid, DIMENSION_COLUMN);
    const char *undated = undated_find(series);
    const int known = (latitude != NULL ? NEED_LATITUDE : 0) |
                      (longitude != NULL ? NEED_LONGITUDE : 0) | (undated == NULL ? NEED_TIME : 0);
    for (int n = 0; n < self->count; n++) {
        const int missing = kinds[self->list[n].kind].needs & ~known;
        const int first = missing & -missing;
        if (missing != 0)
            return error_set(error, ERROR_DATA,
                             "%s: data.forcings=%s: there are no %s; write them as a coordinate of "
                             "one dimension, or remove the forcing",
                             first == NEED_TIME ? undated : grid->path,
                             kinds[self->list[n].kind].name,
                             first == NEED_LATITUDE    ? "latitudes of the rows in degrees"
                             : first == NEED_LONGITUDE ? "longitudes of the columns in degrees"
                                                       : "dates of the samples");
    }
    self->row = allocate((size_t)height, sizeof *self->row);
    self->column = allocate((size_t)width, sizeof *self->column);
    for (int64_t y = 0; latitude != NULL && y < height; y++) {
        self->row[y][ROW_DEGREES] = (float)latitude[y];
        self->row[y][ROW_SINE] = (float)sin(latitude[y] * pi / 180);
        self->row[y][ROW_COSINE] = (float)cos(latitude[y] * pi / 180);
    }
    for (int64_t x = 0; x < width; x++) {
        const double angle = longitude != NULL ? longitude[x] * pi / 180 : 0;
        self->column[x][COLUMN_COSINE] = (float)cos(angle);
        self->column[x][COLUMN_SINE] = (float)sin(angle);
    }
    if (logs)
        channels_log(self, channel, longitude != NULL);
    return true;
}

void forcings_close(struct forcings *self)
{
    free(self->list);
    free(self->row);
    free(self->column);
    *self = (struct forcings){0};
}

/* ---- values ---- */

/* A channel: the value of a point is the sum of the terms of its row, plus a factor of the row
 * times the sum of the terms of its column; `least` if it is less. */
struct terms {
    double constant, row[ROW_TERMS];
    double factor, factor_cosine; /* of the latitude */
    double column[COLUMN_TERMS];
    float least;
};

/* Return the terms of the sine (channel 0) or cosine of an angle plus the longitude. */
static struct terms angle_terms(double angle, int channel)
{
    const double sine = sin(angle), cosine = cos(angle);
    return channel == 0
               ? (struct terms){.factor = 1, .column = {sine, cosine}, .least = -INFINITY}
               : (struct terms){.factor = 1, .column = {cosine, -sine}, .least = -INFINITY};
}

/* Return the terms of the irradiance at an instant. */
static struct terms insolation_terms(enum time_calendar calendar, double instant)
{
    const double constant = 1361, degree = pi / 180;
    const double equinox = 78.816, year = 365.2422; /* in days; equinox of 2000, since noon of 1
                                                     * January */
    double days = time_days_since_2000(calendar, instant);
    if (isnan(days))
        days = equinox + year * (time_year_part(calendar, instant) - 79.5 / 365);
    const double anomaly = degree * (357.528 + 0.9856003 * days);
    const double mean_longitude = degree * (280.460 + 0.9856474 * days);
    const double longitude =
        mean_longitude + degree * (1.915 * sin(anomaly) + 0.020 * sin(2 * anomaly));
    const double obliquity = degree * (23.439 - 4e-7 * days);
    const double ascension = atan2(cos(obliquity) * sin(longitude), cos(longitude));
    const double declination = asin(sin(obliquity) * sin(longitude));
    const double distance = 1.00014 - 0.01671 * cos(anomaly) - 0.00014 * cos(2 * anomaly);
    const double day = instant / TIME_DAY - floor(instant / TIME_DAY);
    const double hour_angle = 2 * pi * (day - 0.5) + mean_longitude - ascension;
    const double irradiance = constant / (distance * distance);
    struct terms terms = angle_terms(hour_angle, 1);
    terms.row[ROW_SINE] = irradiance * sin(declination);
    terms.factor = 0;
    terms.factor_cosine = irradiance * cos(declination);
    terms.least = 0;
    return terms;
}

static struct terms terms_of(enum forcing_kind kind, int channel, enum time_calendar calendar,
                             double instant)
{
    struct terms terms = {.least = -INFINITY};
    switch (kind) {
    case FORCING_LATITUDE:
        terms.row[ROW_DEGREES] = 1;
        return terms;
    case FORCING_LONGITUDE:
        return angle_terms(0, channel);
    case FORCING_DAY_OF_YEAR:
        instant = 2 * pi * time_year_part(calendar, instant);
        terms.constant = channel == 0 ? sin(instant) : cos(instant);
        return terms;
    case FORCING_TIME_OF_DAY:
        return angle_terms(2 * pi * (instant / TIME_DAY - floor(instant / TIME_DAY)), channel);
    default:
        return insolation_terms(calendar, instant);
    }
}

/* Compute a window. Row 0 has the sums of the columns until it is computed as the last one. */
VECTORISED static void plane_fill(const struct terms *terms, const float (*row)[ROW_TERMS],
                                  const float (*column)[COLUMN_TERMS], int64_t height,
                                  int64_t width, float *to)
{
    const float least = terms->least;
    for (int64_t x = 0; x < width; x++)
        to[x] = (float)(terms->column[COLUMN_COSINE] * (double)column[x][COLUMN_COSINE] +
                        terms->column[COLUMN_SINE] * (double)column[x][COLUMN_SINE]);
    for (int64_t y = height; y-- > 0;) {
        double sum = terms->constant;
        for (int t = 0; t < ROW_TERMS; t++)
            sum += terms->row[t] * (double)row[y][t];
        const float first = (float)sum;
        const float factor =
            (float)(terms->factor + terms->factor_cosine * (double)row[y][ROW_COSINE]);
        for (int64_t x = 0; x < width; x++) {
            const float value = first + factor * to[x];
            to[y * width + x] = value > least ? value : least;
        }
    }
}

bool forcings_read(const struct forcings *self, const struct file_series *series, int64_t record,
                   int64_t top, int64_t left, int64_t height, int64_t width, float *to,
                   struct error *error)
{
    int64_t sample;
    for (int n = 0; n < self->count; n++) {
        const struct forcing *forcing = &self->list[n];
        const struct series_file *file =
            &series->file[file_series_find(series, record, 0, &sample)];
        const double instant =
            file_series_instant(series, record, forcing->offset) + forcing->shift.seconds;
        if ((kinds[forcing->kind].needs & NEED_TIME) != 0 && !isfinite(instant))
            return error_set(error, ERROR_DATA,
                             "%s: sample %lld: the time of data.forcings=%s is not known: it is "
                             "missing, or its offset counts steps of times that have none; write "
                             "all times, and use an offset in hours (@+6h)",
                             file->path, (long long)sample, kinds[forcing->kind].name);
        for (int c = 0; c < kinds[forcing->kind].channels; c++, to += height * width) {
            const struct terms terms = terms_of(forcing->kind, c, file->units.calendar, instant);
            plane_fill(&terms, self->row + top, self->column + left, height, width, to);
        }
    }
    return true;
}
