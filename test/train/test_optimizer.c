// SPDX-License-Identifier: BSD-3-Clause
/* The updates that the optimizer passes to the device: the device of this test records them. The
 * update rules are tested with the devices. */
#include "train/optimizer.h"

#include "options/options.h"
#include "test.h"

enum { UNITS = 2, PADDED = 64, SHARD = 32 };

static struct update asked[UNITS];
static int asked_count;

static void write_down(struct stream *stream, const struct update *args)
{
    assert_ptr_equal(stream, &asked);
    for (; args != NULL; args = args->next) {
        assert_in_range(asked_count, 0, UNITS - 1);
        asked[asked_count++] = *args;
    }
}

static bool scaler_updated;

/* Called after all updates. */
static void scaler_write_down(struct stream *stream, struct loss_scaler *args, const double *norm)
{
    assert_ptr_equal(stream, &asked);
    assert_int_equal(asked_count, UNITS);
    assert_ptr_equal(args, asked[0].scaler);
    assert_ptr_equal(norm, asked[0].norm_squared);
    scaler_updated = true;
}

static int events_recorded;

static void count_event(struct event *event, struct stream *stream)
{
    (void)event;
    (void)stream;
    events_recorded++;
}

static const struct device_backend backend = {.name = "note",
                                              .update = write_down,
                                              .scaler_update = scaler_write_down,
                                              .event_record = count_event};
static struct comm pair = {.rank = 1, .size = 2};
static struct mesh mesh = {.shard = &pair};
static struct device device = {.backend = &backend};
static struct options options;
static float memory[UNITS][PADDED];
static uint16_t copies[UNITS][PADDED];
static double norm_squared;
static const struct step_params place;
static struct loss_scaler scaler;
static struct update_segment segments[UNITS];
static struct flat_buffer buffers[UNITS];
static struct update updates[UNITS];

/* Two units in bf16, of which this rank owns the second half. */
static struct flat_model flat_of_halves(int moments)
{
    for (int i = 0; i < UNITS; i++)
        buffers[i] = (struct flat_buffer){.padded = PADDED,
                                          .shard_count = SHARD,
                                          .shard_begin = SHARD,
                                          .master = memory[i],
                                          .gradient = memory[1 - i] + SHARD,
                                          .whole = true,
                                          .moment1 = moments > 0 ? memory[i] + 1 : NULL,
                                          .moment2 = moments > 1 ? memory[i] + 2 : NULL,
                                          .average = memory[i] + 3,
                                          .weights = copies[i],
                                          .segments = &segments[i],
                                          .segment_count = 1};
    return (struct flat_model){.device = &device,
                               .mesh = &mesh,
                               .stream = (struct stream *)&asked,
                               .type = TYPE_BF16,
                               .buffers = buffers,
                               .updates = updates,
                               .count = UNITS,
                               .moments = moments,
                               .averaged = true,
                               .norm_squared = &norm_squared};
}

static int set_options(void **state)
{
    (void)state;
    asked_count = 0;
    scaler_updated = false;
    memset(&options, 0, sizeof options);
    options.optim.betas = (struct option_list){.count = 2, .value = {0.9, 0.99}};
    options.optim.eps = 1e-8;
    options.optim.alpha = 0.95;
    options.optim.ema = 0.999;
    options.train.clip_norm = 0.5;
    return 0;
}

/* Runs one step of the options' update rule. */
static void step_once(void)
{
    struct optimizer optimizer;
    struct flat_model flat = flat_of_halves(optimizer_moments(&options));
    events_recorded = 0;

    optimizer_open(&optimizer, &options);
    optimizer_step(&optimizer, &flat, &place, NULL);
    assert_false(scaler_updated);
    assert_int_equal(asked_count, UNITS);
    /* The other rank's parts must be gathered again. */
    assert_int_equal(events_recorded, UNITS);
    for (int i = 0; i < UNITS; i++)
        assert_false(buffers[i].whole);
}

