/* `vittrain launch`: a supervisor outside of mpirun or srun, without MPI and without ranks. It runs
 * the command, reads what its ranks say last on stderr, and starts it again after a failure. Below:
 * what is between launch*.c. */
#ifndef VITTRAIN_LAUNCH_LAUNCH_H
#define VITTRAIN_LAUNCH_LAUNCH_H

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
    char lost[LAUNCH_LINE];    /* mpirun's words on a node that it has lost; "": none */
    bool failure_first;        /* of the two, if there are both */
    bool asked;                /* a signal to end came from outside */
    bool killed;               /* it did not end by itself in time after a failure */
};

/* How a command is run. */
struct attempt_manner {
    const char *who; /* runs it, for messages: "launch" */
    double grace;    /* seconds that it may take to end after a failure */
    int output;      /* descriptor that its stdout and stderr go to; -1: ours */
    /* The first signal to end is passed on as SIGUSR1, by which training stops with a checkpoint,
     * whatever it was; later ones as they are. */
    bool gently;
};

/* Runs the words in a process group of their own, stdin passed through, stdout and stderr too
 * (stderr read and passed on line by line), signals to end or stop passed on. When this returns, no
 * process of the command is left on this machine. ERROR_USAGE: there is no such program. */
bool attempt_run(char *const *words, const struct attempt_manner *manner, struct attempt *attempt,
                 struct error *error);

/* Why it ended, for people. */
void attempt_reason(const struct attempt *attempt, char *text, size_t size);

/* Is this process a rank, which must not launch ranks? A batch script of Slurm is none. */
bool attempt_is_inside(void);

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

/* The hosts of an mpirun line with a host file. */
enum { HOSTS_MOST = 4096, HOST_NAME = 256 };

struct launched_hosts {
    int count; /* 0: there is no host file, or somebody else knows the hosts (Slurm): all is as the
                  words say */
    struct launched_host {
        char name[HOST_NAME];
        char line[HOST_NAME + 128]; /* as the file has it */
        int64_t slots;
        bool answers;
    } * host;
    int file_at;  /* which of the words names the file, */
    int ranks_at; /* and which the number of ranks; 0: none does */
    int64_t ranks;
    char agent[OPTION_TEXT]; /* how mpirun starts programs on other hosts: "ssh" and words */
    char part[OPTION_TEXT];  /* the file of those that answer; "": none was made */
    char ranks_text[24];
};

/* Reads the mpirun line. ERROR_USAGE: a host file that cannot be read. */
bool launched_hosts_open(struct launched_hosts *hosts, int count, char *const *words,
                         struct error *error);
void launched_hosts_close(struct launched_hosts *hosts);

/* Tries all hosts at once, in a bounded time; gives how many do not answer. */
int launched_hosts_try(struct launched_hosts *hosts);

/* "n2, n3": those that do not. */
void launched_hosts_missing(const struct launched_hosts *hosts, char *text, size_t size);

/* Lets the words name a file of the hosts that answer, and so many ranks as those have slots; the
 * whole file again where all answer. Gives the number of ranks, 0: of no host. */
int64_t launched_hosts_use(struct launched_hosts *hosts, char **words, char *const *original,
                           struct error *error);

#endif
