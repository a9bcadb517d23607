// SPDX-License-Identifier: BSD-3-Clause
/* A copy is a process of a shell, which runs rclone. posix_spawn is safe in a process with threads
 * and MPI, where fork is not. The standard error is a pipe: if this process is killed, SIGPIPE ends
 * rclone at its next line of statistics. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* pipe2 */
#endif
#include "record/metrics.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

extern char **environ;

enum { PATH_SIZE = 2048, NAME = 256, LINKS = 2, OUTPUT = 8192, REASON = 512, POLL_SECONDS = 1 };

/* FOLDER REMOTE LAST BEST [OLD...]: copy the folder without hidden and partial files, core dumps
 * and checkpoints other than LAST and BEST. Then delete the checkpoints OLD there. */
static const char script[] =
    "command -v rclone >/dev/null || { echo 'install rclone' >&2; exit 1; }\n"
    "folder=$1 remote=$2 last=$3 best=$4; shift 4\n"
    "call() { rclone \"$@\" --log-file= --ask-password=false --local-no-check-updated \\\n"
    "    --stats=10s --stats-one-line --stats-log-level=NOTICE --contimeout=10s --timeout=30s \\\n"
    "    --retries=2 --low-level-retries=4; }\n"
    "call copy --links --filter=\"+ /checkpoints/${last:-none}\" \\\n"
    "    --filter=\"+ /checkpoints/${best:-none}\" --filter='+ /checkpoints/{last,best}.h5*' \\\n"
    "    --filter='- /*/**' --filter='- .*' --filter='- *.part' --filter='- core' \\\n"
    "    --filter='- core.*' \"$folder\" \"$remote\" || exit\n"
    "for old; do call deletefile \"$remote/checkpoints/$old\"; done; exit 0";

struct remote_copy {
    char folder[PATH_SIZE], remote[PATH_SIZE];
    int64_t checkpoints;       /* complete ones when the newest copy began; -1: no copy yet */
    char sending[LINKS][NAME]; /* targets of last.h5 and best.h5 in the newest copy; "": none */
    char sent[LINKS][NAME];    /* in the newest complete copy */
    bool failing;              /* the newest copy failed */
    char reason[REASON];

    pid_t pid;        /* of the copy in progress; 0: none */
    double polled_at; /* clock */
    int output;
    char text[OUTPUT]; /* the end of its output */
    size_t used;
};

/* ---- the process */

/* Set the reason to rclone's last message: the last line with a date ("2026/11/26 18:22:18 ") that
 * is no statistics ("..., ETA 3s"), without queries of URLs, which contain signatures. */
