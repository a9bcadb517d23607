/* `vittrain sweep`: many runs that differ in some keys, each started as a command of its own, with
 * a table of what came of them. A supervisor as launch: without MPI. Below: what is between
 * sweep*.c. A sweep's folder is all that a sweep knows of itself:
 *   base.ini    the options that all trials share
 *   keys.txt    the words that say what varies, one a line
 *   command.txt the words in front of the program, one a line: mpirun -np 4
 *   trials.csv  a row a trial, from the moment on when it begins
 *   best.ini    the deck of the best trial so far
 *   trial-001/  the first trial's run, and trial-001.log what it said */
#ifndef VITTRAIN_SWEEP_SWEEP_H
#define VITTRAIN_SWEEP_SWEEP_H

#include "config/options.h"
#include "launch/launch.h"
#include "sweep/sweep_space.h"

enum { SWEEP_WORDS = 256, SWEEP_PATH = OPTION_TEXT + 64 };

struct sweep_words {
    int count;
    char *word[SWEEP_WORDS]; /* not owned, or for ever */
};

struct sweep {
    char folder[OPTION_TEXT];
    struct options options; /* that all trials share */
    struct sweep_space space;
    struct sweep_words keys;    /* that vary something */
    struct sweep_words command; /* in front of the program */
    struct sweep_words extra;   /* settings for all trials that came with the folder */
    char program[OPTION_TEXT];
    int64_t trials;
    int64_t task; /* several may work on a sweep, each with a number of its own */
    int lock;     /* descriptor of the task's lock */
};

/* ---- sweep_folder.c */

/* Makes the folder of a new sweep, or finds the one of the same sweep that was cut off. */
MUST_CHECK bool sweep_folder_begin(struct sweep *sweep, struct error *error);

/* Reads a sweep from its folder. */
MUST_CHECK bool sweep_folder_read(struct sweep *sweep, struct error *error);

/* Local. This task's lock for the life of the process. ERROR_USAGE: another process has it. */
MUST_CHECK bool sweep_task_hold(struct sweep *sweep, struct error *error);

/* Is a process at work that holds the lock of that task? */
bool sweep_task_lives(const struct sweep *sweep, int64_t task);

/* The lock of the table, waited for; -1: no lock can be had there (error). */
int sweep_table_lock(const struct sweep *sweep, struct error *error);
void sweep_table_unlock(int lock);

/* ---- sweep_table.c */

enum sweep_state { SWEEP_RUNNING, SWEEP_FINISHED, SWEEP_FAILED };

struct sweep_row {
    enum sweep_state state;
    int64_t task; /* who runs it */
    struct sweep_point point;
    double metric;  /* NAN: none */
    double seconds; /* of all its parts */
    char reason[LAUNCH_LINE];
};

/* Row i is trial i + 1. */
struct sweep_table {
    int64_t count;
    struct sweep_row *rows;
};

/* No file: no rows. With the lock. */
MUST_CHECK bool sweep_table_read(const struct sweep *sweep, struct sweep_table *table,
                                 struct error *error);
MUST_CHECK bool sweep_table_write(const struct sweep *sweep, const struct sweep_table *table,
                                  struct error *error);
struct sweep_row *sweep_table_add(struct sweep_table *table);
void sweep_table_free(struct sweep_table *table);

/* The best finished trial; -1: there is none. */
int64_t sweep_table_best(const struct sweep *sweep, const struct sweep_table *table);
MUST_CHECK bool sweep_best_write(const struct sweep *sweep, const struct sweep_table *table,
                                 struct error *error);

/* How many have that state. */
int64_t sweep_table_count(const struct sweep_table *table, enum sweep_state state);

/* On standard output, the best first. */
void sweep_table_print(const struct sweep *sweep, const struct sweep_table *table);

/* "top1" or "loss", and whether less of it is better. */
const char *sweep_metric(const struct sweep *sweep, bool *less);

/* ---- sweep_trial.c */

/* The next trial of this task: one that was cut off, or a new one, which has a row then. *number
 * (from 0) is -1 where nothing is left. */
MUST_CHECK bool sweep_trial_take(const struct sweep *sweep, int64_t *number, struct sweep_row *row,
                                 struct error *error);

/* Runs it; the row has how it ended. *asked: a signal came; where the trial had not ended by itself
 * it still runs as far as the row says, and is to be gone on with. */
MUST_CHECK bool sweep_trial_run(const struct sweep *sweep, int64_t number, struct sweep_row *row,
                                bool *asked, struct error *error);

/* Into the table. */
MUST_CHECK bool sweep_trial_note(const struct sweep *sweep, int64_t number,
                                 const struct sweep_row *row, struct error *error);

/* FOLDER/trial-001ENDING */
void sweep_trial_path(const struct sweep *sweep, int64_t number, const char *ending, char *path,
                      size_t size);

#endif
