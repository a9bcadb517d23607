/* The guard of a rank: a child that does nothing but wait for the rank's end, and says how a rank
 * ended that could not say it itself (killed, out of memory, a fault). It is forked before MPI and
 * threads are there, holds nothing of the rank's but stderr, belongs to no group of processes that
 * a launcher signals, and ends when the rank has ended: the end of a pipe tells it. */
#include "comm/internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/status.h"

/* Death by lack of memory, as counted so far: by the kernel for this machine and for the group of
 * processes (container, job) that the rank is in. */
struct memory_deaths {
    long long machine, group;
};

static struct {
    bool open;
    pid_t rank_process, launcher_process;
    int pipe_end; /* the rank's; closed by its end */
    int rank;     /* -1: not known */
    int process;
    const int *node; /* the guards of this node's ranks */
    _Atomic int node_count;
    struct memory_deaths before;
    char events[512]; /* the group's file of counts, or "" */
} guard = {.rank = -1};

void guard_tell_silence(void)
{
    const struct timespec while_it_speaks = {.tv_nsec = 300 * 1000 * 1000};
    if (guard.open && heartbeat_hears_silence() && write(guard.pipe_end, "", 1) == 1)
        nanosleep(&while_it_speaks, NULL);
}

bool guard_is_open(void)
{
    return guard.open;
}

/* ---- the end of the job: a launcher kills its ranks as soon as a first one has ended, perhaps
 * before it is the turn of the others' threads that wait for its SIGTERM; the guards shall not tell
 * that. */

enum { END_SIGNAL = SIGUSR2 };

static const char name_of_guards[] = "vittrain-guard";

int guard_process(void)
{
    return guard.open ? guard.process : 0;
}

void guard_meet(const int *processes, int count)
{
    guard.node = processes;
    guard.node_count = count;
}

enum { PROCESS_NAME = 32 };

/* "" where there is no such process. */
static void process_name(pid_t process, char name[PROCESS_NAME])
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/comm", (long)process);
    FILE *file = fopen(path, "re");
    if (file == NULL || fscanf(file, "%31s", name) != 1)
        name[0] = '\0';
    if (file != NULL)
        fclose(file);
}

/* Or has somebody else got its number, or is it another's in a container? */
static bool is_guard(int process)
{
    char name[PROCESS_NAME];
    process_name(process, name);
    return strcmp(name, name_of_guards) == 0;
}

void guard_tell_end(void)
{
    for (int i = 0; i < guard.node_count; i++)
        if (is_guard(guard.node[i]))
            kill(guard.node[i], END_SIGNAL);
}

/* By the guard, in which all signals are blocked. */
static bool end_was_told(void)
{
    sigset_t pending;
    return sigpending(&pending) == 0 && sigismember(&pending, END_SIGNAL) == 1;
}

/* ---- why */

/* The number behind `key` in a file of "key number" lines; 0 when there is none. */
static long long count_read(const char *path, const char *key)
{
    char line[256], name[64];
    long long value, found = 0;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "%63s %lld", name, &value) == 2 && strcmp(name, key) == 0)
            found = value;
    fclose(file);
    return found;
}

/* Of cgroup 2, or of the older one for memory. */
static void group_find(char *path, size_t size)
{
    char line[400];
    FILE *file = fopen("/proc/self/cgroup", "re");
    path[0] = '\0';
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        const char *old = strstr(line, ":memory:");
        if (old != NULL)
            snprintf(path, size, "/sys/fs/cgroup/memory%s/memory.oom_control",
                     old + strlen(":memory:"));
        else if (strncmp(line, "0::", 3) == 0 && path[0] == '\0')
            snprintf(path, size, "/sys/fs/cgroup%s/memory.events", line + 3);
    }
    if (file != NULL)
        fclose(file);
}

static struct memory_deaths memory_deaths_read(void)
{
    return (struct memory_deaths){.machine = count_read("/proc/vmstat", "oom_kill"),
                                  .group = count_read(guard.events, "oom_kill")};
}

