/* The commands of the program: one file each. A command gets the resolved options and the world of
 * ranks; what went wrong is the error, the same on all ranks, which main says and ends with. */
#ifndef VITTRAIN_APP_APP_H
#define VITTRAIN_APP_APP_H

#include <stdio.h>

#include "comm/comm.h"

struct command_line;
struct options;

struct command {
    const char *name;
    const char *synopsis; /* "eval CHECKPOINT [DECK.ini ...] [section.key=value ...]" */
    const char *summary;  /* one line for --help */
    const char *detail;   /* a paragraph for `--help COMMAND` and the manual page */
    void (*run)(const struct options *options, const struct command_line *line, struct comm *world,
                struct error *error);
    /* Instead of `run`, of a command that starts ranks and is none: gets the words after its name,
     * gives the exit code. No MPI, no options. */
    int (*run_alone)(int count, char **words);
    /* Before MPI starts; NULL: nothing. */
    void (*prepare)(void);
    /* It looks itself whether ranks have the same program, command and options: `run` is called
     * whatever they are, and `error` says what is wrong with this rank's. */
    bool compares;
    bool has_json; /* takes --json */
};

extern const struct command command_train, command_eval, command_predict, command_fetch,
    command_bench, command_plan, command_convert, command_find, command_launch, command_upload,
    command_doctor, command_report, command_sweep;

/* NULL-terminated: the commands, and their names. */
extern const struct command *const app_commands[];
const char *const *app_command_names(void);

/* NULL when there is none of that name. */
const struct command *app_find(const char *name);

/* What each exit code means, by enum error_kind. */
extern const char *const app_exit_codes[];

/* Collective, before anything else: do all ranks run the same program file (where /proc tells)? */
MUST_CHECK bool app_same_build(struct comm *world, struct error *error);

/* CRC32C of the program's file, or -1 where there is no /proc to find it by. */
int64_t app_build_sum(void);

/* Collective: do all ranks have the same command and operands; the same options? The error names
 * the first rank that does not have rank 0's, and what. */
MUST_CHECK bool app_same_command(struct comm *world, const struct command_line *line,
                                 struct error *error);
MUST_CHECK bool app_same_options(struct comm *world, const struct options *options,
                                 struct error *error);

/* Is this rank 0? The launcher's environment tells, also where MPI was not started. */
bool app_is_first_rank(void);

/* Answers --help, --version and --manual; needs no ranks. Gives the exit code. */
int app_inform(const struct command_line *line);

/* Collective: what `doctor` can tell of a run in a few milliseconds, as warnings of a line each. */
struct session;
void doctor_start(const struct session *session);

/* Collective: `convert data`. */
void convert_data(const struct options *options, struct comm *world, struct error *error);

/* Did all that was printed arrive? Standard output may be a file on a full disk. */
MUST_CHECK bool app_output_arrived(struct error *error);

/* The manual page, in mdoc. */
void app_manual(FILE *file);

#endif
