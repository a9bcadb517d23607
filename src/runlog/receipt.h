// SPDX-License-Identifier: BSD-3-Clause
/* Receipts of a run: rows of receipt.csv with the exact loss and norm of a step and hashes of the
 * model's state after it. `vittrain verify` replays steps and compares. Columns:
 * docs/outputs.md. */
#ifndef VITTRAIN_RUNLOG_RECEIPT_H
#define VITTRAIN_RUNLOG_RECEIPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/train_options.h"
#include "core/error.h"
#include "mesh/unit.h"

/* Columns before those of the hashes: step, loss, norm of the gradient. The last column, `grains`,
 * is absent in files of older versions. */
enum { RECEIPT_STEP, RECEIPT_LOSS, RECEIPT_NORM, RECEIPT_HASHES };
enum { RECEIPT_CELL = 32, RECEIPT_DIGITS = 16 };
enum { RECEIPT_GRAINS = (RECEIPT_DIGITS + 1) * GRAINS_MOST + 1 };

struct receipt {
    int64_t step; /* completed optimizer steps */
    double loss, norm;
    uint64_t *hash;     /* as flat_hash writes them: weights of all units, then their other state */
    const char *grains; /* the hashes of all grains as in the file; "" without train.exact=layout */
};

/* Return the header line, without its end; the caller frees it. */
char *receipt_header(const struct unit *units, int count);

/* Write a cell as in the file: numbers as C's %a, hashes as 16 hexadecimal digits. */
void receipt_cell(const struct receipt *receipt, int column, char text[RECEIPT_CELL]);

/* Write the hashes of grains as in the file: 16 hexadecimal digits each, separated by spaces. */
void receipt_grains_text(const uint64_t *hash, int64_t count, char text[RECEIPT_GRAINS]);
/* Write the hash of one grain; "" if the receipt has none of it. */
void receipt_grain_cell(const struct receipt *receipt, int grain, char text[RECEIPT_CELL]);
/* Return the first grain whose hash differs, or -1. A receipt without hashes of grains does not
 * differ. */
int receipt_different_grain(const struct receipt *one, const struct receipt *other);

/* The rows of a file, by ascending step. */
struct receipt_table {
    char *header;    /* the first line; owns the text of the whole file, to which rows point */
    int columns;     /* without `grains` */
    bool has_grains; /* the file has the column `grains` */
    struct receipt *rows;
    uint64_t *hashes; /* of all rows */
    int64_t count;
};

/* Read the text of a file; `path` is for messages. An incomplete last line is ignored. */
MUST_CHECK bool receipt_table_read(struct receipt_table *table, const char *text, const char *path,
                                   struct error *error);
void receipt_table_free(struct receipt_table *table);

#endif
