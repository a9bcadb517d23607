// SPDX-License-Identifier: BSD-3-Clause
/* `vittrain launch`: runs mpirun or srun without being a rank itself, and starts the command again
 * after a failure. This header is shared by launch*.c. */
#ifndef VITTRAIN_TOOLS_LAUNCH_LAUNCH_H
#define VITTRAIN_TOOLS_LAUNCH_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include "config/options.h"

enum { LAUNCH_LINE = 1024 };
enum { HOSTS_MOST = 4096, HOST_NAME = 256 };

/* ---- launch_cause.c */

/* Processes that the kernel's out-of-memory killer has ended so far: in this process's cgroup and
 * on this host. -1: unknown. */
struct oom_kills {
    long long cgroup, host;
};

struct oom_kills oom_kills_read(void);

/* A death by a signal. */
struct death {
    char text[LAUNCH_LINE]; /* "rank 5 on node2 was killed by signal 9 (Killed)"; "": none */
    char host[HOST_NAME];
    int rank, signal;
    bool begun; /* mpirun's text has begun; the line with the signal may follow */
};

/* Parse the next line of mpirun or srun; true if it completes the report of a death. */
bool death_read(const char *line, struct death *death);

/* Append the probable cause to death->text. `before`: read before the ranks were started. */
void death_explain(struct death *death, const struct oom_kills *before);

/* For a launcher that reports no death: if the kernel's out-of-memory killer has ended a process
 * since `before`, describe that death. Otherwise do nothing. */
void death_suspect(struct death *death, const struct oom_kills *before);

/* ---- launch_attempt.c */

/* The result of one execution of the command. */
struct attempt {
    int code;                  /* exit code of the command; 128 + N: ended by signal N */
    int signal;                /* the signal that ended the command; 0: it has exited */
    double seconds;            /* duration */
    char failure[LAUNCH_LINE]; /* the first "vittrain: failure: " line on stderr; "": none */
    char mistake[LAUNCH_LINE]; /* the first "vittrain: error: " line; "": none */
    char lost[LAUNCH_LINE];    /* mpirun's line about a lost node; "": none */
    struct death death;        /* the first death that mpirun or srun reported, or the result of
                                  death_suspect */
    bool cut_off;              /* the exit code is 0, but the run has not ended */
    bool failure_first;        /* failure was printed before mistake */
    bool asked;                /* a signal asked this process to end */
    bool killed;               /* the command did not end in time after a failure */
};

struct attempt_options {
    double grace; /* seconds that the command may take to end after a failure */
    /* True if the first SIGTERM, SIGINT, SIGHUP or SIGQUIT is passed on as SIGUSR1, which stops
     * training with a checkpoint. Then Open MPI's odls_base_sigkill_timeout is also set to 0,
     * unless the user has set it: ranks need no time after SIGTERM. */
    bool gently;
};

/* Run the command `words` in a new process group and wait for it. stdin and
 * stdout are inherited; stderr is read and passed on by line. Signals are passed on. On return no
 * process of the command is left on this host. ERROR_USAGE: the program cannot be
 * executed. */
MUST_CHECK bool attempt_run(char *const *words, const struct attempt_options *options,
                            struct attempt *attempt, struct error *error);

/* Describe in one line why the attempt ended. */
void attempt_reason(const struct attempt *attempt, char *text, size_t size);

/* Block the signals that attempt_run and attempt_sleep read. Call once before both. */
void attempt_prepare(void);

/* Sleep; true if a signal asked this process to end. */
bool attempt_sleep(double seconds);

/* ---- launch_run.c */

/* Ranks that an mpirun command certainly starts on this host, in this working directory. */
enum launched_here { HERE_UNKNOWN, HERE_RANK_0, HERE_ALL_RANKS };

/* The training run that the command starts, as far as its command line shows. */
struct launched_run {
    bool known; /* the command line contains this program with valid options of `train` */
    struct options options;
    bool by_mpirun; /* the command is an mpirun */
    enum launched_here here;
    double since;             /* clock_wall() of the launch; older run folders are ignored */
    char folder[OPTION_TEXT]; /* run.dir, or the folder that was found; "": not yet known */
};

