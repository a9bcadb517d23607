// SPDX-License-Identifier: BSD-3-Clause
/* The command `verify` replays steps of a run and compares them with its receipts. */
#include "train/verify.h"

#include <stdio.h>

#include "app/app.h"
#include "config/command_line.h"

static void verify_run(const struct options *options, const struct command_line *line,
                       struct comm *world, struct error *error)
{
    char result[256];
    (void)options; /* the run's options are read first, then those of the line */
    if (line->operand_count != 1) {
        error_set(error, ERROR_USAGE,
                  "verify needs one run: the folder of a run with receipts (output.receipt)");
    } else if (verify_replay(line->operand[0], line, world, result, sizeof result, error)) {
        if (world->rank == 0) {
            puts(result);
            error_defer(app_output_arrived(error));
        }
        comm_agree(world, error);
    }
}

const struct command command_verify = {
    .name = "verify",
    .synopsis = "verify RUN [DECK.ini ...] [section.key=value ...]",
    .summary = "replay steps of a run and compare them bit by bit with its receipts",
    .detail =
        "Loads a checkpoint of a run (verify.from; default: the newest before the last receipt), "
        "replays the steps up to the last receipt with the run's options, and compares loss, norm "
        "of the gradient, weights and optimizer state with receipt.csv, which a run writes with "
        "output.receipt. Prints one line: identical, or the first step and unit that differ, with "
        "the differences between the machines. With train.exact=layout it also names the first "
        "grain (a group of samples) whose forward pass differs, if there is one. Nothing is "
        "written to the run's folder.",
    .run = verify_run,
    .checks_options = true};
