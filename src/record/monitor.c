// SPDX-License-Identifier: BSD-3-Clause
/* The thread that reads the sensors and writes the readings. The ranks of a node append to one
 * table. Each node has its own table, since appending is not atomic between the nodes of a network
 * file system, and nodes with private disks cannot share a file. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* pthread_timedjoin_np */
#endif
#include "record/monitor.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "base/columns.h"
#include "base/file.h"
#include "base/log.h"
#include "base/sensors.h"
#include "base/thread.h"

/* A row of the table. */
struct monitor_row {
    const char *time, *host;
    int64_t step, rank;
    struct sensor_reading reading;
};

#define READING(sensor, name, kind)                                                                \
    {#name, COLUMN_NUMBER, offsetof(struct monitor_row, reading.value[SENSOR_##sensor]), NULL},
static const struct column monitor_columns[] = {
    COLUMN(monitor_row, TEXT, time), COLUMN(monitor_row, INTEGER, step),
    COLUMN(monitor_row, INTEGER, rank), COLUMN(monitor_row, TEXT, host),
    SENSORS(READING) COLUMNS_END};
enum { STEP_COLUMN = 1 };

/* Time limit for the last reading at the end of a run: a driver or a file system may hang. */
static const int stop_seconds = 5;

struct monitor {
    struct monitor_setup setup;
    struct cpu_sensors *cpu;
    _Atomic int64_t step;

    /* Used by the thread only while it runs. */
    struct csv table;                       /* stream NULL: writing failed */
    struct error table_error, points_error; /* the first write error of each */
    bool warned;                            /* of sensors that cannot be read */
    struct sensor_sums sums[SENSOR_COUNT];
    int64_t readings;
    double first_at, last_at; /* clock: first and newest reading */
    double work_seconds;      /* CPU time of all readings */

    pthread_t thread;
    bool running;
    _Atomic bool stuck;    /* the thread did not finish in time: its members must not be used */
    pthread_mutex_t mutex; /* protects `stop` */
    pthread_cond_t wake;
    bool stop; /* request to the thread */
};

/* A monitor whose thread is stuck: the thread uses it until the process ends. volatile: nothing
 * reads it, but it must not be optimized away, because leak detectors follow it. */
static struct monitor *volatile stuck_monitor;

/* ---- sums */

void sensor_sums_begin(struct sensor_sums sums[SENSOR_COUNT])
{
    for (int i = 0; i < SENSOR_COUNT; i++)
        sums[i] = (struct sensor_sums){.most = NAN, .least = NAN, .last = NAN};
}

void sensor_sums_add(struct sensor_sums sums[SENSOR_COUNT], const struct sensor_reading *reading,
                     double seconds)
{
    for (int i = 0; i < SENSOR_COUNT; i++) {
        double value = reading->value[i];
        if (isnan(value))
            continue;
        sums[i].weighted += value * seconds;
        sums[i].seconds += seconds;
        sums[i].most = fmax(sums[i].most, value);
        sums[i].least = fmin(sums[i].least, value);
        sums[i].last = value;
    }
}

void sensor_sums_put(json_t *object, const struct sensor_sums sums[SENSOR_COUNT],
                     struct comm *world)
{
    double means[SENSOR_COUNT], ranks[SENSOR_COUNT]; /* added up; ranks: that have the sensor */
    double highest[SENSOR_COUNT];                    /* of a SENSOR_LEAST: of the negative */
    for (int i = 0; i < SENSOR_COUNT; i++) {
        const bool known = !isnan(sums[i].last);
        ranks[i] = known;
        means[i] = !known                ? 0
                   : sums[i].seconds > 0 ? sums[i].weighted / sums[i].seconds
                                         : sums[i].last;
        highest[i] = !known                                   ? -INFINITY
                     : sensor_columns[i].kind == SENSOR_LEAST ? -sums[i].least
                                                              : sums[i].most;
    }
    comm_all_reduce(world, means, SENSOR_COUNT, COMM_FP64, COMM_SUM);
    comm_all_reduce(world, ranks, SENSOR_COUNT, COMM_FP64, COMM_SUM);
    comm_all_reduce(world, highest, SENSOR_COUNT, COMM_FP64, COMM_MAX);
    for (int i = 0; i < SENSOR_COUNT; i++) {
        const enum sensor_kind kind = sensor_columns[i].kind;
        json_t *sensor = ranks[i] > 0 ? json_object() : json_null();
        value_put(object, sensor_columns[i].name, sensor);
        if (ranks[i] <= 0)
            continue;
        if (kind == SENSOR_LEVEL)
            value_put(sensor, "mean", value_number(means[i] / ranks[i]));
        value_put(sensor, kind == SENSOR_LEAST ? "min" : "max",
                  value_number(kind == SENSOR_LEAST ? -highest[i] : highest[i]));
    }
}

/* ---- one reading */

static void row_write(struct monitor *monitor, int64_t step, const struct sensor_reading *reading)
{
    struct csv *table = &monitor->table;
    struct error *error = &monitor->table_error;
    struct stat status;
    char time_text[32];
    const struct monitor_row row = {.time = time_text,
                                    .host = comm_host(),
                                    .step = step,
                                    .rank = monitor->setup.world->rank,
                                    .reading = *reading};
    clock_stamp_utc(time_text, sizeof time_text);
    const bool good = columns_write(monitor_columns, &row, table, error) && csv_flush(table, error);
    if (good && fstat(fileno(table->stream), &status) != 0)
        durable_failed(error, "write", table->path, errno);
    else if (good && status.st_nlink == 0)
        error_set(error, ERROR_FILE, "%s was removed during the run", table->path);
    if (error->kind == ERROR_NONE)
        return;
    csv_close(table);
    log_warn("%s: no more sensor rows are written; the run continues", error->text);
}

static void reading_add(struct monitor *monitor)
{
    struct device *device = monitor->setup.device;
    struct error *error = &monitor->points_error;
    struct sensor_reading reading;
    char tag[64];
    double now = clock_now(), begin = clock_thread();
    sensor_reading_clear(&reading);
    cpu_sensors_read(monitor->cpu, now, &reading);
    if (device != NULL && device->backend->sensors != NULL)
        device->backend->sensors(device, &reading);
    if (monitor->stuck)
        return;
    if (monitor->readings == 0)
        monitor->first_at = monitor->last_at = now;
    sensor_sums_add(monitor->sums, &reading, now - monitor->last_at);
    monitor->last_at = now;
    const int64_t step = atomic_load_explicit(&monitor->step, memory_order_relaxed);
    if (monitor->table.stream != NULL)
        row_write(monitor, step, &reading);
    if (monitor->setup.log != NULL && !monitor->stuck && error->kind == ERROR_NONE) {
        for (int i = 0; i < SENSOR_COUNT && error->kind == ERROR_NONE; i++) {
            snprintf(tag, sizeof tag, "sensors/%s", sensor_columns[i].name);
            if (!isnan(reading.value[i]))
                error_defer(
                    metrics_write_point(monitor->setup.log, tag, step, reading.value[i], error));
        }
        if (error->kind != ERROR_NONE)
            log_warn("%s: no more sensor points are written; the run continues", error->text);
    }
    if (reading.trouble[0] != '\0' && !monitor->warned) {
        log_warn("rank %d on %s: %s", monitor->setup.world->rank, comm_host(), reading.trouble);
        monitor->warned = true;
    }
    if (reading.alarm[0] != '\0')
        log_alarm("rank %d on %s: %s", monitor->setup.world->rank, comm_host(), reading.alarm);
    monitor->readings++;
    monitor->work_seconds += clock_thread() - begin;
}

/* ---- the thread */

static void *thread_main(void *argument)
{
    struct monitor *monitor = argument;
    const double seconds = monitor->setup.seconds;
    double due = clock_now();
    for (bool stop = false; !stop;) {
        reading_add(monitor);
        due += seconds * ceil(fmax(1, (clock_now() - due) / seconds));
        const struct timespec until = {.tv_sec = (time_t)due,
                                       .tv_nsec = (long)(1e9 * (due - floor(due)))};
        int slept = 0;
        pthread_mutex_lock(&monitor->mutex);
        while (!monitor->stop && slept != ETIMEDOUT)
            slept = pthread_cond_timedwait(&monitor->wake, &monitor->mutex, &until);
        stop = monitor->stop;
        pthread_mutex_unlock(&monitor->mutex);
    }
    return NULL;
}

static void thread_stop(struct monitor *monitor)
{
    struct timespec until;
    if (!monitor->running)
        return;
    pthread_mutex_lock(&monitor->mutex);
    monitor->stop = true;
    pthread_cond_signal(&monitor->wake);
    pthread_mutex_unlock(&monitor->mutex);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += stop_seconds;
    monitor->stuck = pthread_timedjoin_np(monitor->thread, NULL, &until) != 0;
    monitor->running = false;
    if (!monitor->stuck)
        return;
    pthread_detach(monitor->thread);
    stuck_monitor = monitor;
    log_alarm("rank %d on %s: a sensor or the disk of its table does not respond within %d s: "
              "the run ends without the last reading",
              monitor->setup.world->rank, comm_host(), stop_seconds);
}

/* ---- interface */

/* Return the path of the table of the node with this first rank; the caller frees it. */
static char *table_path(const char *folder, int64_t first)
{
    return first == 0 ? allocate_text("%s/monitor.csv", folder)
                      : allocate_text("%s/monitor-%lld.csv", folder, (long long)first);
}

/* Open the table of the node: its first rank creates it, then the others open it. If the first rank
 * fails, the node has no table. Collective over the node. */
static bool table_open(struct monitor *monitor, struct error *error)
{
    const struct monitor_setup *setup = &monitor->setup;
    /* Rows after the checkpoint stay: their measurements are valid. */
    const struct csv_keep keep = {
        .column = STEP_COLUMN, .last = setup->step > 0 ? INT64_MAX : 0, .sets_aside = true};
    int64_t first = setup->world->rank; /* of the node; -1: it has no table */
    bool good = true;
    if (setup->node->rank == 0) {
        OWNED char *path = table_path(setup->folder, first);
        good = columns_open(&monitor->table, path, monitor_columns, &keep, error);
        first = good ? first : -1;
    }
    comm_broadcast(setup->node, &first, 1, COMM_INT64, 0);
    if (setup->node->rank > 0 && first >= 0) {
        OWNED char *path = table_path(setup->folder, first);
        good = csv_join(&monitor->table, path, error);
    }
    return good;
}

struct monitor *monitor_open(const struct monitor_setup *setup)
{
    struct monitor *monitor = allocate(1, sizeof *monitor);
    struct error error = {0};
    pthread_condattr_t attributes;
    monitor->setup = *setup;
    atomic_store(&monitor->step, setup->step);
    sensor_sums_begin(monitor->sums);
    monitor->cpu = cpu_sensors_open(setup->root, setup->node->rank == 0);
    error_defer(table_open(monitor, &error));
    if (!comm_agree(setup->world, &error))
        log_warn("%s: sensor rows are missing; the run continues", error.text);
    pthread_mutex_init(&monitor->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&monitor->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    const int failure = thread_start(&monitor->thread, "monitor", thread_main, monitor);
    monitor->running = failure == 0;
    if (failure != 0) {
        log_warn("cannot start a thread for the sensors: %s; they are read at the end only",
                 strerror(failure));
        reading_add(monitor);
    }
    return monitor;
}

void monitor_step(struct monitor *monitor, int64_t step)
{
    if (monitor != NULL)
        atomic_store_explicit(&monitor->step, step, memory_order_relaxed);
}

json_t *monitor_stop(struct monitor *monitor)
{
    struct sensor_sums nothing[SENSOR_COUNT];
    struct error lost = {0};
    if (monitor == NULL)
        return json_null();
    thread_stop(monitor);
    const bool stuck = monitor->stuck;
    if (!stuck)
        reading_add(monitor);
    if (monitor->setup.world->rank != 0 && !stuck) /* rank 0 has logged its error at once */
        lost = monitor->table_error;
    if (!comm_agree(monitor->setup.world, &lost))
        log_warn("%s: the sensor rows of this rank are incomplete", lost.text);
    json_t *summary = json_object();
    value_put(summary, "seconds",
              value_number(stuck ? (double)NAN : monitor->last_at - monitor->first_at));
    value_put(summary, "readings", json_integer(stuck ? 0 : monitor->readings));
    value_put(
        summary, "reading_seconds",
        value_number(stuck ? (double)NAN : monitor->work_seconds / (double)monitor->readings));
    sensor_sums_begin(nothing);
    sensor_sums_put(summary, stuck ? nothing : monitor->sums, monitor->setup.world);
    return summary;
}

void monitor_close(struct monitor *monitor)
{
    if (monitor == NULL || monitor->stuck)
        return;
    thread_stop(monitor);
    if (monitor->stuck)
        return;
    csv_close(&monitor->table);
    cpu_sensors_close(monitor->cpu);
    pthread_cond_destroy(&monitor->wake);
    pthread_mutex_destroy(&monitor->mutex);
    free(monitor);
}