void launched_run_read(struct launched_run *run, int count, char *const *words);

/* Return the step of the newest checkpoint on disk or in the memory of this host, or -1 if there is
 * none or the run is unknown. Set `elsewhere` if the run may have checkpoints in memory, but no
 * folder for them on this host. Then return the last step in metrics.csv, if that is larger: a row
 * is written before each checkpoint in memory. Also finds the run folder. */
int64_t launched_run_step(struct launched_run *run, bool *elsewhere);

/* The text of the run's lock file: "attempt 2 ended". */
struct attempt_mark {
    char folder[OPTION_TEXT]; /* of the run */
    int64_t number;           /* 0: an older version wrote the file; -1: there is no such file */
    bool ended;
};

struct attempt_mark launched_run_mark(struct launched_run *run);

/* True if an attempt has begun in a run folder since `before`. */
bool launched_run_has_begun(struct launched_run *run, const struct attempt_mark *before);

/* True if the attempt has not ended in the run folder, although the command returned 0. `before`:
 * launched_run_mark before the attempt. For mpirun: true unless a new attempt has begun and ended.
 * For other commands, which may exit without starting the run: true if the last attempt is marked
 * as running. Without a run folder on this host: true if mpirun starts rank 0 here. */
bool launched_run_is_interrupted(struct launched_run *run, const struct attempt_mark *before);

/* Wait until no process holds the lock of the run folder. ERROR_PEER if it is still held after
 * `seconds` or a signal asked this process to end. */
MUST_CHECK bool launched_run_wait(const struct launched_run *run, double seconds,
                                  struct error *error);

/* ---- launch_hosts.c */

/* The hosts of an mpirun command with a host file. */
struct launched_hosts {
    int count; /* 0: no host file, or Slurm chooses the hosts */
    struct launched_host {
        char name[HOST_NAME];
        char line[HOST_NAME + 128]; /* its line in the host file */
        int64_t slots;
        bool answers;
    } * host;
    int file_at;  /* index of the word that names the host file */
    int ranks_at; /* index of the word with the number of ranks; 0: none */
    int64_t ranks;
    char agent[OPTION_TEXT];   /* command by which mpirun reaches other hosts: "ssh" and options */
    char reduced[OPTION_TEXT]; /* temporary host file without the missing hosts; "": none */
    char ranks_text[24];
};

/* Read the command line and the host file. ERROR_USAGE: the host file cannot be read. */
MUST_CHECK bool launched_hosts_open(struct launched_hosts *hosts, int count, char *const *words,
                                    struct error *error);
void launched_hosts_close(struct launched_hosts *hosts);

/* Try to reach all hosts at once, in bounded time; return the number that do not answer. `lost`:
 * attempt.lost; that host is not waited for if the others suffice. */
int launched_hosts_try(struct launched_hosts *hosts, const char *lost);

/* List the hosts that do not answer: "n2, n3". */
void launched_hosts_missing(const struct launched_hosts *hosts, char *text, size_t size);

/* True if the command has a number of ranks, and the hosts that answer have as many slots. */
bool launched_hosts_suffice(const struct launched_hosts *hosts);

/* Change `words` to a host file with only the hosts that answer. If they have too few slots, reduce
 * the number of ranks in proportion. Restores `original` if all answer. Return the number of ranks,
 * 0 on error or if no host answers. */
int64_t launched_hosts_use(struct launched_hosts *hosts, char **words, char *const *original,
                           struct error *error);

bool launched_host_is_local(const char *name);

/* HERE_ALL_RANKS: an mpirun without options about hosts. HERE_RANK_0: the first host of its host
 * file is this one. HERE_UNKNOWN: all else, also under Slurm or with a working directory. */
enum launched_here launched_ranks_here(int count, char *const *words);

#endif
