// SPDX-License-Identifier: BSD-3-Clause
/* The command `find`. `find lr`: the range test on the deck's run, its curve as a table, and the
 * suggested learning rate. `find batch`: the largest batch that runs, by trials. One step per trial
 * is enough, since later steps allocate nothing (test_step). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "base/allocate.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/columns.h"
#include "base/log.h"
#include "base/sensors.h"
#include "base/text.h"
#include "commands/app.h"
#include "options/options.h"
#include "plan/plan.h"
#include "train/hardware.h"
#include "train/optimizer.h"
#include "train/range_test.h"
#include "train/step.h"

/* ---- find lr */

/* Maximum number of rows of the curve on standard output; the file has all rows. */
enum { ROWS = 40 };

#define POINT(kind, name) COLUMN(range_point, kind, name)
static const struct column curve_columns[] = {POINT(INTEGER, step), POINT(NUMBER, rate),
                                              POINT(NUMBER, loss), POINT(NUMBER, smoothed),
                                              COLUMNS_END};

static void suggestion_print(const struct session *session, const struct range_test *test)
{
    struct range_suggestion found;
    struct options unit = session->options;
    range_test_suggest(test, session->options.find.beta, &found);
    if (isnan(found.steepest_rate)) {
        printf(
            "no suggestion: the smoothed loss falls by %.3g, which may be noise (%.2g); use more "
            "steps (find.steps=%lld) or a larger batch\n",
            found.fall, found.noise, (long long)(4 * test->steps));
        return;
    }
    unit.optim.lr = 1;
    const double scale = schedule_base_rate(&unit, session->global_batch); /* of optim.lr */
    printf("steps %lld to %lld: the smoothed loss falls fastest at %.3g and has its minimum at "
           "%.3g\n",
           (long long)found.first + 1, (long long)found.end, found.steepest_rate,
           test->points[found.lowest].rate);
    printf("suggestion: optim.lr=%.2g, the steepest descent (Smith 2017); alternative, a tenth of "
           "the rate at the minimum: optim.lr=%.2g\n",
           found.steepest_rate / scale, found.tenth_of_lowest / scale);
    if (scale != 1)
        printf("(optim.lr_scale multiplies it by %.4g for the global batch of %lld)\n", scale,
               (long long)session->global_batch);
}

/* Print and write the results; rank 0 only. csv: not open if find.output is empty. */
static void curve_report(const struct session *session, const struct range_test *test,
                         struct csv *csv, struct error *error)
{
    const struct find_options *find = &session->options.find;
    const int64_t stride = round_up_division(test->count, ROWS);
    const int ranks = session->world->size;
    printf("range test from %g to %g in %lld steps of global batch %lld on %d rank%s\n",
           find->first, find->last, (long long)test->steps, (long long)session->global_batch, ranks,
           ranks == 1 ? "" : "s");
    printf("%8s %12s %12s %12s\n", "step", "rate", "loss", "smoothed");
    for (int64_t i = 0; i < test->count; i += stride)
        printf("%8lld %12.3e %12.6f %12.6f\n", (long long)i + 1, test->points[i].rate,
               test->points[i].loss, test->points[i].smoothed);
    printf("\nstopped at %.3g", test->end_rate);
    if (test->end == RANGE_DIVERGED)
        printf(", where the smoothed loss exceeded %g times its minimum\n", find->stop);
    else
        puts(test->end == RANGE_NOT_FINITE ? ", where loss or gradient was not finite"
             : test->end == RANGE_STOPPED  ? " by a signal"
                                           : ", the last learning rate");
    suggestion_print(session, test);
    bool good = app_output_arrived(error);
    for (int64_t i = 0; good && csv->stream != NULL && i < test->count; i++)
        good = columns_write(curve_columns, &test->points[i], csv, error);
    if (good && csv->stream != NULL)
        error_defer(csv_flush(csv, error));
}

