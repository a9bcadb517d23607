/* The command `train`. */
#include <stdio.h>

#include "app/app.h"
#include "config/command_line.h"
#include "config/options.h"
#include "core/log.h"
#include "report/logbook.h"
#include "train/trainer.h"

/* Add the run to the log book. A failure is a warning. */
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

static void train_run(const struct options *options, const struct command_line *line,
                      struct comm *world, struct error *error)
{
    char folder[OPTION_TEXT];
    if (line->operand_count > 0)
        error_set(error, ERROR_USAGE, "train takes decks and section.key=value, not \"%s\"",
                  line->operand[0]);
    else if (world->rank == 0)
        options_print(options, stdout);
    if (error->kind != ERROR_NONE)
        return;
    trainer_train(options, world, doctor_start, folder, sizeof folder, error);
    if (folder[0] != '\0' && options->output.logbook[0] != '\0')
        logbook_follow(folder, options->output.logbook);
}

const struct command command_train = {
    .name = "train",
    .synopsis = "[train] [DECK.ini ...] [section.key=value ...]",
    .summary = "train a model; the default command",
    .detail =
        "Trains the model of the deck and writes a run folder with the resolved deck, metrics.csv, "
        "epochs.csv, TensorBoard events, checkpoints, the log, result.json and the final weights, "
        "and a page in the log book. An interrupted run with the same deck resumes from its newest "
        "valid checkpoint.",
    .run = train_run};
