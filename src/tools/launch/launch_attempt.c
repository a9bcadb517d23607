// SPDX-License-Identifier: BSD-3-Clause
/* One execution of the launched command, from fork until none of its processes is left on this
 * host. A single poll() waits for the command's stderr and for signals. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "config/options.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/folder.h"
#include "tools/launch/launch.h"

/* Seconds: from SIGTERM to SIGKILL; for output after the command's end; for processes that outlive
 * the command. */
static const double kill_after = 3, output_patience = 2, orphans_patience = 5;

enum { LINE_MOST = 1 << 16 };

struct running {
    struct attempt *attempt;
    const struct attempt_options *options;
    struct oom_kills oom_before;
    pid_t child;
    int output;                /* read end of its stderr; -1: closed */
    char session[OPTION_TEXT]; /* session folder of mpirun; "": the default one */
    double started;            /* clock_now() */
    double term_at, kill_at;   /* clock_now() of SIGTERM and SIGKILL; 0: not planned */
    bool ended;
    char line[LINE_MOST];
    size_t length;
};

static int signals = -1; /* signalfd of the blocked signals */

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
    signal(SIGPIPE, SIG_IGN); /* the reader of our stderr may exit first */
    /* Orphaned processes of the command become children of this one. */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* ---- output of the command */

/* Copy what follows `mark` in the line, unless an earlier line had the mark. */
static void text_keep(char *text, const char *line, const char *mark)
{
    const char *found = strstr(line, mark);
    if (found != NULL && text[0] == '\0')
        snprintf(text, LAUNCH_LINE, "%s", found + strlen(mark));
}

/* Store in the attempt what a line of stderr reports. `line` has no newline. A launcher may have
 * put the rank in front of it. */
static void line_parse(struct running *running, const char *line)
{
    struct attempt *attempt = running->attempt;
    bool first = attempt->failure[0] == '\0';
    text_keep(attempt->failure, line, "vittrain: failure: ");
    if (first && attempt->failure[0] != '\0')
        attempt->failure_first = attempt->mistake[0] == '\0';
    text_keep(attempt->mistake, line, "vittrain: error: ");
    text_keep(attempt->lost, line, "Remote daemon: "); /* Open MPI 4 and 5 */
    if (attempt->death.text[0] == '\0' && death_read(line, &attempt->death))
        death_explain(&attempt->death, &running->oom_before);
    bool failed =
        attempt->failure[0] != '\0' || attempt->lost[0] != '\0' || attempt->death.text[0] != '\0';
    if (failed && running->term_at <= 0) {
        running->term_at = clock_now() + running->options->grace;
        running->kill_at = running->term_at + kill_after;
    }
}

static void error_output_write(const char *text, size_t length)
{
    while (length > 0) {
        ssize_t written = write(STDERR_FILENO, text, length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0 && errno == EAGAIN) { /* the reader has made it non-blocking */
            poll(&(struct pollfd){.fd = STDERR_FILENO, .events = POLLOUT}, 1, -1);
            continue;
        }
        if (written <= 0)
            return; /* the reader is gone; the command continues */
        text += written;
        length -= (size_t)written;
    }
}

/* Pass on all complete lines; the rest too if `all` is set, with a newline, or if the buffer is
 * full. */
static void lines_pass_on(struct running *running, bool all)
{
    char *begin = running->line, *stop = begin + running->length;
    for (char *end; (end = memchr(begin, '\n', (size_t)(stop - begin))) != NULL; begin = end + 1) {
        error_output_write(begin, (size_t)(end + 1 - begin));
        *end = '\0';
        line_parse(running, begin);
    }
    size_t rest = (size_t)(stop - begin);
    if (rest > 0 && (all || rest == sizeof running->line - 1)) {
        error_output_write(begin, rest);
        error_output_write("\n", all ? 1 : 0);
        *stop = '\0';
        line_parse(running, begin);
        rest = 0;
    }
    memmove(running->line, begin, rest);
    running->length = rest;
}

/* Drop NUL bytes, which Open MPI 5 writes after its messages: they would end a line early. */
static void output_read(struct running *running)
{
    const char *text = running->line + running->length;
    ssize_t got = read(running->output, running->line + running->length,
                       sizeof running->line - 1 - running->length);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    for (ssize_t i = 0; i < got; i++)
        if (text[i] != '\0')
            running->line[running->length++] = text[i];
    lines_pass_on(running, got <= 0);
    if (got <= 0) {
        close(running->output);
        running->output = -1;
    }
}

