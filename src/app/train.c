/* The command `train`: a deck in, a run folder out. */
#include <stdio.h>

#include "app/app.h"
#include "train/trainer.h"

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
        trainer.succeeded = trainer_run(&trainer, error);
        trainer_close(&trainer);
    }
}

const struct command command_train = {
    .name = "train",
    .synopsis = "[train] [DECK.ini ...] [section.key=value ...]",
    .summary = "train a model; the default command",
    .detail =
        "Trains the model that the deck describes and leaves a run folder: the resolved deck, "
        "metrics.csv, epochs.csv, TensorBoard events, checkpoints, the log, result.json and the "
        "final weights. An interrupted run with the same deck goes on from its newest good "
        "checkpoint.",
    .run = train_run};
