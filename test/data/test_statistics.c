// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 3
/* Statistics of float32 records: those of the definition, the same bits on any number of ranks and
 * threads; missing, infinite, huge and constant values. */
#include "data/dataset.h"
#include "model_fixture.h"
#include "test.h"

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
                       struct error *error)
{
    (void)error;
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

static bool compute(struct comm *comm, int threads, struct channel_values *mean,
                    struct channel_values *std, struct error *error)
{
    struct value_statistics statistics = {.mean = {.count = 0}};
    const bool good = statistics_compute(&probe, comm, threads, &statistics, error);
    *mean = statistics.mean;
    *std = statistics.std;
    return good;
}

TEST(statistics_are_those_of_the_values)
{
    struct error error = {0};
    struct channel_values mean, std, again[2];
    special = 1;
    assert_true(compute(world, 1, &mean, &std, &error));
    assert_int_equal(mean.count, CHANNELS);
    assert_int_equal(std.count, CHANNELS);
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
        assert_true(fabs(mean.value[c] - sum / count) <= 1e-12 * fabs(sum / count));
        assert_true(fabs(std.value[c] - deviation) <= 1e-9 * deviation);
    }
    assert_true(mean.value[3] == 7 && std.value[3] == 1 && mean.value[4] == 0 && std.value[4] == 1);
    for (int threads = 2; threads < 40; threads += 9) {
        assert_true(compute(world, threads, &again[0], &again[1], &error));
        assert_memory_equal(&again[0], &mean, sizeof mean);
        assert_memory_equal(&again[1], &std, sizeof std);
    }
}

/* The same record, whose last three channels are targets. */
TEST(targets_have_statistics)
{
    struct error error = {0};
    struct channel_values mean, std;
    struct value_statistics statistics;
    struct dataset targets = probe;
    targets.channels = 2;
    targets.target = (struct target_shape){CHANNELS - 2, SIDE, SIDE};
    special = 1;
    assert_true(compute(world, 1, &mean, &std, &error));
    for (int normalised = 0; normalised < 2; normalised++) {
        targets.target_normalised = normalised;
        assert_true(statistics_compute(&targets, world, 2, &statistics, &error));
        assert_int_equal(statistics.mean.count, 2);
        assert_int_equal(statistics.target_std.count, normalised ? CHANNELS - 2 : 0);
    }
    assert_memory_equal(statistics.mean.value, mean.value, 2 * sizeof(double));
    assert_memory_equal(statistics.target_mean.value, mean.value + 2,
                        (CHANNELS - 2) * sizeof(double));
    assert_memory_equal(statistics.target_std.value, std.value + 2,
                        (CHANNELS - 2) * sizeof(double));
}

/* The first channel of doubles, whose values differ from the tenth digit on. */
TEST(wide_values_keep_their_variance)
{
    struct error error = {0};
    struct channel_values mean[3], std[3];
    special = 1;
    assert_true(compute(world, 2, &mean[0], &std[0], &error));
    far = 1e12;
    assert_true(compute(world, 2, &mean[1], &std[1], &error));
    assert_true(std[1].value[0] == 1); /* float32 does not show them */
    probe.channel_is_wide[0] = true;
    assert_true(compute(world, 2, &mean[2], &std[2], &error));
    assert_true(fabs(mean[2].value[0] - far - mean[0].value[0]) <= 1e-3);
    assert_true(fabs(std[2].value[0] - std[0].value[0]) <= 1e-3 * std[0].value[0]);
    assert_true(probe.channel_origin[0] > far && probe.channel_origin[1] == 0);
    assert_memory_equal(&mean[2].value[1], &mean[0].value[1], (CHANNELS - 1) * sizeof(double));
    far = 0;
    probe.channel_is_wide[0] = false;
    assert_true(dataset_set_origins(&probe, &(struct value_statistics){.mean = mean[2]}, &error));
    assert_false(dataset_has_origins(&probe));
}

TEST(all_ranks_have_the_bits_of_one)
{
    struct error error = {0};
    struct channel_values mean[2], std[2];
    struct comm *alone = world->backend->split(world, world->rank, 0);
    special = 1;
    assert_true(compute(world, 2, &mean[0], &std[0], &error));
    assert_true(compute(alone, 3, &mean[1], &std[1], &error));
    assert_memory_equal(&mean[0], &mean[1], sizeof mean[0]);
    assert_memory_equal(&std[0], &std[1], sizeof std[0]);
    alone->backend->close(alone);
}

TEST(infinite_and_huge_values)
{
    struct error error = {0};
    struct channel_values mean, std;
    special = -INFINITY;
    assert_false(compute(world, 2, &mean, &std, &error));
    if (strstr(error.text, "record 11: channel 1 has an infinite or too large value") == NULL)
        fail_msg("%s", error.text);
    error_clear(&error);
    special = 3e38f;
    assert_true(compute(world, 2, &mean, &std, &error));
    assert_true(isfinite(std.value[1]) && std.value[1] > 1e36);
}

TEST_MAIN_WORLD()