/* What the system still knows of the rank, as wait() would give it; -1: nothing. There is not much
 * time: whoever started the rank takes that knowledge away. */
static int wait_status(void)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)guard.rank_process);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = descriptor >= 0 ? read(descriptor, text, sizeof text - 1) : -1;
    if (descriptor >= 0)
        close(descriptor);
    if (length <= 0)
        return -1;
    text[length] = '\0';
    const char *state = strrchr(text, ')'), *code = strrchr(text, ' ');
    if (state == NULL || code == NULL)
        return -1;
    int status = atoi(code);
    return status != 0 || state[2] == 'Z' ? status : -1;
}

/* Was it told to end, and killed before its handler could say so (a machine that is very busy)? */
static bool was_terminated(void)
{
    char path[64], line[256];
    unsigned long long pending = 0;
    snprintf(path, sizeof path, "/proc/%ld/status", (long)guard.rank_process);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    while (fgets(line, sizeof line, file) != NULL && sscanf(line, "ShdPnd: %llx", &pending) != 1)
        ;
    fclose(file);
    return (pending >> (SIGTERM - 1) & 1) != 0;
}

/* "was killed (signal 9); the kernel did it, as ..." */
static void death_describe(int status, char *text, size_t size)
{
    const struct memory_deaths now = memory_deaths_read();
    int fault = status_fault();
    const char *meaning = signals_meaning(fault);
    if (meaning != NULL)
        snprintf(text, size, "died of signal %d, %s", fault, meaning);
    else if (status >= 0 && WIFEXITED(status))
        snprintf(text, size, "ended without a word, exit status %d", WEXITSTATUS(status));
    else if (status >= 0 && WTERMSIG(status) != SIGKILL)
        snprintf(text, size, "died of signal %d, %s", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else if (now.group > guard.before.group)
        snprintf(text, size,
                 "was killed by the kernel: out of memory (the limit of its job or "
                 "container)");
    else if (now.machine > guard.before.machine)
        snprintf(text, size,
                 "was killed: out of memory, it seems, for which the kernel has killed "
                 "%lld processes on this host since the start",
                 now.machine - guard.before.machine);
    else
        snprintf(text, size, "was killed (signal 9%s)",
                 status >= 0 ? ", from outside" : ", it seems");
}

/* ---- the child */

/* One write, so that lines of several guards do not mix. */
static void say(int descriptor, const char *line, int length)
{
    ssize_t written = length > 0 ? write(descriptor, line, (size_t)length) : 0;
    (void)written;
}

/* The stderr of mpirun, where that is this rank's parent; -1: it is not. */
static int launcher_stderr_open(void)
{
    char path[64], name[PROCESS_NAME];
    process_name(guard.launcher_process, name);
    if (strcmp(name, "mpirun") != 0 && strcmp(name, "mpiexec") != 0 && strcmp(name, "orterun") != 0)
        return -1;
    snprintf(path, sizeof path, "/proc/%ld/fd/2", (long)guard.launcher_process);
    return open(path, O_WRONLY | O_APPEND | O_NOCTTY | O_CLOEXEC);
}

/* Has somebody read what was written to stderr, a pipe? Waits a second for it at most. */
static bool stderr_was_read(void)
{
    const double patience = 1;
    int unread = 0;
    for (double start = clock_now(); clock_now() < start + patience;) {
        struct pollfd reader = {.fd = STDERR_FILENO};
        if (ioctl(STDERR_FILENO, FIONREAD, &unread) != 0 || unread == 0)
            return true;
        if (poll(&reader, 1, 0) == 1 && (reader.revents & POLLERR) != 0)
            return false; /* there is no reader any more */
        nanosleep(&(struct timespec){.tv_nsec = 5 * 1000 * 1000}, NULL);
    }
    return false;
}

/* Does what is written there come behind what others write there? Not always in a file. */
static bool is_stream(int descriptor)
{
    struct stat what;
    return fstat(descriptor, &what) == 0 && !S_ISREG(what.st_mode);
}

/* The launcher has ended the job, as it does when it has lost a machine: which one? It hardly looks
 * any more at what ranks say, so that it is said in its place. */
static void silence_say(void)
{
    char line[4400], silent[4096];
    if (!heartbeat_describe_silent(silent, sizeof silent))
        return;
    int length = snprintf(line, sizeof line,
                          "vittrain: failure: %s; the launcher has ended the job\n", silent);
    int spare = launcher_stderr_open();
    if (spare >= 0 && is_stream(spare)) {
        say(spare, line, length);
    } else {
        say(STDERR_FILENO, line, length);
        if (spare >= 0 && !stderr_was_read())
            say(spare, line, length);
    }
    if (spare >= 0)
        close(spare);
}

static void death_say(void)
{
    char line[1024], death[256], doing[256], rank[32] = "a rank";
    double now = clock_now();
    int status = wait_status();
    if (status_ending() != STATUS_RUNS || end_was_told() || was_terminated() ||
        heartbeat_has_spoken_of(status_tickless(now)))
        return;
    const struct status last = status_read(now);
    death_describe(status, death, sizeof death);
    status_describe(&last, doing, sizeof doing);
    if (guard.rank >= 0)
        snprintf(rank, sizeof rank, "rank %d", guard.rank);
    say(STDERR_FILENO, line,
        snprintf(line, sizeof line, "vittrain: failure: %s on %s %s; it was in %s\n", rank,
                 comm_host(), death, doing));
}

/* Whoever reads stdin or waits for the end of stdout must not wait for the guard. */
static void descriptors_close(int pipe_end)
{
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        int descriptor = atoi(entry->d_name);
        if (descriptor > STDERR_FILENO && descriptor != pipe_end && descriptor != dirfd(folder))
            close(descriptor);
    }
    if (folder != NULL)
        closedir(folder);
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(nothing, STDIN_FILENO);
    dup2(nothing, STDOUT_FILENO);
    if (nothing > STDERR_FILENO)
        close(nothing);
}

