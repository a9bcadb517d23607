// SPDX-License-Identifier: BSD-3-Clause
/* One table of what was removed since version 0.2. Sorted by name. */
#include "config/removed.h"

#include <stddef.h>
#include <string.h>

static const char shards[] = "write tar shards with tar (docs/data.md)";

static const struct removed removed[] = {
    {"convert.file_size", "0", shards},
    {"convert.kind", "auto", shards},
    {"convert.output", "", shards},
    {"convert.resize_to", "shorter", shards},
    {"convert.shuffle", "off", shards},
    {"convert.size", "0", shards},
    {"bench.quick", "off", "use bench device product:SIDE or attention:BATCH:TOKENS"},
    {"output.prometheus", "",
     "use a node exporter; metrics.csv and monitor.csv have the values of a run"},
    {"report.csv", "", "pass it to `vittrain report RUN`"},
    {"report.format", "html", "pass it to `vittrain report RUN`"},
    {"report.output", "", "pass it to `vittrain report RUN`"},
    {NULL, NULL, NULL},
};

const struct removed *removed_find(const char *name)
{
    for (const struct removed *entry = removed; entry->name != NULL; entry++)
        if (strcmp(entry->name, name) == 0)
            return entry;
    return NULL;
}
