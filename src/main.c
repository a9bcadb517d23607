// SPDX-License-Identifier: BSD-3-Clause
/* The program parses the command line and runs one command. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dl_iterate_phdr */
#endif
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status.h"
#include "commands/app.h"
#include "hdf5/hdf5_open.h"
#include "hdf5/hdf5_reader.h"
#include "options/option.h"
#include "plan/plan.h"

/* Set *build to the first 8 bytes of the build ID if the object has one. Return 1, which ends the
 * iteration after the first object, the program. */
static int build_id_read(struct dl_phdr_info *object, size_t size, void *build)
{
    (void)size;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        const int64_t align = segment->p_align == 8 ? 8 : 4;
        const unsigned char *note = (const unsigned char *)(object->dlpi_addr + segment->p_vaddr);
        const unsigned char *end = note + segment->p_memsz;
        while (segment->p_type == PT_NOTE && note + sizeof(ElfW(Nhdr)) < end) {
            const ElfW(Nhdr) *header = (const ElfW(Nhdr) *)(const void *)note;
            const unsigned char *name = note + sizeof *header;
            const unsigned char *id = name + round_up(header->n_namesz, align);
            if (header->n_type == NT_GNU_BUILD_ID && header->n_descsz >= sizeof(uint64_t) &&
                header->n_namesz == sizeof "GNU" && memcmp(name, "GNU", sizeof "GNU") == 0)
                for (size_t byte = 0; byte < sizeof(uint64_t); byte++)
                    *(uint64_t *)build = *(uint64_t *)build << 8 | id[byte];
            note = id + round_up(header->n_descsz, align);
        }
    }
    return 1;
}

/* Check that all ranks run the same program: that the build IDs are equal or, if the linker wrote
 * none, versions and commits. Another build may refuse the options, so this error replaces earlier
 * ones. */
static bool builds_agree(struct comm *world, struct error *error)
{
    if (world->size == 1)
        return true;
    struct error different = {0};
    uint64_t own = crc32c_update(0, version_number, strlen(version_number)), first;
    own = crc32c_update((uint32_t)own, version_commit, strlen(version_commit));
    dl_iterate_phdr(build_id_read, &own);
    first = own;
    comm_broadcast(world, &first, 1, COMM_INT64, 0);
    if (own != first)
        error_set(
            &different, ERROR_USAGE,
            "ranks run different builds of vittrain: this one has build ID %016llx (version %s), "
            "rank 0 has %016llx: install the same program on all nodes",
            (unsigned long long)own, version_number, (unsigned long long)first);
    if (comm_agree(world, &different))
        return true;
    *error = different;
    return false;
}

/* Check that all ranks run the same build, and have the same command, operands and options.
 * The error names the first rank that differs from rank 0, and the difference. Collective; must
 * come before any other message. */
static bool ranks_agree(struct comm *world, const struct command_line *line,
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

/* Run the command. All ranks have parsed command line and decks; rank 0 prints the error. */
static int command_run(const struct command *command, struct comm *world,
                       const struct options *options, const struct command_line *line,
                       struct error *error)
{
    log_open(world->rank, options->output.verbose ? LOG_DETAIL : LOG_INFO);
    if (ranks_agree(world, line, options, error)) {
        comm_set_heartbeat_timeout(options->mesh.heartbeat_timeout);
        comm_set_stall_warning(options->mesh.stall_warning);
        comm_set_rank_factor(options->debug.rank_factor);
        if (command->run != NULL)
            command->run(options, line, world, error);
        else
            error_set(error, ERROR_USAGE, "%s must be the first word: vittrain %s", command->name,
                      command->synopsis);
    }
    fit_advise(error);
    if (error->kind != ERROR_NONE && world->rank == 0)
        log_error(error);
    log_close();
    return (int)error->kind;
}

/* Open the standard streams if the caller has closed them; otherwise a file opened later would get
 * the program's output. */
static void standard_streams_hold(void)
{
    int descriptor;
    do
        descriptor = open("/dev/null", O_RDWR);
    while (descriptor >= 0 && descriptor <= STDERR_FILENO);
    if (descriptor >= 0)
        close(descriptor);
}

/* Fail if the stack is limited to less than 1 MiB; the default of most systems is 8 MiB. */
static bool stack_check(struct error *error)
{
    const rlim_t least = (rlim_t)1 << 20;
    struct rlimit limit;
    return getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= least ||
           error_set(error, ERROR_MEMORY,
                     "cannot start: the stack is limited to %llu KiB; raise the limit to at least "
                     "%llu KiB (ulimit -s)",
                     (unsigned long long)limit.rlim_cur >> 10, (unsigned long long)least >> 10);
}

/* Block or unblock SIGUSR1, whose default action ends the process. comm_world_open starts the
 * thread that receives it. */
static void stop_signal_mask(int how)
{
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGUSR1);
    sigprocmask(how, &stop, NULL);
}

int main(int argc, char **argv)
{
    stop_signal_mask(SIG_BLOCK);
    standard_streams_hold();
    struct error error = {0};
    if (!stack_check(&error)) {
        log_error(&error);
        return (int)error.kind;
    }
    signal(SIGXFSZ, SIG_IGN); /* a write beyond `ulimit -f` fails instead */
    if (argc == 2 && strcmp(argv[1], HDF5_CHILD) == 0)
        hdf5_child_run();
    hdf5_child_set_program("/proc/self/exe");
    const struct command *first = argc > 1 ? app_find(argv[1]) : NULL;
    if (first != NULL && first->run_alone != NULL) {
        stop_signal_mask(SIG_UNBLOCK);
        if (argc > 2 && (strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "-h") == 0))
            return app_inform(&(struct command_line){.command = first->name, .help = true});
        return first->run_alone(argc - 2, argv + 2);
    }
    open_file_raise_limit();
    static struct options options;
    struct command_line line;
    bool good = options_parse(argc, argv, &options, &line, &error);
    if (good && command_line_informs(&line))
        return app_inform(&line);
    const struct command *command = line.command != NULL ? app_find(line.command) : NULL;
    if (good && command == NULL)
        good = app_refuse(line.command, &error);
    if (good && !command->checks_options)
        good = options_check_line(&line, &options, &error);
    if (good)
        error_defer(status_pause_at(options.debug.pause, &error));
    if (command != NULL && command->prepare != NULL)
        command->prepare();
    hdf5_library_open();
    struct comm *world;
    struct error world_error = {0};
    if (!comm_world_open(&argc, &argv, &world, &world_error)) {
        log_error(&world_error);
        return (int)world_error.kind;
    }
    const int code = command_run(command, world, &options, &line, &error);
    comm_world_close(world);
    return code;
}
