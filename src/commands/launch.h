// SPDX-License-Identifier: BSD-3-Clause
/* `vittrain launch`: runs mpirun or srun without being a rank itself, and starts the command again
 * after a failure. This header is shared by launch*.c. */
#ifndef VITTRAIN_COMMANDS_LAUNCH_H
#define VITTRAIN_COMMANDS_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "options/options.h"

enum { LAUNCH_LINE = 1024, HOSTS_MOST = 4096, HOST_NAME = 256 };

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
    char missing[LAUNCH_LINE]; /* the hosts that do not answer: "n2, n3"; "" if all do */
    bool suffice;   /* the command has a number of ranks, and the others have as many slots */
    int64_t usable; /* ranks on the others: that of the command, or fewer in proportion */
    char agent[OPTION_TEXT];   /* command by which mpirun reaches other hosts: "ssh" and options */
    char reduced[OPTION_TEXT]; /* temporary host file without the missing hosts; "": none */
    char ranks_text[24];
};

/* Read the command line and the host file. ERROR_USAGE: the host file cannot be read. */
MUST_CHECK bool launched_hosts_open(struct launched_hosts *hosts, int count, char *const *words,
                                    struct error *error);
void launched_hosts_close(struct launched_hosts *hosts);

/* Try to reach all hosts at once, in bounded time. */
void launched_hosts_try(struct launched_hosts *hosts);

/* Decide whether to continue on the hosts that answer, and set `missing`, `suffice` and `usable`.
 * `elastic`: also with fewer ranks. `late`: do not wait for the others. */
enum hosts_action { HOSTS_USE, HOSTS_WAIT, HOSTS_GIVE_UP };
enum hosts_action launched_hosts_decide(struct launched_hosts *hosts, bool elastic, bool late);

/* Change `words` to the hosts that answer and to their number of ranks; all other words are those
 * of `original`. */
MUST_CHECK bool launched_hosts_use(struct launched_hosts *hosts, char **words,
                                   char *const *original, struct error *error);

/* True for an mpirun without options about hosts and working directories: it starts all ranks on
 * this host. */
bool launched_command_is_local(int count, char *const *words);

/* ---- launch.c */

/* The result of one execution of the command. */
struct attempt {
    pid_t command;      /* its process; 0: it has ended */
    int code;           /* exit code of the command; 128 + N: ended by signal N */
    double seconds;     /* duration */
    bool asked;         /* a signal asked this process to end */
    bool hung;          /* the command did not end after the run had failed, and was killed */
    bool interrupted;   /* the exit code is 0, but the run has not ended */
    bool progress;      /* the run has a new checkpoint */
    bool out_of_memory; /* the kernel has killed a process of this host to free memory */
};

struct launch_count {
    long restarts, restarts_max;
    int fruitless; /* consecutive attempts without progress */
    double pause;  /* seconds before the next restart */
};

enum launch_action { LAUNCH_END, LAUNCH_RESTART, LAUNCH_GIVE_UP };

/* Decide what follows an attempt, and count it. LAUNCH_END: the exit code is that of the command.
 */
enum launch_action launch_policy(struct launch_count *count, const struct attempt *attempt);

/* The text of a run folder's lock file. */
struct attempt_mark {
    int64_t number; /* 0: an older version wrote the file; -1: there is no such file */
    bool ended;
};

/* The training run that the command starts, as far as its command line shows. */
struct launched_run {
    bool known; /* the command line contains this program with valid options of `train` */
    struct options options;
    const char *folder;         /* run.dir; "": unknown */
    bool by_mpirun, here;       /* launcher_is_mpirun, launched_command_is_local */
    bool was_held;              /* a process has held the folder's lock in this attempt */
    struct attempt_mark before; /* the mark before this attempt */
};

void launched_run_read(struct launched_run *run, int count, char *const *words);

/* Return the step of the newest checkpoint on disk, or -1. For a run with checkpoints in memory,
 * which may be on other hosts, return the last step in metrics.csv if that is larger: a row is
 * written before each of them. */
int64_t launched_run_step(const struct launched_run *run);

/* Call before each attempt. */
void launched_run_begin(struct launched_run *run);

/* True if rank 0 has released the folder's lock in this attempt although the run has not ended.
 * False if locks do not work between this host and that of rank 0. */
bool launched_run_has_failed(struct launched_run *run);

/* True if the run has not ended in its folder, although the command returned 0. For mpirun: true
 * unless a new attempt has begun and ended. For other commands, which may exit without starting the
 * run: true if the last attempt is marked as running. Without a lock file: true if the run would
 * have created it on this host. */
bool launched_run_is_interrupted(const struct launched_run *run);

#endif
