/* The commands of the program: one file each. A command gets the resolved options and the world of
 * ranks and returns the exit code (enum error_kind). */
#ifndef VITTRAIN_APP_APP_H
#define VITTRAIN_APP_APP_H

#include "comm/comm.h"
#include "core/options.h"

struct command {
    const char *name;
    const char *synopsis; /* "eval CHECKPOINT [DECK.ini ...] [section.key=value ...]" */
    const char *summary;  /* one line for --help */
    const char *detail;   /* a paragraph for `--help COMMAND` and the manual page */
    int (*run)(const struct options *options, const struct command_line *line, struct comm *world);
};

extern const struct command command_train, command_eval, command_predict, command_fetch;

/* NULL-terminated. */
extern const struct command *const app_commands[];

#endif
