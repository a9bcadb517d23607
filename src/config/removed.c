// SPDX-License-Identifier: BSD-3-Clause
/* One table of what was removed since version 0.2. Sorted by name. */
#include "config/option.h"

#include <stddef.h>
#include <string.h>

static const char shards[] = "write tar shards with tar (docs/data.md)";

static const struct removed removed[] = {
    {"bench.quick", "off", "use bench device product:SIDE or attention:BATCH:TOKENS"},
    {"convert.file_size", "0", shards},
    {"convert.kind", "auto", shards},
    {"convert.output", "", shards},
    {"convert.resize_to", "shorter", shards},
    {"convert.shuffle", "off", shards},
    {"convert.size", "0", shards},
    {"fetch", NULL, "use tools/fetch.sh cifar10, or tools/fetch.sh weights NAME"},
    {"fetch.dir", "data", "use tools/fetch.sh --dir FOLDER"},
    {"fetch.url", "", "use tools/fetch.sh --url URL"},
    {"output.prometheus", "",
     "use a node exporter; metrics.csv and monitor.csv have the values of a run"},
    {"output.upload_every", "1m", "the run is copied after each checkpoint"},
    {"output.upload_rate", "0", "set RCLONE_BWLIMIT=50M in the environment"},
    {"report.csv", "", "pass it to `vittrain report RUN`"},
    {"report.format", "html", "pass it to `vittrain report RUN`"},
    {"report.output", "", "pass it to `vittrain report RUN`"},
    {"sweep", NULL, "use tools/sweep.py"},
    {"sweep.dir", "", "use tools/sweep.py FOLDER"},
    {"sweep.method", "grid", "use tools/sweep.py --method=METHOD"},
    {"sweep.seed", "42", "use tools/sweep.py --seed=N"},
    {"sweep.slurm", "", "set VITTRAIN_SWEEP and call sbatch --array (docs/tuning.md)"},
    {"sweep.tasks", "4", "set VITTRAIN_SWEEP and call sbatch --array (docs/tuning.md)"},
    {"sweep.trials", "20", "use tools/sweep.py --trials=N"},
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
