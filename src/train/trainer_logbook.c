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

void trainer_logbook_add(struct trainer *trainer, const char *failure)
{
    const struct run *run = &trainer->run;
    const struct options *options = &run->options;
    const struct debug_options *debug = &options->debug;
    const struct training_state *state = &trainer->state;
    const char *logbook = options->output.logbook;
    const double epoch = (double)trainer->steps_per_epoch;
    struct error error = {.kind = ERROR_NONE};
    struct text_stream text;
    char cell[LOGBOOK_CELL], total[32], speed[NUMBER_TEXT], share[NUMBER_TEXT];
    if (run->world->rank != 0 || trainer->attempt.number == 0 || logbook[0] == '\0')
        return;
    if (failure != NULL) /* else progress_result has set them */
        trainer_update_seconds(trainer);
    const struct results results = progress_results(trainer);
    const double mfu = results.images_per_second * run->session.model->flops_per_image /
                       (trainer->peak_flops * run->world->size);

    /* The configuration, and the completed epochs: "10", or "3.5 of 10" before the last step. */
    FILE *row = text_stream_open(&text);
    fprintf(row, "| %s | %.10s %.8s UTC | %s | %d | %d | %s | %s | %lld |",
            logbook_cell(trainer->folder.path, cell), trainer->attempt.started,
            trainer->attempt.started + strlen("2026-11-21T"), options->model.name, run->world->size,
            run->session.mesh.node_count, run->session.mesh.strategy,
            type_name(run->session.compute), (long long)run->global_batch);
    if (state->step < trainer->total_steps)
        fprintf(row, " %.6g of", floor(10 * (double)state->step / epoch) / 10);
    fprintf(row, " %.6g |", ceil(10 * (double)trainer->total_steps / epoch) / 10);

    /* The results. */
    evaluation_cell(row, results.evaluation, &run->validation.dataset);
    evaluation_cell(row, results.test, &run->validation.dataset);
    clock_format(state->total_seconds, total, sizeof total);
    fprintf(row, " %s | %s%s | %s | %s | %s |",
            evaluation_number(results.images_per_second, 1, speed),
            evaluation_number(100 * mfu, 2, share), isnan(mfu) ? "" : " %", total,
            failure != NULL      ? "failed"
            : results.unfinished ? "stopped"
                                 : "finished",
            logbook_cell(failure != NULL ? failure : results.stop_reason, cell));

    /* The part of the data that was used, "25 %, at most 7 batches", and the initial weights. */
    fprintf(row, " %.3g %%", 100 * debug->fraction);
    if (debug->overfit > 0)
        fprintf(row, ", the first %lld batches", (long long)debug->overfit);
    else if (debug->batches > 0)
        fprintf(row, ", at most %lld batches", (long long)debug->batches);
    fprintf(row, " | %s |\n",
            run_reads_weights(options) ? logbook_cell(text_base_name(options->model.init), cell)
                                       : "random");
    char *whole = text_stream_close(&text);
    if (!logbook_add(logbook, whole, trainer->attempt.number > 1, &error))
        log_warn("cannot add the run to the log book: %s", error.text);
    free(whole);
}
