// SPDX-License-Identifier: BSD-3-Clause
#include "train/receipts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/phase.h"
#include "core/status.h"
#include "train/progress.h"
#include "train/run_record.h"

bool receipts_due(const struct trainer *trainer, int64_t step)
{
    const struct receipt_table *expected = trainer->receipts.expected;
    const int64_t every = trainer->run.options.output.receipt;
    if (expected != NULL)
        return trainer->receipts.next < expected->count &&
               step == expected->rows[trainer->receipts.next].step;
    return every > 0 && (step % every == 0 || step == trainer->total_steps);
}

/* Writes "weights of blocks.3 differ". */
static void column_describe(const struct model *model, int column, char *text, size_t size)
{
    const int unit = column - RECEIPT_HASHES, units = model->unit_count;
    if (column < RECEIPT_HASHES)
        snprintf(text, size, "%s differs",
                 column == RECEIPT_LOSS ? "the loss" : "the norm of the gradient");
    else
        snprintf(text, size,
                 unit < units ? "weights of %s differ" : "optimizer state or EMA of %s differs",
                 model->units[unit % units].name);
}

/* Compares the receipt with the next row of the run. The error names the first unit that differs,
 * or loss or norm if all units are equal, and the first grain whose hash differs. If only a grain
 * differs, the values are the hashes of that grain. Rank 0. */
static void receipt_compare(const struct trainer *trainer, const struct receipt *receipt,
                            struct error *error)
{
    const struct receipt_table *table = trainer->receipts.expected;
    const struct receipt *row = &table->rows[trainer->receipts.next];
    const int values = table->columns - 1; /* without the step */
    const int grain = receipt_different_grain(row, receipt);
    const size_t grains = strlen(row->grains);
    char before[RECEIPT_CELL], now[RECEIPT_CELL], what[TENSOR_NAME + 48], machine[1024];
    char others[96] = "; all other values are equal";
    int first = 0, different = 0;
    if (grains > 0 && receipt->grains[0] != '\0' && grains != strlen(receipt->grains)) {
        error_set(
            error, ERROR_DATA,
            "receipt.csv: step %lld has another number of grains than the replay; the file is "
            "damaged or of another run",
            (long long)row->step);
        return;
    }
    for (int i = values - 1; i >= 0; i--) {
        int column = 1 + (i + RECEIPT_HASHES - 1) % values; /* the hashes, then loss and norm */
        receipt_cell(row, column, before);
        receipt_cell(receipt, column, now);
        if (strcmp(before, now) != 0) {
            first = column;
            different++;
        }
    }
    if (different == 0 && grain < 0)
        return;
    if (different > 0) {
        receipt_cell(row, first, before);
        receipt_cell(receipt, first, now);
        column_describe(trainer->run.session.model, first, what, sizeof what);
        snprintf(others, sizeof others, "; %d of %d values differ", different, values);
        if (grain >= 0)
            snprintf(others, sizeof others, "; first different grain %d; %d of %d values differ",
                     grain, different, values);
    } else {
        receipt_grain_cell(row, grain, before);
        receipt_grain_cell(receipt, grain, now);
        snprintf(what, sizeof what, "the hash of grain %d differs", grain);
    }
    run_record_compare(trainer, row->step, machine, sizeof machine);
    error_set(error, ERROR_DIFFERENT, "step %lld: %s: receipt %s, replay %s%s%s%s",
              (long long)row->step, what, before, now, others,
              machine[0] != '\0' ? "; the run had other conditions: " : "", machine);
}

/* Starts the sums and hashes of one step. */
void receipts_begin(struct trainer *trainer)
{
    progress_take_sums(trainer);
    if (trainer->run.session.grains == NULL)
        return;
    trainer->receipts.hashes = (struct grain_hashes){0};
    trainer->run.step.hashes = &trainer->receipts.hashes;
}

bool receipts_take(struct trainer *trainer, struct error *error)
{
    const struct flat_model *flat = &trainer->run.session.flat;
    struct grain_hashes *grains = &trainer->receipts.hashes;
    char grains_text[RECEIPT_GRAINS];
    const int hashes = 2 * flat->count;
    status_set_phase(PHASE_REPORT);
    trainer->run.step.hashes = NULL;
    if (!step_finish(&trainer->run.step, &trainer->progress.interval.times, error))
        return false;
    const struct loss_sums own = progress_take_sums(trainer);
    double sums[] = {own.loss, own.samples};
    comm_all_reduce(trainer->run.world, sums, 2, COMM_FP64, COMM_SUM);
    comm_all_reduce(trainer->run.world, grains->hash, grains->count, COMM_INT64, COMM_SUM);
    receipt_grains_text(grains->hash, grains->count, grains_text);
    struct receipt receipt = {.step = trainer->state.step,
                              .loss = sums[1] > 0 ? sums[0] / sums[1] : (double)NAN,
                              .norm = step_norm(&trainer->run.session),
                              .hash = allocate((size_t)hashes, sizeof *receipt.hash),
                              .grains = grains_text};
    flat_hash(flat, receipt.hash);
    if (trainer->receipts.expected == NULL) {
        error_defer(run_log_receipt(trainer->output.log, &receipt, RECEIPT_HASHES + hashes,
                                    &trainer->output.log_error));
    } else {
        if (trainer->run.world->rank == 0)
            receipt_compare(trainer, &receipt, error);
        error_defer(comm_share_error(trainer->run.world, error));
        trainer->receipts.next++;
    }
    free(receipt.hash);
    return error->kind == ERROR_NONE;
}
