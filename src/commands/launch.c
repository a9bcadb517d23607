// SPDX-License-Identifier: BSD-3-Clause
/* The command `launch`: runs mpirun or srun and starts it again after a failure. The exit code of
 * mpirun may be 0 after a failure, so the run folder decides. */
#include "commands/launch.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/launcher.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/checkpoint_name.h"
#include "commands/app.h"
#include "options/options.h"

/* Seconds: the limit of the wait for the lock of the run folder; between two attempts to reach
 * hosts that do not answer; after which an attempt counts as progress if run.dir is not known. */
static const double lock_patience = 60, host_pause = 5, long_enough = 60;

/* Seconds: the shortest and the longest pause before a restart after an attempt without progress.
 */
static const double pause_least = 1, pause_most = 60;

/* Consecutive attempts that may fail without progress. */
enum { FRUITLESS_MOST = 2 };

struct launch {
    long grace; /* seconds that the command may take to end after a failure */
    long wait;  /* seconds to wait for hosts that do not answer */
    int word_count;
    char *const *original; /* the command as given */
    char **words;          /* the command of the next attempt, NULL-terminated; 2 spare entries */
    struct launch_count count;
    int64_t step; /* step of the newest checkpoint; -1: none */
    bool begun;   /* the run has written a checkpoint since the launch */
    struct launched_run run;
    struct launched_hosts hosts;
};

/* ---- the training run that the command starts: its options, which are read from the command line,
 * and what its folder shows */

/* Read FOLDER/.lock, which contains "attempt 2 ended" or "attempt 2 running". */
static struct attempt_mark mark_read(const char *folder)
{
    struct attempt_mark mark = {.number = -1};
    char path[OPTION_TEXT + 16], word[16] = "";
    long long number = 0;
    snprintf(path, sizeof path, "%s/.lock", folder);
    char *text = folder[0] != '\0' ? text_file_read(path, NULL) : NULL;
    if (text == NULL)
        return mark;
    if (sscanf(text, "attempt %lld %15s", &number, word) == 2)
        mark.ended = strcmp(word, "ended") == 0;
    mark.number = number;
    free(text);
    return mark;
}

void launched_run_read(struct launched_run *run, int count, char *const *words)
{
    struct command_line line;
    struct error ignored = {0};
    char self[OPTION_TEXT] = "vittrain"; /* if /proc is not readable */
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    int program = 0; /* index of this program in the command */
    if (length > 0)
        self[length] = '\0';
    while (program < count && strcmp(text_base_name(words[program]), text_base_name(self)) != 0)
        program++;
    memset(run, 0, sizeof *run);
    run->known =
        program < count &&
        options_parse(count - program, (char **)words + program, &run->options, &line, &ignored) &&
        options_check_line(&line, &run->options, &ignored) && !command_line_informs(&line) &&
        strcmp(line.command, "train") == 0;
    run->by_mpirun = launcher_is_mpirun(words[0]);
    run->here = launched_command_is_local(count, words);
    run->folder = run->known ? run->options.run.dir : "";
}

int64_t launched_run_step(const struct launched_run *run)
{
    char path[OPTION_TEXT + 16], id[MEMORY_ID];
    long long newest = -1, step;
    DIR *entries = NULL;
    if (run->folder[0] == '\0')
        return -1;
    snprintf(path, sizeof path, "%s/checkpoints", run->folder);
    for (const char *name; (name = folder_next(&entries, path)) != NULL;)
        newest = larger(newest, checkpoint_name_step(name));
    if (!memory_id(run->folder, id, NULL))
        return newest;
    /* The last complete row. */
    snprintf(path, sizeof path, "%s/metrics.csv", run->folder);
    char *text = text_file_read(path, NULL), *end = text != NULL ? strrchr(text, '\n') : NULL;
    if (end != NULL) {
        *end = '\0';
        const char *line = strrchr(text, '\n');
        if (line != NULL && sscanf(line, "\n%*d,%lld,", &step) == 1)
            newest = larger(newest, step);
    }
    free(text);
    return newest;
}

