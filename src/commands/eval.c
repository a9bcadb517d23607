// SPDX-License-Identifier: BSD-3-Clause
/* The command `eval` evaluates a checkpoint or weights on a split. */
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "commands/app.h"
#include "options/options.h"
#include "record/evaluation.h"
#include "train/inference.h"

static void evaluation_report(const struct inference *inference,
                              const struct evaluation *evaluation, struct error *error)
{
    struct comm *world = inference->session.world;
    const struct dataset *dataset = &inference->session.validation.dataset;
    evaluation_print(evaluation, dataset, log_info);
    char *text = evaluation_to_text(evaluation, inference->split_name, dataset);
    if (world->rank == 0)
        puts(text);
    free(text);
    evaluation_log(inference->split_name, evaluation, dataset, 6, "");
    char val[OPTION_TEXT];
    options_value_text(&inference->session.options, "data.val", val, sizeof val);
    if (inference->chose_best)
        log_warn("data.val=%s: the best checkpoint was chosen on these images, so its accuracy on "
                 "them is an overestimate; evaluate images that the run has not seen",
                 val);
    if (world->rank == 0 && error->kind == ERROR_NONE)
        error_defer(app_output_arrived(error));
    comm_agree(world, error);
}

static void eval_run(const struct options *options, const struct command_line *line,
                     struct comm *world, struct error *error)
{
    struct inference inference;
    struct evaluation evaluation;
    log_use_stderr(); /* standard output has the results only */
    if (line->operand_count != 1)
        error_set(
            error, ERROR_USAGE,
            "eval needs one operand: a run folder, a checkpoint (.h5) or weights (.safetensors)");
    else if (inference_open(&inference, line->operand[0], NULL, 0, options, line, world, error)) {
        if (evaluation_run(&inference.session, &inference.session.validation, NULL, NULL,
                           &evaluation, error)) {
            if (evaluation.counted == 0 || inference_check(&inference, evaluation.loss, error))
                evaluation_report(&inference, &evaluation, error);
            evaluation_free(&evaluation);
        }
        inference_close(&inference);
    }
}

const struct command command_eval = {
    .name = "eval",
    .synopsis = "eval RUN|CHECKPOINT|WEIGHTS [DECK.ini ...] [section.key=value ...]",
    .summary = "evaluate a checkpoint or weights: loss, accuracy, per-class metrics",
    .detail =
        "Evaluates a checkpoint, weights (safetensors), or the best of a run folder on a split "
        "(predict.split: train, val or test). The model is that of the deck stored in the "
        "checkpoint, or of the metadata of the weights, a deck or model.name. Every sample counts "
        "exactly once on any number of ranks. The results in JSON are printed alone to standard "
        "output, all other lines to standard error.",
    .run = eval_run,
    .checks_options = true};
