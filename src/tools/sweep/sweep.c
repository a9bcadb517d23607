// SPDX-License-Identifier: BSD-3-Clause
/* The command `sweep`: reads the search space, checks all combinations before the first trial, and
 * runs the trials one after another, or submits them to Slurm. */
#include "tools/sweep/sweep.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/app.h"
#include "config/command_line.h"
#include "config/option.h"
#include "config/option_conditions.h"
#include "config/options.h"
#include "core/clock.h"
#include "core/launcher.h"
#include "core/log.h"
#include "core/text.h"
#include "tools/sweep/sweep_tpe.h"

/* ---- the command line */

static bool word_add(struct sweep_words *words, char *word, struct error *error)
{
    if (words->count == SWEEP_WORDS)
        return error_set(error, ERROR_USAGE, "sweep: more than %d words", SWEEP_WORDS);
    if (strchr(word, '\n') != NULL)
        return error_set(error, ERROR_USAGE, "sweep: a word contains a newline");
    words->word[words->count++] = word;
    return true;
}

/* A word before -- is a deck, a setting, a key to vary, or the folder of a sweep to continue. */
static bool line_read(struct sweep *sweep, int count, char **words, struct error *error)
{
    int i = 0;
    for (; i < count && strcmp(words[i], "--") != 0; i++) {
        bool varies = false, setting = option_is_setting(words[i]);
        if (words[i][0] == '-')
            return error_set(error, ERROR_USAGE, "sweep: unknown flag %s: %s", words[i],
                             command_sweep.synopsis);
        if (setting && !sweep_space_add(&sweep->space, words[i], &varies, error))
            return false;
        if (setting || text_ends_with(words[i], ".ini")) {
            if (!word_add(varies ? &sweep->keys : &sweep->extra, words[i], error))
                return false;
        } else if (sweep->folder[0] != '\0') {
            return error_set(error, ERROR_USAGE, "sweep: %s: neither a deck nor key=value",
                             words[i]);
        } else {
            snprintf(sweep->folder, sizeof sweep->folder, "%s", words[i]);
        }
    }
    for (i++; i < count; i++)
        if (!word_add(&sweep->command, words[i], error))
            return false;
    return !launcher_has_ranks() ||
           error_set(error, ERROR_USAGE,
                     "sweep: runs mpirun or srun and cannot be run by them; use vittrain sweep "
                     "... -- mpirun -np 4");
}

/* Return the text " key=value key=value". */
static const char *point_text(const struct sweep_space *space, const struct sweep_point *point,
                              char *text, size_t size)
{
    text[0] = '\0';
    for (int k = 0; k < space->count; k++) {
        char value[OPTION_TEXT];
        size_t used = strlen(text);
        sweep_value_text(&space->keys[k], point->value[k], value, sizeof value);
        snprintf(text + used, size - used, " %s=%s", space->keys[k].entry->name, value);
    }
    return text;
}

/* ---- checks before the first trial */

static bool words_check(const struct sweep_words *words, const struct options *options,
                        struct error *error)
{
    for (int i = 0; i < words->count; i++)
        if (!option_word_check(words->word[i], options, error))
            return false;
    return true;
}

/* Check all points of a grid, otherwise random points, for invalid combinations. */
static bool combinations_check(const struct sweep *sweep, struct error *error)
{
    static struct options options;
    char text[ERROR_TEXT_SIZE / 2];
    for (int64_t i = 0; i < sweep->trials; i++) {
        struct sweep_point point = {{0}};
        struct error why = {0};
        if (sweep->options.sweep.method == SWEEP_GRID)
            sweep_grid_point(&sweep->space, i, &point);
        else
            sweep_random_point(&sweep->space, (uint64_t)sweep->options.sweep.seed, i, &point);
        options = sweep->options;
        if (!sweep_point_apply(&sweep->space, &point, &options, &why) ||
            !words_check(&sweep->extra, &options, &why) ||
            !words_check(&sweep->keys, &options, &why) || !options_check(&options, &why))
            return error_set(error, why.kind, "sweep: with%s: %.900s",
                             point_text(&sweep->space, &point, text, sizeof text), why.text);
    }
    return true;
}

