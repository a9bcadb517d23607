// SPDX-License-Identifier: BSD-3-Clause
/* Learning rates compared with torch.optim.lr_scheduler (vectors/make_schedule.py): every
 * schedule, by step and by epoch, with and without warm-up. */
#include "train/optimizer.h"

#include "options/options.h"
#include "test.h"
#include "vector_file.h"

/* As in make_schedule.py. */
enum { STEPS_PER_EPOCH = 4 };
static const double rate = 0.02, momentum = 0.9;

static void assert_close(double got, double expected, const char *name, int64_t step)
{
    if (!(fabs(got - expected) <= 1e-13 + 1e-11 * fabs(expected)))
        fail_msg("%s, step %d: %.17g, torch has %.17g", name, (int)step, got, expected);
}

static const double *vector(const struct vector_file *file, const char *name, const char *part,
                            int64_t *count)
{
    char key[128];

    snprintf(key, sizeof key, "%s.%s", name, part);
    return vector_file_has(file, key) ? vector_file_doubles(file, key, count) : NULL;
}

static void check_case(const struct vector_file *file, const char *name)
{
    struct options options;
    struct schedule schedule;
    int64_t steps;
    const double *rates = vector(file, name, "rates", &steps);
    const double *momenta = vector(file, name, "momenta", &steps);
    const double *values = vector(file, name, "values", &steps);

    settings_set(&options, vector_file_text(file, name));
    schedule_open(&schedule, &options, rate, STEPS_PER_EPOCH, steps);
    for (int64_t step = 0; step < steps; step++) {
        assert_close(schedule_rate(&schedule, step), rates[step], name, step);
        assert_close(schedule_momentum(&schedule, step, momentum), momenta[step], name, step);
        if (values != NULL)
            schedule_observe(&schedule, values[step], strstr(name, "min") != NULL);
    }
}

TEST(rates_are_torchs)
{
    VECTOR_FILE(file, "schedule.safetensors");
    char names[2048];
    int cases = 0;

    snprintf(names, sizeof names, "%s", vector_file_text(file, "cases"));
    for (char *rest, *name = strtok_r(names, " ", &rest); name != NULL;
         name = strtok_r(NULL, " ", &rest), cases++)
        check_case(file, name);
    assert_int_equal(cases, 26);
}

/* The warm-ups of the vectors are shorter. */
TEST(a_warmup_longer_than_the_run_rises_to_its_end)
{
    struct options options;
    struct schedule schedule;
    settings_set(&options, "schedule.name=cosine schedule.warmup=100");
    schedule_open(&schedule, &options, 1, 5, 10);
    assert_close(schedule_rate(&schedule, 0), 0.01, "warm-up of 100 steps", 0);
    assert_close(schedule_rate(&schedule, 9), 0.1, "warm-up of 100 steps", 9);
}

/* After the last step of the schedule the rate is constant. */
TEST(rates_stay_finite_at_the_ends)
{
    static const char *const names[] = {"constant", "cosine", "step", "onecycle", "linear"};
    static const int64_t lengths[] = {1, 2, 3, 4};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (size_t j = 0; j < sizeof lengths / sizeof lengths[0]; j++) {
            struct options options;
            struct schedule schedule;
            char assignment[64];

            snprintf(assignment, sizeof assignment, "schedule.name=%s schedule.pct_start=0.5",
                     names[i]);
            settings_set(&options, assignment);
            schedule_open(&schedule, &options, 1, 1, lengths[j]);
            for (int64_t step = 0; step < lengths[j] + 2; step++) {
                double value = schedule_rate(&schedule, step);
                assert_true(isfinite(value) && value >= 0 && value <= 1);
                assert_true(schedule_momentum(&schedule, step, 0) == 0);
                assert_true(isfinite(schedule_momentum(&schedule, step, 0.9)));
            }
        }
}

/* onecycle also moves beta1 of Adam, which has no momentum; check_case checks the values. */
TEST(onecycle_moves_beta1)
{
    struct options options;
    struct optimizer optimizer;
    struct schedule schedule;

    settings_set(&options, "optim.name=adam schedule.name=onecycle schedule.pct_start=0.5");
    schedule_open(&schedule, &options, 1, 1, 20);
    optimizer_open(&optimizer, &options);
    optimizer_set_momentum(&optimizer, &schedule, 9);
    const struct step_params params = optimizer_params(&optimizer, 0.25, 9);
    assert_true(params.beta1 == 0.85 && params.momentum == 0);
}

TEST(plateau_needs_a_first_value)
{
    struct options options;
    struct schedule schedule;

    settings_set(&options, "schedule.name=plateau schedule.patience=0 schedule.factor=0.1 "
                           "schedule.warmup=2");
    schedule_open(&schedule, &options, 1, 1, 10);
    assert_true(isnan(schedule.plateau_best));
    schedule_observe(&schedule, 3, true);
    assert_true(schedule.plateau_best == 3);
    schedule_observe(&schedule, NAN, true); /* NaN is not an improvement */
    assert_close(schedule_rate(&schedule, 5), 0.1, "plateau", 5);
    assert_close(schedule_rate(&schedule, 0), 0.05, "plateau in warm-up", 0);
}

TEST(rate_is_scaled_by_the_global_batch)
{
    static const struct {
        const char *scale;
        double rate;
    } rows[] = {{"none", 0.1}, {"linear", 0.4}, {"sqrt", 0.2}};
    for (int i = 0; i < 3; i++) {
        struct options options;
        char words[128];
        snprintf(words, sizeof words, "optim.lr=0.1 optim.lr_batch=256 optim.lr_scale=%s",
                 rows[i].scale);
        settings_set(&options, words);
        assert_close(schedule_base_rate(&options, 1024), rows[i].rate, rows[i].scale, 0);
    }
}

TEST_MAIN()
