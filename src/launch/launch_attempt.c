/* One start of a launched command, from the fork until nothing of it is left. All waiting is one
 * poll of the command's stderr and of the signals that came. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/error.h"
#include "launch/launch.h"

static const char failure_mark[] = "vittrain: failure: ", mistake_mark[] = "vittrain: error: ";
static const char lost_mark[] = "Remote daemon: "; /* Open MPI 4 */

/* Seconds: from SIGTERM to SIGKILL; for words and processes that outlive the command. */
static const double kill_after = 3, last_words = 2, orphans_patience = 5;

enum { LINE_MOST = 1 << 16, SIGNAL_MOST = 64 };

struct running {
    struct attempt *attempt;
    const struct attempt_manner *manner;
    pid_t child;
    int words;      /* our end of its stderr; -1: ended */
    double started; /* clock_now */
    double term_at; /* when it is told to end, and when it is killed; 0: not */
    double kill_at;
    bool ended;
    char line[LINE_MOST];
    size_t length;
};

static int signals = -1; /* a descriptor to read signals from, which are blocked */

static const int passed_on[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

enum { PASSED_ON = sizeof passed_on / sizeof passed_on[0] };

void attempt_prepare(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (int i = 0; i < PASSED_ON; i++)
        sigaddset(&set, passed_on[i]);
    ENSURE(sigprocmask(SIG_BLOCK, &set, NULL) == 0, "cannot block signals: %s", strerror(errno));
    signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    ENSURE(signals >= 0, "cannot read signals: %s", strerror(errno));
    signal(SIGPIPE, SIG_IGN); /* whoever reads our stderr may go away */
    /* What the command leaves behind becomes our child, to be ended and buried. */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* ---- what it says */

static void note(char *text, const char *line, const char *mark)
{
    const char *found = strstr(line, mark);
    if (found != NULL && text[0] == '\0')
        snprintf(text, LAUNCH_LINE, "%s", found + strlen(mark));
}

/* A line without its end. A launcher may have put the rank in front of it. */
static void line_note(struct running *running, const char *line)
{
    struct attempt *attempt = running->attempt;
    bool new = attempt->failure[0] == '\0';
    note(attempt->failure, line, failure_mark);
    if (new && attempt->failure[0] != '\0') {
        attempt->failed_at = clock_now() - running->started;
        attempt->failure_first = attempt->mistake[0] == '\0';
    }
    note(attempt->mistake, line, mistake_mark);
    note(attempt->lost, line, lost_mark);
}

static void pass_on(const struct running *running, const char *text, size_t length)
{
    int output = running->manner->output >= 0 ? running->manner->output : STDERR_FILENO;
    while (length > 0) {
        ssize_t written = write(output, text, length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return; /* nobody reads it: the run goes on */
        text += written;
        length -= (size_t)written;
    }
}

/* Passes the whole lines on; all of it at the end or when a line fills the room. */
static void lines_pass(struct running *running, bool all)
{
    char *begin = running->line, *stop = begin + running->length;
    for (char *end; (end = memchr(begin, '\n', (size_t)(stop - begin))) != NULL; begin = end + 1) {
        pass_on(running, begin, (size_t)(end + 1 - begin));
        *end = '\0';
        line_note(running, begin);
    }
    size_t rest = (size_t)(stop - begin);
    if (rest > 0 && (all || rest == sizeof running->line - 1)) {
        pass_on(running, begin, rest);
        *stop = '\0';
        line_note(running, begin);
        rest = 0;
    }
    memmove(running->line, begin, rest);
    running->length = rest;
}

static void words_read(struct running *running)
{
    ssize_t got = read(running->words, running->line + running->length,
                       sizeof running->line - 1 - running->length);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (got > 0)
        running->length += (size_t)got;
    lines_pass(running, got <= 0);
    if (got <= 0) {
        close(running->words);
        running->words = -1;
    }
}

/* ---- signals */

/* Buries who has ended. */
static void children_reap(struct running *running)
{
    int status;
    pid_t process;
    while ((process = waitpid(-1, &status, WNOHANG)) > 0)
        if (process == running->child) {
            running->ended = true;
            running->attempt->code =
                WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        }
}

/* To the command alone: mpirun and srun pass signals on, the group's others (ssh) would die. */
static void signals_read(struct running *running)
{
    struct signalfd_siginfo info;
    while (read(signals, &info, sizeof info) == (ssize_t)sizeof info) {
        int number = (int)info.ssi_signo;
        if (number == SIGCHLD)
            continue;
        bool again = running->attempt->asked;
        if (number != SIGUSR2)
            running->attempt->asked = true;
        if (running->manner->gently && number != SIGUSR2 && !again)
            number = SIGUSR1;
        if (!running->ended)
            kill(running->child, number);
    }
    children_reap(running);
}

bool attempt_sleep(double seconds)
{
    double end = clock_now() + seconds;
    for (double left = seconds; left > 0; left = end - clock_now()) {
        struct signalfd_siginfo info;
        struct pollfd entry = {.fd = signals, .events = POLLIN};
        if (poll(&entry, 1, (int)(1e3 * left) + 1) <= 0)
            continue;
        while (read(signals, &info, sizeof info) == (ssize_t)sizeof info)
            if (info.ssi_signo != SIGCHLD && info.ssi_signo != SIGUSR2)
                return true;
        while (waitpid(-1, NULL, WNOHANG) > 0)
            continue;
    }
    return false;
}

/* ---- its end */

/* After a failure a launcher may wait for ever (a node that is off, a rank that is stopped). */
static void end_hurry(struct running *running)
{
    struct attempt *attempt = running->attempt;
    double now = clock_now();
    if (running->term_at <= 0 && attempt->failure[0] != '\0') {
        running->term_at = running->started + attempt->failed_at + running->manner->grace;
        running->kill_at = running->term_at + kill_after;
    }
    if (running->term_at <= 0 || now < running->term_at)
        return;
    if (!attempt->killed)
        kill(running->child, SIGTERM);
    attempt->killed = true;
    if (now >= running->kill_at)
        kill(-running->child, SIGKILL);
}

/* The parent of a process, 0 if it is gone: the second number after its name, which is in brackets.
 */
static pid_t parent_of(const char *process)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%.20s/stat", process);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    size_t got = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[got] = '\0';
    const char *bracket = strrchr(text, ')');
    return bracket != NULL && strlen(bracket) > 4 ? (pid_t)atoi(bracket + 4) : 0;
}

static void children_kill(void)
{
    DIR *processes = opendir("/proc");
    if (processes == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(processes)) != NULL;)
        if (isdigit((unsigned char)entry->d_name[0]) && parent_of(entry->d_name) == getpid())
            kill((pid_t)atoi(entry->d_name), SIGKILL);
    closedir(processes);
}

/* Those whose parents have ended are our children now: they get a while to end, too. */
static void orphans_end(struct running *running)
{
    double patience = clock_now() + orphans_patience, end = patience + orphans_patience;
    while (clock_now() < end) {
        pid_t process = waitpid(-1, NULL, WNOHANG);
        if (process < 0)
            return;
        if (process > 0)
            continue;
        if (clock_now() > patience || running->attempt->killed)
            children_kill();
        struct pollfd entry = {.fd = signals, .events = POLLIN};
        poll(&entry, 1, 100);
        signals_read(running);
    }
}

static void words_finish(struct running *running)
{
    double end = clock_now() + last_words;
    while (running->words >= 0 && clock_now() < end) {
        struct pollfd entry = {.fd = running->words, .events = POLLIN};
        if (poll(&entry, 1, 100) > 0)
            words_read(running);
    }
    if (running->words >= 0) {
        lines_pass(running, true);
        close(running->words);
    }
}

/* ---- its beginning */

/* In the child. `report`: where errno goes if there is no such program. */
static _Noreturn void become(char *const *words, int output, int stderr_end, int report)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* nothing is left of who loses its supervisor */
    signal(SIGXFSZ, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGTTIN, SIG_IGN); /* it is not the terminal's foreground */
    signal(SIGTTOU, SIG_IGN);
    if (output >= 0)
        dup2(output, STDOUT_FILENO);
    dup2(stderr_end, STDERR_FILENO);
    execvp(words[0], words);
    int failure = errno;
    ssize_t written = write(report, &failure, sizeof failure);
    (void)written;
    _exit(127);
}