static void reason_find(struct remote_copy *upload)
{
    char *rest, *begin = upload->text;
    size_t used = 0;
    bool in_query = false;
    for (char *line = strtok_r(begin, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        if (isdigit((unsigned char)line[0]) && strlen(line) > 20 && strstr(line, ", ETA ") == NULL)
            begin = line + 20;
    for (; *begin != '\0' && used < REASON - 1; begin++) {
        in_query = strchr("\" ", *begin) == NULL && (in_query || *begin == '?');
        if (!in_query)
            upload->reason[used++] = *begin;
    }
    upload->reason[used] = '\0';
}

/* Start the shell with default signal handling, in a process group of its own, which Ctrl-C does
 * not reach. Return an errno value. */
static int shell_spawn(pid_t *pid, const char *const *words, int output)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&files, STDIN_FILENO, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, output, STDERR_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, (short)(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                                  POSIX_SPAWN_SETPGROUP));
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    const int failure =
        posix_spawn(pid, "/bin/sh", &files, &attributes, (char *const *)words, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    return failure;
}

static void output_read(struct remote_copy *upload)
{
    ssize_t length;
    while ((length = read(upload->output, upload->text + upload->used, OUTPUT - 1 - upload->used)) >
           0) {
        upload->used += (size_t)length;
        if (upload->used > OUTPUT / 2) { /* keep the newer part */
            memmove(upload->text, upload->text + upload->used - OUTPUT / 4, OUTPUT / 4);
            upload->used = OUTPUT / 4;
        }
    }
    upload->text[upload->used] = '\0';
}

/* ---- copies */

/* Log the first of several failures, and their end. */
static void outcome_log(struct remote_copy *upload, bool failed)
{
    if (failed && !upload->failing)
        log_warn("output.upload: %s; the run continues", upload->reason);
    if (!failed && upload->failing)
        log_info("upload: successful again");
    upload->failing = failed;
}

static void copy_start(struct remote_copy *upload)
{
    static const char *const links[LINKS] = {"last", "best"};
    const char *words[6 + 2 * LINKS + 1] = {"sh", "-c",           script,
                                            "sh", upload->folder, upload->remote};
    int count = 6, output[2] = {-1, -1};
    for (int n = 0; n < LINKS; n++) {
        OWNED char *path = allocate_text("%s/checkpoints/%s.h5", upload->folder, links[n]);
        const ssize_t length = readlink(path, upload->sending[n], NAME - 1);
        upload->sending[n][length > 0 ? length : 0] = '\0';
        words[count++] = upload->sending[n];
    }
    for (int n = 0; n < LINKS; n++)
        if (upload->sent[n][0] != '\0' && strcmp(upload->sent[n], upload->sending[0]) != 0 &&
            strcmp(upload->sent[n], upload->sending[1]) != 0)
            words[count++] = upload->sent[n];
    upload->used = 0;
    const int failure =
        pipe2(output, O_CLOEXEC) != 0 ? errno : shell_spawn(&upload->pid, words, output[1]);
    close(output[1]);
    if (failure == 0) {
        setpriority(PRIO_PROCESS, (id_t)upload->pid, 19);
        fcntl(upload->output = output[0], F_SETFL, O_NONBLOCK);
        return;
    }
    close(output[0]);
    upload->pid = 0;
    snprintf(upload->reason, REASON, "cannot start a process: %s", strerror(failure));
    outcome_log(upload, true);
}

/* ---- the interface */

struct remote_copy *remote_copy_open(const char *folder, const char *remote)
{
    struct remote_copy *upload = allocate(1, sizeof *upload);
    char *path = realpath(folder, NULL);
    const bool is_parent = strchr("/:", remote[strlen(remote) - 1]) != NULL && path != NULL;
    snprintf(upload->folder, sizeof upload->folder, "%s", folder);
    snprintf(upload->remote, sizeof upload->remote, "%s%s", remote,
             is_parent ? strrchr(path, '/') + 1 : "");
    free(path);
    upload->checkpoints = -1;
    return upload;
}

/* End the copy in progress if it is complete, and start the next one. */
static void copy_poll(struct remote_copy *upload, int64_t checkpoints)
{
    const bool wanted = checkpoints > upload->checkpoints;
    int status = -1;
    if (upload->pid != 0) {
        output_read(upload);
        if (waitpid(upload->pid, &status, WNOHANG) == 0)
            return;
        output_read(upload);
        close(upload->output);
        upload->pid = 0;
        if (status == 0)
            memcpy(upload->sent, upload->sending, sizeof upload->sent);
        else
            reason_find(upload);
        /* After a newer checkpoint the run may have removed the one that was copied. */
        if (status == 0 || !wanted)
            outcome_log(upload, status != 0);
    }
    if (upload->pid == 0 && wanted) {
        upload->checkpoints = checkpoints;
        copy_start(upload);
    }
}

void remote_copy_follow(struct remote_copy *upload, int64_t checkpoints)
{
    if (upload->pid != 0 && clock_now() < upload->polled_at + POLL_SECONDS)
        return;
    upload->polled_at = clock_now();
    copy_poll(upload, checkpoints);
}

void remote_copy_close(struct remote_copy *upload, double seconds)
{
    const double until = clock_now() + seconds;
    if (upload == NULL)
        return;
    bool complete = false;
    log_info("upload: waiting up to %.0f s for the last copy", seconds);
    upload->checkpoints = -1;
    while (!complete && clock_now() < until) {
        copy_poll(upload, 0);
        complete = upload->checkpoints == 0 && upload->pid == 0;
        poll(NULL, 0, complete ? 0 : 20);
    }
    if (!complete)
        snprintf(upload->reason, REASON, "out of time");
    if (upload->pid != 0) {
        kill(-upload->pid, SIGTERM);
        poll(NULL, 0, 500);
        kill(-upload->pid, SIGKILL); /* of the group, whose first process is not reaped yet */
        waitpid(upload->pid, NULL, 0);
        close(upload->output);
    }
    if (complete && !upload->failing)
        log_info("upload: all of the run is in %s", upload->remote);
    else
        log_warn("output.upload: not all files of the run are in %s: %s; copy them with `rclone "
                 "copy --links %s %s`",
                 upload->remote, upload->reason, upload->folder, upload->remote);
    free(upload);
}
