/* `vittrain launch`: a supervisor outside of mpirun or srun, without MPI and without ranks. It runs
 * the command, reads what its ranks say last on stderr, and starts it again after a failure. Below:
 * what is between launch*.c. */
#ifndef VITTRAIN_APP_LAUNCH_H
#define VITTRAIN_APP_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include "core/options.h"

enum { LAUNCH_LINE = 1024 };

/* How one start of the command went. */
struct attempt {
    int code;                  /* its exit code; 128 + N: ended by signal N */
    double seconds;            /* from start to end */
    double failed_at;          /* seconds from its start to the first line of a failure */
    char failure[LAUNCH_LINE]; /* the first "vittrain: failure: " on its stderr; "": none */
    char mistake[LAUNCH_LINE]; /* the first "vittrain: error: "; "": none */
    bool failure_first;        /* of the two, if there are both */
    bool asked;                /* a signal to end came from outside */
    bool killed;               /* it did not end by itself in time after a failure */
};

/* Runs the words in a process group of their own, stdin and stdout passed through, stderr read and
 * passed on line by line, signals to end or stop passed on. `grace`: seconds that it may take to
 * end after a failure. When this returns, no process of the command is left on this machine.
 * ERROR_USAGE: there is no such program. */
bool attempt_run(char *const *words, double grace, struct attempt *attempt, struct error *error);

/* Sleeps; true if a signal to end came meanwhile. Only where attempt_run has blocked the signals
 * (attempt_prepare). */
void attempt_prepare(void);
bool attempt_sleep(double seconds);

/* What the command's own words tell of the run. */
struct launched_run {
    bool known; /* the words hold this program, training, with words that it understands */
    struct options options;
    double since;             /* clock_wall of the launch: older folders are other runs' */
    char folder[OPTION_TEXT]; /* run.dir, or where it was found; "": not yet */
};

void launched_run_read(struct launched_run *run, int count, char *const *words);

/* The newest checkpoint's step, -1: none (or the run is not known). Finds the folder. */
int64_t launched_run_step(struct launched_run *run);

/* Waits until no process holds the run's folder; false: it is still held after so many seconds. */
bool launched_run_wait(const struct launched_run *run, double seconds);

#endif