/* Run the learning-rate range test and print the result on rank 0. */
static void find_lr(const struct options *options, struct comm *world, struct error *error)
{
    static struct options without_evaluation;
    static struct session session;
    struct range_test test = {.count = 0};
    struct csv csv = {.stream = NULL};
    OWNED char *path = allocate_text("%s.csv", options->find.output);
    without_evaluation = *options;
    without_evaluation.data.val = VALIDATION_NONE;
    /* The file is opened before the test, so that a path that cannot be written is an error at
     * once. */
    if (world->rank == 0 && options->find.output[0] != '\0')
        error_defer(columns_open(&csv, path, curve_columns, NULL, error));
    if (comm_agree(world, error) && session_open(&session, &without_evaluation, world, error) &&
        session_start(&session, error) && session_initialize(&session, error)) {
        flat_refresh(&session.flat);
        if (range_test_run(&session, &test, error)) {
            if (world->rank == 0)
                curve_report(&session, &test, &csv, error);
            comm_agree(world, error);
        }
    }
    csv_close(&csv);
    range_test_free(&test);
    session_close(&session);
}

/* ---- find batch: a trial allocates everything that a run needs, runs a step on synthetic images,
 * or on samples of arrays, and measures the memory */

struct batch_trial {
    int64_t batch; /* train.batch */
    bool fits;
    size_t planned;   /* bytes of the rank that needs most: arena, loaders, libraries */
    size_t peak;      /* largest session_memory_used of a rank; 0: the allocation failed */
    double seconds;   /* of the step */
    struct error why; /* reason of a failed allocation */
};

struct batch_search {
    struct plan plan;
    struct comm *world;
    size_t limit;            /* bytes per rank, including libraries */
    int64_t planned;         /* largest train.batch by the plan */
    struct batch_trial best; /* batch 0: none fits */
};

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

