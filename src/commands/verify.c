// SPDX-License-Identifier: BSD-3-Clause
/* The command `verify` replays steps of a run and compares them with its receipts. Rank 0 reads the
 * deck and the receipts for all ranks: the run folder may be on its disk only. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "commands/app.h"
#include "options/options.h"
#include "train/trainer.h"

/* Collective. Returns the text of a file of the run, which the caller frees, or NULL and an error
 * that ends with `advice`. Sets `path` to its path. */
static char *file_share(const char *folder, const char *name, const char *advice,
                        char path[FILE_PATH], struct comm *world, struct error *error)
{
    char *text = NULL;
    snprintf(path, FILE_PATH, "%s/%s", folder, name);
    if (world->rank == 0 && (text = text_file_read(path, NULL)) == NULL)
        error_set(error, ERROR_USAGE, "cannot read %s: %s%s", path, strerror(errno), advice);
    if (!comm_share_error(world, error))
        return NULL;
    char *shared = comm_broadcast_text(world, text, 0);
    free(text);
    return shared;
}

/* Collective. Sets the options of the replay: those of the run, then the command line's. */
static bool options_read(struct options *options, const char *folder,
                         const struct command_line *line, struct comm *world, struct error *error)
{
    char path[FILE_PATH];
    char *deck = file_share(folder, "deck.ini", ": name the folder of a run", path, world, error);
    if (deck == NULL)
        return false;
    options_default(options);
    if (options_read_text(deck, path, options, error) && options_apply(line, options, error))
        error_defer(options_check_line(line, options, error));
    free(deck);
    options->mesh.elastic = true; /* the global batch of the checkpoint, on any number of ranks */
    options->train.max_seconds = 0;
    options->checkpoint.every = options->checkpoint.every_seconds = 0;
    options->checkpoint.background = SWITCH_OFF;
    snprintf(options->checkpoint.resume, sizeof options->checkpoint.resume, "auto");
    return comm_agree(world, error);
}

/* Collective. Reads the receipts up to verify.to. Fails if there are none, or if a finished run has
 * steps after its last receipt. With output.receipt=0 in the deck, a later attempt wrote none. */
static bool receipts_read(struct receipt_table *table, const char *folder,
                          const struct options *options, struct comm *world, struct error *error)
{
    char path[FILE_PATH];
    const int64_t to = options->verify.to;
    char *text = file_share(folder, "receipt.csv", ": train with output.receipt=N to have receipts",
                            path, world, error);
    if (text == NULL)
        return false;
    const bool good = receipt_table_read(table, text, path, error);
    free(text);
    if (!good)
        return false;
    if (to > 0)
        table->count = receipts_until(table, to);
    if (table->count == 0)
        return error_set(error, ERROR_USAGE,
                         "%s has no receipts%s: train with output.receipt=N to have them", path,
                         to > 0 ? " up to verify.to" : "");
    const int64_t last = receipt_table_step(table, table->count - 1);
    const int64_t steps = world->rank == 0 ? run_folder_finished_steps(folder) : -1;
    if (to == 0 && options->output.receipt > 0 && last < steps)
        error_set(error, ERROR_DATA,
                  "%s ends at step %lld, but the run has %lld steps (result.json): rows are "
                  "missing; restore it, or set verify.to=%lld",
                  path, (long long)last, (long long)steps, (long long)last);
    return comm_share_error(world, error);
}

