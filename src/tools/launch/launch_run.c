// SPDX-License-Identifier: BSD-3-Clause
/* The training run that a launched command starts: its options, its folder and its newest
 * checkpoint. They are read from the command line and the folder. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/app.h"
#include "checkpoint/checkpoint_name.h"
#include "config/command_line.h"
#include "config/options.h"
#include "core/clock.h"
#include "core/folder.h"
#include "core/integer.h"
#include "core/launcher.h"
#include "core/output_file.h"
#include "core/text.h"
#include "core/text_file.h"
#include "tools/launch/launch.h"

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
    run->since = clock_wall();
    run->known = program < count &&
                 options_parse(count - program, (char **)words + program, app_command_names(),
                               &run->options, &line, &ignored) &&
                 options_check_line(&line, &run->options, &ignored) &&
                 !command_line_informs(&line) && strcmp(line.command, "train") == 0;
    run->by_mpirun = launcher_is_mpirun(words[0]);
    run->here = launched_ranks_here(count, words);
    if (run->known)
        snprintf(run->folder, sizeof run->folder, "%s", run->options.run.dir);
}

/* True if a name has the form NAME-DATE for this run.name. */
static bool folder_is_of(const char *folder, const char *name)
{
    const size_t length = strlen(name);
    return strncmp(folder, name, length) == 0 && folder[length] == '-' &&
           strspn(folder + length + 1, "0123456789") == strlen("YYYYmmdd");
}

/* Find the folder runs/NAME-... that was modified last, after the launch. Another run of this name
 * may use one, so a folder that is not in use takes precedence: the attempt has ended. */
static void folder_find(struct launched_run *run)
{
    double newest = run->since - 1;
    bool locked = true;
    DIR *entries = NULL;
    for (const char *name; (name = folder_next(&entries, "runs")) != NULL;) {
        char path[sizeof "runs/" + NAME_MAX];
        struct stat status;
        snprintf(path, sizeof path, "runs/%s", name);
        if (!folder_is_of(name, run->options.run.name) || stat(path, &status) != 0)
            continue;
        double changed = (double)status.st_mtim.tv_sec + 1e-9 * (double)status.st_mtim.tv_nsec;
        const bool in_use = folder_use(path) == FOLDER_IN_USE;
        if (changed < run->since - 1 || in_use > locked || (in_use == locked && changed < newest))
            continue;
        newest = changed;
        locked = in_use;
        snprintf(run->folder, sizeof run->folder, "%s", path);
    }
}

/* Find the run folder if run.dir is not given. Return false if it is unknown. */
static bool folder_known(struct launched_run *run)
{
    if (run->known && run->options.run.dir[0] == '\0')
        folder_find(run);
    return run->folder[0] != '\0';
}

/* Return the step of the newest checkpoint in a folder, -1 without one. */
static int64_t newest_step(const char *folder)
{
    int64_t newest = -1;
    DIR *entries = NULL;
    for (const char *name; (name = folder_next(&entries, folder)) != NULL;)
        newest = larger(newest, checkpoint_name_step(name));
    return newest;
}

/* Return the step of the last complete row of metrics.csv, -1 without one. */
static int64_t last_row(const char *folder)
{
    char path[OPTION_TEXT + 16];
    long long step = -1;
    snprintf(path, sizeof path, "%s/metrics.csv", folder);
    char *text = text_file_read(path, NULL);
    char *end = text != NULL ? strrchr(text, '\n') : NULL;
    if (end != NULL) {
        *end = '\0';
        const char *line = strrchr(text, '\n');
        if (line == NULL || sscanf(line, "\n%*d,%lld,", &step) != 1)
            step = -1;
    }
    free(text);
    return step;
}

int64_t launched_run_step(struct launched_run *run, bool *elsewhere)
{
    char path[OPTION_TEXT + 16], id[MEMORY_ID];
    *elsewhere = false;
    if (!folder_known(run))
        return -1;
    snprintf(path, sizeof path, "%s/checkpoints", run->folder);
    const int64_t newest = newest_step(path);
    if (!checkpoint_memory_id(run->folder, id, NULL))
        return newest;
    checkpoint_memory_folder(id, path, sizeof path);
    *elsewhere = access(path, F_OK) != 0;
    return larger(newest, *elsewhere ? last_row(run->folder) : newest_step(path));
}

struct attempt_mark launched_run_mark(struct launched_run *run)
{
    struct attempt_mark mark = {.folder = "", .number = -1};
    char path[OPTION_TEXT + 16], text[64] = "", word[16] = "";
    long long number = 0;
    if (!folder_known(run))
        return mark;
    snprintf(mark.folder, sizeof mark.folder, "%s", run->folder);
    snprintf(path, sizeof path, "%s/.lock", run->folder);
    const int lock = output_file_open(path, O_RDWR);
    if (lock < 0)
        return mark;
    if (read(lock, text, sizeof text - 1) >= 0 &&
        sscanf(text, "attempt %lld %15s", &number, word) == 2)
        mark.ended = strcmp(word, "ended") == 0;
    mark.number = number;
    close(lock);
    return mark;
}

bool launched_run_has_begun(struct launched_run *run, const struct attempt_mark *before)
{
    const struct attempt_mark now = launched_run_mark(run);
    return now.number != before->number || strcmp(now.folder, before->folder) != 0;
}

bool launched_run_is_interrupted(struct launched_run *run, const struct attempt_mark *before)
{
    const struct attempt_mark now = launched_run_mark(run);
    if (now.number < 0)
        return run->here != HERE_UNKNOWN;
    if (run->by_mpirun)
        return !now.ended || !launched_run_has_begun(run, before);
    return !now.ended && now.number > 0;
}

bool launched_run_wait(const struct launched_run *run, double seconds, struct error *error)
{
    char path[OPTION_TEXT + 16];
    snprintf(path, sizeof path, "%s/.lock", run->folder);
    int lock = run->folder[0] != '\0' ? output_file_open(path, O_RDWR) : -1;
    const double end = clock_now() + seconds;
    while (lock >= 0 && error->kind == ERROR_NONE && flock(lock, LOCK_EX | LOCK_NB) != 0) {
        if (clock_now() > end)
            error_set(error, ERROR_PEER,
                      "launch: another process still uses %s: find it (fuser %s on each node) and "
                      "end it",
                      run->folder, path);
        else if (attempt_sleep(0.2))
            error_set(error, ERROR_PEER, "launch: cancelled by signal");
    }
    if (lock >= 0)
        close(lock);
    return error->kind == ERROR_NONE;
}
