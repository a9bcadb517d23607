// SPDX-License-Identifier: BSD-3-Clause
/* The child process that reads the structure of HDF5 files (hdf5_reader.h), without MPI.
 * posix_spawn shares the memory of the parent until the exec, so it is safe in a process with
 * threads, MPI and pinned memory, where fork is not. The parent sends the path of a file and the
 * list of data sets, each with a zero byte. The child answers with the length of the description in
 * LENGTH hexadecimal digits and the description. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/file.h"
#include "core/hdf5_reader.h"
#include "core/memory.h"

extern char **environ;

enum { CPU_SECONDS = 5, WALL_SECONDS = 60, LENGTH = 16 };
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__ /* sanitizers map terabytes */
enum { MEMORY_LIMITED = 0 };
#else
enum { MEMORY_LIMITED = 1 };
#endif
/* Bytes, besides what the program has mapped; and of a description. */
static const rlim_t memory_more = (rlim_t)1 << 30, memory_least = (rlim_t)64 << 20;
static const size_t text_most = (size_t)1 << 30;
/* A damaged file can cause these signals. The others are blocked in the child: they are sent from
 * outside, for example by mpirun, which forwards SIGUSR1 to all processes of a rank. */
static const int crashes[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGSYS, SIGTRAP, SIGXCPU};
enum { CRASHES = sizeof crashes / sizeof *crashes };

static const char *program = NULL;

void hdf5_child_set_program(const char *path)
{
    program = path;
}

/* ---- the parent ---- */

