// SPDX-License-Identifier: BSD-3-Clause
/* The standard error of the child is a pipe, whose end marks the end of the program. Its standard
 * output is a file in memory, so that only one stream has to be watched. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* pipe2, memfd_create */
#endif
#include "core/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"

extern char **environ;

static const double kill_seconds = 3, reap_seconds = 2;

/* Start the program with default signal handling. Return an errno value. */
static int child_start(const struct child *child, pid_t *pid, int output, int log)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, log, STDERR_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, (short)(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                                  (child->own_group ? POSIX_SPAWN_SETPGROUP : 0)));
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    const int failure =
        posix_spawnp(pid, child->words[0], &files, &attributes, (char *const *)child->words,
                     child->environment != NULL ? child->environment : environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    return failure;
}

/* Read the log to its end, or end the program. */
static void log_read(struct child *child, pid_t target, int log)
{
    const double start = clock_now();
    const size_t half = child->log_size / 2;
    struct pollfd input = {.fd = log, .events = POLLIN};
    double stopped = 0;
    size_t used = 0;
    for (ssize_t length = 1; length != 0;) {
        if (poll(&input, 1, 100) > 0) {
            if (used > half) { /* keep the newer part */
                memmove(child->log, child->log + used - half, half);
                used = half;
            }
            length = read(log, child->log + used, child->log_size - 1 - used);
            used += length > 0 ? (size_t)length : 0;
            child->log[used] = '\0';
        }
        child->late = child->seconds > 0 && clock_now() > start + child->seconds;
        if (stopped == 0 && (!child->wanted(child, child->self) || child->late)) {
            kill(target, SIGTERM);
            stopped = clock_now();
        }
        if (stopped > 0 && clock_now() > stopped + kill_seconds)
            return;
    }
}

/* Wait for the end of the program, with a limit: SIGKILL has no effect in a driver call that hangs.
 */
static void child_reap(struct child *child, pid_t pid, pid_t target)
{
    const double until = clock_now() + reap_seconds;
    pid_t ended;
    while ((ended = waitpid(pid, &child->status, WNOHANG)) == 0 && clock_now() < until)
        nanosleep(&(struct timespec){.tv_nsec = 5 * 1000 * 1000}, NULL);
    if (ended == 0) {
        kill(target, SIGKILL);
        nanosleep(&(struct timespec){.tv_nsec = 100 * 1000 * 1000}, NULL);
        ended = waitpid(pid, &child->status, WNOHANG);
    }
    if (ended != pid)
        child->status = -1;
}

int child_run(struct child *child)
{
    int log[2] = {-1, -1}, failure = 0;
    pid_t pid;
    const int output = memfd_create("output", MFD_CLOEXEC);
    if (output < 0 || pipe2(log, O_CLOEXEC) != 0)
        failure = errno;
    if (failure == 0)
        failure = child_start(child, &pid, output, log[1]);
    close(log[1]);
    child->log[0] = '\0';
    if (failure == 0) {
        const pid_t target = child->own_group ? -pid : pid;
        log_read(child, target, log[0]);
        child_reap(child, pid, target);
    }
    if (child->output != NULL) {
        ssize_t length = pread(output, child->output, child->output_size, 0);
        child->truncated = length == (ssize_t)child->output_size;
        length -= child->truncated;
        child->output[length > 0 ? length : 0] = '\0';
    }
    close(output);
    close(log[0]);
    return failure;
}
