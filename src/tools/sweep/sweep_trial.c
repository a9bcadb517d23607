// SPDX-License-Identifier: BSD-3-Clause
/* One trial: its row in the table, its command and its result. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "config/options.h"
#include "core/output_file.h"
#include "tools/sweep/sweep.h"
#include "tools/sweep/sweep_tpe.h"

/* Seconds: for a trial to end after a failure; for a trial whose supervisor was killed to release
 * its folder. */
static const double grace = 10, lock_patience = 60;

void sweep_trial_path(const struct sweep *sweep, int64_t number, const char *ending, char *path,
                      size_t size)
{
    snprintf(path, size, "%s/trial-%03lld%s", sweep->folder, (long long)number + 1, ending);
}

/* ---- choice of the trial */

static void point_suggest(const struct sweep *sweep, const struct sweep_table *table,
                          struct sweep_point *point)
{
    const struct options *options = &sweep->options;
    uint64_t seed = (uint64_t)options->sweep.seed;
    if (options->sweep.method == SWEEP_GRID) {
        sweep_grid_point(&sweep->space, table->count, point);
        return;
    }
    if (options->sweep.method == SWEEP_RANDOM) {
        sweep_random_point(&sweep->space, seed, table->count, point);
        return;
    }
    bool less;
    sweep_metric(sweep, &less);
    struct sweep_seen *seen = allocate((size_t)table->count + 1, sizeof *seen);
    for (int64_t i = 0; i < table->count; i++) {
        const struct sweep_row *row = &table->rows[i];
        seen[i].point = row->point;
        seen[i].value = row->state == SWEEP_FINISHED ? (less ? -row->metric : row->metric)
                        : row->state == SWEEP_FAILED ? -INFINITY
                                                     : NAN;
    }
    sweep_tpe_point(&sweep->space, seed, table->count, seen, table->count, point);
    free(seen);
}

/* Return an interrupted trial of this task or of a task that has died, else a new trial; -1: none.
 */
static int64_t row_choose(const struct sweep *sweep, struct sweep_table *table)
{
    for (int64_t i = 0; i < table->count; i++) {
        struct sweep_row *row = &table->rows[i];
        if (row->state == SWEEP_RUNNING &&
            (row->task == sweep->task || !sweep_task_lives(sweep, row->task)))
            return i;
    }
    if (table->count >= sweep->trials)
        return -1;
    struct sweep_point point = {{0}};
    point_suggest(sweep, table, &point);
    sweep_table_add(table)->point = point;
    return table->count - 1;
}

bool sweep_trial_claim(const struct sweep *sweep, int64_t *number, struct sweep_row *row,
                       struct error *error)
{
    struct sweep_table table;
    int lock = sweep_table_open(sweep, &table, error);
    if (lock < 0)
        return false;
    bool good = true;
    *number = row_choose(sweep, &table);
    if (*number >= 0) {
        table.rows[*number].task = sweep->task;
        *row = table.rows[*number];
        good = sweep_table_write(sweep, &table, error);
    }
    sweep_table_free(&table);
    close(lock);
    return good;
}

bool sweep_trial_record(const struct sweep *sweep, int64_t number, const struct sweep_row *row,
                        struct error *error)
{
    struct sweep_table table;
    int lock = sweep_table_open(sweep, &table, error);
    if (lock < 0)
        return false;
    ENSURE(number < table.count, "trial %lld is not in the table", (long long)number + 1);
    table.rows[number] = *row;
    bool good = sweep_table_write(sweep, &table, error) && sweep_best_write(sweep, &table, error);
    sweep_table_free(&table);
    close(lock);
    return good;
}

/* ---- the command of a trial */

struct trial_words {
    char *word[2 * SWEEP_WORDS + SWEEP_KEYS + 16];
    int count;
    char own[SWEEP_KEYS + 8][OPTION_TEXT + 2 * OPTION_KEY]; /* text of generated words */
    int own_count;
};

static void word_add(struct trial_words *words, const char *word)
{
    words->word[words->count++] = (char *)(uintptr_t)word;
}

static void __attribute__((format(printf, 2, 3)))
word_make(struct trial_words *words, const char *format, ...)
{
    va_list values;
    char *word = words->own[words->own_count++];
    va_start(values, format);
    vsnprintf(word, sizeof words->own[0], format, values);
    va_end(values);
    word_add(words, word);
}

/* Compose the command line. The last settings differ between trials: folder, log book, upload
 * destination. */
