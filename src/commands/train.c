// SPDX-License-Identifier: BSD-3-Clause
/* The command `train`. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "commands/app.h"
#include "commands/doctor.h"
#include "options/command_line.h"
#include "options/options.h"
#include "train/trainer.h"

/* Log each line that `print` writes to its file. */
static void options_log(const struct options *options,
                        void (*print)(const struct options *options, FILE *file),
                        void (*log)(const char *format, ...))
{
    struct text_stream lines;
    char *rest = NULL;
    print(options, text_stream_open(&lines));
    char *text = text_stream_close(&lines);
    for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
        log("%s", line);
    free(text);
}

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
    if (!options->output.verbose)
        options_log(options, options_print_changed, log_info);
    options_log(options, options_print, log_detail);
    if (!trainer_open(&trainer, options, world, error))
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
