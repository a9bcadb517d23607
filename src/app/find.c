/* The command `find` and its results in the log book. */
#include "app/find.h"

#include <string.h>

#include "app/app.h"
#include "config/command_line.h"
#include "config/options.h"
#include "core/log.h"
#include "mesh/mesh.h"
#include "plan/find_batch.h"
#include "report/logbook.h"

void find_note(const struct options *options, struct found *found)
{
    struct error error = {0};
    if (options->output.logbook[0] == '\0')
        return;
    found->model = options->model.name;
    found->strategy = mesh_strategy_name((enum strategy_choice)options->mesh.strategy);
    if (!found_add(options->output.logbook, found, &error))
        log_warn("log book: %s", error.text);
}

static void batch_run(const struct options *options, struct comm *world, struct error *error)
{
    static struct batch_search search;
    if (find_batch(options, world, &search, error) && world->rank == 0) {
        const struct batch_trial *best = &search.best;
        struct found found = {.what = "batch",
                              .image = best->image,
                              .precision = type_name(best->compute),
                              .ranks = world->size,
                              .nodes = best->nodes,
                              .value = (double)best->batch,
                              .global_batch = best->batch * world->size,
                              .peak_bytes = (int64_t)best->peak,
                              .limit = (int64_t)search.limit,
                              .detail = ""};
        find_note(options, &found);
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
        batch_run(options, world, error);
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
        "find batch tries batches of the deck's run on all ranks together: it allocates all memory "
        "and runs a step on random images. The limit per rank is plan.memory, or its share of the "
        "node's available memory less a reserve of 5 %. It prints each trial, the largest "
        "train.batch that runs, and the memory predicted by plan. find lr is the learning-rate "
        "range test (Smith 2017): with the deck's data, optimizer and mesh, the learning rate "
        "grows by the same factor at each update, from find.first to find.last within an epoch "
        "(find.steps), until the smoothed loss exceeds find.stop times its minimum. It prints the "
        "curve and suggests the rate of steepest descent; it writes the curve as a table and a "
        "plot (find.output) and discards the weights. Both add a row to found.csv in "
        "output.logbook.",
    .run = find_run};
