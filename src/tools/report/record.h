// SPDX-License-Identifier: BSD-3-Clause
/* The record of a run, read from its folder alone. Log book and report are made from it, so they
 * can be made again at any time, also for interrupted runs. A missing file is not an error but a
 * line in `missing`. */
#ifndef VITTRAIN_TOOLS_REPORT_RECORD_H
#define VITTRAIN_TOOLS_REPORT_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"
#include "tools/report/table.h"

struct json_t;

/* Lines of text, owned by the list. */
struct lines {
    int count;
    char **line;
};
void lines_add(struct lines *lines, const char *format, ...) __attribute__((format(printf, 2, 3)));
void lines_free(struct lines *lines);

/* One option in the run's deck. */
struct record_setting {
    char key[64];
    char *value;
    const char *preset; /* the default; NULL: unknown option */
};

struct record {
    char path[4096];              /* of the folder */
    char name[256];               /* last component of the path */
    struct json_t *run;           /* run.json; NULL: missing, as in folders of old versions */
    struct json_t *misclassified; /* misclassified.json, or NULL */
    struct json_t *planes;        /* planes.json, or NULL */
    struct json_t *result; /* result.json; NULL: missing, the run was interrupted or still runs */
    struct table metrics, epochs; /* metrics.csv, epochs.csv */
    struct table monitor;         /* monitor*.csv of all ranks, one after the other */
    struct table units;           /* units.csv: memory and time per unit of the model */
    struct table ranks;           /* ranks.csv: one row per rank and attempt */
    int deck_count;
    struct record_setting *deck; /* deck.ini: all options */
    int setting_count;
    const struct record_setting **settings; /* those that differ from the defaults */
    struct lines trouble;                   /* warnings, errors and restarts from train.log */
    struct lines checkpoints;               /* file names in checkpoints/, newest last */
    struct lines missing;                   /* missing, damaged or incompatible files */
};

/* Read a run folder. Not collective. ERROR_FILE: not a folder, or no file of a run in it. */
MUST_CHECK bool record_read(struct record *record, const char *folder, struct error *error);
void record_free(struct record *record);

/* Return a value of result.json, else of run.json, by a path such as "sensors.gpu_power.mean" or
 * "parts.0.hosts". NULL or NAN: unknown. */
struct json_t *record_value(const struct record *record, const char *path);
double record_number(const struct record *record, const char *path);
const char *record_text(const struct record *record, const char *path);

/* Return a member of a JSON object. NAN or NULL: missing, or of another type. */
double json_number_of(const struct json_t *object, const char *key);
const char *json_text_of(const struct json_t *object, const char *key);

/* Return the value of an option in the run's deck; NULL: no deck, or no such option. */
const char *record_option(const struct record *record, const char *key);

/* Return a metric of an element of "classes"; NAN: unknown. */
double record_class_metric(const struct json_t *class, const char *key);

/* Return the mean over all training steps of a column in metrics.csv whose rows are means over the
 * steps since the previous row; NAN: no such rows. */
double record_step_mean(const struct record *record, const char *column);

/* Return the training throughput from result.json, for interrupted runs from metrics.csv; NAN:
 * unknown. */
double record_images_per_second(const struct record *record);

/* "finished", "stopped" (before its last step, on request), "failed" or "interrupted or still
 * running". */
const char *record_status(const struct record *record);

/* Return the sorted names of the files in a subfolder that begin and end like this, to be freed. */
struct lines record_names(const struct record *record, const char *folder, const char *begin,
                          const char *end);

/* Return the number of attempts in run.json ("parts"); 0: unknown. */
int record_attempts(const struct record *record);

#endif
