/* The list of commands. */
#include "app/app.h"

#include <errno.h>
#include <string.h>

const struct command *const app_commands[] = {
    &command_train,   &command_eval,
    &command_predict, &command_report,
    &command_plan,    &command_find,
    &command_sweep,   &command_convert,
    &command_fetch,   &command_upload,
    &command_bench,   &command_launch,
    &command_doctor,  NULL,
};

enum { COMMANDS = sizeof app_commands / sizeof app_commands[0] };

const char *const app_exit_codes[] = {
    [ERROR_NONE] = "all went well; also a run that was asked to stop (result.json: finished)",
    [ERROR_INTERNAL] = "a mistake in the program, or a library failed without a reason",
    [ERROR_USAGE] = "command line, deck, or a combination of options that cannot work",
    [ERROR_DATA] = "the data set: missing, truncated, a label out of range",
    [ERROR_CHECKPOINT] = "checkpoint or weights: damaged, of another model or version",
    [ERROR_FILE] = "a file cannot be written: disk full, no permission",
    [ERROR_MEMORY] = "too little memory",
    [ERROR_NUMERIC] = "NaN or infinity in training",
    [ERROR_NETWORK] = "a download or an upload failed",
    [ERROR_PEER] = "another rank failed or does not answer",
    [ERROR_UNFIT] = "`doctor` found what must be mended before a run",
    [ERROR_UNFIT + 1] = NULL,
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

bool app_output_arrived(struct error *error)
{
    if (fflush(stdout) != 0)
        return error_set(error, ERROR_FILE, "cannot write to standard output: %s", strerror(errno));
    return ferror(stdout) == 0 ||
           error_set(error, ERROR_FILE, "cannot write to standard output: a write failed before");
}
