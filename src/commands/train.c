// SPDX-License-Identifier: BSD-3-Clause
/* The command `train`. */
#include <signal.h>
#include <string.h>

#include "base/allocate.h"
#include "base/log.h"
#include "commands/app.h"
#include "commands/doctor.h"
#include "options/options.h"
#include "train/trainer.h"

static void train_run(const struct options *options, const struct command_line *line,
                      struct comm *world, struct error *error)
{
    struct trainer trainer;
    signal(SIGPIPE, SIG_IGN); /* continue if standard output is a pipe whose reader has exited */
    if (line->operand_count > 0)
        error_set(error, ERROR_USAGE, "train takes decks and section.key=value, not \"%s\"",
                  line->operand[0]);
    if (error->kind != ERROR_NONE)
        return;
    enum { SHOWN = 1000 };
    OWNED char *changed = options_changed(options);
    if (strlen(changed) > SHOWN)
        strcpy(changed + SHOWN - strlen(" ..."), " ...");
    log_info("options:%s", changed[0] != '\0' ? changed : " all have their defaults");
    if (!trainer_open(&trainer, options, NULL, NULL, world, error))
        return;
    doctor_start(&trainer.session);
    error_defer(trainer_train(&trainer, error));
}

const struct command command_train = {
    .name = "train",
    .synopsis = "[train] [DECK.ini ...] [section.key=value ...]",
    .summary = "train a model; the default command",
    .detail =
        "Trains the model of the deck and writes a run folder with the resolved deck, "
        "metrics.csv, TensorBoard events, checkpoints, the log, result.json, the final and the "
        "best weights, and a row in the log book. An interrupted run with the same deck resumes "
        "from its newest valid checkpoint.",
    .run = train_run};