/* ---- signals */

/* Pass signals on to the command itself, not to its process group: mpirun and srun forward them,
 * but ssh processes in the group would die. Also reaps children. */
static void signals_read(struct running *running)
{
    struct signalfd_siginfo info;
    int status;
    while (read(signals, &info, sizeof info) == (ssize_t)sizeof info) {
        int number = (int)info.ssi_signo;
        if (number == SIGCHLD)
            continue;
        bool again = running->attempt->asked;
        if (number != SIGUSR2)
            running->attempt->asked = true;
        if (running->options->gently && number != SIGUSR2 && !again)
            number = SIGUSR1;
        if (!running->ended)
            kill(running->child, number);
    }
    for (pid_t process; (process = waitpid(-1, &status, WNOHANG)) > 0;)
        if (process == running->child) {
            running->ended = true;
            running->attempt->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
            running->attempt->code =
                WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        }
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

/* ---- end of the command */

/* Return the parent of a process, 0 if the process has ended. In /proc/PID/stat the name is in
 * parentheses, followed by the state and the parent. */
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
    DIR *processes = NULL;
    for (const char *name; (name = folder_next(&processes, "/proc")) != NULL;)
        if (isdigit((unsigned char)name[0]) && parent_of(name) == getpid())
            kill((pid_t)atoi(name), SIGKILL);
}

/* Wait for processes that outlive the command and are now children of this one; kill them after
 * some seconds. */
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

/* ---- start of the command */

/* By default all runs of a user share one session folder of Open MPI. The end of a run removes it
 * even if another run is starting, which then fails. Create a folder for this command if mpirun
 * starts all ranks on this host; on other hosts it would not be removed. */
static void session_open(struct running *running, char *const *words)
{
    int count = 0;
    while (words[count] != NULL)
        count++;
    if (launched_ranks_here(count, words) != HERE_ALL_RANKS ||
        !folder_make_temporary(running->session, sizeof running->session))
        running->session[0] = '\0';
}

/* In the child. Set the session folder of Open MPI 4 and 5; settings of the user have precedence.
 */
static void session_use(const char *session)
{
    if (session[0] == '\0')
        return;
    if (getenv("OMPI_MCA_orte_local_tmpdir_base") == NULL) /* Open MPI refuses both */
        setenv("OMPI_MCA_orte_tmpdir_base", session, 0);
    if (getenv("PRTE_MCA_prte_local_tmpdir_base") == NULL)
        setenv("PRTE_MCA_prte_tmpdir_base", session, 0);
}

/* In the child. If a rank fails, mpirun of Open MPI 4 and 5 waits for a second on each node before
 * it kills the others. Without this wait the restart begins at once. */
static void kill_at_once(void)
{
    setenv("OMPI_MCA_odls_base_sigkill_timeout", "0", 0);
    setenv("PRTE_MCA_odls_base_sigkill_timeout", "0", 0);
}

static void session_close(const struct running *running)
{
    if (running->session[0] != '\0')
        folder_remove(running->session);
}

/* In the child. If the program cannot be executed, errno is written to `report`. */
static _Noreturn void command_execute(const struct running *running, char *const *words,
                                      int stderr_end, int report)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* the command ends with its supervisor */
    signal(SIGXFSZ, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGTTIN, SIG_IGN); /* it is not in the terminal's foreground process group */
    signal(SIGTTOU, SIG_IGN);
    dup2(stderr_end, STDERR_FILENO);
    session_use(running->session);
    if (running->options->gently)
        kill_at_once();
    execvp(words[0], words);
    int failure = errno;
    ssize_t written = write(report, &failure, sizeof failure);
    (void)written;
    _exit(127);
}

/* Describe why the program cannot be executed. execvp() sets EACCES for a folder, and for a missing
 * program if a folder in PATH is not readable. */
static const char *start_failure(const char *program, int failure)
{
    struct stat status;
    if (strchr(program, '/') == NULL && (failure == EACCES || failure == ENOENT))
        return "no executable file of this name in PATH";
    if (failure == EACCES && stat(program, &status) == 0 && S_ISDIR(status.st_mode))
        return "it is a folder";
    return strerror(failure);
}

