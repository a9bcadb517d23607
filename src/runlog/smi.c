// SPDX-License-Identifier: BSD-3-Clause
/* Runs nvidia-smi as a child process and reads its output from a pipe. All waits have a time limit,
 * since a hanging driver blocks nvidia-smi. */
#include "runlog/smi.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/atomic_file.h"
#include "core/clock.h"

extern char **environ;

enum { TEXT_MOST = 256 * 1024 /* bytes of output that are kept */, POLL_MILLISECONDS = 50 };
static const double reap_seconds = 2; /* for the child to end */

/* Start the child in a new process group, which can be killed as a whole, with default signal
 * handling (this thread blocks signals). Return an errno value. */
static int child_start(pid_t *child, int output)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    char *const words[] = {(char[]){"nvidia-smi"}, NULL};
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                              POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    int failure = posix_spawnp(child, words[0], &files, &attributes, words, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    return failure;
}

/* Read the output to its end. False: time limit, read error, or no longer wanted. */
static bool output_read(int input, char *text, double until, bool (*wanted)(void *self), void *self)
{
    size_t used = 0;
    char left_out[4096];
    text[0] = '\0';
    while (wanted(self) && clock_now() < until) {
        struct pollfd ready = {.fd = input, .events = POLLIN};
        if (poll(&ready, 1, POLL_MILLISECONDS) <= 0)
            continue;
        bool full = used == TEXT_MOST - 1;
        ssize_t length = read(input, full ? left_out : text + used,
                              full ? sizeof left_out : TEXT_MOST - 1 - used);
        if (length <= 0)
            return length == 0;
        used += full ? 0 : (size_t)length;
        text[used] = '\0';
    }
    return false;
}

/* Wait for the child. False: it was killed, or its exit status is not 0. */
static bool child_end(pid_t child, bool killed)
{
    const double until = clock_now() + reap_seconds;
    int status = 0;
    pid_t ended;
    if (killed)
        kill(-child, SIGKILL);
    while ((ended = waitpid(child, &status, WNOHANG)) == 0 && clock_now() < until)
        nanosleep(&(struct timespec){.tv_nsec = 5 * 1000 * 1000}, NULL);
    if (ended == 0) {
        kill(-child, SIGKILL);
        ended = waitpid(child, &status, WNOHANG);
    }
    return !killed && ended == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool smi_write(const char *path, const char *title, double seconds, bool (*wanted)(void *self),
               void *self, struct error *error)
{
    const double until = clock_now() + seconds;
    struct atomic_file file;
    int ends[2];
    pid_t child;
    char *text = malloc(TEXT_MOST);
    if (text == NULL || pipe(ends) != 0) {
        free(text);
        return false;
    }
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    bool started = child_start(&child, ends[1]) == 0;
    close(ends[1]);
    bool whole = started && output_read(ends[0], text, until, wanted, self);
    bool good = started && child_end(child, !whole) && text[0] != '\0';
    close(ends[0]);
    if (started && !whole && wanted(self))
        error_set(error, ERROR_PEER, "nvidia-smi did not end within %.0f s", seconds);
    if (good && (good = atomic_file_open(&file, path, error))) {
        fprintf(file.stream, "%s\n%s", title, text);
        good = atomic_file_commit(&file, error);
    }
    free(text);
    return good;
}
