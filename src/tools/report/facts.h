// SPDX-License-Identifier: BSD-3-Clause
/* The facts about a run: one table, written as HTML (html_tables.c), Markdown and CSV. */
#ifndef VITTRAIN_TOOLS_REPORT_FACTS_H
#define VITTRAIN_TOOLS_REPORT_FACTS_H

#include <stdio.h>

#include "tools/report/format.h"
#include "tools/report/record.h"

struct fact {
    const char *group; /* heading */
    const char *name;
    const char *key; /* column of the CSV */
    enum figure figure;
    int better; /* 1: higher is better, -1: lower is better, 0: neither */

    /* The source, the first of these that is set and known. */
    const char *path;   /* of record_number or record_text */
    const char *last;   /* column of metrics.csv: its last number */
    const char *split;  /* "val" or "test": last evaluation of this split, */
    const char *metric; /* and its metric */
    const char *option; /* of the run's deck */
    const char *mean;   /* column of metrics.csv: mean over the training steps */
    const char *share;  /* the same, relative to the duration of a step */
    double (*number)(const struct record *record);
    double (*relative)(const struct record *record, const struct record *first);
    /* Returns the value if it is a text, or the text of the number. */
    const char *(*text)(const struct record *record, char text[FORMAT_TEXT]);
};

extern const struct fact fact_table[];
extern const int fact_count;

/* Return the fact with this key, which must exist. */
const struct fact *fact_find(const char *key);

/* Return the value; NAN: unknown, or a text. `first`: the run that others are compared with. */
double fact_number(const struct fact *fact, const struct record *record,
                   const struct record *first);

/* Return the formatted value, "-" if it is unknown. `text` is a buffer for the result. */
const char *fact_text(const struct fact *fact, const struct record *record,
                      const struct record *first, char text[FORMAT_TEXT]);

/* Return the formatted value for a cell of a table; empty if it is unknown. */
const char *fact_cell(const struct fact *fact, const struct record *record,
                      const struct record *first, char text[FORMAT_TEXT]);

/* True if the fact is known for any of the runs. */
bool fact_is_known(const struct fact *fact, const struct record *records, int count);

/* True if this run has the best value and not all values are equal. Times are compared between runs
 * of equally many steps only; everything except quality between runs of the same model only. */
bool fact_is_best(const struct fact *fact, const struct record *records, int count, int run);

enum { FACTS_DIFFERENCE = 320 };

/* Return true if speed or scaling efficiency of the run cannot be compared with those of the first,
 * and write the reason: "speed not compared with A: image size 64, not 32". */
bool facts_difference(const struct record *record, const struct record *first,
                      char text[FACTS_DIFFERENCE]);

/* True if several evaluations on the test set chose the best checkpoint. */
bool facts_chosen_on_test(const struct record *record);

/* Write a table of a run with one row per known fact. */
void facts_markdown(const struct record *record, FILE *stream);

/* Write one row per run with all facts; times in seconds, memory in bytes, shares from 0 to 1. */
void facts_csv(const struct record *records, int count, FILE *stream);

#endif
