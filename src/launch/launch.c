/* The command `launch`: runs a command (mpirun, srun) and starts it again when it has failed.
 * mpirun's exit code is not believed alone: it may be 0, or another rank's, after a failure that
 * the ranks have told of. */
#include "launch/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/app.h"
#include "core/clock.h"
#include "core/log.h"

/* Seconds: the first pause before a restart, the longest; for the run's folder to be free. */
static const double pause_first = 1, pause_most = 60, lock_patience = 60;

/* Between two tries of hosts that do not answer. */
static const double host_pause = 5;

/* How long an attempt must have run to count where its progress is not known. */
static const double long_enough = 60;

/* Attempts in a row that may fail without a new checkpoint. */
enum { FRUITLESS_MOST = 2 };

struct launch {
    int restarts; /* at most */
    double grace; /* seconds to end in after a failure */
    double wait;  /* seconds for hosts to answer */
    int count;
    char *const *original; /* words as given */
    char **words;          /* those of the next start, and NULL; room for two more */

    int done;      /* restarts */
    int fruitless; /* attempts in a row without a new checkpoint */
    double pause;  /* before the next restart */
    int64_t step;  /* of the newest checkpoint; -1: none */
    bool begun;    /* the run has a checkpoint that it had not before the launch */
    struct launched_run run;
    struct launched_hosts hosts;
};

/* ---- the command line */

static bool number_read(const char *flag, const char *text, double *value, struct error *error)
{
    char *end = NULL;
    *value = text != NULL ? strtod(text, &end) : -1;
    if (text != NULL && end != text && *end == '\0' && *value >= 0 && *value < 1e6)
        return true;
    return error_set(error, ERROR_USAGE, "launch: %s takes a number, not \"%s\"", flag,
                     text != NULL ? text : "");
}

static bool launch_read(struct launch *launch, int count, char **words, struct error *error)
{
    int i = 0;
    double value;
    for (; i < count && strcmp(words[i], "--") != 0; i += 2) {
        const char *next = i + 1 < count ? words[i + 1] : NULL;
        if (strcmp(words[i], "--restarts") == 0) {
            if (!number_read(words[i], next, &value, error))
                return false;
            launch->restarts = (int)value;
            if (launch->restarts != value)
                return error_set(error, ERROR_USAGE,
                                 "launch: --restarts takes a whole number, not %s", next);
        } else if (strcmp(words[i], "--grace") == 0) {
            if (!number_read(words[i], next, &launch->grace, error))
                return false;
        } else if (strcmp(words[i], "--wait") == 0) {
            if (!number_read(words[i], next, &launch->wait, error))
                return false;
        } else {
            return error_set(error, ERROR_USAGE,
                             "launch: no such flag as %s; %s, see `vittrain help launch`", words[i],
                             command_launch.synopsis);
        }
    }
    launch->count = count - i - 1;
    if (launch->count <= 0)
        return error_set(error, ERROR_USAGE, "launch: no command after --: %s",
                         command_launch.synopsis);
    launch->words = calloc((size_t)launch->count + 3, sizeof *launch->words);
    ENSURE(launch->words != NULL, "no memory for %d words", launch->count);
    launch->original = words + i + 1;
    memcpy(launch->words, launch->original, (size_t)launch->count * sizeof *launch->words);
    return !attempt_is_inside() ||
           error_set(error, ERROR_USAGE,
                     "launch: it starts mpirun or srun and is not started by them: "
                     "vittrain launch -- mpirun ... vittrain ...");
}

/* ---- after an attempt */

static bool is_users_mistake(int code)
{
    return code == ERROR_USAGE || code == ERROR_DATA || code == ERROR_CHECKPOINT ||
           code == ERROR_FILE || code == ERROR_MEMORY || code == ERROR_NUMERIC || code == 126 ||
           code == 127;
}

/* Would the same end come again? */
static bool is_final(const struct attempt *attempt)
{
    if (attempt->asked)
        return true;
    if (attempt->failure[0] != '\0' && (attempt->failure_first || attempt->code == 0))
        return false;
    return attempt->code == 0 || is_users_mistake(attempt->code);
}

static int final_code(const struct attempt *attempt)
{
    bool said = attempt->failure[0] != '\0' || attempt->mistake[0] != '\0';
    if (attempt->code == 0 && said && !attempt->asked)
        return attempt->failure[0] != '\0' ? ERROR_PEER : ERROR_INTERNAL;
    return attempt->code;
}

/* Was the attempt worth another? */
static void progress_note(struct launch *launch, const struct attempt *attempt)
{
    int64_t step = launched_run_step(&launch->run);
    bool fruitful = launch->run.known ? step > launch->step : attempt->seconds >= long_enough;
    launch->begun = launch->begun || step > launch->step;
    launch->step = step > launch->step ? step : launch->step;
    launch->fruitless = fruitful ? 0 : launch->fruitless + 1;
    if (fruitful)
        launch->pause = pause_first;
}

static void restart_say(const struct launch *launch, const struct attempt *attempt)
{
    char reason[LAUNCH_LINE + 64], ran[32], from[OPTION_TEXT + 64] = "the beginning";
    attempt_reason(attempt, reason, sizeof reason);
    clock_format(attempt->seconds, ran, sizeof ran);
    if (launch->step >= 0)
        snprintf(from, sizeof from, "step %lld of %s", (long long)launch->step, launch->run.folder);
    else if (!launch->run.known)
        snprintf(from, sizeof from, "where it was");
    fprintf(stderr, "vittrain: launch: restart %d of %d in %.0f s, from %s; it had run %s%s: %s\n",
            launch->done, launch->restarts, launch->pause, from, ran,
            attempt->killed ? " and did not end by itself" : "", reason);
}