/* Set the options of a trial. Enough synthetic images have the size of the data. */
static void options_make(const struct plan *plan, int64_t batch, struct options *options)
{
    const struct image_source *source = &plan->source;
    *options = plan->options;
    if (!is_arrays(options)) {
        const int64_t samples = TRAINING_BATCHES * batch * plan->ranks;
        snprintf(options->data.format, sizeof options->data.format, "synthetic");
        options->data.samples = smaller(samples, UINT32_MAX);
        if (source->height > 0)
            options->data.image = larger(source->height, source->width);
        options->data.classes = options->model.classes;
        options->data.shuffle = options->data.balance = false;
        if (options->data.val == VALIDATION_REFERENCE || options_hold_out(options))
            options->data.val = VALIDATION_TEST;
        options->data.val_fraction = 0;
        options->model.channels = source->channels;
    }
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
static void split_loader_fill(struct split_loader *feed)
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
    split_loader_fill(&session->train);
    if (session->validates) {
        loader_start(session->validation.loader, 0, 0, sampler_steps(&session->validation.sampler));
        split_loader_fill(&session->validation);
    }
    return true;
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
    if (good && run_step(&session, &trial->seconds, &trial->why)) {
        int64_t most[] = {(int64_t)(session_needs(&session) + session.memory.base),
                          (int64_t)session_memory_used(&session, peak_reset),
                          (int64_t)(trial->seconds * 1e6)};
        comm_all_reduce(world, most, 3, COMM_INT64, COMM_MAX);
        trial->planned = (size_t)most[0];
        trial->peak = (size_t)most[1];
        trial->seconds = (double)most[2] / 1e6;
    }
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

/* Collective. Set search->limit, the smallest of all ranks, and search->planned. */
static bool limit_find(struct batch_search *search, struct error *error)
{
    const struct options *options = &search->plan.options;
    struct comm *node = search->world->backend->split_node(search->world);
    struct device *device = hardware_open(options, node, error);
    int64_t limit = options->plan.memory;
    size_t base = 0;
    struct session session;
    struct error impossible = {0};
    const bool good = comm_agree(search->world, error);
    if (good && limit == 0) {
        base = hardware_memory_base(device);
        limit = (int64_t)(base + hardware_memory_room(device, node, options, base));
    }
    if (device != NULL)
        device->backend->close(device);
    node->backend->close(node);
    comm_all_reduce(search->world, &limit, 1, COMM_INT64, COMM_MIN);
    search->limit = (size_t)limit;
    if (good && plan_session(&search->plan, &session, &impossible)) {
        base = hardware_memory_base(session.device); /* with a model's data and libraries */
        if (search->limit > base)
            search->planned = plan_largest_batch(&search->plan, &session, search->limit - base);
    }
    if (good)
        session_close(&session);
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
 * first. Larger ones are doubled until one does not fit, then the interval is bisected. */
static bool search_run(struct batch_search *search, struct error *error)
{
    const int64_t pieces = search->plan.options.train.accumulate;
    const int64_t most = BATCH_MOST / pieces, planned = larger(search->planned / pieces, 1);
    int64_t good = 0, bad = most + 1, next = smaller(planned, most);
    while (bad - good > 1) {
        bool fits;
        if (!search_try(search, next * pieces, &fits, error))
            return false;
        *(fits ? &good : &bad) = next;
        next = bad <= most       ? good + (bad - good) / 2
               : next == planned ? planned + 1
                                 : smaller(2 * good, most);
    }
    return true;
}

static void find_batch(const struct options *options, struct comm *world, struct error *error)
{
    static struct batch_search search;
    const struct batch_trial *best = &search.best;
    struct comm *node = world->backend->split_node(world);
    search = (struct batch_search){.world = world};
    error_defer(plan_open(&search.plan, options, world->size, node->size, error));
    node->backend->close(node);
    if (!comm_agree(world, error) || !limit_find(&search, error))
        return;
    if (world->rank == 0)
        printf("limit: %.1f MiB per rank\n    batch  runs  planned MiB     peak MiB     step s\n",
               mib(search.limit));
    const bool good = search_run(&search, error);
    if (good && best->batch == 0) {
        error_set(error, ERROR_MEMORY, "no batch fits into %.1f MiB per rank%s%s",
                  mib(search.limit), best->why.kind != ERROR_NONE ? ": " : "", best->why.text);
    } else if (good && world->rank == 0) {
        printf("\nlargest batch that runs: train.batch=%lld (%lld images a step on %d rank%s), "
               "resident at most %.1f of %.1f MiB per rank\n"
               "the plan predicts train.batch=%lld (%+.1f %%), and for this one %.1f MiB: measured "
               "%+.1f %%\n",
               (long long)best->batch, (long long)best->batch * world->size, world->size,
               world->size == 1 ? "" : "s", mib(best->peak), mib(search.limit),
               (long long)search.planned, 100 * ((double)search.planned / (double)best->batch - 1),
               mib(best->planned), 100 * ((double)best->peak / (double)best->planned - 1));
        error_defer(app_output_arrived(error));
    }
    comm_agree(world, error);
}

static void find_run(const struct options *options, const struct command_line *line,
                     struct comm *world, struct error *error)
{
    log_open(world->rank, LOG_WARN); /* no memory tables */
    const char *what = line->operand_count == 1 ? line->operand[0] : "";
    if (strcmp(what, "batch") == 0)
        find_batch(options, world, error);
    else if (strcmp(what, "lr") == 0)
        find_lr(options, world, error);
    else
        error_set(error, ERROR_USAGE,
                  "find needs one word: `vittrain find batch` or `vittrain find lr`");
}

const struct command command_find = {
    .name = "find",
    .synopsis = "find batch|lr [DECK.ini ...] [section.key=value ...]",
    .summary = "find the largest batch that fits, or a good learning rate",
    .detail =
        "find batch tries batches of the deck's run on all ranks together: it allocates all "
        "memory and runs a step on random images, or on samples of arrays. The limit per rank is "
        "plan.memory, or its share of the node's available memory less a reserve of 5 %. It "
        "prints each trial, the largest train.batch that runs, and the memory predicted by plan. "
        "find lr is the learning-rate range test (Smith 2017): with the deck's data, optimizer "
        "and mesh, the learning rate grows by the same factor at each update, from find.first to "
        "find.last within an epoch (find.steps), until the smoothed loss exceeds find.stop times "
        "its minimum. It prints the curve and suggests the rate of steepest descent; it writes "
        "the curve as a table (find.output), which `vittrain report` draws, and discards the "
        "weights.",
    .run = find_run};
