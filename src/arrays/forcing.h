// SPDX-License-Identifier: BSD-3-Clause
/* Channels that are computed from the coordinates and the time of a sample: data.forcings.
 *
 * The position of the sun is that of the Astronomical Almanac's low-precision formulas (Michalsky
 * 1988, Solar Energy 40, 227). From 1900 to 2100 the irradiance differs by at most 0.4 W/m2 from
 * that of NREL's Solar Position Algorithm. The solar constant is 1361 W/m2. Calendars without leap
 * years or with months of 30 days have the vernal equinox at 79.5/365 of each year, as CESM has it.
 */
#ifndef VITTRAIN_ARRAYS_FORCING_H
#define VITTRAIN_ARRAYS_FORCING_H

#include "arrays/grid.h"
#include "arrays/series.h"

enum forcing_kind {
    FORCING_LATITUDE,    /* degrees */
    FORCING_LONGITUDE,   /* sine and cosine */
    FORCING_DAY_OF_YEAR, /* sine and cosine of the part of the year that has passed */
    FORCING_TIME_OF_DAY, /* the same of the day of local mean solar time; UTC without longitudes */
    FORCING_INSOLATION,  /* irradiance at the top of the atmosphere in W/m2 */
    FORCINGS
};

struct forcing {
    enum forcing_kind kind;
    char at[OFFSET_TEXT]; /* as in the option: "@+6h" or "" */
    struct series_offset shift;
    int offset; /* number in the series of an offset in steps; 0: none */
};

/* Terms of a row: latitude in degrees, its sine and cosine; of a column: cosine and sine of the
 * longitude. */
enum { ROW_DEGREES, ROW_SINE, ROW_COSINE, ROW_TERMS, COLUMN_COSINE = 0, COLUMN_SINE, COLUMN_TERMS };

/* Initialize with zeros. */
struct forcings {
    struct forcing *list; /* [count] */
    int count;
    int64_t channels;
    bool counts_steps;             /* an offset counts steps */
    float (*row)[ROW_TERMS];       /* [height]; zeros without latitudes */
    float (*column)[COLUMN_TERMS]; /* [width]; those of longitude 0 without longitudes */
};

/* Parse a list such as "latitude,insolation@+6h". */
MUST_CHECK bool forcings_parse(struct forcings *self, const char *text, struct error *error);

/* Add the offsets in steps to the series; they leave out no samples. Return false if there are too
 * many. */
bool forcings_use_offsets(struct forcings *self, struct file_series *series);

/* Take the latitudes and longitudes of the first array of a grid, with fields of height x width
 * points. Coordinates or times of samples that are needed and not known are an error. Log the names
 * of the channels, the first of which is `channel`, if `logs`. */
MUST_CHECK bool forcings_open(struct forcings *self, const struct grid *grid,
                              const struct file_series *series, int64_t height, int64_t width,
                              int64_t channel, bool logs, struct error *error);

/* Compute the window of height x width points at (top, left) of all channels of a record. */
MUST_CHECK bool forcings_read(const struct forcings *self, const struct file_series *series,
                              int64_t record, int64_t top, int64_t left, int64_t height,
                              int64_t width, float *to, struct error *error);

void forcings_close(struct forcings *self);

#endif