void launched_run_begin(struct launched_run *run)
{
    run->before = mark_read(run->folder);
    run->was_held = false;
}

bool launched_run_has_failed(struct launched_run *run)
{
    const struct attempt_mark now = mark_read(run->folder);
    /* The lock is not tried before the mark of this attempt: rank 0 may be about to take it. */
    const bool held = now.number > 0 && now.number > run->before.number && !now.ended &&
                      folder_use(run->folder) == FOLDER_IN_USE;
    run->was_held = run->was_held || held;
    return run->was_held && !held && !now.ended;
}

bool launched_run_is_interrupted(const struct launched_run *run)
{
    const struct attempt_mark now = mark_read(run->folder);
    if (run->folder[0] == '\0')
        return false;
    if (now.number < 0)
        return run->here;
    return run->by_mpirun ? !now.ended || now.number == run->before.number
                          : !now.ended && now.number > 0;
}

/* ---- the command line */

static bool launch_read(struct launch *launch, int count, char **words, struct error *error)
{
    const struct {
        const char *name;
        long *value;
    } flags[] = {{"--restarts", &launch->count.restarts_max},
                 {"--grace", &launch->grace},
                 {"--wait", &launch->wait}};
    int i = 0;
    for (; i < count && strcmp(words[i], "--") != 0; i += 2) {
        const char *text = i + 1 < count ? words[i + 1] : "";
        char *end;
        int flag = 0;
        while (flag < 3 && strcmp(words[i], flags[flag].name) != 0)
            flag++;
        if (flag == 3)
            return error_set(error, ERROR_USAGE,
                             "launch: unknown flag %s: %s; see `vittrain help launch`", words[i],
                             command_launch.synopsis);
        const long value = strtol(text, &end, 10);
        if (end == text || *end != '\0' || value < 0 || value > 1000000)
            return error_set(error, ERROR_USAGE, "launch: %s takes a whole number, not \"%s\"",
                             words[i], text);
        *flags[flag].value = value;
    }
    launch->word_count = count - i - 1;
    if (launch->word_count <= 0 || words[i + 1][0] == '\0')
        return error_set(error, ERROR_USAGE, "launch: no command after --: %s",
                         command_launch.synopsis);
    launch->words = allocate((size_t)launch->word_count + 3, sizeof *launch->words);
    launch->original = words + i + 1;
    memcpy(launch->words, launch->original, (size_t)launch->word_count * sizeof *launch->words);
    return !launcher_has_ranks() ||
           error_set(error, ERROR_USAGE,
                     "launch: runs mpirun or srun and cannot be run by them; use "
                     "vittrain launch -- mpirun ... vittrain ...");
}

/* ---- one execution of the command, from fork until none of its processes is left on this host */

/* Seconds: between two checks of the run folder; from SIGTERM to SIGKILL; for processes that
 * outlive the command. */
static const double look_period = 1, kill_after = 3, orphans_patience = 5;

static sigset_t awaited;

/* Block the signals that attempt_run and attempt_sleep read. Call once before both. */
static void attempt_prepare(void)
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

/* Sleep; true if a signal asked this process to end. */
static bool attempt_sleep(double seconds)
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

/* Run the command `words` in a new process group and wait for it. Signals are passed on; if
 * `gently`, the first one that asks for the end is passed on as SIGUSR1, which stops training with
 * a checkpoint. A command that does not end within `grace` seconds after the run has failed is
 * killed. On return no process of the command is left on this host. Sets all results except
 * `interrupted` and `progress`. */
