/* Do all ranks start alike? Two builds may differ in what they send, so that is looked at before
 * anything else is exchanged; ranks that do not want the same would wait for each other. Decks lie
 * on disks that need not be the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/app.h"
#include "config/command_line.h"
#include "config/options.h"
#include "core/crc32c.h"
#include "core/version.h"

int64_t app_build_sum(void)
{
    enum { CHUNK = 1 << 20 };
    FILE *file = fopen("/proc/self/exe", "re");
    unsigned char *chunk = malloc(CHUNK);
    ENSURE(chunk != NULL, "no memory to read the program's file");
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

bool app_same_build(struct comm *world, struct error *error)
{
    if (world->size == 1)
        return true;
    int64_t own = app_build_sum(), first = own;
    comm_broadcast(world, &first, 1, COMM_INT64, 0);
    if (own >= 0 && first >= 0 && own != first)
        error_set(
            error, ERROR_USAGE,
            "ranks run different builds of vittrain: this one has CRC32C %08llx (version %s), "
            "rank 0 has %08llx: install the same program on all nodes",
            (unsigned long long)own, version_number, (unsigned long long)first);
    return comm_agree(world, error);
}

/* "plan runs/a/checkpoints/last.h5" */
static void request_write(const struct command_line *line, char *text, size_t size)
{
    int used = snprintf(text, size, "%s", line->command);
    for (int i = 0; i < line->operand_count && used > 0 && (size_t)used < size; i++)
        used += snprintf(text + used, size - (size_t)used, " %s", line->operand[i]);
}

bool app_same_command(struct comm *world, const struct command_line *line, struct error *error)
{
    char own[OPTION_TEXT] = "", first[OPTION_TEXT];
    request_write(line, own, sizeof own);
    if (comm_same(world, own, sizeof own))
        return true;
    memcpy(first, own, sizeof first);
    comm_broadcast(world, first, sizeof first, COMM_BYTE, 0);
    if (strcmp(own, first) != 0)
        error_set(error, ERROR_USAGE,
                  "the command is \"%s\", on rank 0 \"%s\": give all ranks the same command line",
                  own, first);
    return comm_agree(world, error);
}

bool app_same_options(struct comm *world, const struct options *options, struct error *error)
{
    char difference[OPTION_TEXT];
    if (comm_same(world, options, sizeof *options))
        return true;
    /* Sums tell that something differs; what it is, only the whole. */
    struct options *of_first = malloc(sizeof *of_first);
    ENSURE(of_first != NULL, "no memory to compare options");
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