static bool sweep_check(struct sweep *sweep, struct error *error)
{
    const struct options *options = &sweep->options;
    bool less;
    if (sweep->space.count == 0)
        return error_set(error, ERROR_USAGE,
                         "sweep: nothing varies; give key=A,B,C or key=LOW..HIGH");
    if (options->run.dir[0] != '\0')
        return error_set(error, ERROR_USAGE,
                         "sweep: run.dir cannot be set, because each trial has its own folder; use "
                         "sweep.dir for the folder of the sweep");
    if (options->checkpoint.monitor == MONITOR_NONE)
        return error_set(error, ERROR_USAGE,
                         "sweep: checkpoint.monitor=none: trials are compared by it; set another "
                         "metric");
    if (options->checkpoint.monitor == MONITOR_AUTO && options->data.task == TASK_CLASSES &&
        options->model.head == HEAD_CLASS && strcmp(options->data.format, "arrays") == 0)
        return error_set(error, ERROR_USAGE,
                         "sweep: checkpoint.monitor=auto depends on the labels in the data; set "
                         "top1 if a sample has one class, or data.task=labels if it has several");
    if (options->data.val == VALIDATION_NONE)
        return error_set(error, ERROR_USAGE,
                         "sweep: data.val=none: trials are compared by their best %s on validation "
                         "data; choose another data.val",
                         sweep_metric(sweep, &less));
    sweep->trials = options->sweep.trials;
    if (options->sweep.method == SWEEP_GRID)
        sweep->trials = sweep_grid_size(&sweep->space, error);
    return sweep->trials > 0 && combinations_check(sweep, error);
}

/* ---- a new sweep, or one to continue */

/* Settings given with the folder are checked now and apply to all trials. Those of the section
 * `sweep` replace the stored ones: sweep.trials=40 extends a sweep. */
static bool sweep_continue(struct sweep *sweep, struct error *error)
{
    static struct options scratch;
    bool varies;
    if (sweep->keys.count > 0)
        return error_set(error, ERROR_USAGE,
                         "sweep: the keys that vary are stored in %s; do not give them again",
                         sweep->folder);
    if (!sweep_folder_read(sweep, error))
        return false;
    for (int i = 0; i < sweep->keys.count; i++) {
        if (strchr(sweep->keys.word[i], '=') == NULL)
            return error_set(
                error, ERROR_FILE,
                "%s/keys.txt: %.200s is not key=VALUES; correct it or start another sweep",
                sweep->folder, sweep->keys.word[i]);
        if (!sweep_space_add(&sweep->space, sweep->keys.word[i], &varies, error))
            return false;
    }
    scratch = sweep->options;
    for (int i = 0; i < sweep->extra.count; i++)
        if (text_ends_with(sweep->extra.word[i], ".ini")
                ? !options_read_file(sweep->extra.word[i], &scratch, error)
                : !options_set(sweep->extra.word[i], &scratch, error))
            return false;
    sweep->options.sweep = scratch.sweep;
    return sweep_check(sweep, error);
}

/* The shared options contain the first value of each key, so that they are a complete deck. */
static bool sweep_begin(struct sweep *sweep, struct error *error)
{
    struct command_line line;
    char *words[SWEEP_WORDS + 2] = {"vittrain", "train"};
    struct sweep_point first = {{0}};
    for (int i = 0; i < sweep->extra.count; i++)
        words[i + 2] = sweep->extra.word[i];
    for (int k = 0; k < sweep->space.count; k++)
        first.value[k] = sweep->space.keys[k].count > 0 ? 0 : sweep->space.keys[k].low;
    if (!options_parse(sweep->extra.count + 2, words, app_command_names(), &sweep->options, &line,
                       error) ||
        !sweep_point_apply(&sweep->space, &first, &sweep->options, error) ||
        !options_check(&sweep->options, error) || !sweep_check(sweep, error))
        return false;
    sweep->extra.count = 0; /* contained in the shared options */
    return sweep_folder_begin(sweep, error);
}

/* ---- trials */

static void sweep_report(const struct sweep *sweep)
{
    static const char *const methods[] = {"grid", "random", "tpe"};
    bool less;
    const char *metric = sweep_metric(sweep, &less);
    printf("sweep: %s: %s of %lld trials, best is the %s %s; keys", sweep->folder,
           methods[sweep->options.sweep.method], (long long)sweep->trials,
           less ? "lowest" : "highest", metric);
    for (int i = 0; i < sweep->keys.count; i++)
        printf(" %s", sweep->keys.word[i]);
    printf("\n");
    fflush(stdout);
}

/* Run trials until none is left or a signal asks to stop. */
static bool trials_run(struct sweep *sweep, struct error *error)
{
    char text[SWEEP_KEYS * OPTION_TEXT], folder[SWEEP_PATH], time[32];
    bool less;
    const char *metric = sweep_metric(sweep, &less);
    for (bool asked = false; !asked;) {
        int64_t number;
        struct sweep_row row;
        if (!sweep_trial_claim(sweep, &number, &row, error))
            return false;
        if (number < 0)
            return true;
        sweep_trial_path(sweep, number, "", folder, sizeof folder);
        printf("trial %lld of %lld:%s%s\n", (long long)number + 1, (long long)sweep->trials,
               point_text(&sweep->space, &row.point, text, sizeof text),
               access(folder, F_OK) == 0 ? " (resumed)" : "");
        fflush(stdout);
        if (!sweep_trial_run(sweep, number, &row, &asked, error) ||
            !sweep_trial_record(sweep, number, &row, error))
            return false;
        clock_format(row.seconds, time, sizeof time);
        if (row.state == SWEEP_FINISHED)
            printf("    %s %.6g in %s\n", metric, row.metric, time);
        else if (row.state == SWEEP_FAILED)
            printf("    failed after %s: %s\n", time, row.reason);
        else
            printf("    stopped after %s\n", time);
        fflush(stdout);
        asked = asked || attempt_sleep(0.001);
    }
    return true;
}

