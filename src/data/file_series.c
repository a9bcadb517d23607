// SPDX-License-Identifier: BSD-3-Clause
#include "data/file_series.h"

#include "core/allocate.h"
#include "core/integer.h"

/* Number of records of a series of `samples` samples. */
static int64_t records_of(const struct file_series *series, int64_t samples)
{
    return larger(0, samples - series->before - series->after);
}

bool file_series_add(struct file_series *series, int64_t samples)
{
    const int64_t earlier = series->joined ? series->samples : 0;
    const int64_t begin = records_of(series, earlier);
    const struct series_file file = {.first = series->records,
                                     .count = records_of(series, earlier + samples) - begin,
                                     .sample = begin + series->before - earlier,
                                     .samples = samples};
    series->file =
        allocate_more(series->file, &series->capacity, (size_t)series->count, sizeof file);
    series->file[series->count++] = file;
    series->samples += samples;
    series->records += file.count;
    return series->joined || samples >= series->before + series->after;
}

struct arrays_part file_series_part(const struct file_series *series, int64_t number,
                                    int64_t offset)
{
    const struct series_file *file = &series->file[number];
    const int64_t zero = file->first - file->sample - offset; /* the record of sample 0 */
    const int64_t begin = series->joined ? 0 : file->first;
    const int64_t end = series->joined ? series->records : file->first + file->count;
    const int64_t first = integer_clamp(zero, begin, end);
    const int64_t last = integer_clamp(zero + file->samples, begin, end);
    return (struct arrays_part){.first = first,
                                .count = last - first,
                                .sample = larger(0, first - zero),
                                .beyond =
                                    series->joined && number < series->count - 1 ? 0 : end - last};
}

int64_t file_series_find(const struct file_series *series, int64_t record, int64_t offset,
                         int64_t *sample)
{
    int64_t low = 0, high = series->count - 1;
    while (low < high) {
        const int64_t middle = (low + high + 1) / 2;
        if (series->file[middle].first <= record)
            low = middle;
        else
            high = middle - 1;
    }
    *sample = record - series->file[low].first + series->file[low].sample + offset;
    while (*sample < 0)
        *sample += series->file[--low].samples;
    while (*sample >= series->file[low].samples) {
        *sample -= series->file[low++].samples;
        if (!series->joined || low == series->count)
            return -1;
    }
    return low;
}
