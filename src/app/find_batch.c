/* `find batch`: the largest batch that really runs. Batches are doubled until one does
 * not fit, then halved in between, where the plan's answer is tried first. */
#include <stdlib.h>
#include <string.h>

#include "app/app.h"
#include "app/find.h"
#include "config/options.h"
#include "core/text.h"
#include "plan/trial.h"
#include "report/found.h"
#include "train/hardware.h"

struct search {
    struct plan plan;
    struct comm *world;
    size_t limit;      /* bytes of a rank, libraries included */
    int64_t planned;   /* what the plan says */
    struct trial best; /* batch 0: none fitted yet */
};

/* Collective. The same on all ranks: of the one that may have least. */
static bool limit_find(struct search *search, struct error *error)
{
    const struct options *options = &search->plan.options;
    struct comm *node = comm_split_node(search->world);
    struct device *device = hardware_open(options, node, error);
    int64_t limit = options->plan.memory;
    bool good = comm_agree(search->world, error);
    if (good && limit == 0) {
        size_t base = hardware_memory_base(device);
        limit = (int64_t)(base + hardware_memory_room(device, node, options, base));
    }
    if (device != NULL)
        device->backend->close(device);
    node->backend->close(node);
    comm_all_reduce(search->world, &limit, 1, COMM_INT64, COMM_MIN);
    search->limit = (size_t)limit;
    return good;
}

/* Collective. Rank 0's answer: the number of trials hangs on it. */
static void plan_ask(struct search *search)
{
    const struct options *options = &search->plan.options;
    enum strategy_choice strategy = (enum strategy_choice)options->mesh.strategy;
    enum checkpoint_activations_choice kept =
        (enum checkpoint_activations_choice)options->train.checkpoint_activations;
    struct plan_entry entry;
    plan_make(&search->plan, strategy, kept, 0, &entry);
    if (search->limit > entry.base)
        plan_make(&search->plan, strategy, kept, search->limit - entry.base, &entry);
    search->planned = entry.largest_batch;
    comm_broadcast(search->world, &search->planned, 1, COMM_INT64, 0);
}

static void trial_print(const struct search *search, const struct trial *trial)
{
    if (search->world->rank != 0)
        return;
    if (trial->peak > 0)
        printf("%9lld  %-4s %12.1f %12.1f %10.3f\n", (long long)trial->batch,
               trial->fits ? "yes" : "no", mib(trial->planned), mib(trial->peak), trial->seconds);
    else
        printf("%9lld  %-4s %s\n", (long long)trial->batch, "no", trial->why.text);
    fflush(stdout);
}

static bool search_try(struct search *search, int64_t batch, bool *fits, struct error *error)
{
    struct trial trial;
    if (!trial_run(&search->plan, batch, search->limit, search->world, &trial, error))
        return false;
    trial_print(search, &trial);
    *fits = trial.fits;
    if (trial.fits)
        search->best = trial;
    else if (search->best.batch == 0)
        search->best.why = trial.why;
    return true;
}

/* Where to look between a batch that fits and one that does not. */
static int64_t search_between(const struct search *search, int64_t good, int64_t bad)
{
    if (good < search->planned && search->planned < bad)
        return search->planned;
    if (good < search->planned + 1 && search->planned + 1 < bad)
        return search->planned + 1;
    return good + (bad - good) / 2;
}

/* Batches are counted in pieces of train.accumulate. */
static bool search_run(struct search *search, struct error *error)
{
    int64_t pieces = search->plan.options.train.accumulate;
    int64_t good = 0, bad = 1, most = BATCH_MOST / pieces;
    bool fits = true;
    search->planned /= pieces;
    while (fits && good < most) {
        bad = bad < most ? bad : most;
        if (!search_try(search, bad * pieces, &fits, error))
            return false;
        good = fits ? bad : good;
        bad = fits ? 2 * bad : bad;
    }
    while (!fits && bad - good > 1) {
        int64_t middle = search_between(search, good, bad);
        bool here;
        if (!search_try(search, middle * pieces, &here, error))
            return false;
        *(here ? &good : &bad) = middle;
    }
    search->planned *= pieces;
    return true;
}

static void best_note(const struct search *search)
{
    const struct trial *best = &search->best;
    struct found found = {.what = "batch",
                          .image = best->image,
                          .precision = type_name(best->compute),
                          .ranks = search->world->size,
                          .nodes = best->nodes,
                          .value = (double)best->batch,
                          .global_batch = best->batch * search->world->size,
                          .peak_bytes = (int64_t)best->peak,
                          .limit = (int64_t)search->limit,
                          .detail = ""};
    find_note(&search->plan.options, &found);
}

static void search_report(const struct search *search, struct error *error)
{
    const struct trial *best = &search->best;
    if (best->batch == 0) {
        error_set(error, ERROR_MEMORY, "no batch fits into %.1f MiB a rank%s%s", mib(search->limit),
                  best->why.kind != ERROR_NONE ? ": " : "", best->why.text);
        return;
    }
    if (search->world->rank != 0)
        return;
    printf(
        "\nlargest batch that runs: train.batch=%lld (%lld images a step on %d rank%s), resident "
        "at most %.1f of %.1f MiB a rank\n",
        (long long)best->batch, (long long)best->batch * search->world->size, search->world->size,
        search->world->size == 1 ? "" : "s", mib(best->peak), mib(search->limit));
    printf(
        "the plan says train.batch=%lld (%+.1f %%), and for this one %.1f MiB: measured %+.1f %%\n",
        (long long)search->planned, 100 * ((double)search->planned / (double)best->batch - 1),
        mib(best->planned), 100 * ((double)best->peak / (double)best->planned - 1));
    best_note(search);
}

void find_batch(const struct options *options, struct comm *world, struct error *error)
{
    static struct search search;
    struct comm *node = comm_split_node(world);
    search.world = world;
    error_defer(plan_open(&search.plan, options, world->size, node->size, error));
    node->backend->close(node);
    if (!comm_agree(world, error))
        return;
    if (!limit_find(&search, error))
        return;
    plan_ask(&search);
    if (world->rank == 0)
        printf("limit: %.1f MiB a rank\n    batch  runs  planned MiB     peak MiB     step s\n",
               mib(search.limit));
    if (search_run(&search, error))
        search_report(&search, error);
    if (world->rank == 0)
        error_defer(app_output_arrived(error));
    comm_agree(world, error);
}
