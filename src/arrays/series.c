// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/series.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/base.h"
#include "base/log.h"
#include "base/text.h"

enum { OFFSET_MOST = 1 << 30 };

bool series_offset_parse(const char *text, struct series_offset *offset)
{
    struct time_units unit = {.has_date = false};
    char *end;
    const long long count = strtoll(text, &end, 10);
    const bool has_unit = *end != '\0' && time_units_parse(end, "", &unit) && unit.seconds > 0;
    offset->seconds = (double)count * unit.seconds;
    offset->steps = has_unit ? (count > 0) - (count < 0) : count;
    return (*text == '+' || *text == '-') && isdigit((unsigned char)text[1]) &&
           (*end == '\0' || has_unit) && !unit.has_date && count <= OFFSET_MOST &&
           count >= -OFFSET_MOST;
}

int file_series_use(struct file_series *series, const struct series_offset *offset)
{
    int o = 0;
    while (o < series->offset_count && (series->offset[o].steps != offset->steps ||
                                        series->offset[o].seconds != offset->seconds))
        o++;
    if (o == SERIES_OFFSETS)
        return -1;
    const bool required = series->offset[o].required || offset->required;
    series->offset[o] = *offset;
    series->offset[o].required = required;
    series->offset_count = o == series->offset_count ? o + 1 : series->offset_count;
    return o;
}

