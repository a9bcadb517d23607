/* The command `plan`: what a checkpoint holds. */
#include <string.h>

#include "app/app.h"
#include "core/log.h"

static bool names_checkpoint(const char *path)
{
    const char *end = strrchr(path, '.');
    return end != NULL && strcmp(end, ".h5") == 0;
}

static int plan_run(const struct options *options, const struct command_line *line,
                    struct comm *world)
{
    struct error error = {0};
    (void)options;
    if (line->operand_count != 1 || !names_checkpoint(line->operand[0]))
        error_set(&error, ERROR_USAGE, "plan needs one file: a checkpoint (.h5)");
    else
        plan_checkpoint(line->operand[0], world, &error);
    if (error.kind != ERROR_NONE && world->rank == 0)
        log_error(&error);
    return (int)error.kind;
}

const struct command command_plan = {
    .name = "plan",
    .synopsis = "plan CHECKPOINT",
    .summary = "what a checkpoint holds",
    .detail =
        "Lists what is in a checkpoint: who wrote it and how far the run was, the deck's main "
        "values, units with their tensors, and which rank wrote which part. The sums of its "
        "bytes are not compared; that is done when it is used.",
    .run = plan_run};
