// SPDX-License-Identifier: BSD-3-Clause
/* The search space of a sweep: parsing of keys, values and ranges, and errors that name them; the
 * grid; suggestions, which depend only on the seed; densities, which equal Optuna's
 * (test/vectors/make_tpe.py). The estimator finds better points than random search. */
#include "config/options.h"
#include "test.h"
#include "tools/sweep/sweep_space.h"
#include "tools/sweep/sweep_tpe.h"

static void space_make(struct sweep_space *space, const char *const *words)
{
    memset(space, 0, sizeof *space);
    for (; *words != NULL; words++) {
        struct error error = {0};
        bool varies;
        assert_ok(sweep_space_add(space, *words, &varies, &error), &error);
        assert_true(varies);
    }
}

static void word_fails(const char *word, const char *pattern)
{
    struct sweep_space space = {0};
    struct error error = {0};
    bool varies, good = sweep_space_add(&space, "optim.alpha=0,0.1", &varies, &error);
    assert_true(good);
    if (sweep_space_add(&space, word, &varies, &error))
        fail_msg("%s is taken", word);
    assert_has(error.text, pattern);
    assert_int_equal(error.kind, ERROR_USAGE);
    sweep_space_free(&space);
}

TEST(words_that_are_wrong)
{
    word_fails("optim.rl=1,2", "did you mean optim.lr");
    word_fails("optim.lr=1,-2", "optim.lr=-2: must be");
    word_fails("optim.lr=1,two", "optim.lr=two: must be");
    word_fails("optim.name=sgd,adamant", "must be sgd, adam, adamw, rmsprop,");
    word_fails("optim.lr=1,,2", "values is empty");
    word_fails("optim.lr=,", "values is empty");
    word_fails("optim.lr=0.1,1e-1", "0.1 is given twice");
    word_fails("optim.lr=1..0.1", "not below");
    word_fails("optim.lr=0..0.1:log", "must be positive");
    word_fails("optim.lr=1..2:loq", "LOW..HIGH:log");
    word_fails("optim.lr=1..2:1", "LOW..HIGH:log");
    word_fails("optim.lr=..2", "are not numbers");
    word_fails("optim.momentum=0.5..1", "optim.momentum=1: must be");
    word_fails("train.batch=0..8", "train.batch=0: must be");
    word_fails("train.batch=1.5..8", "train.batch=1.5: must be");
    word_fails("model.depth=2..4:9", "is given twice");
    word_fails("optim.betas=0.9,0.99;0.9", "2 numbers");
    word_fails("optim.alpha=0.2,0.3", "varies twice");
    word_fails("run.dir=a,b", "one value");
    word_fails("sweep.seed=1,2", "one value");
}

TEST(words_that_do_not_vary)
{
    static const char *const words[] = {"optim.lr=1", "optim.betas=0.9,0.99", "data.root=../x",
                                        "run.dir=a", "optim.freeze+=,stem"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        struct sweep_space space = {0};
        struct error error = {0};
        bool varies;
        assert_true(sweep_space_add(&space, words[i], &varies, &error));
        assert_false(varies);
        assert_int_equal(space.count, 0);
    }
}

TEST(the_grid)
{
    static const char *const words[] = {"optim.lr=1e-4..0.1:log:4", "optim.betas=0.9,0.99;0.8,0.9",
                                        "model.name=cnn_a,cnn_b,resnet18", NULL};
    static const char *const models[] = {"cnn_a", "cnn_b", "resnet18"};
    static const char *const rates[] = {"0.0001", "0.001", "0.01", "0.1"};
    struct sweep_space space;
    struct error error = {0};
    char text[OPTION_TEXT];
    double value;
    space_make(&space, words);
    assert_int_equal(sweep_grid_size(&space, &error), 24);
    for (int i = 0; i < 24; i++) {
        struct sweep_point point = {{0}};
        struct options options;
        sweep_grid_point(&space, i, &point);
        options_default(&options);
        assert_true(sweep_point_apply(&space, &point, &options, &error));
        sweep_value_text(&space.keys[0], point.value[0], text, sizeof text);
        assert_string_equal(text, rates[i / 6]);
        assert_true(options.optim.betas.value[0] == (i / 3 % 2 == 0 ? 0.9 : 0.8));
        assert_string_equal(options.model.name, models[i % 3]);
        assert_true(sweep_value_read(&space.keys[0], text, &value) && value == point.value[0]);
    }
    assert_false(sweep_value_read(&space.keys[0], "0.5", &value));
    sweep_space_free(&space);
    space_make(&space, (const char *const[]){"optim.lr=1e-4..0.1:log", NULL});
    assert_int_equal(sweep_grid_size(&space, &error), -1);
    assert_has(error.text, "has no grid");
    sweep_space_free(&space);
}

static const char *const mixed[] = {"optim.lr=1e-4..0.1:log", "model.depth=2..8",
                                    "train.batch=1..64:log", "optim.name=sgd,adam,adamw", NULL};

