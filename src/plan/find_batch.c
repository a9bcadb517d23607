// SPDX-License-Identifier: BSD-3-Clause
/* Batches are doubled until one does not fit, then bisected; the plan's answer is tried first. One
 * step per trial is enough, since later steps allocate nothing (test_step). */
#include "plan/plan.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "config/options.h"
#include "core/base.h"
#include "core/clock.h"
#include "core/sensors.h"
#include "core/text.h"
#include "train/hardware.h"
#include "train/step.h"

/* ---- a trial ---- */

/* Global batches of each split; more than loaders load ahead. */
enum { AHEAD = 4, TEST_BATCHES = AHEAD, TRAINING_BATCHES = TRAINING_PER_TEST * TEST_BATCHES };
enum { STATISTICS_SAMPLES = 64 };

/* Memory that stays free while a trial allocates. Libraries need some later, and not all of them
 * handle failed allocations. */
enum { RESERVE = 64 << 20 };

/* Arrays have tasks and targets that synthetic images do not have: their samples are repeated. */
static bool is_arrays(const struct options *options)
{
    return strcmp(options->data.format, "arrays") == 0;
}

/* Set enough synthetic images of the size of the data. */
static void synthetic_set(const struct plan *plan, int64_t batch, struct options *options)
{
    const struct image_source *source = &plan->source;
    int64_t samples = TRAINING_BATCHES * batch * plan->ranks;
    snprintf(options->data.format, sizeof options->data.format, "synthetic");
    options->data.samples = samples < UINT32_MAX ? samples : UINT32_MAX;
    if (source->height > 0)
        options->data.image = source->height > source->width ? source->height : source->width;
    options->data.classes = options->model.classes;
    options->data.shuffle = false;
    if (options->data.val == VALIDATION_REFERENCE || options->data.val == VALIDATION_FRACTION)
        options->data.val = VALIDATION_TEST;
    options->data.val_fraction = 0;
    options->model.channels = source->channels;
}

static void options_make(const struct plan *plan, int64_t batch, struct options *options)
{
    *options = plan->options;
    if (!is_arrays(options))
        synthetic_set(plan, batch, options);
    options->data.drop_last = false;
    snprintf(options->model.init, sizeof options->model.init, "none");
    options->train.batch = batch;
    options->train.global_batch = 0;
    options->train.grain = 0; /* in proportion to the batch */
    options->debug.batches = options->debug.overfit = 0;
    options->debug.fraction = 1;
    options->debug.profile = false;
    options->plan.memory = 0; /* the trial measures */
}

/* Open the run's data, model and memory. Statistics are those of a few samples. */
static bool trial_open(struct session *session, const struct options *options, struct comm *world,
                       struct error *error)
{
    if (!session_open(session, options, world, error))
        return false;
    struct dataset *train = &session->train.dataset;
    const int64_t own = train->count;
    const int64_t samples = TRAINING_BATCHES * options->train.batch * world->size;
    train->count = smaller(own, STATISTICS_SAMPLES);
    const bool good = session_find_statistics(session, error);
    train->count = own;
    if (is_arrays(options))
        dataset_repeat(train, samples);
    if (is_arrays(options) && session->validates)
        dataset_repeat(&session->validation.dataset, samples / TRAINING_PER_TEST);
    return good && session_start(session, error);
}

/* Take batches until the loader has used all its memory. */
static void feed_fill(struct data_feed *feed)
{
    double waited = 0;
    struct batch *batch = NULL;
    for (int i = 0; i < AHEAD && (batch = loader_next(feed->loader, &waited)) != NULL; i++)
        loader_give_back(feed->loader, batch);
    loader_stop(feed->loader);
}

static bool run_step(struct session *session, double *seconds, struct error *error)
{
    struct step_times times = {0};
    flat_initialize(&session->flat, (uint64_t)session->options.run.seed);
    flat_refresh(&session->flat);
    session_activations(session, true);
    session->device->backend->zero(session->stream, session->io.sums, sizeof *session->io.sums);
    loader_start(session->train.loader, 0, 0, sampler_steps(&session->train.sampler));
    double begin = clock_now();
    if (!step_run(session, 0, 0, &times, error) || !step_finish(session, &times, error))
        return false;
    *seconds = clock_now() - begin;
    feed_fill(&session->train);
    if (session->validates) {
        loader_start(session->validation.loader, 0, 0, sampler_steps(&session->validation.sampler));
        feed_fill(&session->validation);
    }
    return true;
}

/* Collective. Set the measured values: the maxima of all ranks. */
static void trial_measure(const struct session *session, bool peak_reset, struct comm *world,
                          struct batch_trial *trial)
{
    const size_t peak = session_memory_used(session, peak_reset);
    int64_t values[] = {(int64_t)(session_needs(session) + session->memory.base), (int64_t)peak,
                        (int64_t)(trial->seconds * 1e6)};
    comm_all_reduce(world, values, 3, COMM_INT64, COMM_MAX);
    trial->image = session->model->image.height;
    trial->compute = session->compute;
    trial->nodes = session->mesh.node_count;
    trial->planned = (size_t)values[0];
    trial->peak = (size_t)values[1];
    trial->seconds = (double)values[2] / 1e6;
}

/* Collective. Run one trial on a new session. It fits if the peak of no rank exceeds `limit` bytes
 * (the same on all ranks). Return false on errors other than too little memory. */