/* Start the program with default signal handling. Standard error is /dev/null. */
static bool child_start(struct hdf5_child *child, struct error *error)
{
    char *const words[] = {(char[]){"vittrain"}, (char[]){HDF5_CHILD}, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t blocked, all;
    int ends[2] = {-1, -1};
    sigfillset(&all);
    blocked = all;
    sigdelset(&blocked, SIGALRM);
    for (int n = 0; n < CRASHES; n++)
        sigdelset(&blocked, crashes[n]);
    int failure = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0 ? 0 : errno;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, ends[1], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attributes, &blocked);
    posix_spawnattr_setsigdefault(&attributes, &all);
    if (failure == 0)
        failure = posix_spawn(&child->pid, program, &files, &attributes, words, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    child->socket = ends[0];
    close(ends[1]);
    if (failure == 0)
        return true;
    close(ends[0]);
    child->pid = 0;
    return error_set(error, ERROR_MEMORY,
                     "cannot start a process to read a file: %s; check the limits of this job "
                     "(ulimit -a) and that /proc is mounted",
                     strerror(failure));
}

static bool word_send(const struct hdf5_child *child, const char *word)
{
    const size_t bytes = strlen(word) + 1;
    ssize_t done;
    do
        done = send(child->socket, word, bytes, MSG_NOSIGNAL);
    while (done < 0 && errno == EINTR);
    return done == (ssize_t)bytes;
}

/* Read exactly these bytes. */
static bool bytes_receive(const struct hdf5_child *child, char *to, size_t bytes)
{
    while (bytes > 0) {
        const ssize_t done = read(child->socket, to, bytes);
        if (done == 0 || (done < 0 && errno != EINTR))
            return false;
        to += done > 0 ? done : 0;
        bytes -= done > 0 ? (size_t)done : 0;
    }
    return true;
}

/* Close the socket, which ends the child. Return its wait status. */
static int child_wait(struct hdf5_child *child)
{
    int status = 0;
    close(child->socket);
    while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
        continue;
    child->pid = 0;
    return status;
}

void hdf5_child_end(struct hdf5_child *child)
{
    if (child->pid != 0)
        child_wait(child);
}

/* Set the error of a child that has not sent a description. Return NULL. */
static char *child_failed(struct hdf5_reader *reader, struct error *error)
{
    const int status = child_wait(&reader->child);
    const int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    char reason[128];
    bool is_damaged = status == 0;
    for (int n = 0; n < CRASHES; n++)
        is_damaged |= number == crashes[n];
    if (number == SIGALRM)
        snprintf(reason, sizeof reason, "did not end within %d s", WALL_SECONDS);
    else if (number != 0)
        snprintf(reason, sizeof reason, "ended with signal %d (%s)", number, strsignal(number));
    else
        snprintf(reason, sizeof reason, "ended early with exit code %d", WEXITSTATUS(status));
    if (is_damaged)
        error_set(error, reader->kind, "%s is damaged: the process that reads its structure %s",
                  reader->path, reason);
    else
        error_set(error, ERROR_MEMORY,
                  "cannot read %s: the process that reads its structure %s; check free memory, the "
                  "limits of this job (ulimit -a) and the disk, and start again",
                  reader->path, reason);
    return NULL;
}

char *hdf5_child_describe(struct hdf5_reader *reader, struct error *error)
{
    const char *datasets = reader->datasets != NULL ? reader->datasets : "";
    struct hdf5_child *child = &reader->child;
    char length[LENGTH + 1] = "", *text = NULL;
    if (program == NULL)
        return hdf5_describe(reader->path, datasets);
    if (child->pid == 0 && !child_start(child, error))
        return NULL;
    const bool good = word_send(child, reader->path) && word_send(child, datasets) &&
                      bytes_receive(child, length, LENGTH);
    const size_t bytes = strtoull(length, NULL, 16);
    if (good && bytes <= text_most) {
        text = allocate(bytes + 1, 1);
        if (bytes_receive(child, text, bytes))
            return text;
        free(text);
    }
    return child_failed(reader, error);
}

/* ---- the child ---- */

/* Set a soft limit, at most the hard limit. */
static void limit_set(__rlimit_resource_t resource, rlim_t most)
{
    struct rlimit limit;
    ENSURE(getrlimit(resource, &limit) == 0, "getrlimit: %s", strerror(errno));
    limit.rlim_cur = limit.rlim_max < most ? limit.rlim_max : most;
    ENSURE(setrlimit(resource, &limit) == 0, "setrlimit: %s", strerror(errno));
}

static void time_limit(unsigned cpu_seconds)
{
    limit_set(RLIMIT_CPU, (rlim_t)(clock() / CLOCKS_PER_SEC) + cpu_seconds);
    alarm(WALL_SECONDS);
}

bool hdf5_child_limit(unsigned cpu_seconds)
{
    unsigned long long pages = 0; /* of address space that this process uses */
    text_file_number("/proc/self/statm", "", &pages);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    limit_set(RLIMIT_CORE, 0);
    if (MEMORY_LIMITED)
        limit_set(RLIMIT_AS, pages * (rlim_t)sysconf(_SC_PAGESIZE) + memory_more);
    time_limit(cpu_seconds);
    /* A lower limit of the job would make HDF5 report objects of valid files as missing. */
    return memory_mappable(memory_least);
}

/* A file whose description does not fit in memory is damaged. */
static void *allocate_or_crash(size_t bytes)
{
    void *memory = malloc(bytes);
    if (memory == NULL)
        abort();
    return memory;
}

/* A program's error, such as no memory, ends the child like a crash of the library. */
static void crash(int exit_code)
{
    (void)exit_code;
    abort();
}

_Noreturn void hdf5_child_run(void)
{
    char *path = NULL, *datasets = NULL;
    size_t size = 0, datasets_size = 0;
    json_set_alloc_funcs(allocate_or_crash, free);
    error_on_abort(crash);
    if (!hdf5_child_limit(CPU_SECONDS))
        _exit(ERROR_MEMORY);
    while (getdelim(&path, &size, '\0', stdin) > 0 &&
           getdelim(&datasets, &datasets_size, '\0', stdin) > 0) {
        time_limit(CPU_SECONDS);
        char *text = hdf5_describe(path, datasets);
        printf("%0*zx%s", LENGTH, strlen(text), text);
        fflush(stdout);
        free(text);
        alarm(0);
    }
    _exit(ERROR_NONE); /* HDF5's exit handlers may crash after a damaged file */
}