/* Collective. Sets `path` to the checkpoint of verify.from; "": the start of the run. */
static bool checkpoint_choose(const char *folder, const struct options *options, int64_t last,
                              struct comm *world, char *path, size_t size, struct error *error)
{
    char directory[OPTION_TEXT + 16], name[CHECKPOINT_NAME];
    path[0] = '\0';
    snprintf(directory, sizeof directory, "%s/checkpoints", folder);
    checkpoint_name(name, options->verify.from);
    if (options->verify.from > 0)
        snprintf(path, size, "%s/%s", directory, name);
    if (options->verify.from >= 0)
        return true;
    const struct checkpoint_target target = {
        .directory = directory, .writers = WRITERS_AUTO, .options = options, .before = last};
    return checkpoint_find(&target, world, path, size, error) ||
           error_set(
               error, ERROR_CHECKPOINT,
               "%s has no valid checkpoint before the receipt of step %lld; set verify.from=0 "
               "to replay the run from its start",
               directory, (long long)last);
}

/* Collective. Replays the run up to the last receipt and prints the result. */
static bool run_replay(const char *folder, const struct options *options,
                       const struct receipt_table *table, struct comm *world, struct error *error)
{
    static struct trainer trainer;
    char checkpoint[FILE_PATH];
    const int64_t last = receipt_table_step(table, table->count - 1);
    if (!checkpoint_choose(folder, options, last, world, checkpoint, sizeof checkpoint, error) ||
        !trainer_open(&trainer, options, table, checkpoint, world, error))
        return false;
    const int64_t from = trainer.state.step, first = receipts_until(table, from);
    trainer.receipts.next = first;
    snprintf(trainer.folder.path, sizeof trainer.folder.path, "%s", folder); /* of result.json */
    if (from >= last)
        error_set(error, ERROR_USAGE,
                  "%s has no receipt after step %lld, the last one is of step %lld; set a lower "
                  "verify.from",
                  folder, (long long)from, (long long)last);
    else if (last > trainer.total_steps)
        error_set(
            error, ERROR_DATA,
            "%s/receipt.csv: step %lld is after the end of the run, which has %lld steps; set "
            "verify.to=%lld, or train.epochs or train.steps as in the run",
            folder, (long long)last, (long long)trainer.total_steps,
            (long long)trainer.total_steps);
    else if (trainer_replay(&trainer, last, error) && world->rank == 0) {
        const long long count = trainer.receipts.next - first;
        printf("%sidentical: steps %lld to %lld, %lld receipt%s\n",
               trainer.state.step < last ? "stopped by a signal; " : "", (long long)from + 1,
               (long long)trainer.state.step, count, count == 1 ? "" : "s");
        error_defer(app_output_arrived(error));
    }
    trainer_close(&trainer);
    return comm_share_error(world, error);
}

static void verify_run(const struct options *unused, const struct command_line *line,
                       struct comm *world, struct error *error)
{
    static struct options options; /* those of the run, then those of the line */
    struct receipt_table table = {.count = 0};
    (void)unused;
    if (line->operand_count != 1)
        error_set(error, ERROR_USAGE,
                  "verify needs one run: the folder of a run with receipts (output.receipt)");
    else if (strlen(line->operand[0]) >= OPTION_TEXT)
        error_set(error, ERROR_USAGE, "%s: the path is too long", line->operand[0]);
    else if (options_read(&options, line->operand[0], line, world, error) &&
             receipts_read(&table, line->operand[0], &options, world, error))
        error_defer(run_replay(line->operand[0], &options, &table, world, error));
    receipt_table_free(&table);
}

const struct command command_verify = {
    .name = "verify",
    .synopsis = "verify RUN [DECK.ini ...] [section.key=value ...]",
    .summary = "replay steps of a run and compare them bit by bit with its receipts",
    .detail =
        "Loads a checkpoint of a run (verify.from; default: the newest before the last receipt), "
        "replays the steps up to the last receipt with the run's options, and compares loss, norm "
        "of the gradient, weights and optimizer state with receipt.csv, which a run writes with "
        "output.receipt. Prints one line: identical, or the first step and value that differ, with "
        "the "
        "differences between the machines. With train.exact=layout it also names the first grain "
        "(a "
        "group of samples) whose forward pass differs, if there is one. Nothing is written to the "
        "run's folder.",
    .run = verify_run,
    .checks_options = true};