TEST(each_unit_is_updated_where_this_rank_owns_it)
{
    options.optim.name = OPTIMIZER_ADAMW;
    step_once();
    for (int i = 0; i < UNITS; i++) {
        assert_int_equal(asked[i].rule, UPDATE_ADAMW);
        assert_int_equal(asked[i].count, SHARD);
        assert_ptr_equal(asked[i].weights, memory[i]);
        assert_ptr_equal(asked[i].gradient, memory[1 - i] + SHARD);
        assert_ptr_equal(asked[i].moment1, memory[i] + 1);
        assert_ptr_equal(asked[i].moment2, memory[i] + 2);
        assert_ptr_equal(asked[i].average, memory[i] + 3);
        assert_ptr_equal(asked[i].copy, copies[i] + SHARD);
        assert_int_equal(asked[i].copy_type, TYPE_BF16);
        assert_ptr_equal(asked[i].segments, &segments[i]);
        assert_int_equal(asked[i].segment_count, 1);
        assert_ptr_equal(asked[i].norm_squared, &norm_squared);
        assert_ptr_equal(asked[i].params, &place);
        assert_null(asked[i].scaler);
        assert_true(asked[i].beta2 == 0.99 && asked[i].epsilon == 1e-8 &&
                    asked[i].average_decay == 0.999);
        assert_true(asked[i].max_norm == 0.5);
    }
}

TEST(masters_that_are_read_themselves_have_no_copy)
{
    struct optimizer optimizer;
    struct flat_model flat = flat_of_halves(0);

    flat.type = TYPE_FP32;
    buffers[0].weights = buffers[0].master;
    optimizer_open(&optimizer, &options);
    optimizer_step(&optimizer, &flat, &place, NULL);
    assert_null(asked[0].copy);
    assert_ptr_equal(asked[1].copy, (float *)(void *)copies[1] + SHARD);
}

/* The moments that a rule needs, and where the device gets them: RMSprop without momentum stores
 * the squares in the first one. */
TEST(rules_keep_the_moments_they_need)
{
    static const struct {
        enum optimizer_choice name;
        double momentum;
        int moments, moment1, moment2; /* number of the stored moment, 0: NULL */
    } rows[] = {{OPTIMIZER_SGD, 0, 0, 0, 0},     {OPTIMIZER_SGD, 0.75, 1, 1, 0},
                {OPTIMIZER_RMSPROP, 0, 1, 0, 1}, {OPTIMIZER_RMSPROP, 0.5, 2, 1, 2},
                {OPTIMIZER_ADAM, 0, 2, 1, 2},    {OPTIMIZER_ADAMW, 0, 2, 1, 2}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        options.optim.name = (int)rows[i].name;
        options.optim.momentum = rows[i].momentum;
        options.optim.nesterov = rows[i].momentum > 0;
        asked_count = 0;
        assert_int_equal(optimizer_moments(&options), rows[i].moments);
        step_once();
        assert_int_equal(asked[0].rule, (int)rows[i].name);
        assert_ptr_equal(asked[0].moment1, rows[i].moment1 ? memory[0] + rows[i].moment1 : NULL);
        assert_ptr_equal(asked[0].moment2, rows[i].moment2 ? memory[0] + rows[i].moment2 : NULL);
        assert_true(asked[0].alpha == 0.95 && asked[0].nesterov == options.optim.nesterov);
    }
}

TEST(the_scaler_follows_the_updates)
{
    struct optimizer optimizer;
    struct flat_model flat = flat_of_halves(2);

    optimizer_open(&optimizer, &options);
    optimizer_step(&optimizer, &flat, &place, &scaler);
    for (int i = 0; i < UNITS; i++)
        assert_ptr_equal(asked[i].scaler, &scaler);
    assert_true(scaler_updated);
}

TEST(a_place_says_what_schedules_move)
{
    struct optimizer optimizer;

    options.optim.momentum = 0.75;
    optimizer_open(&optimizer, &options);
    const struct step_params at = optimizer_params(&optimizer, 0.25, 6);
    assert_int_equal(at.step, 6);
    assert_int_equal(at.update, 7);
    assert_true(at.rate == 0.25 && at.beta1 == 0.9 && at.momentum == 0.75);
}

/* With schedule.name=onecycle; test_schedule checks the values. */
TEST(onecycle_moves_momentum_and_beta1)
{
    struct optimizer optimizer;
    struct schedule schedule;
    options.optim.name = OPTIMIZER_ADAM;
    for (int choice = SCHEDULE_COSINE; choice <= SCHEDULE_ONECYCLE; choice++) {
        options.schedule = (struct schedule_options){
            .name = choice, .pct_start = 0.5, .div_factor = 25, .final_div_factor = 1e4};
        schedule_open(&schedule, &options, 1, 1, 20);
        optimizer_open(&optimizer, &options);
        optimizer_set_momentum(&optimizer, &schedule, 9);
        assert_true(optimizer.beta1 == (choice == SCHEDULE_ONECYCLE ? 0.85 : 0.9));
        assert_true(optimizer.momentum == 0);
    }
}

TEST_MAIN(.before = set_options)
