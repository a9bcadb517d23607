/* A page of a run's figures for Prometheus, in the text format that the node exporter's textfile
 * collector reads (https://prometheus.io/docs/instrumenting/exposition_formats/): a file that is
 * replaced as a whole at each reading of the sensors and is gone when the run has ended. */
#ifndef VITTRAIN_RUNLOG_PROMETHEUS_H
#define VITTRAIN_RUNLOG_PROMETHEUS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"
#include "core/sensors.h"

/* Where a run is. NAN: not known, and left out. */
struct run_figures {
    int64_t epoch;
    double loss, top1; /* of the newest log interval */
    double validation_loss, validation_top1;
    double images_per_second, data_share; /* data_share: of the time, waiting for data */
    double best;                          /* of checkpoint.monitor */
    double checkpoint_at;                 /* clock_wall when the newest was made */
};

/* Nothing is known. */
void run_figures_clear(struct run_figures *figures);

struct prometheus_page {
    const char *run; /* labels */
    int rank;
    const char *host;
    int64_t step;
    const struct run_figures *figures; /* NULL: of the rank's sensors alone */
    const struct sensor_reading *reading;
};

MUST_CHECK bool prometheus_write(const char *path, const struct prometheus_page *page,
                                 struct error *error);

#endif
