// SPDX-License-Identifier: BSD-3-Clause
/* The command `launch`: runs mpirun or srun and starts it again after a failure. The exit code of
 * mpirun may be 0, or that of another rank. A failure is therefore also detected from the lines on
 * stderr and from the run folder. */
#include "tools/launch/launch.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/app.h"
#include "config/command_line.h"
#include "config/options.h"
#include "core/clock.h"
#include "core/launcher.h"
#include "core/log.h"

/* Seconds: the shortest and the longest pause before a restart after an attempt without a new
 * checkpoint; the limit of the wait for the lock of the run folder. */
static const double pause_least = 1, pause_most = 60, lock_patience = 60;

/* Seconds between two attempts to reach hosts that do not answer. */
static const double host_pause = 5;

/* Seconds after which an attempt counts as progress if the run's checkpoints are not known. */
static const double long_enough = 60;

/* Consecutive attempts that may fail without a new checkpoint. */
enum { FRUITLESS_MOST = 2 };

struct launch {
    int restarts_max;
    double grace; /* seconds that the command may take to end after a failure */
    double wait;  /* seconds to wait for hosts that do not answer */
    int count;
    char *const *original; /* the command as given */
    char **words;          /* the command of the next attempt, NULL-terminated; 2 spare entries */

    int restarts;
    int fruitless;            /* consecutive attempts without a new checkpoint */
    double pause;             /* seconds before the next restart */
    int64_t step;             /* step of the newest checkpoint; -1: none */
    bool elsewhere;           /* newer ones may be in the memory of other hosts */
    struct attempt_mark mark; /* before the attempt */
    bool begun;               /* the run has written a checkpoint since the launch */
    struct launched_run run;
    struct launched_hosts hosts;
};

/* ---- the command line */

static bool launch_read(struct launch *launch, int count, char **words, struct error *error)
{
    double restarts = launch->restarts_max;
    const struct {
        const char *name;
        double *value;
    } flags[] = {{"--restarts", &restarts}, {"--grace", &launch->grace}, {"--wait", &launch->wait}};
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
        double value = strtod(text, &end);
        if (end == text || *end != '\0' || !(value >= 0 && value < 1e6))
            return error_set(error, ERROR_USAGE, "launch: %s takes a number, not \"%s\"", words[i],
                             text);
        *flags[flag].value = value;
    }
    launch->restarts_max = (int)restarts;
    if (launch->restarts_max != restarts)
        return error_set(error, ERROR_USAGE, "launch: --restarts takes a whole number, not %g",
                         restarts);
    launch->count = count - i - 1;
    if (launch->count <= 0 || words[i + 1][0] == '\0')
        return error_set(error, ERROR_USAGE, "launch: no command after --: %s",
                         command_launch.synopsis);
    launch->words = allocate((size_t)launch->count + 3, sizeof *launch->words);
    launch->original = words + i + 1;
    memcpy(launch->words, launch->original, (size_t)launch->count * sizeof *launch->words);
    return !launcher_has_ranks() ||
           error_set(error, ERROR_USAGE,
                     "launch: runs mpirun or srun and cannot be run by them; use "
                     "vittrain launch -- mpirun ... vittrain ...");
}

/* ---- after an attempt */

/* True if the command has printed which rank or node failed. */
static bool names_failure(const struct attempt *attempt)
{
    return attempt->failure[0] != '\0' || attempt->lost[0] != '\0' ||
           attempt->death.text[0] != '\0';
}

/* True if the command returned 0 although the run failed. The mpirun of Open MPI 4 returns 0 if
 * the abort code of a rank is lost, that of Open MPI 5 if a node is lost, and that of MPICH
 * sometimes if a rank is killed. */
static bool failed_with_0(const struct attempt *attempt)
{
    return attempt->code == 0 && (names_failure(attempt) || attempt->cut_off);
}

/* True if there is no reason for a restart: success, a request to end, or a user's mistake. */
static bool is_final(const struct attempt *attempt)
{
    const int code = attempt->code;
    if (attempt->asked)
        return true;
    if (code == 0)
        return !failed_with_0(attempt);
    if (attempt->failure[0] != '\0' && attempt->failure_first)
        return false;
    return (code >= ERROR_USAGE && code <= ERROR_NUMERIC) || code == ERROR_DIFFERENT ||
           code == 126 || code == 127;
}