int64_t file_series_ends(const struct file_series *series)
{
    int64_t before = 0, after = 0;
    for (int o = 0; o < series->offset_count; o++)
        if (series->offset[o].required) {
            before = larger(before, -series->offset[o].steps);
            after = larger(after, series->offset[o].steps);
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
    const int64_t number = sample - file->first;
    return file->time != NULL ? time_decode(&file->units, file->time[number])
           : file->run > 0    ? (double)(number % file->run)
                              : (double)sample;
}

/* Return the end of the series that has a sample. */
static int64_t series_end(const struct file_series *series, int64_t sample)
{
    const struct series_file *file = &series->file[file_of(series, sample)];
    return series->joined
               ? series->samples
               : file->first + round_up(sample + 1 - file->first, series_file_length(file));
}

/* ---- the step ---- */

static const struct {
    const char *name;
    double seconds;
} units[] = {{"day", TIME_DAY}, {"hour", 3600}, {"minute", 60}, {"second", 1}};

enum { UNITS = sizeof units / sizeof units[0], PERCENT_REGULAR = 95, LISTED = 3 };

/* Part of the step that distances of neighbours may differ from it: months have 28 to 31 days, and
 * times may be rounded. */
static const double tolerance = 0.25;

static int compare_doubles(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Set the error for times without a constant step: list the most frequent distances. */
static bool step_refuse(const struct file_series *series, double *distance, int64_t count,
                        struct error *error)
{
    const struct time_units *times = &series->file[0].units;
    const double total = (double)count;
    char list[LISTED * (TIME_TEXT + 16)] = "", text[TIME_TEXT];
    size_t used = 0;
    for (int n = 0; n < LISTED && count > 0; n++) {
        int64_t first = 0, most = 0; /* of the distances that are nearly equal to the first one */
        for (int64_t begin = 0, end = 0; begin < count; begin++) {
            while (end < count && distance[end] <= distance[begin] * (1 + tolerance / 2))
                end++;
            if (end - begin > most) {
                first = begin;
                most = end - begin;
            }
        }
        const struct time_step step = {.size = distance[first + most / 2]};
        time_step_write(&step, times->has_date || times->seconds > 0, text);
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s (%.3g %%)",
                                 n > 0 ? ", " : "", text, 100 * (double)most / total);
        count -= most;
        memmove(distance + first, distance + first + most,
                (size_t)(count - first) * sizeof *distance);
    }
    return error_set(error, ERROR_DATA,
                     "%s: '%s' has no constant step for offsets (@): its distances are %s%s; use "
                     "regular times, or set data.coordinates=ignore to count samples",
                     series->file[0].path, series->name, list, count > 0 ? ", ..." : "");
}

/* Set the step: the mean of the distances of neighbours that are nearly equal to their median; in
 * months if all these are the same number of months. Without neighbours it stays unknown, and so it
 * does if less than 95 % of the distances are regular, which is an error if a step is required. */
static bool step_find(struct file_series *series, const double *instant, bool required,
                      struct error *error)
{
    OWNED double *distance = allocate((size_t)series->samples, sizeof *distance);
    const struct time_units *first = &series->file[0].units;
    int64_t count = 0, begin = 0, end, months = -1;
    double sum = 0;
    for (int64_t n = 1; n < series->samples; n++)
        if (n < series_end(series, n - 1))
            distance[count++] = instant[n] - instant[n - 1];
    if (count == 0)
        return true;
    qsort(distance, (size_t)count, sizeof *distance, compare_doubles);
    const double median = distance[(count - 1) / 2];
    while (distance[begin] < (1 - tolerance) * median)
        begin++;
    for (end = begin; end < count && distance[end] <= (1 + tolerance) * median; end++)
        sum += distance[end];
    const int64_t regular = end - begin;
    struct time_step step = {.size = sum / (double)regular};
    for (int64_t n = 1; n < series->samples && first->has_date && median > 27 * TIME_DAY; n++) {
        const enum time_calendar calendar = series->file[file_of(series, n)].units.calendar;
        const int64_t between =
            time_month(calendar, instant[n]) - time_month(calendar, instant[n - 1]);
        if (n < series_end(series, n - 1) &&
            fabs(instant[n] - instant[n - 1] - median) <= tolerance * median)
            months = months < 0 || months == between ? between : 0;
    }
    step.months = (int)larger(months, 0);
    /* The mean has the error of the first and the last time, which may be rounded. */
    const double error_of_mean =
        1e-6 * step.size + (distance[end - 1] - distance[begin]) / (double)regular;
    for (int n = UNITS; n-- > 0 && step.months == 0;) {
        const double whole = rint(step.size / units[n].seconds) * units[n].seconds;
        if (whole > 0 && fabs(step.size - whole) <= error_of_mean)
            step.size = whole;
    }
    if (regular * 100 >= count * PERCENT_REGULAR) {
        series->step = step;
        return true;
    }
    return !required || step_refuse(series, distance, count, error);
}

void time_step_write(const struct time_step *step, bool has_date, char text[TIME_TEXT])
{
    size_t n = 0;
    while (n < UNITS - 1 && fabs(remainder(step->size, units[n].seconds)) > 1e-3)
        n++;
    const double count = step->months > 0 ? step->months : step->size / units[n].seconds;
    if (!has_date)
        snprintf(text, TIME_TEXT, "%.6g", step->size);
    else
        snprintf(text, TIME_TEXT, "%.6g %s%s", count, step->months > 0 ? "month" : units[n].name,
                 fabs(count - 1) < 1e-6 ? "" : "s");
}

bool time_step_agrees(const struct time_step *one, const struct time_step *other)
{
    return one->size <= 0 || other->size <= 0 || fabs(one->size - other->size) <= 0.1 * other->size;
}

/* ---- the order ---- */

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

/* Return the instant at an offset from a sample. NAN: the step is not known. */
static double instant_after(const struct file_series *series, int64_t sample, int offset)
{
    const double instant = instant_of(series, sample);
    const int64_t steps = series->offset[offset].steps;
    if (series->offset[offset].seconds != 0)
        return instant + series->offset[offset].seconds;
    if (series->step.months > 0)
        return time_add_months(series->file[file_of(series, sample)].units.calendar, instant,
                               steps * series->step.months);
    return series->step.size > 0 ? instant + (double)steps * series->step.size : (double)NAN;
}

/* Return the sample of the series [begin, end) that is the nearest to a place, or SERIES_NONE. */
static uint32_t neighbour_find(const double *place, double step, int64_t begin, int64_t end,
                               double wanted)
{
    int64_t low = begin, high = end; /* the first sample that is not before the place */
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (place[middle] < wanted - tolerance * step)
            low = middle + 1;
        else
            high = middle;
    }
    if (low + 1 < end && fabs(place[low + 1] - wanted) < fabs(place[low] - wanted))
        low++;
    return low < end && place[low] <= wanted + tolerance * step ? (uint32_t)low : SERIES_NONE;
}

/* Find the samples of all records. With `timed`, the places are instants. Return the number of
 * other samples that only lack neighbours before the begin or after the end of their series. */
