// SPDX-License-Identifier: BSD-3-Clause
/* The run's row of the log book. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/text.h"
#include "runlog/logbook.h"
#include "train/progress.h"

/* Write a cell with the main figures of an evaluation; NULL: none. */
static void evaluation_cell(FILE *row, const struct evaluation *evaluation,
                            const struct dataset *dataset)
{
    char text[EVALUATION_TEXT] = ", -", cell[LOGBOOK_CELL];
    if (evaluation != NULL)
        evaluation_text(evaluation, dataset, text);
    fprintf(row, " %s |", logbook_cell(text + strlen(", "), cell));
}

/* Write a cell with a number and its unit. NAN: unknown. */
static void number_cell(FILE *row, double value, int digits, const char *unit)
{
    char number[NUMBER_TEXT];
    fprintf(row, " %s%s |", evaluation_number(value, digits, number), isnan(value) ? "" : unit);
}

/* Write a cell with the completed epochs: "10", or "3.5 of 10" before the last step. */
static void epochs_cell(FILE *row, const struct trainer *trainer)
{
    const double done = (double)trainer->state.step / (double)trainer->steps_per_epoch;
    const double planned = (double)trainer->total_steps / (double)trainer->steps_per_epoch;
    if (trainer->state.step < trainer->total_steps)
        fprintf(row, " %.6g of", floor(10 * done) / 10);
    fprintf(row, " %.6g |", ceil(10 * planned) / 10);
}

/* Write a cell with the part of the data that was used: "25 %, at most 7 batches". */
static void data_cell(FILE *row, const struct debug_options *debug)
{
    fprintf(row, " %.3g %%", 100 * debug->fraction);
    if (debug->overfit > 0)
        fprintf(row, ", the first %lld batches", (long long)debug->overfit);
    else if (debug->batches > 0)
        fprintf(row, ", at most %lld batches", (long long)debug->batches);
    fputs(" |", row);
}

void trainer_logbook_add(struct trainer *trainer, const char *failure)
{
    const struct options *options = &trainer->run.options;
    const struct dataset *dataset = &trainer->run.validation.dataset;
    struct error error = {.kind = ERROR_NONE};
    struct text_stream text;
    char cell[LOGBOOK_CELL], total[32];
    if (trainer->run.world->rank != 0 || trainer->attempt.number == 0 ||
        options->output.logbook[0] == '\0')
        return;
    if (failure != NULL) /* else progress_result has set them */
        trainer_update_seconds(trainer);
    const struct results results = progress_results(trainer);
    const struct session *session = &trainer->run.session;
    const double share = results.images_per_second * session->model->flops_per_image /
                         (trainer->peak_flops * results.ranks);
    FILE *row = text_stream_open(&text);
    fprintf(row, "| %s |", logbook_cell(trainer->folder.path, cell));
    fprintf(row, " %.10s %.8s UTC | %s | %d | %d | %s | %s | %lld |", trainer->attempt.started,
            trainer->attempt.started + strlen("2026-11-21T"), results.model, results.ranks,
            results.nodes, session->mesh.strategy, results.precision,
            (long long)results.global_batch);
    epochs_cell(row, trainer);
    evaluation_cell(row, results.evaluation, dataset);
    evaluation_cell(row, results.test, dataset);
    number_cell(row, results.images_per_second, 1, "");
    number_cell(row, 100 * share, 2, " %");
    clock_format(results.total_seconds, total, sizeof total);
    fprintf(row, " %s |", total);
    fprintf(row, " %s |", failure != NULL ? "failed" : results.unfinished ? "stopped" : "finished");
    fprintf(row, " %s |", logbook_cell(failure != NULL ? failure : results.stop_reason, cell));
    data_cell(row, &options->debug);
    fprintf(row, " %s |\n",
            run_reads_weights(options) ? logbook_cell(text_base_name(options->model.init), cell)
                                       : "random");
    char *whole = text_stream_close(&text);
    if (!logbook_add(options->output.logbook, whole, trainer->attempt.number > 1, &error))
        log_warn("cannot add the run to the log book: %s", error.text);
    free(whole);
}
