// SPDX-License-Identifier: BSD-3-Clause
/* Channels that are computed from the coordinates and the time of a sample: data.forcings.
 *
 * The position of the sun is that of the Astronomical Almanac's low-precision formulas (Michalsky
 * 1988, Solar Energy 40, 227). From 1900 to 2100 the irradiance differs by at most 0.4 W/m2 from
 * that of NREL's Solar Position Algorithm. The solar constant is 1361 W/m2. Calendars without leap
 * years or with months of 30 days have the vernal equinox at 79.5/365 of each year, as in CESM. */
#ifndef VITTRAIN_ARRAYS_FORCING_H
#define VITTRAIN_ARRAYS_FORCING_H

#include "arrays/grid.h"
#include "arrays/series.h"

/* Terms of rows and columns; those of columns are the cosine and the sine. */
enum forcing_term { TERM_ONE, TERM_DEGREES, TERM_SINE, TERM_COSINE, ROW_TERMS, COLUMN_TERMS = 2 };

struct forcing {
    int kind; /* in the table of forcing.c */
    struct series_offset shift;
    int offset; /* number in the series of an offset in steps; 0: none */
};

/* Initialize with zeros. */
struct forcings {
    struct forcing *list; /* [count] */
    int count;
    int64_t channels;
    bool counts_steps;             /* an offset counts steps */
    bool is_utc;                   /* time_of_day, because there are no longitudes */
    float (*row)[ROW_TERMS];       /* [height]; of latitude 0 without latitudes */
    float (*column)[COLUMN_TERMS]; /* [width]; of longitude 0 without longitudes */
};

/* Parse a list such as "latitude,insolation@+6h". Add the offsets in steps to the series; they
 * leave out no samples. */
MUST_CHECK bool forcings_parse(struct forcings *self, const char *text, struct file_series *series,
                               struct error *error);

/* Copy the latitudes and longitudes of the first array of a grid, with fields of height x width
 * points. It is an error if a forcing needs coordinates or times that the files do not have. */
MUST_CHECK bool forcings_open(struct forcings *self, const struct grid *grid,
                              const struct file_series *series, int64_t height, int64_t width,
                              struct error *error);

/* Compute the window of height x width points at (top, left) of all channels of a record. */
MUST_CHECK bool forcings_read(const struct forcings *self, const struct file_series *series,
                              int64_t record, int64_t top, int64_t left, int64_t height,
                              int64_t width, float *to, struct error *error);

void forcings_close(struct forcings *self);

#endif
