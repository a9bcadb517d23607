// SPDX-License-Identifier: BSD-3-Clause
/* The training run that a launched command starts: its options, which are read from the command
 * line, and what its folder shows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/app.h"
#include "checkpoint/checkpoint_name.h"
#include "config/command_line.h"
#include "core/base.h"
#include "core/file.h"
#include "core/launcher.h"
#include "core/text.h"
#include "tools/launch/launch.h"

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
    run->known = program < count &&
                 options_parse(count - program, (char **)words + program, app_command_names(),
                               &run->options, &line, &ignored) &&
                 options_check_line(&line, &run->options, &ignored) &&
                 !command_line_informs(&line) && strcmp(line.command, "train") == 0;
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
