/* What is said of a run in a table: one list, from which the report's tables, the Markdown and the
 * CSV of a comparison are made. */
#ifndef VITTRAIN_REPORT_FACTS_H
#define VITTRAIN_REPORT_FACTS_H

#include <stdio.h>

#include "report/format.h"
#include "report/record.h"

struct fact {
    const char *group; /* the heading that it stands under */
    const char *name;
    const char *key; /* its column of a CSV */
    enum figure figure;
    /* One of these. `first` is the run that others are compared with. */
    const char *path; /* of record_number, record_text */
    double (*number)(const struct record *record, const struct record *first);
    const char *(*text)(const struct record *record, char text[FORMAT_TEXT]);
    int better; /* 1: the larger, -1: the smaller; 0: neither */
};

extern const struct fact fact_table[];
extern const int fact_count;

/* NAN: unknown, or a text. */
double fact_number(const struct fact *fact, const struct record *record,
                   const struct record *first);

/* As it is shown, "-" when unknown; `text` holds a number's. */
const char *fact_text(const struct fact *fact, const struct record *record,
                      const struct record *first, char text[FORMAT_TEXT]);

/* By its key; for what shows a few of them only. */
const struct fact *fact_find(const char *key);

/* Is it known of any of the runs? (A speed-up of one run is not.) */
bool fact_is_known(const struct fact *fact, const struct record *records, int count);

/* Is this run's the best of the runs that differ in it? Times of different work have no best. */
bool fact_is_best(const struct fact *fact, const struct record *records, int count, int run);

/* "cut off" and so on: how the run ended. */
const char *record_ending(const struct record *record);

#endif
