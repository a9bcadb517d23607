// SPDX-License-Identifier: BSD-3-Clause
/* Receipts of a run: rows of receipt.csv with the exact loss and norm of a step and hashes of the
 * model's state after it. `vittrain verify` replays steps and compares. Columns:
 * docs/outputs.md. */
#ifndef VITTRAIN_RUNLOG_RECEIPT_H
#define VITTRAIN_RUNLOG_RECEIPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"
#include "mesh/unit.h"

/* Columns before those of the hashes: step, loss, norm of the gradient. */
enum { RECEIPT_STEP, RECEIPT_LOSS, RECEIPT_NORM, RECEIPT_HASHES };
enum { RECEIPT_CELL = 32 };

struct receipt {
    int64_t step; /* completed optimizer steps */
    double loss, norm;
    uint64_t *hash; /* as flat_hash writes them: weights of all units, then their other state */
};

/* Return the header line, without its end; the caller frees it. */
char *receipt_header(const struct unit *units, int count);

/* Write a cell as in the file: numbers as C's %a, hashes as 16 hexadecimal digits. */
void receipt_cell(const struct receipt *receipt, int column, char text[RECEIPT_CELL]);

/* The rows of a file, by ascending step. */
struct receipt_table {
    char *header;
    int columns;
    struct receipt *rows;
    uint64_t *hashes; /* of all rows */
    int64_t count;
};

/* Read the text of a file; `path` is for messages. An incomplete last line is ignored. */
MUST_CHECK bool receipt_table_read(struct receipt_table *table, const char *text, const char *path,
                                   struct error *error);
void receipt_table_free(struct receipt_table *table);

#endif
