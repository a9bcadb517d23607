// SPDX-License-Identifier: BSD-3-Clause
/* Hardware monitor: one thread per process reads the sensors (base/sensors.h) at a fixed interval,
 * appends a row to the node's table and, on rank 0, points to TensorBoard. Sensors that cannot be
 * read and files that cannot be written are warnings. The thread calls no collective, and the
 * training thread only stores the step in an atomic variable. */
#ifndef VITTRAIN_RECORD_MONITOR_H
#define VITTRAIN_RECORD_MONITOR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/sensors.h"
#include "comm/comm.h"
#include "device/device.h"
#include "record/metrics.h"

struct monitor;

struct monitor_setup {
    struct comm *world;
    struct comm *node;     /* the ranks of this node; the first one reads the node's sensors */
    const char *folder;    /* for the tables */
    struct metrics *log;   /* for TensorBoard points; must outlive the monitor; NULL: none */
    struct device *device; /* whose sensors are read, too; NULL: none */
    double seconds;        /* between two readings */
    int64_t step;          /* from which the run resumes; 0: new run and new tables */
    const char *root;      /* prefix of /proc and /sys; "" except in tests */
};

/* Create or extend the node's table, monitor.csv on the node of rank 0, else monitor-RANK.csv with
 * the first rank of the node, and start the thread, which takes the first reading at once. Never
 * fails. Collective. */
struct monitor *monitor_open(const struct monitor_setup *setup);

/* The functions below accept NULL. */

/* Set the number of completed steps. From one thread. */
void monitor_step(struct monitor *monitor, int64_t step);

/* Take a last reading and stop the thread. A thread that does not respond within 5 s is abandoned
 * with a warning. Rank 0 warns of the first rank whose rows are incomplete. Return the object
 * `sensors` of result.json, with the values of all ranks over the lifetime of the monitor, and with
 * the readings of this rank; null for NULL. Collective. */
struct json_t *monitor_stop(struct monitor *monitor);

/* Stop the thread if it still runs, and free the monitor. Local. */
void monitor_close(struct monitor *monitor);

/* Below: for tests. */

/* One sensor over time. */
struct sensor_sums {
    double weighted, seconds; /* sum of value * interval; sum of the intervals */
    double most, least, last; /* NAN: no value yet */
};

void sensor_sums_begin(struct sensor_sums sums[SENSOR_COUNT]);

/* seconds: since the previous reading. */
void sensor_sums_add(struct sensor_sums sums[SENSOR_COUNT], const struct sensor_reading *reading,
                     double seconds);

/* Add mean, maximum or minimum over time and ranks of each sensor. Collective. */
void sensor_sums_put(struct json_t *object, const struct sensor_sums sums[SENSOR_COUNT],
                     struct comm *world);

#endif
