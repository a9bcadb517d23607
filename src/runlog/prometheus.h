// SPDX-License-Identifier: BSD-3-Clause
/* Page of a run's metrics in the text format of the node exporter's textfile collector
 * (https://prometheus.io/docs/instrumenting/exposition_formats/). The file is replaced as a whole
 * at each reading of the sensors and removed at the end of the run. */
#ifndef VITTRAIN_RUNLOG_PROMETHEUS_H
#define VITTRAIN_RUNLOG_PROMETHEUS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"
#include "core/sensors.h"

/* Progress of a run. NAN: unknown, not written. */
struct run_figures {
    int64_t epoch;
    double loss, top1; /* of the newest log interval */
    double validation_loss, validation_top1;
    double images_per_second, data_share; /* data_share: share of time spent waiting for data */
    double best;                          /* of checkpoint.monitor */
    double checkpoint_at;                 /* clock_wall of the newest checkpoint */
};

/* Set all values to unknown. */
void run_figures_clear(struct run_figures *figures);

struct prometheus_page {
    const char *run; /* labels */
    int rank;
    const char *host;
    int64_t step;
    const struct run_figures *figures; /* NULL: write only the rank's sensors */
    const struct sensor_reading *reading;
};

/* Replace the page. ERROR_FILE. Local. */
MUST_CHECK bool prometheus_write(const char *path, const struct prometheus_page *page,
                                 struct error *error);

#endif
