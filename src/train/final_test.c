/* The test split at the end, with the weights that a person would take. */
#include "train/final_test.h"
#include "checkpoint/checkpoint_read.h"

#include <stdio.h>
#include <unistd.h>

#include "config/options.h"
#include "config/phase.h"
#include "core/log.h"
#include "core/status.h"
#include "train/progress.h"

static bool is_due(const struct trainer *trainer)
{
    return trainer->options.train.test && !trainer->stop.signalled &&
           (!trainer->stop.out_of_time || trainer->state.step >= trainer->total_steps);
}

/* Collective. best.h5 leads to the best weights; the newest step's are here already. */
static bool best_read(struct trainer *trainer, struct error *error)
{
    struct session *session = &trainer->session;
    char path[OPTION_TEXT + 64];
    snprintf(path, sizeof path, "%s/best.h5", trainer->folder.checkpoints);
    int64_t there = trainer->world->rank == 0 && access(path, R_OK) == 0;
    comm_broadcast(trainer->world, &there, 1, COMM_INT64, 0);
    trainer->test.weights = "last";
    trainer->test.step = trainer->state.step;
    if (there == 0 || trainer->state.best_step <= 0)
        return true;
    trainer->test.weights = "best";
    trainer->test.step = trainer->state.best_step;
    if (trainer->state.best_step == trainer->state.step)
        return true;
    status_set_phase(PHASE_WEIGHTS_READ);
    if (!checkpoint_read(path, &trainer->checkpoints.target, &session->flat, NULL, true, error))
        return false;
    flat_refresh(&session->flat);
    return true;
}

/* Collective. With data.val=test the split is there already. */
static struct data_feed *feed_prepare(struct trainer *trainer, struct error *error)
{
    const struct options *options = &trainer->options;
    struct session *session = &trainer->session;
    if (options->data.val == VALIDATION_TEST)
        return &trainer->validation;
    if (!feed_open(&trainer->test.feed, options, SPLIT_TEST, trainer->world, error) ||
        !feed_start(&trainer->test.feed, options, trainer->world, session->device,
                    session->batch * trainer->world->size, session->model->image, false, error))
        return NULL;
    return &trainer->test.feed;
}

bool final_test_run(struct trainer *trainer, struct error *error)
{
    struct session *session = &trainer->session;
    if (!is_due(trainer))
        return true;
    struct data_feed *feed = feed_prepare(trainer, error);
    if (feed == NULL || !best_read(trainer, error))
        return false;
    if (session->flat.averaged)
        flat_swap_average(&session->flat);
    bool good =
        evaluation_run(session, feed, NULL, &trainer->control, &trainer->test.evaluation, error);
    if (session->flat.averaged)
        flat_swap_average(&session->flat);
    trainer->attempt.evaluation_seconds += trainer->test.evaluation.seconds;
    if (good && trainer->test.evaluation.given_up)
        log_warn("the test split's evaluation was given up: a signal asked for the end");
    else if (good)
        progress_test(trainer);
    return good;
}