static void words_fill(const struct sweep *sweep, int64_t number, const struct sweep_row *row,
                       bool again, struct trial_words *words)
{
    char folder[SWEEP_PATH];
    const char *upload = sweep->options.output.upload;
    const char *slash = strrchr(sweep->folder, '/');
    sweep_trial_path(sweep, number, "", folder, sizeof folder);
    memset(words, 0, sizeof *words);
    for (int i = 0; i < sweep->command.count; i++)
        word_add(words, sweep->command.word[i]);
    word_add(words, sweep->program);
    word_add(words, "train");
    word_make(words, "%s/base.ini", sweep->folder);
    for (int i = 0; i < sweep->extra.count; i++)
        word_add(words, sweep->extra.word[i]);
    for (int k = 0; k < sweep->space.count; k++) {
        char text[OPTION_TEXT];
        sweep_value_text(&sweep->space.keys[k], row->point.value[k], text, sizeof text);
        word_make(words, "%s=%s", sweep->space.keys[k].entry->name, text);
    }
    word_make(words, "run.dir=%s", folder);
    word_make(words, "output.logbook=");
    if (upload[0] != '\0')
        word_make(words, "output.upload=%.600s%s%.255s/trial-%03lld", upload,
                  strchr("/:", upload[strlen(upload) - 1]) != NULL ? "" : "/",
                  slash != NULL ? slash + 1 : sweep->folder, (long long)number + 1);
    if (again)
        word_add(words, "checkpoint.resume=auto");
}

/* ---- the result of a trial */

struct outcome {
    bool known, finished, signalled;
    double best, seconds;
};

static struct outcome outcome_read(const char *folder)
{
    char path[SWEEP_PATH + 16];
    struct outcome outcome = {.best = NAN};
    snprintf(path, sizeof path, "%s/result.json", folder);
    json_t *json = json_load_file(path, 0, NULL);
    json_t *best = json_object_get(json_object_get(json, "best"), "value");
    const char *reason = json_string_value(json_object_get(json, "stop_reason"));
    outcome.known = reason != NULL; /* an attempt has ended */
    outcome.finished = json_is_true(json_object_get(json, "finished"));
    outcome.signalled = !outcome.finished && reason != NULL && strstr(reason, "signal") != NULL;
    if (json_is_number(best))
        outcome.best = json_number_value(best);
    outcome.seconds = json_number_value(json_object_get(json, "total_seconds"));
    json_decref(json);
    return outcome;
}

/* A run that was ended by its own time limit counts with its best value. */
static void row_conclude(struct sweep_row *row, const struct attempt *attempt,
                         const struct outcome *outcome)
{
    row->state = SWEEP_FAILED;
    if (attempt->code != 0 || attempt->failure[0] != '\0' || attempt->mistake[0] != '\0')
        attempt_reason(attempt, row->reason, sizeof row->reason);
    else if (!outcome->known)
        snprintf(row->reason, sizeof row->reason, "the run wrote no result.json");
    else if (isnan(outcome->best))
        snprintf(row->reason, sizeof row->reason, "the run has no evaluation");
    else {
        row->state = SWEEP_FINISHED;
        row->metric = outcome->best;
        row->seconds = fmax(row->seconds, outcome->seconds); /* includes killed attempts */
        row->reason[0] = '\0';
    }
}

/* If the launcher fails before the program prints anything, start it once more. */
static bool command_run(char *const *words, const char *folder, int log, struct attempt *attempt,
                        struct error *error)
{
    const struct attempt_options options = {
        .who = "sweep", .grace = grace, .output = log, .gently = true};
    bool silent = true, good = true;
    for (int i = 0; good && silent && i < 2; i++) {
        good = attempt_run(words, &options, attempt, error);
        silent = attempt->code != 0 && !attempt->asked && attempt->failure[0] == '\0' &&
                 attempt->death.text[0] == '\0' && attempt->mistake[0] == '\0' &&
                 access(folder, F_OK) != 0;
    }
    return good;
}

bool sweep_trial_run(const struct sweep *sweep, int64_t number, struct sweep_row *row, bool *asked,
                     struct error *error)
{
    static struct trial_words words;
    struct attempt attempt;
    struct launched_run run = {.known = false};
    char folder[SWEEP_PATH], path[SWEEP_PATH];
    sweep_trial_path(sweep, number, "", folder, sizeof folder);
    snprintf(run.folder, sizeof run.folder, "%.1023s", folder);
    /* The trial may still run if only its supervisor was killed. */
    if (!launched_run_wait(&run, "sweep", lock_patience, error))
        return false;
    /* Resume from the trial's own folder. A new trial keeps checkpoint.resume of the deck, which
     * may name a checkpoint; checkpoint.resume=never would refuse an existing folder. */
    bool elsewhere;
    bool resumed =
        access(folder, F_OK) == 0 && (strcmp(sweep->options.checkpoint.resume, "never") == 0 ||
                                      launched_run_step(&run, &elsewhere) >= 0 || elsewhere);
    words_fill(sweep, number, row, resumed, &words);
    sweep_trial_path(sweep, number, ".log", path, sizeof path);
    int log = output_file_open(path, O_WRONLY | O_CREAT | O_APPEND);
    if (log < 0)
        return error_set(error, ERROR_FILE, "cannot write %s: %s", path, strerror(errno));
    bool good = command_run(words.word, folder, log, &attempt, error);
    close(log);
    if (!good)
        return false;
    row->seconds += attempt.seconds;
    const struct outcome outcome = outcome_read(folder);
    bool whole = outcome.finished && attempt.code == 0;
    *asked = attempt.asked || (attempt.code == 0 && outcome.signalled);
    if (whole || !*asked)
        row_conclude(row, &attempt, &outcome);
    return true;
}
