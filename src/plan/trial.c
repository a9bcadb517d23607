/* A run's set-up and one step, without a run folder. A step is enough: after the first one nothing
 * is allocated any more (test_step). */
#include "plan/trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "config/options.h"
#include "core/clock.h"
#include "core/resident.h"
#include "train/feed.h"
#include "train/hardware.h"
#include "train/optimizer.h"
#include "train/step.h"

/* Global batches of each split: more than are ever loaded ahead. */
enum { AHEAD = 4, TEST_BATCHES = AHEAD, TRAINING_BATCHES = 4 * TEST_BATCHES };

/* Kept free while a trial allocates, for what libraries and the C library need later: they do not
 * all survive without. */
enum { RESERVE = 64 << 20 };

struct rehearsal {
    struct options options;
    struct session session;
    struct data_feed train, validation;
    bool validates;
    void *reserve;
};

/* The run's options with made-up images of the data's size, as many as it takes. */
static void options_make(const struct plan *plan, int64_t batch, struct options *options)
{
    const struct image_source *source = &plan->source;
    int64_t samples = TRAINING_BATCHES * batch * plan->ranks;
    *options = plan->options;
    snprintf(options->data.format, sizeof options->data.format, "synthetic");
    options->data.samples = samples < UINT32_MAX ? samples : UINT32_MAX;
    if (source->height > 0)
        options->data.image = source->height > source->width ? source->height : source->width;
    options->data.classes = options->model.classes;
    options->data.shuffle = options->data.drop_last = false;
    if (options->data.val == VALIDATION_REFERENCE)
        options->data.val = VALIDATION_TEST;
    options->model.channels = source->channels;
    options->train.batch = batch;
    options->train.global_batch = 0;
    options->debug.batches = options->debug.overfit = 0;
    options->debug.fraction = 1;
    options->debug.profile = false;
    options->plan.memory = 0; /* measured, not only planned */
}

/* Collective. */
static bool reserve_take(struct rehearsal *rehearsal, struct comm *world, struct error *error)
{
    rehearsal->reserve = malloc(RESERVE);
    if (rehearsal->reserve == NULL)
        error_set(error, ERROR_MEMORY, "no %d MiB of memory to spare", RESERVE >> 20);
    return comm_agree(world, error);
}

static bool rehearsal_open(struct rehearsal *rehearsal, struct comm *world, struct error *error)
{
    const struct options *options = &rehearsal->options;
    struct session *session = &rehearsal->session;
    int64_t global_batch = feed_global_batch(options, world->size);
    int64_t batch = feed_pass_samples(options, global_batch, world->size);
    rehearsal->validates = options->data.val != VALIDATION_NONE;
    if (!feed_open(&rehearsal->train, options, SPLIT_TRAIN, world, error) ||
        (rehearsal->validates &&
         !feed_open(&rehearsal->validation, options, SPLIT_VALIDATION, world, error)))
        return false;
    return session_open(session, options, world, true, error) &&
           session_allocate(session, batch, &rehearsal->train.source, true, error) &&
           feed_start(&rehearsal->train, options, world, session->device,
                      options->train.batch * world->size, session->model->image, true, error) &&
           (!rehearsal->validates ||
            feed_start(&rehearsal->validation, options, world, session->device, batch * world->size,
                       session->model->image, false, error));
}

static void rehearsal_close(struct rehearsal *rehearsal)
{
    feed_close(&rehearsal->train);
    feed_close(&rehearsal->validation);
    session_close(&rehearsal->session);
    free(rehearsal->reserve);
#ifdef __GLIBC__
    malloc_trim(0); /* else what was freed stays with this process, up to 64 MiB */
#endif
}

/* All memory of a loader has been used when as many batches were taken as it holds. */
static void feed_fill(struct data_feed *feed)
{
    double waited = 0;
    struct batch *batch = NULL;
    for (int i = 0; i < AHEAD && (batch = loader_next(feed->loader, &waited)) != NULL; i++)
        loader_give_back(feed->loader, batch);
    loader_stop(feed->loader);
}

static bool rehearsal_run(struct rehearsal *rehearsal, double *seconds, struct error *error)
{
    const struct options *options = &rehearsal->options;
    struct session *session = &rehearsal->session;
    struct optimizer optimizer;
    struct step_context step;
    struct step_times times = {0};
    optimizer_open(&optimizer, options);
    flat_set_segments(&session->flat, options->optim.weight_decay, options->train.accumulate);
    flat_initialize(&session->flat, (uint64_t)options->run.seed);
    flat_refresh(&session->flat);
    step_open(&step, session, &rehearsal->train, &optimizer);
    session_activations(session, true);
    session->device->backend->zero(session->stream, session->io.sums, sizeof *session->io.sums);
    loader_start(rehearsal->train.loader, 0, 0, sampler_steps(&rehearsal->train.sampler));
    double begin = clock_now();
    if (!step_run(&step, 0, 0, &times, error) || !step_finish(&step, &times, error))
        return false;
    step_close(&step);
    *seconds = clock_now() - begin;
    feed_fill(&rehearsal->train);
    if (rehearsal->validates) {
        loader_start(rehearsal->validation.loader, 0, 0,
                     sampler_steps(&rehearsal->validation.sampler));
        feed_fill(&rehearsal->validation);
    }
    return true;
}

/* Collective. The largest values of all ranks. */
static void trial_measure(const struct session *session, bool counted_anew, struct comm *world,
                          struct trial *trial)
{
    size_t peak =
        counted_anew ? hardware_memory_peak(session->device) : hardware_memory_now(session->device);
    int64_t values[] = {(int64_t)(session_needs(session) + session->memory.base), (int64_t)peak,
                        (int64_t)(trial->seconds * 1e6)};
    comm_all_reduce(world, values, 3, COMM_INT64, COMM_MAX);
    trial->image = session->model->image;
    trial->compute = session->compute;
    trial->nodes = session->mesh.node_count;
    trial->planned = (size_t)values[0];
    trial->peak = (size_t)values[1];
    trial->seconds = (double)values[2] / 1e6;
}

bool trial_run(const struct plan *plan, int64_t batch, size_t limit, struct comm *world,
               struct trial *trial, struct error *error)
{
    static struct rehearsal rehearsal;
    bool counted_anew = resident_peak_reset();
    *trial = (struct trial){.batch = batch};
    memset(&rehearsal, 0, sizeof rehearsal);
    options_make(plan, batch, &rehearsal.options);
    bool good = reserve_take(&rehearsal, world, &trial->why) &&
                rehearsal_open(&rehearsal, world, &trial->why);
    free(rehearsal.reserve); /* so big that it goes back to the system */
    rehearsal.reserve = NULL;
    if (good && rehearsal_run(&rehearsal, &trial->seconds, &trial->why))
        trial_measure(&rehearsal.session, counted_anew, world, trial);
    trial->fits = trial->peak > 0 && trial->peak <= limit;
    rehearsal_close(&rehearsal);
    if (trial->why.kind == ERROR_NONE || trial->why.kind == ERROR_MEMORY)
        return true;
    *error = trial->why;
    return false;
}