static int64_t records_find(struct file_series *series, const double *place, bool timed)
{
    const double step = timed ? series->step.size : 1;
    const int offsets = series->offset_count;
    int64_t ends = 0;
    free(series->sample);
    series->sample = allocate((size_t)(series->samples * offsets), sizeof *series->sample);
    for (int64_t n = 0, begin = 0, end = 0; n < series->samples; n++) {
        begin = n == end ? n : begin;
        end = series_end(series, begin);
        uint32_t *found = series->sample + series->records * offsets;
        bool good = true, at_end = true;
        for (int o = 0; o < offsets; o++) {
            const int64_t steps = series->offset[o].steps;
            const double wanted = timed ? instant_after(series, n, o) : (double)(n + steps);
            found[o] = steps == 0 ? (uint32_t)n : neighbour_find(place, step, begin, end, wanted);
            if (found[o] != SERIES_NONE || !series->offset[o].required)
                continue;
            good = false;
            at_end &= wanted < place[begin] || wanted > place[end - 1];
        }
        series->records += good;
        ends += !good && at_end;
    }
    return ends;
}

/* Return why samples have no times, or no dates, for messages; NULL: they have. */
static const char *untimed(const struct file_series *series, bool needs_dates)
{
    const struct time_units *times = &series->file[0].units;
    for (int64_t f = 0; f < series->count; f++)
        if (series->counts || series->is_mixed || series->file[f].time == NULL)
            return series->counts     ? "data.coordinates=ignore counts samples"
                   : series->is_mixed ? "times of the files cannot be compared"
                                      : "the samples have no times";
    return times->has_date || (!needs_dates && times->seconds > 0)
               ? NULL
               : "the times have no units, such as hours since 2000-01-01";
}

/* Divide the offsets in seconds by the step, if it is known. */
static bool seconds_divide(struct file_series *series, struct error *error)
{
    const struct time_step *step = &series->step;
    const char *fault = untimed(series, false);
    char text[TIME_TEXT], step_text[TIME_TEXT];
    for (int o = 0; o < series->offset_count; o++) {
        struct series_offset *offset = &series->offset[o];
        const double steps = step->size > 0 ? rint(offset->seconds / step->size) : 0;
        if (offset->seconds == 0)
            continue;
        if (fault != NULL)
            return error_set(error, ERROR_DATA,
                             "%s: offsets with a unit of time, as in u@+6h, cannot be used: %s; "
                             "count steps, as in u@+1",
                             series->file[0].path, fault);
        if (step->months == 0 && steps != 0 &&
            fabs(offset->seconds - steps * step->size) <= 0.01 * step->size) {
            offset->steps = (int64_t)steps;
        } else if (offset->required && step->size > 0) {
            time_step_write(&(struct time_step){.size = fabs(offset->seconds)}, true, text);
            time_step_write(step, true, step_text);
            return error_set(
                error, ERROR_DATA,
                "%s: an offset (@) of %s is not a multiple of the step of '%s', which is "
                "%s; use a multiple, or count steps, as in u@+1",
                series->file[0].path, text, series->name, step_text);
        }
    }
    return true;
}

