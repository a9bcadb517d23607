// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 3
/* Statistics of float32 records: those of the definition, the same bits on any number of ranks and
 * threads; missing, infinite, huge and constant values. */
#include "data/dataset.h"
#include "model_fixture.h"

enum { SAMPLES = 23, CHANNELS = 5, SIDE = 7, PLANE = SIDE * SIDE };

static float special = 1; /* value of the first pixel of record 11, channel 1 */
static double far;        /* added to channel 0 */

/* Channel 0 is far from zero, channel 3 constant and channel 4 missing. */
static float value_at(int64_t record, int64_t channel, int64_t i)
{
    const int64_t number = (record * 7919 + i * 104729 + channel * 31) % 1009;
    if (record == 11 && channel == 1 && i == 0)
        return special;
    if (channel == 3)
        return 7;
    if (channel == 4 || number % 50 == 0)
        return NAN;
    return channel == 0 ? 1e6f + (float)number / 1009
                        : ldexpf((float)(number - 300), 4 * (int)channel);
}

static bool probe_read(const struct dataset *dataset, int64_t record, void *values,
                       struct error *failure)
{
    (void)failure;
    for (int64_t i = 0; i < CHANNELS * PLANE; i++) {
        const double value = (double)value_at(record, i / PLANE, i % PLANE);
        ((float *)values)[i] =
            (float)(value + (i < PLANE ? far : 0) - dataset->channel_origin[i / PLANE]);
    }
    return true;
}

static const struct dataset_format probe_format = {.name = "probe", .read = probe_read};
static struct dataset probe = {.format = &probe_format,
                               .type = DATASET_FLOAT32,
                               .count = SAMPLES,
                               .channels = CHANNELS,
                               .height = SIDE,
                               .width = SIDE};

static struct value_statistics statistics_of(struct dataset *dataset, struct comm *comm,
                                             int threads)
{
    struct value_statistics statistics = {.mean = {.count = 0}};
    error_clear(&error);
    assert_ok(statistics_compute(dataset, comm, threads, &statistics, &error), &error);
    return statistics;
}

TEST(statistics_are_those_of_the_values)
{
    special = 1;
    const struct value_statistics found = statistics_of(&probe, world, 1);
    const double *mean = found.mean.value, *std = found.std.value;
    assert_int_equal(found.mean.count, CHANNELS);
    assert_int_equal(found.std.count, CHANNELS);
    for (int64_t c = 0; c < 3; c++) {
        double sum = 0, squares = 0, count = 0;
        for (int pass = 0; pass < 2; pass++)
            for (int64_t i = 0; i < SAMPLES * PLANE; i++) {
                const double value = (double)value_at(i / PLANE, c, i % PLANE);
                if (isnan(value))
                    continue;
                if (pass == 0) {
                    sum += value;
                    count++;
                } else {
                    squares += (value - sum / count) * (value - sum / count);
                }
            }
        const double deviation = sqrt(squares / count);
        assert_true(fabs(mean[c] - sum / count) <= 1e-12 * fabs(sum / count));
        assert_true(fabs(std[c] - deviation) <= 1e-9 * deviation);
    }
    assert_true(mean[3] == 7 && std[3] == 1 && mean[4] == 0 && std[4] == 1);
    for (int threads = 2; threads < 40; threads += 9) {
        const struct value_statistics again = statistics_of(&probe, world, threads);
        assert_memory_equal(&again, &found, sizeof found);
    }
}

/* The same record, whose last three channels are targets. */
TEST(targets_have_statistics)
{
    enum { TARGETS = 3, PIXELS = CHANNELS - TARGETS };
    struct dataset targets = probe;
    targets.channels = PIXELS;
    targets.target = (struct target_shape){TARGETS, SIDE, SIDE};
    special = 1;
    const struct value_statistics all = statistics_of(&probe, world, 1);
    assert_int_equal(statistics_of(&targets, world, 2).target_std.count, 0);
    targets.target_normalised = true;
    const struct value_statistics found = statistics_of(&targets, world, 2);
    assert_int_equal(found.mean.count, PIXELS);
    assert_int_equal(found.target_std.count, TARGETS);
    assert_memory_equal(found.mean.value, all.mean.value, PIXELS * sizeof(double));
    assert_memory_equal(found.target_mean.value, all.mean.value + PIXELS, TARGETS * sizeof(double));
    assert_memory_equal(found.target_std.value, all.std.value + PIXELS, TARGETS * sizeof(double));
}

/* The first channel of doubles, whose values differ from the tenth digit on. */
TEST(wide_values_keep_their_variance)
{
    special = 1;
    const struct value_statistics near = statistics_of(&probe, world, 2);
    far = 1e12;
    /* float32 does not show the differences. */
    assert_true(statistics_of(&probe, world, 2).std.value[0] == 1);
    probe.channel_is_wide[0] = true;
    const struct value_statistics wide = statistics_of(&probe, world, 2);
    assert_true(fabs(wide.mean.value[0] - far - near.mean.value[0]) <= 1e-3);
    assert_true(fabs(wide.std.value[0] - near.std.value[0]) <= 1e-3 * near.std.value[0]);
    assert_true(probe.channel_origin[0] > far && probe.channel_origin[1] == 0);
    assert_memory_equal(&wide.mean.value[1], &near.mean.value[1], (CHANNELS - 1) * sizeof(double));
    far = 0;
    probe.channel_is_wide[0] = false;
    assert_true(dataset_set_origins(&probe, &wide, &error));
    assert_false(dataset_has_origins(&probe));
}

TEST(all_ranks_have_the_bits_of_one)
{
    struct comm *alone = world->backend->split(world, world->rank, 0);
    special = 1;
    const struct value_statistics together = statistics_of(&probe, world, 2);
    const struct value_statistics single = statistics_of(&probe, alone, 3);
    assert_memory_equal(&together, &single, sizeof single);
    alone->backend->close(alone);
}

TEST(infinite_and_huge_values)
{
    struct value_statistics statistics;
    special = -INFINITY;
    assert_false(statistics_compute(&probe, world, 2, &statistics, &error));
    assert_has(error.text, "record 11: channel 1 has an infinite or too large value");
    special = 3e38f;
    statistics = statistics_of(&probe, world, 2);
    assert_true(isfinite(statistics.std.value[1]) && statistics.std.value[1] > 1e36);
}

TEST_MAIN_WORLD()