static bool give_up(const struct launch *launch, const struct attempt *attempt, const char *why,
                    struct error *error)
{
    char reason[LAUNCH_LINE + 64];
    attempt_reason(attempt, reason, sizeof reason);
    return error_set(error, ERROR_PEER, "launch: given up after %d restart%s%s: %s", launch->done,
                     launch->done == 1 ? "" : "s", why, reason);
}

/* A run that was told to begin anew or from a file goes on with itself once it can, and nobody
 * watches it who would want a pause: the last of two settings counts. */
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

static bool told_to_end(struct error *error)
{
    return error_set(error, ERROR_PEER, "launch: told to end before the run was started again");
}

/* Goes on without the hosts that do not answer: of those that do there is at least this one. */
static bool hosts_reduce(struct launch *launch, const char *missing, struct error *error)
{
    int64_t ranks = launched_hosts_use(&launch->hosts, launch->words, launch->original, error);
    if (error->kind != ERROR_NONE)
        return false;
    if (ranks == 0)
        return error_set(error, ERROR_PEER, "launch: no host answers: %s", missing);
    if (missing[0] != '\0')
        fprintf(stderr,
                "vittrain: launch: no answer from %s: it goes on with %lld ranks on the "
                "other hosts (mesh.elastic)\n",
                missing, (long long)ranks);
    return true;
}

/* Before a restart: a node may be gone, and one that was gone may be back. */
static bool hosts_settle(struct launch *launch, struct error *error)
{
    const double end = clock_now() + launch->wait;
    const bool elastic = launch->run.known && launch->run.options.mesh.elastic;
    char missing[LAUNCH_LINE];
    for (bool said = false;; said = true) {
        launched_hosts_close(&launch->hosts);
        if (!launched_hosts_open(&launch->hosts, launch->count, launch->original, error))
            return false;
        if (launch->hosts.count == 0)
            return true;
        int count = launched_hosts_try(&launch->hosts);
        launched_hosts_missing(&launch->hosts, missing, sizeof missing);
        if (count == 0 || elastic)
            return hosts_reduce(launch, missing, error);
        if (clock_now() > end)
            return error_set(error, ERROR_PEER,
                             "launch: no answer from %s for %.0f s: mend them, take them out of "
                             "the host file, or go on with fewer ranks by mesh.elastic=yes",
                             missing, launch->wait);
        if (!said)
            fprintf(stderr,
                    "vittrain: launch: no answer from %s: waiting for them, %.0f s at most "
                    "(mesh.elastic=yes would go on without them)\n",
                    missing, launch->wait);
        if (attempt_sleep(host_pause))
            return told_to_end(error);
    }
}

/* May it be started again? Waits until it can be. */
static bool restart(struct launch *launch, const struct attempt *attempt, struct error *error)
{
    progress_note(launch, attempt);
    if (launch->done >= launch->restarts)
        return give_up(launch, attempt, "", error);
    if (launch->fruitless >= FRUITLESS_MOST)
        return give_up(launch, attempt, ", as two attempts came no further", error);
    launch->done++;
    words_resume(launch);
    restart_say(launch, attempt);
    if (attempt_sleep(launch->pause))
        return told_to_end(error);
    launch->pause = 2 * launch->pause < pause_most ? 2 * launch->pause : pause_most;
    if (!launched_run_wait(&launch->run, lock_patience))
        return error_set(error, ERROR_PEER,
                         "launch: another process still holds %s: find it (fuser %s/.lock, on all "
                         "nodes) and end it",
                         launch->run.folder, launch->run.folder);
    return hosts_settle(launch, error);
}

static int launch_run(int count, char **words)
{
    static struct launch launch;
    struct error error = {0};
    struct attempt attempt = {0};
    launch = (struct launch){.restarts = 3, .grace = 10, .wait = 300, .pause = pause_first};
    if (count > 0 && (strcmp(words[0], "--help") == 0 || strcmp(words[0], "-h") == 0))
        return app_inform(&(struct command_line){.command = command_launch.name, .help = true});
    if (launch_read(&launch, count, words, &error)) {
        launched_run_read(&launch.run, launch.count, launch.words);
        attempt_prepare();
        launch.step = launched_run_step(&launch.run);
        const struct attempt_manner manner = {.who = "launch", .grace = launch.grace, .output = -1};
        do {
            if (!attempt_run(launch.words, &manner, &attempt, &error))
                break;
        } while (!is_final(&attempt) && restart(&launch, &attempt, &error));
    }
    launched_hosts_close(&launch.hosts);
    free(launch.words);
    if (error.kind == ERROR_NONE)
        return final_code(&attempt);
    log_error(&error);
    return launch.restarts == 0 && attempt.code != 0 ? attempt.code : (int)error.kind;
}

const struct command command_launch = {
    .name = "launch",
    .synopsis = "launch [--restarts N] [--grace S] [--wait S] -- COMMAND...",
    .summary = "run mpirun or srun, and start it again after a failure",
    .detail =
        "Runs the command (mpirun ... vittrain ..., or srun), passes on what it says and the "
        "signals that come, and starts it again after a failure: a rank or node that died or "
        "does not answer. The run goes on from its newest good checkpoint. At most N restarts (3), "
        "and none after two attempts in a row without a new checkpoint, a user's mistake (exit "
        "codes 2 to 7), or a signal to end. A command that does not end by itself within the "
        "grace (10 s) after a failure is killed. Nothing of an attempt is left on this machine "
        "before the next begins. Of an mpirun line with a host file all hosts are tried before a "
        "restart, by the agent that mpirun uses; without those that do not answer it goes on with "
        "fewer ranks if the run has mesh.elastic=yes, else they are waited for (300 s). Exit code: "
        "the command's; 9 when the restarts were used up.",
    .run_alone = launch_run};