static bool command_start(struct running *running, char *const *words, struct error *error)
{
    int report[2], pipes[2], failure = 0;
    ENSURE(pipe(pipes) == 0 && pipe(report) == 0, "cannot create a pipe: %s", strerror(errno));
    for (int i = 0; i < 2; i++) {
        fcntl(pipes[i], F_SETFD, FD_CLOEXEC);
        fcntl(report[i], F_SETFD, FD_CLOEXEC);
    }
    fflush(NULL);
    running->oom_before = oom_kills_read();
    running->started = clock_now();
    running->child = fork();
    ENSURE(running->child >= 0, "cannot start a process: %s", strerror(errno));
    if (running->child == 0)
        command_execute(running, words, pipes[1], report[1]);
    setpgid(running->child, running->child);
    close(pipes[1]);
    close(report[1]);
    running->output = pipes[0];
    bool good = read(report[0], &failure, sizeof failure) != (ssize_t)sizeof failure;
    close(report[0]);
    if (good)
        return true;
    waitpid(running->child, NULL, 0);
    close(running->output);
    return error_set(error, ERROR_USAGE, "launch: cannot start %s: %s", words[0],
                     start_failure(words[0], failure));
}

bool attempt_run(char *const *words, const struct attempt_options *options, struct attempt *attempt,
                 struct error *error)
{
    static struct running running;
    memset(&running, 0, sizeof running);
    memset(attempt, 0, sizeof *attempt);
    running.attempt = attempt;
    running.options = options;
    session_open(&running, words);
    if (!command_start(&running, words, error)) {
        session_close(&running);
        return false;
    }
    while (!running.ended) {
        struct pollfd entries[] = {{.fd = signals, .events = POLLIN},
                                   {.fd = running.output, .events = POLLIN}};
        int ready = poll(entries, 2, running.term_at > 0 ? 100 : -1);
        if (ready > 0 && entries[1].revents != 0)
            output_read(&running);
        signals_read(&running);
        /* After a failure a launcher may wait forever for a lost node or a stopped rank. */
        if (running.term_at > 0 && clock_now() >= running.term_at) {
            if (!attempt->killed)
                kill(running.child, SIGTERM);
            attempt->killed = true;
            if (clock_now() >= running.kill_at)
                kill(-running.child, SIGKILL);
        }
    }
    for (double end = clock_now() + output_patience; running.output >= 0 && clock_now() < end;) {
        struct pollfd entry = {.fd = running.output, .events = POLLIN};
        if (poll(&entry, 1, 100) > 0)
            output_read(&running);
    }
    if (running.output >= 0) {
        lines_pass_on(&running, true);
        close(running.output);
    }
    orphans_end(&running);
    session_close(&running);
    /* If a rank is killed, mpirun of MPICH returns the number of the signal and prints nothing on
     * stderr. */
    if (attempt->code == SIGKILL && attempt->death.text[0] == '\0' && attempt->failure[0] == '\0')
        death_suspect(&attempt->death, &running.oom_before);
    attempt->seconds = clock_now() - running.started;
    return true;
}

void attempt_reason(const struct attempt *attempt, char *text, size_t size)
{
    const char *death = attempt->death.text;
    if (attempt->failure[0] != '\0' && death[0] != '\0')
        snprintf(text, size, "%s; %s", attempt->failure, death);
    else if (attempt->failure[0] != '\0' || death[0] != '\0')
        snprintf(text, size, "%s", death[0] != '\0' ? death : attempt->failure);
    else if (attempt->mistake[0] != '\0')
        snprintf(text, size, "%s", attempt->mistake);
    else if (attempt->lost[0] != '\0')
        snprintf(text, size, "mpirun has lost a node: %s", attempt->lost);
    else if (attempt->signal != 0)
        snprintf(text, size, "the command was killed by signal %d (%s)", attempt->signal,
                 strsignal(attempt->signal));
    else if (attempt->cut_off)
        snprintf(text, size, "the command ended with exit code 0, but the run did not end");
    else
        snprintf(text, size,
                 "the command ended with exit code %d and no line of vittrain; its own lines may "
                 "name the reason",
                 attempt->code);
}
