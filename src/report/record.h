/* What is known of a run, from the folder that it left and nothing else: log book, report and
 * result files are all made of this, so that they can be made again at any time, also of a run that
 * was cut in the middle. What is not there is a line in `missing`, never an error. */
#ifndef VITTRAIN_REPORT_RECORD_H
#define VITTRAIN_REPORT_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"
#include "report/table.h"

struct json_t;

/* Lines of text, owned by the list. */
struct lines {
    int count;
    char **line;
};
void lines_add(struct lines *lines, const char *format, ...) __attribute__((format(printf, 2, 3)));
void lines_free(struct lines *lines);

/* A key of the run's deck. */
struct record_setting {
    char key[64];
    char *value;
    const char *preset; /* the default; NULL: this program has no such key */
};

struct record {
    char path[4096];       /* of the folder */
    char name[256];        /* its last part */
    struct json_t *run;    /* run.json; NULL: not there, as in folders of versions without it */
    struct json_t *result; /* result.json; NULL: not there: cut off, or still running */
    struct table metrics, epochs; /* metrics.csv, epochs.csv */
    struct table monitor;         /* the monitor*.csv of all ranks, rank by rank */
    struct table units;           /* units.csv: memory and time by unit */
    struct table ranks;           /* ranks.csv: a row a rank, at the end of each part */
    int deck_count;
    struct record_setting *deck; /* deck.ini: every key */
    int setting_count;
    const struct record_setting **settings; /* of these, what differs from the defaults */
    struct lines trouble; /* warnings, errors, failures, restarts: train.log's lines about them */
    struct lines checkpoints; /* names of what lies in checkpoints/, newest last */
    struct lines missing;     /* what was not there, torn, of another version: a line each */
};

/* ERROR_FILE: not a folder, or nothing of a run in it. Local. */
MUST_CHECK bool record_read(struct record *record, const char *folder, struct error *error);
void record_free(struct record *record);

/* A value by a path of keys, as "sensors.gpu_power.mean" or "parts.0.hosts"; of the result if that
 * is there and has it, else of the run. NULL (also where it is null), NAN: unknown. */
struct json_t *record_value(const struct record *record, const char *path);
double record_number(const struct record *record, const char *path);
const char *record_text(const struct record *record, const char *path);

/* The value of a key in the run's deck, which always has all; NULL: no deck, no such key. */
const char *record_option(const struct record *record, const char *key);

/* A column of seconds (or of other means over steps) of metrics.csv: the mean over the steps that
 * its training rows tell of; NAN: none does. */
double record_step_mean(const struct record *record, const char *column);

/* Images that trained in a second: as result.json says, or of a run that was cut the images of all
 * training rows over their time; NAN: unknown. */
double record_images_per_second(const struct record *record);

/* "finished", "stopped" (before its last step, on request), "failed" or "interrupted or still
 * running". */
const char *record_status(const struct record *record);

/* Return the sorted names of the files in a subfolder that begin and end like this, to be freed. */
struct lines record_names(const struct record *record, const char *folder, const char *begin,
                          const char *end);

/* How many parts the run had, as run.json counts them; 0: unknown. */
int record_parts(const struct record *record);

/* Seconds since the start of the run until an evaluation first reached the target (top1: at least,
 * loss: at most); NAN: none did. */
double record_seconds_to(const struct record *record, const char *monitor, double target);

#endif
