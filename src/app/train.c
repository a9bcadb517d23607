/* The command `train`: a deck in, a run folder out. */
#include <stdio.h>

#include "app/app.h"
#include "config/command_line.h"
#include "config/options.h"
#include "core/log.h"
#include "report/logbook.h"
#include "train/run_record.h"
#include "train/trainer.h"

/* A run is not worse for a log book that cannot be written. */
static void logbook_follow(const char *folder, const char *logbook)
{
    struct record record;
    struct error error = {.kind = ERROR_NONE};
    if (record_read(&record, folder, &error)) {
        error_defer(logbook_add(logbook, &record, &error));
        record_free(&record);
    }
    if (error.kind != ERROR_NONE)
        log_warn("cannot write the run's page in the log book: %s", error.text);
}

/* From set-up to the end, and what is told of it. */
static void trainer_follow(struct trainer *trainer, const struct options *options,
                           struct error *error)
{
    char folder[OPTION_TEXT];
    trainer->stop.succeeded = trainer_run(trainer, error);
    if (!trainer->stop.succeeded)
        run_record_fail(trainer, error);
    bool ran = trainer->attempt.number > 0; /* on rank 0 */
    snprintf(folder, sizeof folder, "%s", trainer->folder.path);
    trainer_close(trainer);
    if (ran && options->output.logbook[0] != '\0')
        logbook_follow(folder, options->output.logbook);
}

static void train_run(const struct options *options, const struct command_line *line,
                      struct comm *world, struct error *error)
{
    struct trainer trainer;
    if (line->operand_count > 0)
        error_set(error, ERROR_USAGE, "train takes decks and section.key=value, not \"%s\"",
                  line->operand[0]);
    else if (world->rank == 0)
        options_print(options, stdout);
    if (error->kind == ERROR_NONE && trainer_open(&trainer, options, world, error)) {
        doctor_start(&trainer.session);
        trainer_follow(&trainer, options, error);
    }
}

const struct command command_train = {
    .name = "train",
    .synopsis = "[train] [DECK.ini ...] [section.key=value ...]",
    .summary = "train a model; the default command",
    .detail =
        "Trains the model that the deck describes and leaves a run folder: the resolved deck, "
        "metrics.csv, epochs.csv, TensorBoard events, checkpoints, the log, result.json and the "
        "final weights, and a page in the log book. An interrupted run with the same deck goes on "
        "from its newest good "
        "checkpoint.",
    .run = train_run};
