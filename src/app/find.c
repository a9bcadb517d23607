/* The command `find`: picks what is to be found. */
#include "app/find.h"

#include <string.h>

#include "app/app.h"
#include "config/command_line.h"
#include "config/options.h"
#include "core/log.h"
#include "mesh/mesh.h"
#include "plan/find_batch.h"
#include "report/found.h"

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
    log_open(world->rank, LOG_WARN); /* tables of memory would bury the answer */
    const char *what = line->operand_count == 1 ? line->operand[0] : "";
    if (strcmp(what, "batch") == 0)
        batch_run(options, world, error);
    else if (strcmp(what, "lr") == 0)
        find_lr(options, world, error);
    else
        error_set(error, ERROR_USAGE, "find what? `vittrain find batch` or `vittrain find lr`");
}

const struct command command_find = {
    .name = "find",
    .synopsis = "find batch|lr [DECK.ini ...] [section.key=value ...]",
    .summary = "the largest batch that really runs on these ranks; a good learning rate",
    .detail =
        "find batch tries batches of the run that the deck describes, on all ranks together: takes "
        "all its memory, runs a step on made-up images of the data's size, measures. A rank may "
        "have plan.memory, else its part of what its node has available, less a twentieth. Prints "
        "each trial, the largest train.batch that runs, and how well the plan predicted it. "
        "find lr is the learning-rate range test (Smith 2017): from update to update of the deck's "
        "run, with its data, optimizer and mesh, the rate grows by the same factor, from "
        "find.first "
        "to find.last in an epoch (find.steps), until the smoothed loss is find.stop times the "
        "lowest. Prints the curve and where it falls fastest, which is the suggestion; leaves the "
        "curve as table and picture (find.output) and keeps no weights. What is found gets a row "
        "in "
        "found.csv of output.logbook.",
    .run = find_run};
