// SPDX-License-Identifier: BSD-3-Clause
/* `vittrain sweep`: many training runs that differ in some options, with a table of their results.
 * Like `launch` it does not use MPI and starts each run as a separate command. This header is
 * shared by sweep*.c. The state of a sweep is in its folder:
 * - base.ini: options that all trials share
 * - keys.txt: the words of the command line that vary options, one per line
 * - command.txt: the words before the program, one per line: mpirun -np 4
 * - trials.csv: one row per trial, written when the trial starts
 * - best.ini: deck of the best trial so far
 * - trial-001/: run folder of the first trial; trial-001.log has its output */
#ifndef VITTRAIN_TOOLS_SWEEP_SWEEP_H
#define VITTRAIN_TOOLS_SWEEP_SWEEP_H

#include "config/options.h"
#include "tools/launch/launch.h"
#include "tools/sweep/sweep_space.h"

enum { SWEEP_WORDS = 256, SWEEP_PATH = OPTION_TEXT + 64 };

struct sweep_words {
    int count;
    char *word[SWEEP_WORDS]; /* never freed */
};

struct sweep {
    char folder[OPTION_TEXT];
    struct options options; /* shared by all trials */
    struct sweep_space space;
    struct sweep_words keys;    /* words that vary an option */
    struct sweep_words command; /* words before the program */
    struct sweep_words extra;   /* settings given together with an existing folder */
    char program[OPTION_TEXT];
    int64_t trials;
    int64_t task; /* number of this process among those that work on the sweep */
    int lock;     /* file descriptor of the task's lock */
};

/* ---- sweep_folder.c */

/* Create the folder of a new sweep, or find that of the same sweep if it was interrupted. */
MUST_CHECK bool sweep_folder_begin(struct sweep *sweep, struct error *error);

/* Read a sweep from its folder. */
MUST_CHECK bool sweep_folder_read(struct sweep *sweep, struct error *error);

/* Take this task's lock until the process ends. ERROR_USAGE: another process holds it. */
MUST_CHECK bool sweep_task_hold(struct sweep *sweep, struct error *error);

/* True if a process holds the lock of that task. */
bool sweep_task_lives(const struct sweep *sweep, int64_t task);

enum sweep_state { SWEEP_RUNNING, SWEEP_FINISHED, SWEEP_FAILED };

struct sweep_row {
    enum sweep_state state;
    int64_t task; /* the task that runs it */
    struct sweep_point point;
    double metric;  /* NAN: none */
    double seconds; /* of all attempts */
    char reason[LAUNCH_LINE];
};

/* Row i is trial i + 1. */
struct sweep_table {
    int64_t count;
    struct sweep_row *rows;
};

/* Wait for the lock of the table and read it. Returns the descriptor of the lock, which is released
 * by close(); -1 on error. */
int sweep_table_open(const struct sweep *sweep, struct sweep_table *table, struct error *error);

/* Read the table without its lock. Without a file the table is empty. */
MUST_CHECK bool sweep_table_read(const struct sweep *sweep, struct sweep_table *table,
                                 struct error *error);

/* Hold the lock. */
MUST_CHECK bool sweep_table_write(const struct sweep *sweep, const struct sweep_table *table,
                                  struct error *error);
struct sweep_row *sweep_table_add(struct sweep_table *table);
void sweep_table_free(struct sweep_table *table);

/* Return the best finished trial, -1 if no trial has finished. */
int64_t sweep_table_best(const struct sweep *sweep, const struct sweep_table *table);
MUST_CHECK bool sweep_best_write(const struct sweep *sweep, const struct sweep_table *table,
                                 struct error *error);

/* Return the number of trials in that state. */
int64_t sweep_table_count(const struct sweep_table *table, enum sweep_state state);

/* Print the table on standard output, the best trial first. */
void sweep_table_print(const struct sweep *sweep, const struct sweep_table *table);

/* Return "top1" or "loss"; *less: a smaller value is better. */
const char *sweep_metric(const struct sweep *sweep, bool *less);

/* ---- sweep_trial.c */

/* Choose the next trial: an interrupted one, or a new one, which is added to the table. *number
 * (from 0) is -1 if no trial is left. */
MUST_CHECK bool sweep_trial_claim(const struct sweep *sweep, int64_t *number, struct sweep_row *row,
                                  struct error *error);

/* Run the trial and store its result in the row. *asked: a signal asked to stop; unless the trial
 * had ended by itself its row stays in the state `running`, so that it is resumed later. */
MUST_CHECK bool sweep_trial_run(const struct sweep *sweep, int64_t number, struct sweep_row *row,
                                bool *asked, struct error *error);

/* Write the row to the table. */
MUST_CHECK bool sweep_trial_record(const struct sweep *sweep, int64_t number,
                                   const struct sweep_row *row, struct error *error);

/* Write the path FOLDER/trial-001ENDING. */
void sweep_trial_path(const struct sweep *sweep, int64_t number, const char *ending, char *path,
                      size_t size);

#endif
