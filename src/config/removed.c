// SPDX-License-Identifier: BSD-3-Clause
/* One table of what was removed since version 0.2. Sorted by name. */
#include "config/removed.h"

#include <stddef.h>
#include <string.h>

static const struct removed removed[] = {
    {"fetch", NULL, "use tools/fetch.sh cifar10, or tools/fetch.sh weights NAME"},
    {"fetch.dir", "data", "use tools/fetch.sh --dir FOLDER"},
    {"fetch.url", "", "use tools/fetch.sh --url URL"},
    {"output.upload_every", "1m", "the run is copied after each checkpoint"},
    {"output.upload_rate", "0", "set RCLONE_BWLIMIT=50M in the environment"},
    {"upload", NULL, "use rclone copy --links RUN REMOTE:RUN"},
    {NULL, NULL, NULL},
};

const struct removed *removed_find(const char *name)
{
    for (const struct removed *entry = removed; entry->name != NULL; entry++)
        if (strcmp(entry->name, name) == 0)
            return entry;
    return NULL;
}