static void progress_update(struct launch *launch, const struct attempt *attempt)
{
    int64_t step = launched_run_step(&launch->run, &launch->elsewhere);
    const bool known = launch->run.known && !launch->elsewhere;
    bool fruitful = step > launch->step || (!known && attempt->seconds >= long_enough);
    launch->begun = launch->begun || step > launch->step;
    launch->step = step > launch->step ? step : launch->step;
    launch->fruitless = fruitful ? 0 : launch->fruitless + 1;
    launch->pause = fruitful ? 0 : fmin(fmax(2 * launch->pause, pause_least), pause_most);
}

static void restart_report(const struct launch *launch, const struct attempt *attempt)
{
    char reason[2 * LAUNCH_LINE], ran[32], from[OPTION_TEXT + 64] = "the beginning";
    attempt_reason(attempt, reason, sizeof reason);
    clock_format(attempt->seconds, ran, sizeof ran);
    if (launch->step >= 0 && !launch->elsewhere)
        snprintf(from, sizeof from, "step %lld of %s", (long long)launch->step, launch->run.folder);
    else if (launch->elsewhere || !launch->run.known)
        snprintf(from, sizeof from, "its newest checkpoint");
    fprintf(stderr,
            "vittrain: launch: restart %d of %d in %.0f s, from %s; failed after %s%s: %s\n",
            launch->restarts, launch->restarts_max, launch->pause, from, ran,
            attempt->killed ? " and had to be killed" : "", reason);
}

static bool give_up(const struct launch *launch, const struct attempt *attempt, const char *why,
                    struct error *error)
{
    char reason[2 * LAUNCH_LINE];
    attempt_reason(attempt, reason, sizeof reason);
    return error_set(error, ERROR_PEER, "launch: gave up after %d restart%s%s: %s",
                     launch->restarts, launch->restarts == 1 ? "" : "s", why, reason);
}

/* Append options for a restart: resume from the run's own checkpoint even if the first attempt
 * started over or from a file, and do not take a debug.pause again. The last setting counts. */
static void words_resume(struct launch *launch)
{
    static char resume[] = "checkpoint.resume=auto", no_pause[] = "debug.pause=none";
    const struct options *options = &launch->run.options;
    bool never = strcmp(options->checkpoint.resume, "never") == 0;
    char **next = launch->words + launch->count;
    if (!launch->run.known)
        return;
    if (strcmp(options->checkpoint.resume, "auto") != 0 &&
        (launch->begun || (never && options->run.dir[0] != '\0')))
        *next++ = resume;
    if (strcmp(options->debug.pause, "none") != 0)
        *next = no_pause;
}

static bool restart_cancelled(struct error *error)
{
    return error_set(error, ERROR_PEER, "launch: cancelled by signal before the restart");
}

/* Continue on the hosts that answer. */
static bool hosts_reduce(struct launch *launch, const char *missing, struct error *error)
{
    int64_t ranks = launched_hosts_use(&launch->hosts, launch->words, launch->original, error);
    if (error->kind != ERROR_NONE)
        return false;
    if (ranks == 0)
        return error_set(error, ERROR_PEER, "launch: no host answers: %s", missing);
    if (missing[0] != '\0')
        fprintf(stderr,
                "vittrain: launch: no answer from %s: continuing with %lld ranks on the "
                "other hosts%s\n",
                missing, (long long)ranks,
                launched_hosts_suffice(&launch->hosts) ? "" : " (mesh.elastic)");
    return true;
}

/* Before a restart, find out which hosts answer: a node may be lost, or available again. */
static bool hosts_settle(struct launch *launch, const char *lost, struct error *error)
{
    const double end = clock_now() + launch->wait;
    const bool elastic = launch->run.known && launch->run.options.mesh.elastic;
    char missing[LAUNCH_LINE];
    for (bool reported = false;; reported = true) {
        launched_hosts_close(&launch->hosts);
        if (!launched_hosts_open(&launch->hosts, launch->count, launch->original, error))
            return false;
        if (launch->hosts.count == 0)
            return true;
        int count = launched_hosts_try(&launch->hosts, lost);
        launched_hosts_missing(&launch->hosts, missing, sizeof missing);
        if (count == 0 || elastic || launched_hosts_suffice(&launch->hosts))
            return hosts_reduce(launch, missing, error);
        if (clock_now() > end)
            return error_set(error, ERROR_PEER,
                             "launch: no answer from %s for %.0f s: repair them, remove them from "
                             "the host file, or set mesh.elastic=yes to continue without them",
                             missing, launch->wait);
        if (!reported)
            fprintf(stderr,
                    "vittrain: launch: no answer from %s: waiting for at most %.0f s "
                    "(mesh.elastic=yes would continue without them)\n",
                    missing, launch->wait);
        if (attempt_sleep(host_pause))
            return restart_cancelled(error);
    }
}

