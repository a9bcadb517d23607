// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/series.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/base.h"
#include "base/log.h"

bool file_series_use(struct file_series *series, int64_t offset, bool required)
{
    int o = 0;
    while (o < series->offset_count && series->offset[o] != offset)
        o++;
    if (o == SERIES_OFFSETS)
        return false;
    series->offset[o] = offset;
    series->required[o] |= required;
    series->offset_count = o == series->offset_count ? o + 1 : series->offset_count;
    return true;
}

int64_t file_series_ends(const struct file_series *series)
{
    int64_t before = 0, after = 0;
    for (int o = 0; o < series->offset_count; o++)
        if (series->required[o]) {
            before = larger(before, -series->offset[o]);
            after = larger(after, series->offset[o]);
        }
    return before + after;
}

void file_series_add(struct file_series *series, const struct series_file *file)
{
    series->file =
        allocate_more(series->file, &series->capacity, (size_t)series->count, sizeof *file);
    series->file[series->count++] = *file;
}

/* Return the file that has a sample, numbered over all files. */
static int64_t file_of(const struct file_series *series, int64_t sample)
{
    int64_t low = 0, high = series->count - 1;
    while (low < high) {
        const int64_t middle = (low + high + 1) / 2;
        if (series->file[middle].first <= sample)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static double instant_of(const struct file_series *series, int64_t sample)
{
    const struct series_file *file = &series->file[file_of(series, sample)];
    return file->time == NULL ? (double)sample
                              : time_decode(&file->units, file->time[sample - file->first]);
}

/* Return the end of the series that begins with a sample. */
static int64_t series_end(const struct file_series *series, int64_t begin)
{
    const struct series_file *file = &series->file[file_of(series, begin)];
    return series->joined ? series->samples : file->first + file->samples;
}

/* ---- the step ---- */

static const struct {
    const char *name;
    double seconds;
} units[] = {{"day", TIME_DAY}, {"hour", 3600}, {"minute", 60}, {"second", 1}};

enum { UNITS = sizeof units / sizeof units[0] };
enum { PERCENT_REGULAR = 95, LISTED = 3 };
#define TOLERANCE 0.02 /* a part of the step */

/* Places of the samples on a ruler, and the distances of neighbours in a series, sorted. */
struct distances {
    double *place;    /* [samples] */
    double *distance; /* [count] */
    int64_t count;
    double rounding;        /* of places */
    double width;           /* of equal distances, a part of them */
    double size, tolerance; /* of a step */
    /* The most frequent distance: `most` of them, from `first` on, with this mean. */
    int64_t first, most;
    double mean;
};

static int compare_doubles(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Find the most frequent distance. Its mean is without the error of rounded times. */
static void distances_rank(struct distances *all)
{
    double sum = 0;
    all->most = 0;
    for (int64_t n = 0, end = 0; n < all->count; n++) {
        const double last = all->distance[n] * (1 + all->width) + 2 * all->rounding;
        while (end < all->count && all->distance[end] <= last)
            end++;
        if (end - n > all->most) {
            all->most = end - n;
            all->first = n;
        }
    }
    for (int64_t n = 0; n < all->most; n++)
        sum += all->distance[all->first + n];
    all->mean = sum / (double)all->most;
    for (int n = 0; n < UNITS; n++) {
        const double whole = rint(all->mean / units[n].seconds) * units[n].seconds;
        if (whole > 0 && fabs(all->mean - whole) <= fmax(all->rounding, 1e-6 * all->mean)) {
            all->mean = whole;
            return;
        }
    }
}

static void distances_measure(const struct file_series *series, enum time_ruler ruler,
                              struct distances *all)
{
    all->count = 0;
    all->rounding = 0;
    for (int64_t begin = 0; begin < series->samples; begin = series_end(series, begin))
        for (int64_t n = begin; n < series_end(series, begin); n++) {
            const struct series_file *file = &series->file[file_of(series, n)];
            const double instant = instant_of(series, n);
            all->place[n] = ruler == RULER_MONTHS
                                ? (double)time_month(file->units.calendar, instant)
                            : ruler == RULER_DAYS ? floor(instant / TIME_DAY)
                                                  : instant;
            if (ruler == RULER_SECONDS)
                all->rounding = fmax(all->rounding, file->rounding);
            if (n > begin)
                all->distance[all->count++] = all->place[n] - all->place[n - 1];
        }
    qsort(all->distance, (size_t)all->count, sizeof *all->distance, compare_doubles);
    distances_rank(all);
}

/* Set the step and all places on its ruler. Return false if no ruler has a constant step. */
static bool step_find(struct file_series *series, struct distances *all)
{
    /* Months and years are not equal in seconds, but nearly. */
    static const struct {
        enum time_ruler ruler;
        double width;
    } tried[] = {
        {RULER_SECONDS, 1e-3}, {RULER_DAYS, 0}, {RULER_MONTHS, 0}, {RULER_SECONDS, 2 * TOLERANCE}};
    const bool has_date = series->file[0].units.has_date;
    for (size_t n = 0; n < sizeof tried / sizeof tried[0]; n++) {
        if (!has_date && tried[n].ruler != RULER_SECONDS)
            continue;
        all->width = tried[n].width;
        distances_measure(series, tried[n].ruler, all);
        all->size = all->mean; /* NAN without distances: the step is not known */
        if (all->count == 0)
            return true;
        if (all->most * 100 < all->count * PERCENT_REGULAR || all->distance[0] <= 0)
            continue;
        series->step = (struct time_step){.ruler = tried[n].ruler, .size = all->size};
        return true;
    }
    return false;
}

void time_step_write(const struct time_step *step, bool has_date, char text[TIME_TEXT])
{
    const double seconds = step->ruler == RULER_DAYS ? step->size * TIME_DAY : step->size;
    size_t n = 0;
    while (n < UNITS - 1 && fabs(remainder(seconds, units[n].seconds)) > 1e-3)
        n++;
    const double count = step->ruler == RULER_MONTHS ? step->size : seconds / units[n].seconds;
    if (!has_date)
        snprintf(text, TIME_TEXT, "%.6g", step->size);
    else
        snprintf(text, TIME_TEXT, "%.6g %s%s", count,
                 step->ruler == RULER_MONTHS ? "month" : units[n].name,
                 fabs(count - 1) < 1e-6 ? "" : "s");
}

bool time_step_agrees(const struct time_step *one, const struct time_step *other)
{
    static const double seconds[] = {0, 1, TIME_DAY, 30.44 * TIME_DAY};
    const double a = one->size * seconds[one->ruler], b = other->size * seconds[other->ruler];
    /* Two months have 28 to 31 days each. */
    const double most = one->ruler == other->ruler ? TOLERANCE : 0.1;
    return one->ruler == RULER_NONE || other->ruler == RULER_NONE || fabs(a - b) <= most * b;
}

/* Set the error for times without a constant step: list the most frequent distances. */
static bool step_refuse(const struct file_series *series, struct distances *all,
                        struct error *error)
{
    char list[LISTED * (TIME_TEXT + 16)] = "", text[TIME_TEXT];
    size_t used = 0;
    all->width = TOLERANCE;
    distances_measure(series, RULER_SECONDS, all);
    const double total = (double)all->count;
    for (int n = 0; n < LISTED && all->count > 0; n++) {
        const struct time_step step = {.ruler = RULER_SECONDS, .size = all->mean};
        time_step_write(&step, series->file[0].units.has_date || series->file[0].units.seconds > 0,
                        text);
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s (%.3g %%)",
                                 n > 0 ? ", " : "", text, 100 * (double)all->most / total);
        all->count -= all->most;
        memmove(all->distance + all->first, all->distance + all->first + all->most,
                (size_t)(all->count - all->first) * sizeof *all->distance);
        distances_rank(all);
    }
    return error_set(error, ERROR_DATA,
                     "%s: '%s' has no constant step for offsets (@), but %s; use regular times, or "
                     "set data.coordinates=ignore to count samples",
                     series->file[0].path, series->name, list);
}

/* ---- the order ---- */

/* Check that all files count time in the same way. Leave the times out if they are not used. */
static bool units_check(struct file_series *series, struct error *error)
{
    const struct series_file *file = series->file;
    int64_t f = 1;
    while (f < series->count && time_units_comparable(&file[0].units, &file[f].units))
        f++;
    if (f >= series->count)
        return true;
    error_set(error, ERROR_DATA,
              "%s: the units or the calendar of '%s' cannot be compared with those in %s: write "
              "the same in all files",
              file[f].path, series->name, file[0].path);
    if (series->is_ordered)
        return false;
    log_warn("times are ignored, predictions have none: %s", error->text);
    error_clear(error);
    for (f = 0; f < series->count; f++)
        series->file[f].time = NULL;
    return true;
}

static bool order_check(const struct file_series *series, struct error *error)
{
    for (int64_t begin = 0; begin < series->samples; begin = series_end(series, begin))
        for (int64_t n = begin + 1; n < series_end(series, begin); n++) {
            char before[TIME_TEXT], after[TIME_TEXT];
            const double one = instant_of(series, n - 1), other = instant_of(series, n);
            if (other > one)
                continue;
            const struct series_file *file = &series->file[file_of(series, n - 1)];
            const struct series_file *next = &series->file[file_of(series, n)];
            time_write(&file->units, one, before);
            time_write(&next->units, other, after);
            return error_set(error, ERROR_DATA,
                             "%s: '%s' %s at sample %lld: %s%s%s is followed by %s; sort the "
                             "times, or set data.coordinates=ignore to count samples",
                             next->path, series->name, other < one ? "decreases" : "repeats",
                             (long long)(n - next->first), before, file != next ? " in " : "",
                             file != next ? file->path : "", after);
        }
    return true;
}

/* ---- pairs ---- */

/* Why samples are no records. */
struct left_out {
    int64_t count, at_ends;
    double first; /* instant of the first one that is not at an end; NAN: none */
};

/* Return the sample at an offset from another one of the series [begin, end), or SERIES_NONE. */
static uint32_t neighbour_find(const struct distances *times, int64_t begin, int64_t end,
                               int64_t sample, int64_t offset)
{
    const double place = times->place[sample] + (double)offset * times->size;
    int64_t low = begin, high = end; /* the first sample that is not before the place */
    if (offset == 0)
        return (uint32_t)sample;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (times->place[middle] < place - times->tolerance)
            low = middle + 1;
        else
            high = middle;
    }
    if (low + 1 < end && fabs(times->place[low + 1] - place) < fabs(times->place[low] - place))
        low++;
    return low < end && times->place[low] <= place + times->tolerance ? (uint32_t)low : SERIES_NONE;
}

/* Find the samples of a record. Return false if one is missing that is required. */
static bool record_find(const struct file_series *series, const struct distances *times,
                        int64_t begin, int64_t end, int64_t sample, uint32_t *found,
                        struct left_out *left_out)
{
    bool good = true, at_end = true;
    for (int o = 0; o < series->offset_count; o++) {
        const double place = times->place[sample] + (double)series->offset[o] * times->size;
        found[o] = neighbour_find(times, begin, end, sample, series->offset[o]);
        if (found[o] != SERIES_NONE || !series->required[o])
            continue;
        good = false;
        at_end &= place < times->place[begin] - times->tolerance ||
                  place > times->place[end - 1] + times->tolerance;
    }
    left_out->count += !good;
    left_out->at_ends += !good && at_end;
    if (!good && !at_end && isnan(left_out->first))
        left_out->first = instant_of(series, sample);
    return good;
}

static void left_out_log(const struct file_series *series, const struct left_out *left_out)
{
    const struct time_units *times = &series->file[0].units;
    const int64_t gaps = left_out->count - left_out->at_ends;
    char step[TIME_TEXT], first[TIME_TEXT];
    time_step_write(&series->step, times->has_date || times->seconds > 0, step);
    time_write(times, left_out->first, first);
    log_info(
        "offsets (@) count steps of %s in '%s': %lld of %lld samples are left out, %lld at the "
        "ends of series and %lld at gaps%s%s",
        step, series->name, (long long)left_out->count, (long long)series->samples,
        (long long)left_out->at_ends, (long long)gaps, gaps > 0 ? ", the first near " : "",
        gaps > 0 ? first : "");
}

static void records_find(struct file_series *series, const struct distances *times, bool logs)
{
    struct left_out left_out = {.first = (double)NAN};
    const size_t offsets = (size_t)series->offset_count;
    free(series->sample);
    series->sample = allocate((size_t)series->samples * offsets, sizeof *series->sample);
    series->is_counted = true;
    for (int64_t begin = 0; begin < series->samples; begin = series_end(series, begin)) {
        const int64_t end = series_end(series, begin);
        for (int64_t n = begin; n < end; n++) {
            uint32_t *found = series->sample + (size_t)series->records * offsets;
            bool counted = true, good = record_find(series, times, begin, end, n, found, &left_out);
            for (size_t o = 0; o < offsets; o++) {
                const int64_t other = n + series->offset[o];
                counted &= !series->required[o] || (other >= begin && other < end);
                series->is_counted &= found[o] == SERIES_NONE || found[o] == other;
            }
            series->is_counted &= good == counted;
            series->records += good;
        }
    }
    if (logs && left_out.count > 0 && series->step.ruler != RULER_NONE)
        left_out_log(series, &left_out);
}

bool file_series_pair(struct file_series *series, bool logs, struct error *error)
{
    struct distances times = {.size = 1}; /* without times, places are numbers of samples */
    bool has_offsets = false;
    int64_t timed = 0;
    series->samples = series->records = 0;
    for (int64_t f = 0; f < series->count; f++) {
        series->file[f].first = series->samples;
        series->samples += series->file[f].samples;
        timed += series->file[f].time != NULL;
    }
    for (int o = 0; o < series->offset_count; o++)
        has_offsets |= series->offset[o] != 0;
    const bool has_times = timed > 0 && timed == series->count, used = has_times && !series->counts;
    if (series->samples >= SERIES_NONE)
        return error_set(error, ERROR_DATA, "%lld samples are more than the limit of 2^32",
                         (long long)series->samples);
    for (int64_t f = 0; timed > 0 && !has_times && series->is_ordered && f < series->count; f++)
        if (series->file[f].time == NULL)
            return error_set(error, ERROR_DATA,
                             "%s has no times '%s', which other files have: write them, or set "
                             "data.coordinates=ignore to count samples",
                             series->file[f].path, series->name);
    times.place = allocate((size_t)series->samples, sizeof *times.place);
    times.distance = allocate((size_t)series->samples, sizeof *times.distance);
    for (int64_t n = 0; n < series->samples; n++)
        times.place[n] = (double)n;
    bool good = (!has_times || units_check(series, error)) &&
                (!used || !(series->joined || has_offsets) || order_check(series, error));
    if (good && used && has_offsets && series->step.ruler != RULER_NONE) {
        distances_measure(series, series->step.ruler, &times);
        times.size = series->step.size;
    } else if (good && used && has_offsets) {
        good = step_find(series, &times) || file_series_ends(series) == 0 ||
               step_refuse(series, &times, error);
        if (series->step.ruler == RULER_NONE)
            times.size = (double)NAN;
    }
    if (used && has_offsets && series->step.ruler <= RULER_SECONDS)
        times.tolerance = fmin(fmax(times.size * TOLERANCE, 2 * times.rounding), times.size * 0.49);
    if (good)
        records_find(series, &times, logs);
    free(times.place);
    free(times.distance);
    return good;
}

/* ---- records ---- */

/* Return a record's sample at an offset, numbered over all files, or SERIES_NONE. */
static uint32_t sample_at(const struct file_series *series, int64_t record, int64_t offset)
{
    int o = 0;
    while (series->offset[o] != offset)
        o++;
    return series->sample[record * series->offset_count + o];
}

int64_t file_series_find(const struct file_series *series, int64_t record, int64_t offset,
                         int64_t *sample)
{
    const uint32_t number = sample_at(series, record, offset);
    if (number == SERIES_NONE)
        return -1;
    const int64_t file = file_of(series, number);
    *sample = number - series->file[file].first;
    return file;
}

double file_series_instant(const struct file_series *series, int64_t record, int64_t offset)
{
    const uint32_t number = sample_at(series, record, offset);
    if (number != SERIES_NONE)
        return instant_of(series, number);
    int o = 0; /* an offset at which the record has a sample */
    while (series->sample[record * series->offset_count + o] == SERIES_NONE)
        o++;
    const int64_t known = series->sample[record * series->offset_count + o];
    const double instant = instant_of(series, known), steps = (double)(offset - series->offset[o]);
    switch (series->step.ruler) {
    case RULER_SECONDS:
        return instant + steps * series->step.size;
    case RULER_DAYS:
        return instant + steps * series->step.size * TIME_DAY;
    case RULER_MONTHS:
        return time_add_months(series->file[file_of(series, known)].units.calendar, instant,
                               (int64_t)(steps * series->step.size));
    default:
        return (double)NAN;
    }
}

double file_series_time(const struct file_series *series, int64_t record, int64_t offset)
{
    const struct time_units *to = &series->units;
    const uint32_t number = sample_at(series, record, offset);
    if (number != SERIES_NONE) { /* without rounding, if the units are the same */
        const struct series_file *file = &series->file[file_of(series, number)];
        const struct time_units *from = &file->units;
        if (from->seconds == to->seconds && from->months == to->months &&
            from->origin == to->origin)
            return file->time[number - file->first];
    }
    return time_encode(to, file_series_instant(series, record, offset));
}

void file_series_close(struct file_series *series)
{
    free(series->file);
    free(series->sample);
    *series = (struct file_series){0};
}
