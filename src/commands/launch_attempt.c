// SPDX-License-Identifier: BSD-3-Clause
/* One execution of the launched command, from fork until none of its processes is left on this
 * host. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "commands/launch.h"

/* Seconds: between two checks of the run folder; from SIGTERM to SIGKILL; for processes that
 * outlive the command. */
static const double look_period = 1, kill_after = 3, orphans_patience = 5;

static sigset_t awaited;

void attempt_prepare(void)
{
    static const int signals[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    sigemptyset(&awaited);
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        sigaddset(&awaited, signals[i]);
    ENSURE(sigprocmask(SIG_BLOCK, &awaited, NULL) == 0, "cannot block signals: %s",
           strerror(errno));
    signal(SIGPIPE, SIG_IGN); /* the reader of our stderr may exit first */
    /* Orphaned processes of the command become children of this one. */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* Wait for one of the signals; return 0 after the time. */
static int signal_wait(double seconds)
{
    const struct timespec time = {.tv_sec = (time_t)seconds,
                                  .tv_nsec = (long)(1e9 * (seconds - (double)(time_t)seconds))};
    const int number = sigtimedwait(&awaited, NULL, &time);
    return number > 0 ? number : 0;
}

static bool asks_to_end(int signal)
{
    return signal != 0 && signal != SIGCHLD && signal != SIGUSR2;
}

bool attempt_sleep(double seconds)
{
    const double end = clock_now() + seconds;
    for (double left = seconds; left > 0; left = end - clock_now())
        if (asks_to_end(signal_wait(left)))
            return true;
    return false;
}

/* Wait for a signal and pass it on to the command itself, not to its process group: mpirun and srun
 * forward it, but ssh processes in the group would die. Also reaps children; false without any. */
static bool signals_pass_on(struct attempt *attempt, bool gently, double seconds)
{
    int number = signal_wait(seconds), status;
    pid_t process;
    if (number != 0 && number != SIGCHLD && attempt->command > 0)
        kill(attempt->command, gently && asks_to_end(number) && !attempt->asked ? SIGUSR1 : number);
    attempt->asked = attempt->asked || asks_to_end(number);
    while ((process = waitpid(-1, &status, WNOHANG)) > 0)
        if (process == attempt->command) {
            attempt->command = 0;
            attempt->code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        }
    return process == 0;
}

/* Wait for processes that outlive the command and are now children of this one; kill them after
 * some seconds. */
static void orphans_end(struct attempt *attempt)
{
    const double begin = clock_now(), patience = attempt->hung ? 0 : orphans_patience;
    char path[64];
    int process;
    snprintf(path, sizeof path, "/proc/self/task/%ld/children", (long)getpid());
    while (signals_pass_on(attempt, false, 0.1) && clock_now() < begin + 2 * orphans_patience) {
        FILE *children = clock_now() >= begin + patience ? fopen(path, "re") : NULL;
        while (children != NULL && fscanf(children, "%d", &process) == 1)
            kill(process, SIGKILL);
        if (children != NULL)
            fclose(children);
    }
}

/* In the child. `session`: folder for Open MPI's session; "": its default. */
static _Noreturn void command_execute(char *const *words, bool gently, const char *session)
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
    if (gently) {
        /* If a rank fails, mpirun of Open MPI 4 and 5 waits for a second on each node before it
         * kills the others. Without this wait the restart begins at once. */
        setenv("OMPI_MCA_odls_base_sigkill_timeout", "0", 0);
        setenv("PRTE_MCA_odls_base_sigkill_timeout", "0", 0);
    }
    /* Open MPI refuses the base of all nodes together with that of this one. */
    if (session[0] != '\0' && getenv("OMPI_MCA_orte_local_tmpdir_base") == NULL)
        setenv("OMPI_MCA_orte_tmpdir_base", session, 0);
    if (session[0] != '\0' && getenv("PRTE_MCA_prte_local_tmpdir_base") == NULL)
        setenv("PRTE_MCA_prte_tmpdir_base", session, 0);
    execvp(words[0], words);
    fprintf(stderr, "vittrain: error: launch: cannot start %s: %s; check its path\n", words[0],
            strerror(errno));
    _exit(ERROR_USAGE);
}

/* Return the number of processes that the kernel has killed on this host to free memory. */
static unsigned long long memory_kills(void)
{
    unsigned long long kills = 0;
    return text_file_number("/proc/vmstat", "oom_kill", &kills) ? kills : 0;
}

void attempt_run(char *const *words, struct launched_run *run, double grace, bool gently,
                 struct attempt *attempt)
{
    const double begin = clock_now();
    const unsigned long long kills = memory_kills();
    double failed = 0; /* clock_now() when the run was found to have failed */
    char session[OPTION_TEXT];
    memset(attempt, 0, sizeof *attempt);
    /* By default all runs of a user share a session folder of Open MPI. The end of a run removes it
     * even if another run is starting. Other hosts would not remove one of this command. */
    if (!run->here || !folder_make_temporary(session, sizeof session))
        session[0] = '\0';
    fflush(NULL);
    attempt->command = fork();
    ENSURE(attempt->command >= 0, "cannot start a process: %s", strerror(errno));
    if (attempt->command == 0)
        command_execute(words, gently, session);
    setpgid(attempt->command, attempt->command);
    while (attempt->command > 0) {
        signals_pass_on(attempt, gently, look_period);
        /* After a failure a launcher may wait forever for a lost node or a stopped rank. */
        if (attempt->command == 0 || !launched_run_has_failed(run))
            failed = 0;
        else if (failed <= 0)
            failed = clock_now();
        else if (clock_now() >= failed + grace + kill_after)
            kill(-attempt->command, SIGKILL);
        else if (clock_now() >= failed + grace && !attempt->hung)
            attempt->hung = kill(attempt->command, SIGTERM) == 0;
    }
    orphans_end(attempt);
    if (session[0] != '\0')
        folder_remove(session);
    attempt->seconds = clock_now() - begin;
    attempt->out_of_memory = memory_kills() > kills;
}
