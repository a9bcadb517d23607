// SPDX-License-Identifier: BSD-3-Clause
/* Samples of files, in series: each file, each run in a file, or one series of all files. A record
 * has values of samples of one series at several offsets. An offset is a number of seconds, of
 * steps of time, or of samples if these have no times. */
#ifndef VITTRAIN_ARRAYS_SERIES_H
#define VITTRAIN_ARRAYS_SERIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arrays/time.h"
#include "base/error.h"

/* Distance between neighbours of a series, in seconds, or in the unit of numbers without a date.
 * Initialize with zeros: not known. */
struct time_step {
    double size; /* the mean */
    int months;  /* the distance is this number of months; 0: it is not */
};

struct series_file {
    const char *path;
    int64_t samples;
    int64_t run; /* samples of each of its runs, which are series of their own; 0: one series */
    struct time_units units;
    double *time;  /* [samples] in `units`; NULL: the samples have no times */
    int64_t first; /* number of its first sample; set by file_series_pair */
};

/* Return the number of samples of each series of a file. */
static inline int64_t series_file_length(const struct series_file *file)
{
    return file->run > 0 ? file->run : file->samples;
}

enum { SERIES_OFFSETS = 32, OFFSET_TEXT = 24 };

struct series_offset {
    int64_t steps;  /* of an offset in seconds: its sign, until file_series_pair sets the number */
    double seconds; /* a multiple of the step; 0: the offset is a number of steps */
    bool required;  /* samples without a value at this offset are no records */
};

/* Parse the text after @: "+6", "-1" or "+12h". Units are those of the CF conventions: d, h, min,
 * s. Return false if the text is invalid. */
bool series_offset_parse(const char *text, struct series_offset *offset);

/* Initialize with zeros and the first members. */
struct file_series {
    bool counts;             /* offsets count samples even if these have times */
    struct time_units units; /* of file_series_time */
    bool joined;             /* all files are one series */
    bool is_ordered;         /* times decide about pairs, series or splits: they must be known */
    char name[64];           /* of the coordinate that has the times, for messages; "": none */
    int offset_count;
    struct series_offset offset[SERIES_OFFSETS]; /* distinct; the first one is 0 */
    int64_t count;
    size_t capacity;
    struct series_file *file; /* [count] */

    /* Set by file_series_pair. */
    bool is_mixed;            /* times of different files cannot be compared */
    int64_t samples, records; /* of all files */
    uint32_t *sample;         /* [records, offset_count]: numbered over all files, or SERIES_NONE */
    struct time_step step;
};

#define SERIES_NONE UINT32_MAX

/* Add an offset unless it is known. Return its number, by which the functions below find it; -1 if
 * there are too many. The first call must add an offset of 0. */
int file_series_use(struct file_series *series, const struct series_offset *offset);

/* Return the number of samples at both ends of a series without times that are not records. */
int64_t file_series_ends(const struct file_series *series);

/* Add the next file. Its path and times must stay valid. */
void file_series_add(struct file_series *series, const struct series_file *file);

/* Find the samples of all records. The files of a joined series must be in the order of their
 * times. Times that decrease or repeat in a joined series or with offsets are an error, and so are
 * times without a constant step if an offset other than 0 is required. Offsets in seconds are an
 * error without times, or if they are required and not a multiple of the step. If `logs`, log how
 * many samples are left out, and why most of them. After `step` was set, a second call uses it. */
MUST_CHECK bool file_series_pair(struct file_series *series, bool logs, struct error *error);

/* Return the file that has a record's value at an offset, and the number of the sample in it; -1 if
 * no file has it. */
int64_t file_series_find(const struct file_series *series, int64_t record, int offset,
                         int64_t *sample);

/* Return the instant of a record's value at an offset, also if no file has it; of samples without
 * times, the number of the sample. NaN: not known. */
double file_series_instant(const struct file_series *series, int64_t record, int offset);

/* Return the same as a number in `units`. */
double file_series_time(const struct file_series *series, int64_t record, int offset);

/* Set held[r] of all records r in a list of periods of time. It is an error if a period has no
 * records, if the periods have all records, or if samples have no dates. */
MUST_CHECK bool file_series_find_periods(const struct file_series *series, const char *periods,
                                         bool *held, struct error *error);

/* True if both steps are equal or one is not known. Write a step: "6 hours". */
bool time_step_agrees(const struct time_step *one, const struct time_step *other);
void time_step_write(const struct time_step *step, bool has_date, char text[TIME_TEXT]);

void file_series_close(struct file_series *series);

#endif
