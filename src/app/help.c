/* --help (everything, a command, a section or a key) and --version. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/app.h"
#include "config/command_line.h"
#include "config/option.h"
#include "config/options.h"
#include "core/log.h"
#include "core/text.h"
#include "core/version.h"

bool app_is_first_rank(void)
{
    static const char *const variables[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                            "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        const char *rank = getenv(variables[i]);
        if (rank != NULL)
            return strcmp(rank, "0") == 0;
    }
    return true;
}

static void help_command(const struct command *command)
{
    printf("vittrain %s\n\n%s\n", command->synopsis, command->detail);
}

static void help_all(void)
{
    printf("vittrain trains Vision Transformers on CPUs and NVIDIA GPUs with any number of MPI "
           "ranks.\n\n"
           "  vittrain [COMMAND] [DECK.ini ...] [section.key=value ...]\n"
           "  mpirun -np RANKS vittrain ...\n\n"
           "Later decks and settings win. Without a deck vittrain.ini of the working directory is "
           "read\nif there is one; the defaults train a small ViT on a sample of CIFAR-10.\n\n"
           "Commands (train when none is given):\n");
    for (int i = 0; app_commands[i] != NULL; i++)
        printf("  %-10s %s\n", app_commands[i]->name, app_commands[i]->summary);
    printf("  %-10s %s\n", "help", "this; help COMMAND, help SECTION, help KEY: one of them");
    printf("\n--help, --version, --manual (the manual page, for man -l)\n\nExit codes:\n");
    for (int i = 0; app_exit_codes[i] != NULL; i++)
        printf("  %d  %s\n", i, app_exit_codes[i]);
    printf("\n");
    options_help(stdout);
}

static int help_about(const char *word)
{
    const struct command *command = app_find(word);
    if (command != NULL) {
        help_command(command);
        return ERROR_NONE;
    }
    if (options_help_key(word, stdout))
        return ERROR_NONE;
    struct error error = {0};
    const char *nearest = text_nearest(word, app_command_names());
    if (nearest == NULL)
        nearest = option_find_nearest(word);
    error_set(&error, ERROR_USAGE,
              "%s: neither a command nor a section or key of the options%s%s%s", word,
              nearest != NULL ? "; did you mean " : "", nearest != NULL ? nearest : "",
              nearest != NULL ? "?" : "");
    log_error(&error);
    return (int)error.kind;
}

static int inform(const struct command_line *line)
{
    if (line->version) {
        printf("vittrain %s%s%s%s\n", version_number, version_commit[0] != '\0' ? " (commit " : "",
               version_commit, version_commit[0] != '\0' ? ")" : "");
        return ERROR_NONE;
    }
    if (line->manual) {
        app_manual(stdout);
        return ERROR_NONE;
    }
    if (line->command != NULL)
        return help_about(line->command);
    if (line->operand_count > 0)
        return help_about(line->operand[0]);
    help_all();
    return ERROR_NONE;
}

int app_inform(const struct command_line *line)
{
    if (!app_is_first_rank())
        return ERROR_NONE;
    const int code = inform(line);
    struct error error = {0};
    if (app_output_arrived(&error))
        return code;
    log_error(&error);
    return (int)error.kind;
}
