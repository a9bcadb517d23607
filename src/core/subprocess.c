// SPDX-License-Identifier: BSD-3-Clause
/* posix_spawn shares the memory of the parent until the exec, so it is safe in a process with
 * threads, MPI and pinned memory, where fork is not. */
#include "core/subprocess.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/memory.h"

extern char **environ;

enum { WORDS = 16, CPU_SECONDS = 5, WALL_SECONDS = 60 };
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__ /* sanitizers map terabytes */
enum { MEMORY_LIMITED = 0 };
#else
enum { MEMORY_LIMITED = 1 };
#endif
/* bytes, besides what the program has mapped */
static const rlim_t memory_more = (rlim_t)1 << 30, memory_least = (rlim_t)64 << 20;
/* A damaged file can cause these signals. The others are blocked in the child: they are sent from
 * outside, for example by mpirun, which forwards SIGUSR1 to all processes of a rank. */
static const int crashes[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGSYS, SIGTRAP, SIGXCPU};
enum { CRASHES = sizeof crashes / sizeof *crashes };

static const char *program = NULL;

void subprocess_set_program(const char *path)
{
    program = path;
}

bool subprocess_has_program(void)
{
    return program != NULL;
}

/* Start the program with default signal handling. Return an errno value. */
static int program_spawn(pid_t *pid, char *const *words, int socket)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t blocked, all;
    sigfillset(&all);
    blocked = all;
    sigdelset(&blocked, SIGALRM);
    for (int n = 0; n < CRASHES; n++)
        sigdelset(&blocked, crashes[n]);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, socket, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, socket, STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attributes, &blocked);
    posix_spawnattr_setsigdefault(&attributes, &all);
    int failure = posix_spawn(pid, program, &files, &attributes, words, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    return failure;
}

bool subprocess_start(struct subprocess *child, const char *const *words, struct error *error)
{
    char *all[WORDS + 2] = {(char[]){"vittrain"}};
    int ends[2], failure;
    for (int n = 0; n < WORDS && words[n] != NULL; n++)
        all[n + 1] = (char *)words[n];
    failure = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0 ? 0 : errno;
    if (failure == 0) {
        failure = program_spawn(&child->pid, all, ends[1]);
        close(ends[1]);
        if (failure != 0)
            close(ends[0]);
    }
    child->output = ends[0];
    child->truncated = child->no_memory = false;
    return failure == 0 || error_set(error, ERROR_MEMORY,
                                     "cannot start a process to read a file: %s; check the limits "
                                     "of this job (ulimit -a) and that /proc is mounted",
                                     strerror(failure));
}

bool subprocess_send(struct subprocess *child, const void *data, size_t bytes)
{
    ssize_t done;
    do
        done = send(child->output, data, bytes, MSG_NOSIGNAL);
    while (done < 0 && errno == EINTR);
    child->truncated = child->truncated || done != (ssize_t)bytes;
    return !child->truncated;
}

bool subprocess_read(struct subprocess *child, void *data, size_t bytes)
{
    char *to = data;
    while (bytes > 0) {
        ssize_t done = read(child->output, to, bytes);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            child->truncated = true;
            return false;
        }
        to += done;
        bytes -= (size_t)done;
    }
    return true;
}

bool subprocess_read_array(struct subprocess *child, void **array, size_t size, int64_t count,
                           int64_t most)
{
    const bool valid = count >= 0 && count <= most;
    *array = valid ? calloc((size_t)count + 1, size) : NULL;
    child->no_memory = child->no_memory || (valid && *array == NULL);
    if (*array != NULL && subprocess_read(child, *array, (size_t)count * size))
        return true;
    free(*array);
    *array = NULL;
    return false;
}

static bool is_crash(int number)
{
    for (int n = 0; n < CRASHES; n++)
        if (crashes[n] == number)
            return true;
    return false;
}

bool subprocess_end(struct subprocess *child, bool whole, const char *path, enum error_kind damaged,
                    struct error *error)
{
    int status = 0;
    char reason[128];
    close(child->output);
    while (waitpid(child->pid, &status, 0) < 0)
        if (errno != EINTR)
            return error_set(error, ERROR_MEMORY, "cannot read %s: waitpid: %s", path,
                             strerror(errno));
    if (status == 0 && whole)
        return true;
    const int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    /* After invalid output the child may fail because it writes to the closed socket: its status is
     * then not the cause. */
    const bool invalid = !whole && !child->no_memory && (status == 0 || !child->truncated);
    if (child->no_memory)
        snprintf(reason, sizeof reason, "returned more than fits in memory");
    else if (invalid)
        snprintf(reason, sizeof reason, "returned an incomplete result");
    else if (number == SIGXCPU)
        snprintf(reason, sizeof reason, "did not end within %d s of CPU time", CPU_SECONDS);
    else if (number == SIGALRM)
        snprintf(reason, sizeof reason, "did not end within %d s", WALL_SECONDS);
    else if (number != 0)
        snprintf(reason, sizeof reason, "ended with signal %d (%s)", number, strsignal(number));
    else
        snprintf(reason, sizeof reason, "ended with exit code %d", WEXITSTATUS(status));
    if (invalid || is_crash(number))
        return error_set(error, damaged, "%s is damaged: reading its structure %s", path, reason);
    return error_set(error, ERROR_MEMORY,
                     "cannot read %s: the process that reads its structure %s; check free memory, "
                     "the limits of this job (ulimit -a) and the disk, and start again",
                     path, reason);
}

/* The bytes of address space that this process uses. */
static rlim_t memory_mapped(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file != NULL) {
        if (fscanf(file, "%lu", &pages) != 1)
            pages = 0;
        fclose(file);
    }
    return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

static void limit_set(__rlimit_resource_t resource, rlim_t most)
{
    struct rlimit limit;
    ENSURE(getrlimit(resource, &limit) == 0, "getrlimit: %s", strerror(errno));
    if (limit.rlim_cur > most)
        limit.rlim_cur = most;
    ENSURE(setrlimit(resource, &limit) == 0, "setrlimit: %s", strerror(errno));
}

bool subprocess_limit(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    limit_set(RLIMIT_CORE, 0);
    limit_set(RLIMIT_CPU, CPU_SECONDS);
    if (MEMORY_LIMITED)
        limit_set(RLIMIT_AS, memory_mapped() + memory_more);
    alarm(WALL_SECONDS);
    /* A lower limit of the job would make HDF5 report objects of valid files as missing. */
    return memory_mappable(memory_least);
}