static bool sweep_conclude(const struct sweep *sweep, struct error *error)
{
    struct sweep_table table;
    if (!sweep_table_read(sweep, &table, error))
        return false;
    int64_t best = sweep_table_best(sweep, &table);
    int64_t running = sweep_table_count(&table, SWEEP_RUNNING);
    int64_t left = running + (sweep->trials > table.count ? sweep->trials - table.count : 0);
    sweep_table_print(sweep, &table);
    if (best >= 0)
        printf("\nbest: trial %lld; its deck: %s/best.ini\n", (long long)best + 1, sweep->folder);
    if (left > 0)
        printf("%lld of %lld trials have not ended; continue with: vittrain sweep %s\n",
               (long long)left, (long long)sweep->trials, sweep->folder);
    else if (best < 0)
        error_set(error, ERROR_INTERNAL,
                  "sweep: no trial succeeded; see the reasons in %s/trials.csv and the logs of the "
                  "trials",
                  sweep->folder);
    sweep_table_free(&table);
    return app_output_arrived(error) && error->kind == ERROR_NONE;
}

/* The jobs of the script run `vittrain sweep` with the folder in VITTRAIN_SWEEP (jobs/common.sh).
 */
static bool slurm_submit(const struct sweep *sweep, struct error *error)
{
    char array[64];
    int64_t tasks =
        sweep->options.sweep.tasks < sweep->trials ? sweep->options.sweep.tasks : sweep->trials;
    snprintf(array, sizeof array, "--array=1-%lld", (long long)tasks);
    char *path = realpath(sweep->folder, NULL);
    bool good = path != NULL && setenv("VITTRAIN_SWEEP", path, 1) == 0;
    free(path);
    if (!good)
        return error_set(error, ERROR_FILE, "sweep: %s: %s", sweep->folder, strerror(errno));
    sweep_report(sweep);
    execlp("sbatch", "sbatch", array, sweep->options.sweep.slurm, (char *)NULL);
    return error_set(error, ERROR_USAGE, "sweep: sweep.slurm: cannot start sbatch: %s",
                     strerror(errno));
}

static int sweep_run(int count, char **words)
{
    static struct sweep sweep;
    struct error error = {0};
    if (count > 0 && (strcmp(words[0], "--help") == 0 || strcmp(words[0], "-h") == 0))
        return app_inform(&(struct command_line){.command = command_sweep.name, .help = true});
    const char *task = getenv("SLURM_ARRAY_TASK_ID");
    sweep.task = task != NULL ? strtoll(task, NULL, 10) : 0;
    ENSURE(readlink("/proc/self/exe", sweep.program, sizeof sweep.program - 1) > 0,
           "cannot find the path of this program: /proc/self/exe is not readable");
    bool good =
        line_read(&sweep, count, words, &error) &&
        (sweep.folder[0] != '\0' ? sweep_continue(&sweep, &error) : sweep_begin(&sweep, &error));
    if (good && sweep.options.sweep.slurm[0] != '\0' && getenv("SLURM_JOB_ID") == NULL) {
        good = slurm_submit(&sweep, &error);
    } else if (good && sweep_task_hold(&sweep, &error)) {
        attempt_prepare();
        sweep_report(&sweep);
        good = trials_run(&sweep, &error) && sweep_conclude(&sweep, &error);
    }
    if (error.kind != ERROR_NONE)
        log_error(&error);
    sweep_space_free(&sweep.space);
    return (int)error.kind;
}

const struct command command_sweep = {
    .name = "sweep",
    .synopsis = "sweep [DECK.ini ...] [section.key=value ...] key=A,B,C key=LOW..HIGH[:log] [-- "
                "COMMAND...]",
    .summary = "train with many settings and find the best",
    .detail =
        "Trains with each combination of values (sweep.method=grid), with random ones (random), or "
        "with those that a tree-structured Parzen estimator suggests (tpe), each in its own run "
        "folder below sweeps/NAME-DATE. key=A,B,C lists values (separated by ; if they contain "
        "commas), key=LOW..HIGH is a range, with :log a log-uniform one, with :N a list of N "
        "values. The words after -- are put before the program: -- mpirun -np 4. trials.csv has "
        "one row per trial, best.ini is the best deck; trials are compared by checkpoint.monitor. "
        "The same command, or `vittrain sweep FOLDER`, continues a sweep that was interrupted. "
        "SIGINT and SIGTERM stop the trial with a checkpoint. After a failed trial the sweep "
        "continues; the table shows the reason.",
    .run_alone = sweep_run};