bool file_series_pair(struct file_series *series, bool logs, struct error *error)
{
    bool has_offsets = false;
    int64_t timed = 0;
    series->samples = series->records = 0;
    for (int64_t f = 0; f < series->count; f++) {
        series->file[f].first = series->samples;
        series->samples += series->file[f].samples;
        timed += series->file[f].time != NULL;
    }
    for (int o = 0; o < series->offset_count; o++)
        has_offsets |= series->offset[o].steps != 0;
    const bool has_times = timed > 0 && timed == series->count, used = has_times && !series->counts;
    const bool steps = used && has_offsets; /* offsets are steps of time */
    if (series->samples >= SERIES_NONE)
        return error_set(error, ERROR_DATA, "%lld samples are more than the limit of 2^32",
                         (long long)series->samples);
    for (int64_t f = 0; timed > 0 && !has_times && series->is_ordered && f < series->count; f++)
        if (series->file[f].time == NULL)
            return error_set(error, ERROR_DATA,
                             "%s has no times '%s', which other files have: write them, or set "
                             "data.coordinates=ignore to count samples",
                             series->file[f].path, series->name);
    for (int64_t f = 1; has_times && !series->is_mixed && f < series->count; f++) {
        struct series_file *file = series->file;
        if (time_units_comparable(&file[0].units, &file[f].units))
            continue;
        error_set(error, ERROR_DATA,
                  "%s: the units or the calendar of '%s' cannot be compared with those in %s: "
                  "write the same in all files",
                  file[f].path, series->name, file[0].path);
        if (series->is_ordered)
            return false;
        log_warn("predictions have no times: %s", error->text);
        error_clear(error);
        series->is_mixed = true;
        break;
    }
    if (used && (series->joined || has_offsets) && !order_check(series, error))
        return false;
    OWNED double *place = allocate((size_t)series->samples, sizeof *place);
    for (int64_t n = 0; n < series->samples; n++)
        place[n] = steps ? instant_of(series, n) : (double)n;
    if (steps && series->step.size <= 0 &&
        !step_find(series, place, file_series_ends(series) > 0, error))
        return false;
    if (!seconds_divide(series, error))
        return false;
    const int64_t at_ends = records_find(series, place, steps);
    const int64_t left_out = series->samples - series->records, at_gaps = left_out - at_ends;
    if (logs && steps && series->step.size > 0 && left_out > 0) {
        const struct time_units *times = &series->file[0].units;
        char step[TIME_TEXT];
        time_step_write(&series->step, times->has_date || times->seconds > 0, step);
        log_info("offsets (@) count steps of %s in '%s': %lld of %lld samples are left out, %lld "
                 "of them at %s",
                 step, series->name, (long long)left_out, (long long)series->samples,
                 (long long)larger(at_ends, at_gaps),
                 at_ends >= at_gaps ? "the ends of series" : "gaps");
    }
    return true;
}

/* ---- records ---- */

/* Return a record's sample at an offset, numbered over all files, or SERIES_NONE. */
static uint32_t sample_at(const struct file_series *series, int64_t record, int offset)
{
    return series->sample[record * series->offset_count + offset];
}

int64_t file_series_find(const struct file_series *series, int64_t record, int offset,
                         int64_t *sample)
{
    const uint32_t number = sample_at(series, record, offset);
    if (number == SERIES_NONE)
        return -1;
    const int64_t file = file_of(series, number);
    *sample = number - series->file[file].first;
    return file;
}

double file_series_instant(const struct file_series *series, int64_t record, int offset)
{
    const uint32_t number = sample_at(series, record, offset);
    return number != SERIES_NONE ? instant_of(series, number)
                                 : instant_after(series, sample_at(series, record, 0), offset);
}

double file_series_time(const struct file_series *series, int64_t record, int offset)
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

bool file_series_find_periods(const struct file_series *series, const char *periods, bool *held,
                              struct error *error)
{
    static const double rounding = 5e-4; /* of times that are not whole seconds */
    const struct time_units *times = &series->file[0].units;
    const char *fault = untimed(series, true);
    double range[2], first = (double)INFINITY, last = (double)-INFINITY;
    char from[TIME_TEXT], to[TIME_TEXT];
    int64_t total = 0;
    size_t length;
    if (fault != NULL)
        return error_set(error, ERROR_DATA,
                         "%s: data.val=%s cannot be used: %s; hold out a fraction, as in "
                         "data.val=0.1",
                         series->file[0].path, periods, fault);
    for (const char *item = text_next_item(periods, &length); item != NULL;
         item = text_next_item(item + length, &length)) {
        const bool is_period = time_period_parse(times->calendar, item, length, range);
        int64_t inside = 0;
        for (int64_t r = 0; r < series->records; r++) {
            const double instant = file_series_instant(series, r, 0), place = instant + rounding;
            const bool is_inside = is_period && place >= range[0] && place < range[1];
            first = fmin(first, instant);
            last = fmax(last, instant);
            inside += is_inside;
            total += is_inside && !held[r];
            held[r] = held[r] || is_inside;
        }
        if (inside > 0 && total < series->records)
            continue;
        time_write(times, first, from);
        time_write(times, last, to);
        return error_set(
            error, ERROR_USAGE,
            "data.val=%s: '%.*s' %s; choose a part of the times, which are %s to %s", periods,
            (int)length, item,
            !is_period    ? "is not a period in the calendar of the files, as 2019-07-31T06..2020"
            : inside == 0 ? "holds out no sample"
                          : "leaves no training sample",
            from, to);
    }
    return true;
}

void file_series_close(struct file_series *series)
{
    free(series->file);
    free(series->sample);
    *series = (struct file_series){0};
}
