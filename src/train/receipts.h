// SPDX-License-Identifier: BSD-3-Clause
/* Receipts of steps: rows of receipt.csv with the exact loss and norm of a step and hashes of the
 * model's state after it (docs/outputs.md). A run writes them, a replay compares its own with those
 * of the run. */
#ifndef VITTRAIN_TRAIN_RECEIPTS_H
#define VITTRAIN_TRAIN_RECEIPTS_H

#include "train/trainer_state.h"

/* The rows of a file, by ascending step. */
struct receipt_table {
    char *text;      /* of the file; it owns the header and the cells */
    char *header;    /* the first line */
    char **cells;    /* [count, columns] */
    int columns;     /* of the file */
    bool has_grains; /* the last one is `grains`, which files of older versions lack */
    int64_t count;
};

/* Read the text of a file; `path` is for messages. An incomplete last line is ignored. */
MUST_CHECK bool receipt_table_read(struct receipt_table *table, const char *text, const char *path,
                                   struct error *error);
int64_t receipt_table_step(const struct receipt_table *table, int64_t row);
void receipt_table_free(struct receipt_table *table);

/* Return the header line, without its end; the caller frees it. */
char *receipts_header(const struct model *model);

/* True if the step, counted from 1, has a receipt. */
bool receipts_due(const struct trainer *trainer, int64_t step);

/* Reset the sums of losses and the hashes of grains. Call it before a step with a receipt. */
void receipts_begin(struct trainer *trainer);

/* Collective. Call it after a step with a receipt. Waits for the device. A run writes the row. A
 * replay fails with ERROR_DIFFERENT, the same on all ranks, if a value differs; the error names the
 * step, the unit, both values, and the first grain whose hash differs. */
MUST_CHECK bool receipts_take(struct trainer *trainer, struct error *error);

#endif