static bool start(struct running *running, char *const *words, struct error *error)
{
    int report[2], pipes[2], failure = 0;
    ENSURE(pipe(pipes) == 0 && pipe(report) == 0, "no pipes: %s", strerror(errno));
    for (int i = 0; i < 2; i++) {
        fcntl(pipes[i], F_SETFD, FD_CLOEXEC);
        fcntl(report[i], F_SETFD, FD_CLOEXEC);
    }
    fflush(NULL);
    running->started = clock_now();
    running->child = fork();
    ENSURE(running->child >= 0, "cannot start a process: %s", strerror(errno));
    if (running->child == 0)
        become(words, running->manner->output, pipes[1], report[1]);
    setpgid(running->child, running->child);
    close(pipes[1]);
    close(report[1]);
    running->words = pipes[0];
    bool good = read(report[0], &failure, sizeof failure) != (ssize_t)sizeof failure;
    close(report[0]);
    if (good)
        return true;
    waitpid(running->child, NULL, 0);
    close(running->words);
    return error_set(error, ERROR_USAGE, "%s: cannot start %s: %s", running->manner->who, words[0],
                     strerror(failure));
}

bool attempt_run(char *const *words, const struct attempt_manner *manner, struct attempt *attempt,
                 struct error *error)
{
    static struct running running;
    memset(&running, 0, sizeof running);
    memset(attempt, 0, sizeof *attempt);
    running.attempt = attempt;
    running.manner = manner;
    if (!start(&running, words, error))
        return false;
    while (!running.ended) {
        struct pollfd entries[] = {{.fd = signals, .events = POLLIN},
                                   {.fd = running.words, .events = POLLIN}};
        int ready = poll(entries, 2, running.term_at > 0 ? 100 : -1);
        if (ready > 0 && entries[1].revents != 0)
            words_read(&running);
        signals_read(&running);
        end_hurry(&running);
    }
    words_finish(&running);
    orphans_end(&running);
    attempt->seconds = clock_now() - running.started;
    return true;
}

/* ---- what came of it */

void attempt_reason(const struct attempt *attempt, char *text, size_t size)
{
    if (attempt->failure[0] != '\0')
        snprintf(text, size, "%s", attempt->failure);
    else if (attempt->mistake[0] != '\0')
        snprintf(text, size, "%s", attempt->mistake);
    else if (attempt->lost[0] != '\0')
        snprintf(text, size, "mpirun has lost a node: %s", attempt->lost);
    else if (attempt->code > 128 && attempt->code <= 128 + SIGNAL_MOST)
        snprintf(text, size, "the command ended with exit code %d (signal %d)", attempt->code,
                 attempt->code - 128);
    else
        snprintf(text, size, "the command ended with exit code %d", attempt->code);
}

bool attempt_is_inside(void)
{
    return getenv("OMPI_COMM_WORLD_RANK") != NULL || getenv("PMIX_RANK") != NULL ||
           getenv("PMI_RANK") != NULL;
}