static bool batch_trial_run(const struct plan *plan, int64_t batch, size_t limit,
                            struct comm *world, struct batch_trial *trial, struct error *error)
{
    static struct options options;
    static struct session session;
    bool peak_reset = resident_peak_reset();
    *trial = (struct batch_trial){.batch = batch};
    memset(&session, 0, sizeof session);
    options_make(plan, batch, &options);
    /* Not malloc: compilers may remove a malloc whose memory is only freed. */
    void *reserve = mmap(NULL, RESERVE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (reserve == MAP_FAILED)
        error_set(&trial->why, ERROR_MEMORY, "no %d MiB of memory to spare", RESERVE >> 20);
    bool good =
        comm_agree(world, &trial->why) && trial_open(&session, &options, world, &trial->why);
    if (reserve != MAP_FAILED)
        munmap(reserve, RESERVE);
    if (good && run_step(&session, &trial->seconds, &trial->why))
        trial_measure(&session, peak_reset, world, trial);
    trial->fits = trial->peak > 0 && trial->peak <= limit;
    session_close(&session);
#ifdef __GLIBC__
    malloc_trim(0); /* return freed memory to the system; else up to 64 MiB are kept */
#endif
    if (trial->why.kind == ERROR_NONE || trial->why.kind == ERROR_MEMORY)
        return true;
    *error = trial->why;
    return false;
}

/* ---- the search ---- */

/* Collective. Set search->limit, the smallest of all ranks, and search->planned. */
static bool limit_find(struct batch_search *search, struct error *error)
{
    const struct options *options = &search->plan.options;
    struct comm *node = comm_split_node(search->world);
    struct device *device = hardware_open(options, node, error);
    int64_t limit = options->plan.memory;
    size_t base = 0;
    const bool good = comm_agree(search->world, error);
    if (good) {
        base = hardware_memory_base(device);
        if (limit == 0)
            limit = (int64_t)(base + hardware_memory_room(device, node, options, base));
    }
    if (device != NULL)
        device->backend->close(device);
    node->backend->close(node);
    comm_all_reduce(search->world, &limit, 1, COMM_INT64, COMM_MIN);
    search->limit = (size_t)limit;
    if (good && search->limit > base)
        search->planned = plan_largest_batch(&search->plan, search->limit - base);
    /* All ranks must do the same trials. */
    comm_broadcast(search->world, &search->planned, 1, COMM_INT64, 0);
    return good;
}

static bool search_try(struct batch_search *search, int64_t batch, bool *fits, struct error *error)
{
    struct batch_trial trial;
    if (!batch_trial_run(&search->plan, batch, search->limit, search->world, &trial, error))
        return false;
    if (search->world->rank == 0) {
        printf("%9lld  %-4s ", (long long)batch, trial.fits ? "yes" : "no");
        if (trial.peak > 0)
            printf("%12.1f %12.1f %10.3f\n", mib(trial.planned), mib(trial.peak), trial.seconds);
        else
            printf("%s\n", trial.why.text);
        fflush(stdout);
    }
    *fits = trial.fits;
    if (trial.fits)
        search->best = trial;
    else if (search->best.batch == 0)
        search->best.why = trial.why;
    return true;
}

/* Batches are multiples of train.accumulate. The plan's largest batch and the next one are tried
 * first. */
static bool search_run(struct batch_search *search, struct error *error)
{
    const int64_t pieces = search->plan.options.train.accumulate;
    const int64_t most = BATCH_MOST / pieces, planned = search->planned / pieces;
    int64_t good = 0, bad = 1;
    bool fits = true;
    while (fits && good < most) {
        bad = bad < most ? bad : most;
        if (!search_try(search, bad * pieces, &fits, error))
            return false;
        good = fits ? bad : good;
        bad = fits ? 2 * bad : bad;
    }
    while (!fits && bad - good > 1) {
        int64_t middle = good + (bad - good) / 2;
        if (good < planned && planned < bad)
            middle = planned;
        else if (good <= planned && planned + 1 < bad)
            middle = planned + 1;
        bool here;
        if (!search_try(search, middle * pieces, &here, error))
            return false;
        *(here ? &good : &bad) = middle;
    }
    return true;
}

bool find_batch(const struct options *options, struct comm *world, struct batch_search *search,
                struct error *error)
{
    const struct batch_trial *best = &search->best;
    struct comm *node = comm_split_node(world);
    *search = (struct batch_search){.world = world};
    error_defer(plan_open(&search->plan, options, world->size, node->size, error));
    node->backend->close(node);
    if (!comm_agree(world, error) || !limit_find(search, error))
        return false;
    if (world->rank == 0)
        printf("limit: %.1f MiB per rank\n    batch  runs  planned MiB     peak MiB     step s\n",
               mib(search->limit));
    if (!search_run(search, error))
        return false;
    if (best->batch == 0)
        return error_set(error, ERROR_MEMORY, "no batch fits into %.1f MiB per rank%s%s",
                         mib(search->limit), best->why.kind != ERROR_NONE ? ": " : "",
                         best->why.text);
    if (world->rank == 0)
        printf("\nlargest batch that runs: train.batch=%lld (%lld images a step on %d rank%s), "
               "resident at most %.1f of %.1f MiB per rank\n"
               "the plan predicts train.batch=%lld (%+.1f %%), and for this one %.1f MiB: measured "
               "%+.1f %%\n",
               (long long)best->batch, (long long)best->batch * world->size, world->size,
               world->size == 1 ? "" : "s", mib(best->peak), mib(search->limit),
               (long long)search->planned,
               100 * ((double)search->planned / (double)best->batch - 1), mib(best->planned),
               100 * ((double)best->peak / (double)best->planned - 1));
    return true;
}
