/* Do all ranks run the same program? Two builds may differ in what they send, so this is looked at
 * before anything else is exchanged. */
#include <stdio.h>
#include <stdlib.h>

#include "app/app.h"
#include "core/crc32c.h"
#include "core/version.h"

/* CRC32C of the program's file, or -1 where there is no /proc to find it by. */
static int64_t build_sum(void)
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
    int64_t own = build_sum(), first = own;
    comm_broadcast(world, &first, 1, COMM_INT64, 0);
    if (own >= 0 && first >= 0 && own != first)
        error_set(
            error, ERROR_USAGE,
            "ranks run different builds of vittrain: this one has CRC32C %08llx (version %s), "
            "rank 0 has %08llx: install the same program on all nodes",
            (unsigned long long)own, version_number, (unsigned long long)first);
    return comm_agree(world, error);
}
