// SPDX-License-Identifier: BSD-3-Clause
/* The commands of the program. A command gets the resolved options and the communicator of all
 * ranks. It sets the same error on all ranks; main prints it and returns its exit code. */
#ifndef VITTRAIN_COMMANDS_APP_H
#define VITTRAIN_COMMANDS_APP_H

#include "comm/comm.h"

struct command_line;
struct options;

struct command {
    const char *name;
    const char *synopsis; /* "eval CHECKPOINT [DECK.ini ...] [section.key=value ...]" */
    const char *summary;  /* one line for --help */
    const char *detail;   /* a paragraph for `--help COMMAND` */
    void (*run)(const struct options *options, const struct command_line *line, struct comm *world,
                struct error *error);
    /* Used instead of `run` by a command that starts ranks: gets the words after its name and
     * returns the exit code. Without MPI and options. */
    int (*run_alone)(int count, char **words);
    /* Called before MPI is initialized; may be NULL. */
    void (*prepare)(void);
    bool checks_options; /* calls options_check_line after reading the options of a run */
};

extern const struct command command_train, command_eval, command_predict, command_bench,
    command_plan, command_convert, command_data, command_find, command_launch, command_doctor,
    command_report, command_verify;

/* Return the command of that name, or NULL. */
const struct command *app_find(const char *name);

/* Set the error for a word that is no command, with the nearest one. Return false. */
bool app_refuse(const char *word, struct error *error);

/* Description of each exit code, by enum error_kind. */
extern const char *const app_exit_codes[];

/* Answer --help, --version and --list-models without MPI. Return the exit code. */
int app_inform(const struct command_line *line);

/* Flush standard output and check that all was written; it may be a file on a full disk. */
MUST_CHECK bool app_output_arrived(struct error *error);

#endif