/* What `ps` shows, and what others look for who look for the rank. */
static void rename_process(int argc, char **argv)
{
    if (argc < 1)
        return;
    char *begin = argv[0], *end = begin;
    for (int i = 0; i < argc && argv[i] == end; i++)
        end += strlen(end) + 1;
    size_t size = (size_t)(end - begin);
    memset(begin, 0, size);
    snprintf(begin, size, "%s of %ld", name_of_guards, (long)guard.rank_process);
    prctl(PR_SET_NAME, name_of_guards);
}

static _Noreturn void guard_run(int pipe_end, int argc, char **argv)
{
    char byte;
    setpgid(0, 0);
    descriptors_close(pipe_end);
    if (chdir("/") != 0) /* whatever folder it is may be unmounted; it does not matter */
        errno = 0;
    rename_process(argc, argv);
    while (read(pipe_end, &byte, 1) > 0)
        silence_say();
    death_say();
    _exit(0);
}

/* ---- the rank */

static int launched_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                        "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (getenv(names[i]) != NULL)
            return atoi(getenv(names[i]));
    return -1;
}

void guard_open(int argc, char **argv)
{
    int ends[2];
    if (guard.open || !status_share() || pipe(ends) != 0)
        return;
    heartbeat_share();
    fcntl(ends[1], F_SETFD, FD_CLOEXEC); /* programs that the rank starts do not hold it */
    status_set_phase(STATUS_START);
    guard.rank_process = getpid();
    guard.launcher_process = getppid();
    guard.rank = launched_rank();
    group_find(guard.events, sizeof guard.events);
    guard.before = memory_deaths_read();
    comm_host();
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid_t child = fork();
    if (child == 0) {
        close(ends[1]);
        guard_run(ends[0], argc, argv);
    }
    if (child > 0)
        setpgid(child, child); /* whichever of the two comes first */
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(ends[0]);
    guard.open = child > 0;
    guard.process = child;
    guard.pipe_end = ends[1];
    if (!guard.open)
        close(ends[1]);
}
