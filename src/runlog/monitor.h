/* Watches the hardware while a run goes: one thread a process reads the sensors (core/sensors.h)
 * every so many seconds, adds a row to the rank's own table and, on rank 0, points to TensorBoard.
 * What cannot be read or written costs a warning and not the run. The step is not disturbed: it
 * stores its number in an atomic variable, and the thread calls no collective. */
#ifndef VITTRAIN_RUNLOG_MONITOR_H
#define VITTRAIN_RUNLOG_MONITOR_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/comm.h"
#include "core/sensors.h"
#include "device/device.h"
#include "runlog/prometheus.h"
#include "runlog/run_log.h"

struct monitor;

struct monitor_setup {
    struct comm *world;
    bool of_node;          /* this rank reads what its node has only once: true for one of them */
    int nodes;             /* of the world */
    const char *folder;    /* for the tables; NULL: none */
    struct run_log *log;   /* for TensorBoard's points, outlives the monitor; NULL: none */
    struct device *device; /* whose sensors are read, too, if its backend has any; NULL: none */
    double seconds;        /* between two readings */
    int64_t step;          /* that the run goes on from; 0: it begins, and so do the tables */
    int64_t middle;   /* the step at which nvidia-smi is asked (smi.h), on each node; 0: none */
    const char *page; /* for Prometheus (output.prometheus); NULL or "": none */
    const char *run;  /* the run's name there: its folder */
    const char *root; /* where /proc and /sys lie: "" but in tests */
};

/* Collective, and so are monitor_stop and monitor_summarise. Makes rank 0's monitor.csv, another
 * rank's monitor-RANK.csv, in a folder that is there, or goes on with it; starts the thread, whose
 * first reading comes at once. Never fails. */
struct monitor *monitor_open(const struct monitor_setup *setup);

/* So many optimizer steps are done. From one thread; here and below nothing for NULL. */
void monitor_step(struct monitor *monitor, int64_t step);

/* How far the run is, for the page of the next reading; from the same thread. */
void monitor_figures(struct monitor *monitor, const struct run_figures *figures);

/* What a rank's sensors gave over the time of the monitor, and those of all ranks together. */
struct monitor_summary {
    double value[SENSOR_COUNT]; /* by sensor_kind: mean, highest, lowest, sum; NAN: not known */
    double most[SENSOR_COUNT];  /* SENSOR_LEVEL: the highest; else NAN */
    double joules;              /* of all nodes' processors and all GPUs, as far as they know it */
    const char *joules_of;      /* "CPU", "GPU", "CPU and GPU"; NULL: nobody knows */
    double seconds;             /* between first and last reading of rank 0 */
    double reading_seconds;     /* processor time of one of rank 0's, with row and points */
    int64_t readings;           /* of rank 0 */
};

/* Ends the thread, after a last reading; one that does not answer for 5 s is left alone, with a
 * warning. Rank 0 warns of the first rank whose rows got lost. */
void monitor_stop(struct monitor *monitor);

/* Of all ranks, after monitor_stop; false for NULL. */
bool monitor_summarise(struct monitor *monitor, struct monitor_summary *summary);

/* Of this rank alone, so far as it knows after monitor_stop: mean over time and the highest; NAN:
 * not known, also for NULL. Local. */
void monitor_own(const struct monitor *monitor, enum sensor sensor, double *mean, double *most);

/* Lines of the log. images: how many were trained on meanwhile. */
void monitor_say(const struct monitor_summary *summary, double images);

/* Local; also ends the thread if it still runs. */
void monitor_close(struct monitor *monitor);

/* Below: between monitor*.c. */

/* One sensor over time. */
struct sensor_sums {
    double weighted, seconds;        /* values times the seconds before each; these */
    double most, least, first, last; /* NAN: no value yet */
};

void sensor_sums_begin(struct sensor_sums sums[SENSOR_COUNT]);

/* seconds: that passed since the reading before. */
void sensor_sums_add(struct sensor_sums sums[SENSOR_COUNT], const struct sensor_reading *reading,
                     double seconds);

/* Collective: summary->value, most, joules, joules_of. */
void sensor_sums_reduce(const struct sensor_sums sums[SENSOR_COUNT],
                        const struct monitor_setup *setup, struct monitor_summary *summary);

#endif
