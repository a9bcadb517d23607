// SPDX-License-Identifier: BSD-3-Clause
/* Records of several files, each on its own or as one series, against a list of all samples. */
#include "data/file_series.h"
#include "test.h"

enum { FILES = 5, BEFORE = 2, AFTER = 1, MOST = 64 };

static const int64_t samples[FILES] = {5, 4, 7, 3, 6};

/* List the file and the sample of each record without an offset. Return their number. */
static int64_t records_list(bool joined, int64_t file[MOST], int64_t sample[MOST])
{
    int64_t all = 0, count = 0, total = 0;
    for (int f = 0; f < FILES; f++)
        total += samples[f];
    for (int64_t f = 0; f < FILES; f++)
        for (int64_t s = 0; s < samples[f]; s++, all++) {
            const int64_t place = joined ? all : s, end = joined ? total : samples[f];
            if (place < BEFORE || place >= end - AFTER)
                continue;
            file[count] = f;
            sample[count++] = s;
        }
    return count;
}

TEST(records_have_the_samples_of_the_list)
{
    for (int joined = 0; joined < 2; joined++) {
        struct file_series series = {.joined = joined, .before = BEFORE, .after = AFTER};
        int64_t file[MOST], sample[MOST], found;
        for (int f = 0; f < FILES; f++)
            assert_true(file_series_add(&series, samples[f]));
        assert_int_equal(series.records, records_list(joined, file, sample));
        for (int64_t r = 0; r < series.records; r++)
            for (int64_t offset = -BEFORE; offset <= AFTER; offset++) {
                int64_t f = file[r], s = sample[r] + offset;
                for (; s < 0; s += samples[f])
                    f--;
                for (; s >= samples[f]; f++)
                    s -= samples[f];
                assert_int_equal(file_series_find(&series, r, offset, &found), f);
                assert_int_equal(found, s);
                const struct arrays_part part = file_series_part(&series, f, offset);
                assert_true(r >= part.first && r < part.first + part.count);
                assert_int_equal(part.sample + r - part.first, s);
            }
        free(series.file);
    }
}

TEST(values_after_the_end)
{
    struct file_series series = {.joined = true};
    int64_t sample;
    assert_true(file_series_add(&series, 2) && file_series_add(&series, 3));
    assert_int_equal(file_series_find(&series, 3, 1, &sample), 1);
    assert_int_equal(file_series_find(&series, 3, 2, &sample), -1);
    assert_int_equal(file_series_part(&series, 1, 2).beyond, 2);
    assert_int_equal(file_series_part(&series, 0, 2).beyond, 0);
    free(series.file);
    series = (struct file_series){.before = 2, .after = 2};
    assert_false(file_series_add(&series, 3));
    free(series.file);
}

int main(void)
{
    return TESTS_RUN();
}