TEST(points_are_within)
{
    struct sweep_space space;
    int64_t seen[9] = {0};
    space_make(&space, mixed);
    for (int i = 0; i < 700; i++) {
        struct sweep_point point = {{0}}, again = {{0}};
        struct options options;
        struct error error = {0};
        double value;
        char text[64];
        sweep_random_point(&space, 5, i, &point);
        sweep_random_point(&space, 5, i, &again);
        assert_memory_equal(&point, &again, sizeof point);
        options_default(&options);
        assert_ok(sweep_point_apply(&space, &point, &options, &error), &error);
        for (int k = 0; k < space.count; k++) {
            sweep_value_text(&space.keys[k], point.value[k], text, sizeof text);
            assert_true(sweep_value_read(&space.keys[k], text, &value));
            assert_true(value == point.value[k]); /* the table has the exact value of the trial */
        }
        seen[(int)point.value[1]]++;
    }
    for (int depth = 2; depth <= 8; depth++) /* a hundred each, within six standard deviations */
        assert_in_range(seen[depth], 45, 155);
    sweep_space_free(&space);
}

TEST(densities_are_optunas)
{
    char path[1024], line[256];
    static struct sweep_point trials[128];
    struct sweep_space space;
    int count = 0, taken = 0, compared = 0;
    space_make(&space, mixed);
    snprintf(path, sizeof path, "%s/test/vectors/tpe.txt", getenv("TEST_SOURCE"));
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        struct sweep_point at = {{0}};
        double *v = at.value, wanted;
        if (sscanf(line, "trials %d", &count) == 1) {
            taken = 0;
        } else if (sscanf(line, "at %lf %lf %lf %lf %lf", v, v + 1, v + 2, v + 3, &wanted) == 5) {
            assert_int_equal(taken, count);
            assert_true(fabs(sweep_tpe_density(&space, trials, count, &at) - wanted) < 1e-8);
            compared++;
        } else {
            v = trials[taken++].value;
            assert_int_equal(sscanf(line, "%lf %lf %lf %lf", v, v + 1, v + 2, v + 3), 4);
        }
    }
    fclose(file);
    assert_int_equal(compared, 54);
    sweep_space_free(&space);
}

/* A simulated accuracy: best at a rate of 3e-3 with adam and a medium batch. */
static double accuracy(const struct sweep_space *space, const struct sweep_point *point)
{
    double rate = log10(point->value[0] / 3e-3), batch = log2(point->value[2] / 16);
    double name = point->value[3] == 1 ? 0 : 0.1;
    assert_int_equal(space->count, 4);
    return 0.9 - 0.15 * rate * rate - 0.02 * batch * batch - name -
           0.01 * fabs(point->value[1] - 6);
}

/* The best of 40 trials, averaged over seeds. */
static double best_mean(bool estimates, int seeds)
{
    enum { TRIALS = 40 };
    struct sweep_space space;
    double sum = 0;
    space_make(&space, mixed);
    for (int seed = 0; seed < seeds; seed++) {
        struct sweep_seen seen[TRIALS] = {0};
        double best = -INFINITY;
        for (int i = 0; i < TRIALS; i++) {
            struct sweep_point *point = &seen[i].point;
            if (estimates)
                sweep_tpe_point(&space, (uint64_t)seed, i, seen, i, point);
            else
                sweep_random_point(&space, (uint64_t)seed, i, point);
            seen[i].value = accuracy(&space, point);
            best = fmax(best, seen[i].value);
        }
        sum += best;
    }
    sweep_space_free(&space);
    return sum / seeds;
}

TEST(the_estimator_beats_chance)
{
    double random = best_mean(false, 20), tpe = best_mean(true, 20);
    print_message("# best of 40 trials, mean over 20 seeds: random %.4f, tpe %.4f\n", random, tpe);
    /* The distance to the optimum of 0.9 is less than half that of random search. */
    assert_true(0.9 - tpe < 0.5 * (0.9 - random));
    /* Optuna's mean, and three standard deviations of means of 20 seeds (make_tpe.py). */
    assert_true(fabs(tpe - 0.8878) < 0.0105);
    assert_true(best_mean(true, 3) == best_mean(true, 3));
}

/* Failed trials rank last, and running ones like failed ones, even if there are no others. */
TEST(trials_without_a_value)
{
    struct sweep_seen seen[40];
    struct sweep_space space;
    int near = 0;
    space_make(&space, (const char *const[]){"optim.lr=1e-4..0.1:log", NULL});
    for (int i = 0; i < 40; i++) {
        memset(&seen[i], 0, sizeof seen[i]);
        sweep_tpe_point(&space, 1, i, seen, i, &seen[i].point);
        bool fails = seen[i].point.value[0] > 0.01;
        seen[i].value = fails ? -INFINITY : i % 7 == 6 ? NAN : log(seen[i].point.value[0]);
        near += i >= 20 && !fails && seen[i].point.value[0] > 3e-3;
    }
    print_message("# %d of 20 near the optimum\n", near);
    assert_true(near >= 8); /* random search: 3; just below the values that fail */
    for (int i = 0; i < 40; i++)
        seen[i].value = i % 2 == 0 ? -INFINITY : NAN;
    sweep_tpe_point(&space, 1, 40, seen, 40, &seen[0].point);
    assert_true(seen[0].point.value[0] >= 1e-4 && seen[0].point.value[0] <= 0.1);
    sweep_space_free(&space);
}

TEST_MAIN()
