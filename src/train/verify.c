// SPDX-License-Identifier: BSD-3-Clause
/* Rank 0 reads the deck and the receipts for all ranks: the run folder may be on its disk only. */
#include "train/verify.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "config/command_line.h"
#include "core/file.h"
#include "core/log.h"
#include "train/receipts.h"

/* Collective. Returns the text of a file of the run, which the caller frees, or NULL and an error
 * that ends with `advice`. */
static char *file_share(const char *folder, const char *name, const char *advice,
                        struct comm *world, struct error *error)
{
    char path[FILE_PATH], *text = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
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
    char *deck = file_share(folder, "deck.ini", ": name the folder of a run", world, error);
    if (deck == NULL)
        return false;
    snprintf(path, sizeof path, "%s/deck.ini", folder);
    options_default(options);
    if (options_read_text(deck, path, options, error) && options_apply(line, options, error))
        error_defer(options_check_line(line, options, error));
    free(deck);
    options->mesh.elastic = true; /* the global batch of the checkpoint, on any number of ranks */
    options->train.max_seconds = 0;
    options->checkpoint.every = options->checkpoint.every_seconds = 0;
    options->checkpoint.background = BACKGROUND_NO;
    snprintf(options->checkpoint.resume, sizeof options->checkpoint.resume, "auto");
    return comm_agree(world, error);
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
    const struct checkpoint_target target = {.directory = directory,
                                             .writers = WRITERS_AUTO,
                                             .model = options->model.name,
                                             .before = last};
    return checkpoint_find(&target, world, path, size, error) ||
           error_set(
               error, ERROR_CHECKPOINT,
               "%s has no valid checkpoint before the receipt of step %lld; set verify.from=0 "
               "to replay the run from its start",
               directory, (long long)last);
}

/* Returns the number of receipts up to a step. */
static int64_t receipts_until(const struct receipt_table *table, int64_t step)
{
    int64_t count = 0;
    while (count < table->count && receipt_table_step(table, count) <= step)
        count++;
    return count;
}

/* Fails if the receipts are of another model. Files of older versions lack the last column. */
static bool table_check(const struct receipt_table *table, const char *folder,
                        const struct model *model, struct error *error)
{
    char *header = receipts_header(model);
    if (!table->has_grains)
        *strrchr(header, ',') = '\0';
    bool same = strcmp(header, table->header) == 0;
    free(header);
    return same || error_set(error, ERROR_DATA,
                             "%s/receipt.csv: its columns are not the units of the model: the file "
                             "is damaged or of another run",
                             folder);
}

/* Collective. table->count is the number of receipts to compare. */
static bool run_replay(const char *folder, const struct options *options,
                       const struct receipt_table *table, struct comm *world, char *result,
                       size_t size, struct error *error)
{
    static struct trainer trainer;
    char checkpoint[FILE_PATH];
    const int64_t last = receipt_table_step(table, table->count - 1);
    if (!checkpoint_choose(folder, options, last, world, checkpoint, sizeof checkpoint, error) ||
        !trainer_open_replay(&trainer, options, folder, checkpoint, table, world, error))
        return false;
    const int64_t from = trainer.state.step, first = receipts_until(table, from);
    trainer.receipts.next = first;
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
    else if (table_check(table, folder, trainer.run.session.model, error) &&
             trainer_replay(&trainer, last, error))
        snprintf(result, size, "%sidentical: steps %lld to %lld, %lld receipt%s",
                 trainer.state.step < last ? "stopped by a signal; " : "", (long long)from + 1,
                 (long long)trainer.state.step, (long long)(trainer.receipts.next - first),
                 trainer.receipts.next - first == 1 ? "" : "s");
    trainer_close(&trainer);
    return error->kind == ERROR_NONE;
}

/* Collective. Fails if a finished run has steps after its last receipt. With
 * output.receipt=0 in the deck, a later attempt wrote no receipts. */
static bool table_check_end(const struct receipt_table *table, const char *folder,
                            const struct options *options, struct comm *world, struct error *error)
{
    const int64_t last = receipt_table_step(table, table->count - 1);
    const int64_t steps = world->rank == 0 ? run_folder_finished_steps(folder) : -1;
    if (options->output.receipt > 0 && last < steps)
        error_set(
            error, ERROR_DATA,
            "%s/receipt.csv ends at step %lld, but the run has %lld steps (result.json): rows "
            "are missing; restore it, or set verify.to=%lld",
            folder, (long long)last, (long long)steps, (long long)last);
    return comm_share_error(world, error);
}

bool verify_replay(const char *folder, const struct command_line *line, struct comm *world,
                   char *result, size_t size, struct error *error)
{
    static struct options options;
    struct receipt_table table = {.count = 0};
    char path[FILE_PATH];
    if (strlen(folder) >= OPTION_TEXT)
        return error_set(error, ERROR_USAGE, "%s: the path is too long", folder);
    if (!options_read(&options, folder, line, world, error))
        return false;
    char *text = file_share(folder, "receipt.csv", ": train with output.receipt=N to have receipts",
                            world, error);
    if (text == NULL)
        return false;
    snprintf(path, sizeof path, "%s/receipt.csv", folder);
    bool good = receipt_table_read(&table, text, path, error);
    free(text);
    if (good && options.verify.to > 0)
        table.count = receipts_until(&table, options.verify.to);
    if (good && table.count == 0)
        good = error_set(error, ERROR_USAGE,
                         "%s has no receipts%s: train with output.receipt=N to have them", path,
                         options.verify.to > 0 ? " up to verify.to" : "");
    good =
        good && (options.verify.to > 0 || table_check_end(&table, folder, &options, world, error));
    good = good && run_replay(folder, &options, &table, world, result, size, error);
    receipt_table_free(&table);
    return good;
}
