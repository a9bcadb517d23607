// SPDX-License-Identifier: BSD-3-Clause
/* The tables about one run: each function fills a zeroed sheet from the run's record. Without data
 * the sheet has no rows. */
#ifndef VITTRAIN_TOOLS_REPORT_RUN_TABLES_H
#define VITTRAIN_TOOLS_REPORT_RUN_TABLES_H

#include "tools/report/sheet.h"

/* One row per split: samples, loss, accuracy, macro averages. */
void run_table_splits(struct sheet *sheet, const struct record *record);

/* Metrics of each class, of the test split if it was evaluated; of many classes those with the
 * lowest F1. */
void run_table_classes(struct sheet *sheet, const struct record *record);

/* Errors of each output of a regression, of the test split if it was evaluated. */
void run_table_outputs(struct sheet *sheet, const struct record *record);

/* Parameters, planned memory and times of each unit of the model. */
void run_table_units(struct sheet *sheet, const struct record *record);

/* The columns of ranks.csv that are not empty. */
void run_table_ranks(struct sheet *sheet, const struct record *record);

/* Readings of the sensors, summarized over the run. */
void run_table_sensors(struct sheet *sheet, const struct record *record);

/* One row per attempt, which is a start or a resume of the run. */
void run_table_attempts(struct sheet *sheet, const struct record *record);

/* The options that differ from their defaults. */
void run_table_deck(struct sheet *sheet, const struct record *record);

/* Results of `find batch` and `find lr` for the run's model, from LOGBOOK/found.csv. */
void run_table_found(struct sheet *sheet, const struct record *record, const char *logbook);

/* Make a heading of a column's name: without the ending, with spaces for underscores. */
const char *run_table_words(const char *name, const char *ending, char words[64]);

#endif
