/* What of a run's folder goes to an object store, and one pass over it: the log book (each file of
 * the folder itself: deck, log, tables, events, result, weights) under its own name, and the
 * checkpoints that last.h5 and best.h5 lead to as checkpoints/step-N.h5, with their names in
 * checkpoints/last.txt and checkpoints/best.txt, since a store has no links. */
#ifndef VITTRAIN_STORE_RUN_UPLOAD_H
#define VITTRAIN_STORE_RUN_UPLOAD_H

#include "store/upload.h"

enum { STORE_PATH = 2048 };

struct store_run;

struct store_run_setup {
    const char *folder; /* the run's */
    const char
        *url; /* s3://bucket/prefix; one that ends in / is completed with the folder's name */
    const char *option;   /* what named it, for messages */
    double every_seconds; /* between two sendings of a file of the log book that grows */
    int64_t rate;         /* bytes a second; 0: no limit */
    bool tells;           /* progress */
};

/* Asks nothing of the store yet. NULL: ERROR_USAGE, ERROR_NETWORK (no credentials), ERROR_FILE. */
struct store_run *store_run_open(const struct store_run_setup *setup, struct error *error);
void store_run_close(struct store_run *run);

/* s3://bucket/prefix as completed. */
const char *store_run_url(const struct store_run *run);
const char *store_run_folder(const struct store_run *run);
struct store *store_run_store(const struct store_run *run);

/* Do bucket and credentials let us write there? */
enum store_outcome store_run_check(struct store_run *run, struct error *error);

/* Sends what is new: checkpoints and, of the log book, what is due, or all of it. What has begun is
 * sent to its end; between files the newest checkpoints win. Then superseded checkpoints that this
 * folder has sent are removed from the store. LATER: the rest of the pass was left out. REFUSED: of
 * some files, the others were sent. */
enum store_outcome store_run_pass(struct store_run *run, bool all, struct error *error);

/* What has been sent so far. */
void store_run_sent(const struct store_run *run, int *files, int64_t *bytes);

/* What of the folder as it is now the store has not, with names; 0: it has all. Not while a pass is
 * under way. */
int store_run_missing(struct store_run *run, char *names, size_t size, int64_t *bytes);

#endif
