/* The program: reads the command line and runs one command. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "app/app.h"
#include "core/log.h"

/* All ranks read the command line and decks, and agree on what is wrong; rank 0 says it. */
static int run(struct comm *world, const struct options *options, const struct command_line *line,
               struct error *error)
{
    struct error build_error = {0};
    log_open(world->rank, LOG_INFO);
    if (!app_same_build(world, &build_error))
        *error = build_error;
    if (comm_agree(world, error))
        app_same_request(world, options, line, error);
    if (error->kind == ERROR_NONE) {
        comm_set_silence(options->mesh.silence);
        const struct command *command = app_find(line->command);
        ENSURE(command != NULL, "no command %s", line->command);
        if (command->run != NULL)
            command->run(options, line, world, error);
        else
            error_set(error, ERROR_USAGE, "%s must be the first word: vittrain %s", command->name,
                      command->synopsis);
    }
    if (error->kind != ERROR_NONE && world->rank == 0)
        log_error(error);
    log_close();
    return (int)error->kind;
}

/* Who starts the program may have closed these: the next files opened would take their place and
 * get what is printed. */
static void standard_streams_hold(void)
{
    int descriptor;
    do
        descriptor = open("/dev/null", O_RDWR);
    while (descriptor >= 0 && descriptor <= STDERR_FILENO);
    if (descriptor >= 0)
        close(descriptor);
}

int main(int argc, char **argv)
{
    standard_streams_hold();
    signal(SIGXFSZ, SIG_IGN); /* writing beyond `ulimit -f` is an error like others */
    const struct command *first = argc > 1 ? app_find(argv[1]) : NULL;
    if (first != NULL && first->run_alone != NULL)
        return first->run_alone(argc - 2, argv + 2);
    static struct options options;
    struct command_line line;
    struct error error = {0};
    const bool good = options_parse(argc, argv, app_command_names(), &options, &line, &error);
    if (good && (line.help || line.version || line.manual))
        return app_inform(&line);
    struct comm *world;
    struct error world_error = {0};
    if (!comm_world_open(&argc, &argv, &world, &world_error)) {
        log_error(&world_error);
        return (int)world_error.kind;
    }
    const int code = run(world, &options, &line, &error);
    comm_world_close(world);
    return code;
}