/* True if mpirun itself failed before the run began, probably because of a mistake in the command.
 * An mpirun of MPICH that returns 9 has lost a rank. One that has other hosts may succeed the next
 * time. */
static bool mpirun_is_wrong(struct launch *launch, const struct attempt *attempt)
{
    bool began = attempt->seconds >= long_enough || attempt->mistake[0] != '\0' ||
                 launched_run_has_begun(&launch->run, &launch->mark);
    bool exited = attempt->signal == 0 && attempt->code != 0 && attempt->code != SIGKILL;
    return launch->run.here == HERE_ALL_RANKS && !began && exited && !names_failure(attempt);
}

/* Wait until the command can be started again; false and an error if it must not be. */
static bool restart_prepare(struct launch *launch, const struct attempt *attempt,
                            struct error *error)
{
    progress_update(launch, attempt);
    if (launch->restarts == 0 && mpirun_is_wrong(launch, attempt))
        return give_up(launch, attempt, ", mpirun failed before the run began", error);
    if (launch->restarts >= launch->restarts_max)
        return give_up(launch, attempt, "", error);
    if (launch->fruitless >= FRUITLESS_MOST)
        return give_up(launch, attempt, ", two in a row without a new checkpoint", error);
    launch->restarts++;
    words_resume(launch);
    restart_report(launch, attempt);
    if (attempt_sleep(launch->pause))
        return restart_cancelled(error);
    if (!launched_run_wait(&launch->run, lock_patience, error))
        return false;
    return hosts_settle(launch, attempt->lost, error);
}

static int launch_run(int count, char **words)
{
    static struct launch launch;
    struct error error = {0};
    struct attempt attempt = {0};
    launch = (struct launch){.restarts_max = 3, .grace = 10, .wait = 300};
    if (count > 0 && (strcmp(words[0], "--help") == 0 || strcmp(words[0], "-h") == 0))
        return app_inform(&(struct command_line){.command = command_launch.name, .help = true});
    if (launch_read(&launch, count, words, &error)) {
        launched_run_read(&launch.run, launch.count, launch.words);
        attempt_prepare();
        launch.step = launched_run_step(&launch.run, &launch.elsewhere);
        const struct attempt_options options = {.grace = launch.grace,
                                                .gently = launch.run.known &&
                                                          launcher_forwards(launch.original[0])};
        do {
            launch.mark = launched_run_mark(&launch.run);
            if (!attempt_run(launch.words, &options, &attempt, &error))
                break;
            attempt.cut_off = attempt.code == 0 && attempt.mistake[0] == '\0' && launch.run.known &&
                              launched_run_is_interrupted(&launch.run, &launch.mark);
        } while (!is_final(&attempt) && restart_prepare(&launch, &attempt, &error));
    }
    launched_hosts_close(&launch.hosts);
    free(launch.words);
    if (error.kind == ERROR_NONE) {
        if (attempt.code != 0 || attempt.asked)
            return attempt.code;
        return attempt.mistake[0] != '\0' ? ERROR_INTERNAL : 0;
    }
    log_error(&error);
    return launch.restarts_max == 0 && attempt.code != 0 ? attempt.code : (int)error.kind;
}

const struct command command_launch = {
    .name = "launch",
    .synopsis = "launch [--restarts N] [--grace S] [--wait S] -- COMMAND...",
    .summary = "run mpirun or srun, and start it again after a failure",
    .detail =
        "Runs the command (mpirun ... vittrain ..., or srun), passes on its output and signals, "
        "and starts it again after a failure: a rank or node that died or does not answer. Names "
        "the probable cause of a death. The run resumes from its newest valid checkpoint. At most "
        "N restarts (3); none after two attempts in a row without a new checkpoint, a user's "
        "mistake (exit codes 2 to 7), a signal to end, or a failure of mpirun itself in the first "
        "attempt. A command that does not end within the grace period (10 s) after a failure is "
        "killed. No process of an attempt is left on this "
        "host before the next attempt. If mpirun has a host file, all its hosts are tried before a "
        "restart, with the agent that mpirun uses. If some do not answer, the run continues on the "
        "others, if they have enough slots or with fewer ranks if it has mesh.elastic=yes. "
        "Otherwise launch waits for the missing hosts (--wait, 300 s). Exit code: that of the "
        "command; 9 if it failed and is not started again.",
    .run_alone = launch_run};
