// SPDX-License-Identifier: BSD-3-Clause
#include "data/file_series.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/allocate.h"
#include "core/integer.h"
#include "core/log.h"

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

static double ruler_read(enum time_ruler ruler, enum time_calendar calendar, double instant)
{
    return ruler == RULER_MONTHS ? (double)time_month(calendar, instant)
           : ruler == RULER_DAYS ? floor(instant / TIME_DAY)
                                 : instant;
}

static int compare_doubles(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static const struct {
    const char *name;
    double seconds;
} units[] = {{"day", TIME_DAY}, {"hour", 3600}, {"minute", 60}, {"second", 1}};

enum { UNITS = sizeof units / sizeof units[0] };

/* Times on one ruler, and the distances of neighbours in a series, sorted. */
struct distances {
    double *place;    /* [samples] */
    double *distance; /* [count] */
    int64_t count;
    double tolerance; /* of places */
};

enum { PERCENT_REGULAR = 95, TOLERANCE = 50 /* a part of the step */, LISTED = 3 };

static void distances_measure(const struct file_series *series, enum time_ruler ruler,
                              struct distances *all)
{
    all->count = 0;
    for (int64_t begin = 0; begin < series->samples; begin = series_end(series, begin))
        for (int64_t n = begin; n < series_end(series, begin); n++) {
            const struct series_file *file = &series->file[file_of(series, n)];
            all->place[n] = ruler_read(ruler, file->units.calendar, instant_of(series, n));
            if (n > begin)
                all->distance[all->count++] = all->place[n] - all->place[n - 1];
        }
    qsort(all->distance, (size_t)all->count, sizeof *all->distance, compare_doubles);
}

/* Return how many distances equal each other most often, and set `first` to the number of the first
 * of them. */
static int64_t distances_equal(const struct distances *all, double rounding, int64_t *first)
{
    int64_t most = 0, end = 0;
    for (int64_t n = 0; n < all->count; n++) {
        const double last = all->distance[n] * (1 + 1.0 / TOLERANCE) + 2 * rounding;
        while (end < all->count && all->distance[end] <= last)
            end++;
        if (end - n > most) {
            most = end - n;
            *first = n;
        }
    }
    return most;
}

static double rounding_of(const struct file_series *series)
{
    double rounding = 0;
    for (int64_t f = 0; f < series->count; f++)
        rounding = fmax(rounding, series->file[f].rounding);
    return rounding;
}

/* Return the mean of equal distances, without the error of rounded times. */
static double step_size(const struct distances *all, int64_t first, int64_t count, double rounding)
{
    double sum = 0;
    for (int64_t n = first; n < first + count; n++)
        sum += all->distance[n];
    const double size = sum / (double)count;
    for (int n = 0; n < UNITS; n++)
        if (fabs(remainder(size, units[n].seconds)) <= fmax(rounding, 1e-6 * size) &&
            size > units[n].seconds / 2)
            return rint(size / units[n].seconds) * units[n].seconds;
    return size;
}

/* Set the step and all places on its ruler. Return false if no ruler has a constant step. */
static bool step_find(struct file_series *series, struct distances *all)
{
    const enum time_ruler last = series->file[0].units.has_date ? RULER_MONTHS : RULER_SECONDS;
    for (enum time_ruler ruler = RULER_SECONDS; ruler <= last; ruler++) {
        const double rounding = ruler == RULER_SECONDS ? rounding_of(series) : 0;
        int64_t first = 0;
        distances_measure(series, ruler, all);
        const int64_t most = distances_equal(all, rounding, &first);
        if (all->count == 0)
            return true;
        const double size = step_size(all, first, most, rounding);
        if (most * 100 < all->count * PERCENT_REGULAR || all->distance[0] <= 0)
            continue;
        series->step = (struct time_step){.ruler = ruler, .size = size};
        all->tolerance =
            ruler == RULER_SECONDS ? fmin(size / TOLERANCE + 2 * rounding, size / 4) : 0;
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
    const double most = one->ruler == other->ruler ? 1.0 / TOLERANCE : 0.1;
    return one->ruler == RULER_NONE || other->ruler == RULER_NONE || fabs(a - b) <= most * b;
}

/* Set the error for times without a constant step: list the most frequent distances. */
static bool step_refuse(const struct file_series *series, struct distances *all,
                        struct error *error)
{
    const bool has_date = series->file[0].units.has_date;
    const double rounding = rounding_of(series);
    char list[LISTED * (TIME_TEXT + 16)] = "";
    size_t used = 0;
    distances_measure(series, RULER_SECONDS, all);
    const int64_t total = all->count;
    for (int n = 0; n < LISTED && all->count > 0; n++) {
        char text[TIME_TEXT];
        int64_t first = 0;
        const int64_t most = distances_equal(all, rounding, &first);
        const struct time_step step = {.ruler = RULER_SECONDS,
                                       .size = step_size(all, first, most, rounding)};
        time_step_write(&step, has_date, text);
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s (%.3g %%)",
                                 n > 0 ? ", " : "", text, 100 * (double)most / (double)total);
        all->count -= most;
        memmove(all->distance + first, all->distance + first + most,
                (size_t)(all->count - first) * sizeof *all->distance);
    }
    return error_set(error, ERROR_DATA,
                     "%s: '%s' has no constant step for offsets (@): its most frequent distances "
                     "are %s; use samples at regular times, or data.coordinates=ignore to count "
                     "samples",
                     series->file[0].path, series->name, list);
}

/* ---- the order ---- */

/* Check that all files of a joined series count time in the same way. */
static bool units_check(const struct file_series *series, struct error *error)
{
    const struct time_units *first = &series->file[0].units;
    for (int64_t f = 1; f < series->count; f++) {
        const struct time_units *other = &series->file[f].units;
        const bool same = other->calendar == first->calendar ||
                          (other->calendar <= CALENDAR_PROLEPTIC_GREGORIAN &&
                           first->calendar <= CALENDAR_PROLEPTIC_GREGORIAN);
        if (other->has_date != first->has_date || !same ||
            (!other->has_date &&
             (other->seconds != first->seconds || other->months != first->months)))
            return error_set(error, ERROR_DATA,
                             "%s: '%s' has another kind of units or another calendar than in %s: "
                             "write the times of all files in the same way",
                             series->file[f].path, series->name, series->file[0].path);
    }
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
                             "samples by time, once each, or set data.coordinates=ignore to count "
                             "samples",
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
static uint32_t neighbour_find(const struct file_series *series, const struct distances *times,
                               int64_t begin, int64_t end, int64_t sample, int64_t offset)
{
    if (times->place == NULL || offset == 0) {
        const int64_t other = sample + offset;
        return other >= begin && other < end ? (uint32_t)other : SERIES_NONE;
    }
    const double place = times->place[sample] + (double)offset * series->step.size;
    int64_t low = begin, high = end; /* the first sample that is not before the place */
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (times->place[middle] < place - times->tolerance)
            low = middle + 1;
        else
            high = middle;
    }
    return low < end && times->place[low] <= place + times->tolerance &&
                   series->step.ruler != RULER_NONE
               ? (uint32_t)low
               : SERIES_NONE;
}

/* Find the samples of a record. Return false if one is missing that is required. */
static bool record_find(const struct file_series *series, const struct distances *times,
                        int64_t begin, int64_t end, int64_t sample, uint32_t *found,
                        struct left_out *left_out)
{
    bool good = true, at_end = true;
    for (int o = 0; o < series->offset_count; o++) {
        const int64_t offset = series->offset[o];
        found[o] = neighbour_find(series, times, begin, end, sample, offset);
        if (found[o] != SERIES_NONE || !series->required[o])
            continue;
        const double place =
            times->place == NULL ? 0 : times->place[sample] + (double)offset * series->step.size;
        good = false;
        at_end &= times->place == NULL || place < times->place[begin] - times->tolerance ||
                  place > times->place[end - 1] + times->tolerance;
    }
    if (!good) {
        left_out->count++;
        left_out->at_ends += at_end;
        if (!at_end && isnan(left_out->first))
            left_out->first = instant_of(series, sample);
    }
    return good;
}

static void left_out_log(const struct file_series *series, const struct left_out *left_out)
{
    const struct time_units *units = &series->file[0].units;
    const int64_t gaps = left_out->count - left_out->at_ends;
    char step[TIME_TEXT], first[TIME_TEXT], reason[2 * TIME_TEXT + 96];
    time_step_write(&series->step, units->has_date, step);
    time_write(units, left_out->first, first);
    if (gaps >= left_out->at_ends)
        snprintf(reason, sizeof reason, "%lld because of gaps in '%s', the first near %s",
                 (long long)gaps, series->name, first);
    else
        snprintf(reason, sizeof reason, "%lld at the ends of series", (long long)left_out->at_ends);
    log_info("offsets (@) count steps of %s in '%s': %lld of %lld samples are left out, %s", step,
             series->name, (long long)left_out->count, (long long)series->samples, reason);
}

static bool offsets_are_zero(const struct file_series *series)
{
    for (int o = 0; o < series->offset_count; o++)
        if (series->offset[o] != 0)
            return false;
    return true;
}

static void records_find(struct file_series *series, const struct distances *times)
{
    struct left_out left_out = {.first = (double)NAN};
    const size_t offsets = (size_t)series->offset_count;
    series->sample = allocate((size_t)series->samples * offsets, sizeof *series->sample);
    series->is_counted = true;
    for (int64_t begin = 0; begin < series->samples; begin = series_end(series, begin)) {
        const int64_t end = series_end(series, begin);
        for (int64_t n = begin; n < end; n++) {
            uint32_t *found = series->sample + (size_t)series->records * offsets;
            bool counted = true, good = record_find(series, times, begin, end, n, found, &left_out);
            for (size_t o = 0; o < offsets; o++) {
                const int64_t other = n + series->offset[o];
                counted &= series->required[o] ? other >= begin && other < end : true;
                series->is_counted &= found[o] == SERIES_NONE || found[o] == other;
            }
            series->is_counted &= good == counted;
            series->records += good;
        }
    }
    if (left_out.count > 0 && times->place != NULL)
        left_out_log(series, &left_out);
}

bool file_series_pair(struct file_series *series, struct error *error)
{
    struct distances times = {0};
    bool good = true, has_times = series->count > 0;
    for (int64_t f = 0; f < series->count; f++) {
        series->file[f].first = series->samples;
        series->samples += series->file[f].samples;
        has_times &= series->file[f].time != NULL;
    }
    if (series->samples >= SERIES_NONE)
        return error_set(error, ERROR_DATA, "%lld samples are more than the limit of 2^32",
                         (long long)series->samples);
    has_times &= !series->counts;
    if (has_times && (series->joined || !offsets_are_zero(series)))
        good = units_check(series, error) && order_check(series, error);
    if (good && has_times && !offsets_are_zero(series)) {
        times.place = allocate((size_t)series->samples, sizeof *times.place);
        times.distance = allocate((size_t)series->samples, sizeof *times.distance);
        good = step_find(series, &times) || step_refuse(series, &times, error);
    }
    if (good)
        records_find(series, &times);
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
