// SPDX-License-Identifier: BSD-3-Clause
/* The list of commands, and the comparison of ranks at the start. */
#include "commands/app.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/text.h"
#include "options/option.h"

const struct command *const app_commands[] = {
    &command_train, &command_eval,   &command_predict, &command_report,
    &command_plan,  &command_find,   &command_convert, &command_data,
    &command_bench, &command_launch, &command_doctor,  &command_verify,
    NULL,
};

enum { COMMANDS = sizeof app_commands / sizeof app_commands[0] };

const char *const app_exit_codes[] = {
    [ERROR_NONE] = "success; also a run that was asked to stop (see finished in result.json)",
    [ERROR_INTERNAL] = "bug in the program, or a library failed without a reason",
    [ERROR_USAGE] = "wrong command line, deck or combination of options",
    [ERROR_DATA] = "data set missing, truncated or with a label out of range",
    [ERROR_CHECKPOINT] = "checkpoint or weights damaged, or of another model or version",
    [ERROR_FILE] = "a file cannot be written: disk full, no permission",
    [ERROR_MEMORY] = "too little memory, or another limit of the machine",
    [ERROR_NUMERIC] = "NaN or infinity in training, eval or predict",
    [ERROR_NUMERIC + 1] = "not used",
    [ERROR_PEER] = "another rank failed or does not respond",
    [ERROR_UNFIT] = "`doctor` found a problem that must be fixed before a run",
    [ERROR_DIFFERENT] = "`verify` found a step whose replay gives other bits, or "
                        "train.check_every a wrong gradient",
    [ERROR_DIFFERENT + 1] = NULL,
};

const char *const *app_command_names(void)
{
    static const char *names[COMMANDS];
    for (int i = 0; app_commands[i] != NULL; i++)
        names[i] = app_commands[i]->name;
    return names;
}

const struct command *app_find(const char *name)
{
    for (int i = 0; app_commands[i] != NULL; i++)
        if (strcmp(app_commands[i]->name, name) == 0)
            return app_commands[i];
    return NULL;
}

bool app_refuse(const char *word, struct error *error)
{
    const char *nearest = text_nearest(word, app_command_names());
    const struct removed *removed = removed_find(word);
    if (removed != NULL)
        return error_set(error, ERROR_USAGE, "%s: the command was removed: %s", word,
                         removed->instead);
    if (nearest != NULL)
        return error_set(error, ERROR_USAGE, "%s: no such command; did you mean %s?", word,
                         nearest);
    return error_set(error, ERROR_USAGE,
                     "%s: neither a command nor a deck (a file *.ini) nor section.key=value; see "
                     "`vittrain --help`",
                     word);
}

bool app_output_arrived(struct error *error)
{
    if (fflush(stdout) != 0)
        return error_set(error, ERROR_FILE, "cannot write to standard output: %s", strerror(errno));
    return ferror(stdout) == 0 ||
           error_set(error, ERROR_FILE, "cannot write to standard output: an earlier write failed");
}

/* Return the CRC32C of the program's file, or -1 without /proc. */
static int64_t build_sum(void)
{
    enum { CHUNK = 1 << 20 };
    FILE *file = fopen("/proc/self/exe", "re");
    unsigned char *chunk = allocate(1, CHUNK);
    uint32_t crc = 0;
    size_t got;
    while (file != NULL && (got = fread(chunk, 1, CHUNK, file)) > 0)
        crc = crc32c_update(crc, chunk, got);
    bool good = file != NULL && ferror(file) == 0;
    if (file != NULL)
        fclose(file);
    free(chunk);
    return good ? (int64_t)crc : -1;
}

/* Check that all ranks run the same program file, if /proc is available. Another build may refuse
 * the options, so this error replaces earlier ones. */
static bool builds_agree(struct comm *world, struct error *error)
{
    if (world->size == 1)
        return true;
    struct error different = {0};
    int64_t own = build_sum(), first = own;
    comm_broadcast(world, &first, 1, COMM_INT64, 0);
    if (own >= 0 && first >= 0 && own != first)
        error_set(
            &different, ERROR_USAGE,
            "ranks run different builds of vittrain: this one has CRC32C %08llx (version %s), "
            "rank 0 has %08llx: install the same program on all nodes",
            (unsigned long long)own, version_number, (unsigned long long)first);
    if (comm_agree(world, &different))
        return true;
    *error = different;
    return false;
}

bool app_ranks_agree(struct comm *world, const struct command_line *line,
                     const struct options *options, struct error *error)
{
    char own[OPTION_TEXT] = "", first[OPTION_TEXT]; /* "eval runs/a/checkpoints/last.h5" */
    char difference[OPTION_TEXT];
    if (!builds_agree(world, error) || !comm_agree(world, error))
        return false;
    int used = snprintf(own, sizeof own, "%s", line->command);
    for (int i = 0; i < line->operand_count && used > 0 && (size_t)used < sizeof own; i++)
        used += snprintf(own + used, sizeof own - (size_t)used, " %s", line->operand[i]);
    if (!comm_same(world, own, sizeof own)) {
        memcpy(first, own, sizeof first);
        comm_broadcast(world, first, sizeof first, COMM_BYTE, 0);
        if (strcmp(own, first) != 0)
            error_set(error, ERROR_USAGE,
                      "the command is \"%s\", on rank 0 \"%s\": give all ranks the same command "
                      "line",
                      own, first);
        return comm_agree(world, error);
    }
    if (comm_same(world, options, sizeof *options))
        return true;
    struct options *of_first = allocate(1, sizeof *of_first);
    *of_first = *options;
    comm_broadcast(world, of_first, sizeof *of_first, COMM_BYTE, 0);
    if (options_difference(options, of_first, difference, sizeof difference))
        error_set(error, ERROR_USAGE,
                  "%s on rank 0: the ranks have different options: give all the same command line, "
                  "and all nodes the same decks",
                  difference);
    free(of_first);
    return comm_agree(world, error);
}