static void attempt_run(char *const *words, struct launched_run *run, double grace, bool gently,
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

/* ---- what follows an attempt */

enum launch_action launch_policy(struct launch_count *count, const struct attempt *attempt)
{
    const int code = attempt->code;
    const bool failed = code != 0 || attempt->interrupted || attempt->hung;
    /* It would be repeated. 126, 127: a shell cannot start the program. */
    const bool is_mistake = (code >= ERROR_USAGE && code <= ERROR_NUMERIC) ||
                            code == ERROR_DIFFERENT || code == 126 || code == 127;
    if (attempt->asked || !failed || is_mistake)
        return LAUNCH_END;
    count->fruitless = attempt->progress ? 0 : count->fruitless + 1;
    count->pause = attempt->progress ? 0 : fmin(fmax(2 * count->pause, pause_least), pause_most);
    if (count->restarts >= count->restarts_max || count->fruitless >= FRUITLESS_MOST)
        return LAUNCH_GIVE_UP;
    count->restarts++;
    return LAUNCH_RESTART;
}

/* Describe why the attempt failed. */
static void reason_write(const struct attempt *attempt, char *text, size_t size)
{
    const int code = attempt->code;
    char what[128];
    if (attempt->hung)
        snprintf(what, sizeof what, "the run failed, and the command did not end and was killed");
    else if (attempt->interrupted)
        snprintf(what, sizeof what, "exit code 0, but the run did not end");
    else if (code > 128 && code < 128 + NSIG)
        snprintf(what, sizeof what, "exit code %d (signal %d, %s)", code, code - 128,
                 strsignal(code - 128));
    else if (code <= ERROR_DIFFERENT)
        snprintf(what, sizeof what, "exit code %d (%s)", code, app_exit_codes[code]);
    else
        snprintf(what, sizeof what, "exit code %d", code);
    snprintf(text, size, "%s%s", what,
             attempt->out_of_memory
                 ? "; the kernel has killed a process of this host: out of memory"
                 : "");
}

static bool restart_cancelled(struct error *error)
{
    return error_set(error, ERROR_PEER, "launch: cancelled by signal before the restart");
}

/* Before a restart, find out which hosts answer: a node may be lost, or available again. */
static bool hosts_settle(struct launch *launch, struct error *error)
{
    const double end = clock_now() + (double)launch->wait;
    const bool elastic = launch->run.known && launch->run.options.mesh.elastic;
    struct launched_hosts *hosts = &launch->hosts;
    for (bool reported = false;; reported = true) {
        launched_hosts_close(hosts);
        if (!launched_hosts_open(hosts, launch->word_count, launch->original, error))
            return false;
        if (hosts->count == 0)
            return true;
        launched_hosts_try(hosts);
        const enum hosts_action action = launched_hosts_decide(hosts, elastic, clock_now() > end);
        if (action == HOSTS_GIVE_UP)
            return error_set(error, ERROR_PEER,
                             "launch: no answer from %s for %ld s: repair them, remove them from "
                             "the host file, or set mesh.elastic=yes to continue without them",
                             hosts->missing, launch->wait);
        if (action == HOSTS_USE && hosts->missing[0] != '\0')
            fprintf(stderr,
                    "vittrain: launch: no answer from %s: continuing with %lld ranks on the other "
                    "hosts%s\n",
                    hosts->missing, (long long)hosts->usable,
                    hosts->suffice ? "" : " (mesh.elastic)");
        if (action == HOSTS_USE)
            return launched_hosts_use(hosts, launch->words, launch->original, error);
        if (!reported)
            fprintf(stderr,
                    "vittrain: launch: no answer from %s: waiting for at most %ld s "
                    "(mesh.elastic=yes would continue without them)\n",
                    hosts->missing, launch->wait);
        if (attempt_sleep(host_pause))
            return restart_cancelled(error);
    }
}

/* Wait until the command can be started again; false if it must not be. */
static bool restart_prepare(struct launch *launch, struct attempt *attempt, struct error *error)
{
    static char resume[] = "checkpoint.resume=auto", no_pause[] = "debug.pause=none";
    const struct launched_run *run = &launch->run;
    const struct options *options = &run->options;
    const struct launch_count *count = &launch->count;
    const int64_t step = launched_run_step(run);
    char reason[LAUNCH_LINE], ran[32], from[OPTION_TEXT + 64] = "its newest checkpoint";
    char **next = launch->words + launch->word_count;
    attempt->progress =
        step > launch->step || (run->folder[0] == '\0' && attempt->seconds >= long_enough);
    launch->begun = launch->begun || step > launch->step;
    launch->step = larger(step, launch->step);
    const enum launch_action action = launch_policy(&launch->count, attempt);
    if (action == LAUNCH_END)
        return false;
    reason_write(attempt, reason, sizeof reason);
    if (action == LAUNCH_GIVE_UP)
        return error_set(error, ERROR_PEER, "launch: gave up after %ld restart%s%s: %s",
                         count->restarts, count->restarts == 1 ? "" : "s",
                         count->restarts < count->restarts_max
                             ? ", two attempts in a row without a new checkpoint"
                             : "",
                         reason);
    /* Resume from the run's own checkpoint even if the first attempt started over or from a file,
     * and do not take a debug.pause again. The last setting counts. */
    if (run->known && strcmp(options->checkpoint.resume, "auto") != 0 &&
        (launch->begun ||
         (strcmp(options->checkpoint.resume, "never") == 0 && options->run.dir[0] != '\0')))
        *next++ = resume;
    if (run->known && strcmp(options->debug.pause, "none") != 0)
        *next = no_pause;
    clock_format(attempt->seconds, ran, sizeof ran);
    if (run->folder[0] != '\0')
        snprintf(from, sizeof from, launch->step >= 0 ? "step %lld of %s" : "the beginning",
                 (long long)launch->step, run->folder);
    fprintf(stderr,
            "vittrain: launch: restart %ld of %ld in %.0f s, from %s; failed after %s: %s\n",
            count->restarts, count->restarts_max, count->pause, from, ran, reason);
    if (attempt_sleep(count->pause))
        return restart_cancelled(error);
    const double end = clock_now() + lock_patience;
    while (run->folder[0] != '\0' && folder_use(run->folder) == FOLDER_IN_USE) {
        if (clock_now() > end)
            return error_set(error, ERROR_PEER,
                             "launch: another process still uses %s: find it (fuser %s/.lock on "
                             "each node) and end it",
                             run->folder, run->folder);
        if (attempt_sleep(0.2))
            return restart_cancelled(error);
    }
    return hosts_settle(launch, error);
}

static int launch_run(int count, char **words)
{
    static struct launch launch;
    struct error error = {0};
    struct attempt attempt = {0};
    launch = (struct launch){.count.restarts_max = 3, .grace = 10, .wait = 300};
    if (launch_read(&launch, count, words, &error)) {
        launched_run_read(&launch.run, launch.word_count, launch.words);
        attempt_prepare();
        launch.step = launched_run_step(&launch.run);
        const bool gently = launch.run.known && launcher_forwards(launch.original[0]);
        do {
            launched_run_begin(&launch.run);
            attempt_run(launch.words, &launch.run, (double)launch.grace, gently, &attempt);
            attempt.interrupted = attempt.code == 0 && launched_run_is_interrupted(&launch.run);
        } while (restart_prepare(&launch, &attempt, &error));
    }
    launched_hosts_close(&launch.hosts);
    free(launch.words);
    if (error.kind == ERROR_NONE)
        return attempt.code;
    log_error(&error);
    return launch.count.restarts_max == 0 && attempt.code != 0 ? attempt.code : (int)error.kind;
}

const struct command command_launch = {
    .name = "launch",
    .synopsis = "launch [--restarts N] [--grace S] [--wait S] -- COMMAND...",
    .summary = "run mpirun or srun, and start it again after a failure",
    .detail =
        "Runs the command (mpirun ... vittrain ..., or srun), passes on signals, and starts it "
        "again after a failure: a rank or node that died or does not answer. The run resumes from "
        "its newest valid checkpoint. At most N restarts (3); none after two attempts in a row "
        "without a new checkpoint, a user's mistake (exit codes 2 to 7), or a signal to end. A "
        "command that does not end within the grace period (10 s) after a failure of the run is "
        "killed. No process of an attempt is left on this host before the next attempt. If mpirun "
        "has a host file, all its hosts are tried before a restart, with the agent that mpirun "
        "uses. If some do not answer, the run continues on the others, if they have enough slots "
        "or with fewer ranks if it has mesh.elastic=yes. Otherwise launch waits for the missing "
        "hosts (--wait, 300 s). Exit code: that of the command; 9 if it failed and is not started "
        "again.",
    .run_alone = launch_run};
