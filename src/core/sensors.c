// SPDX-License-Identifier: BSD-3-Clause
#include "core/sensors.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/allocate.h"
#include "core/memory.h"

#define SENSOR_COLUMN(sensor, column, kind) {#column, SENSOR_##kind},
const struct sensor_column sensor_columns[SENSOR_COUNT] = {SENSORS(SENSOR_COLUMN)};

void sensor_reading_clear(struct sensor_reading *reading)
{
    *reading = (struct sensor_reading){.trouble = ""};
    for (int i = 0; i < SENSOR_COUNT; i++)
        reading->value[i] = NAN;
}

/* TEXT_SIZE holds the lines of more than 1,000 cores in /proc/stat. */
enum { MOST_CORES = 8192, TEXT_SIZE = 1 << 17 };

static const double least_seconds = 0.1;

struct core_times {
    double busy, all; /* ticks */
};

struct cpu_sensors {
    char root[PATH_MAX / 2];
    bool of_node;
    bool allowed[MOST_CORES]; /* cores in the CPU affinity of the process */

    /* The previous reading. */
    double read_at; /* NAN: none yet */
    double process_ticks;
    struct core_times cores;
    char text[TEXT_SIZE]; /* content of the file being read */
};

/* Read a file below the root into `text`, truncated to TEXT_SIZE. Return false if it is empty or
 * unreadable. */
static bool text_read(struct cpu_sensors *sensors, const char *name)
{
    char path[PATH_MAX];
    size_t length = 0;
    ssize_t got;
    snprintf(path, sizeof path, "%s%s", sensors->root, name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    while ((got = read(file, sensors->text + length, TEXT_SIZE - 1 - length)) > 0)
        length += (size_t)got;
    close(file);
    sensors->text[length] = '\0';
    return length > 0;
}

/* Parse Cpus_allowed_list ("0-3,8"). */
static void cores_allowed(struct cpu_sensors *sensors)
{
    const char *text = NULL;
    if (text_read(sensors, "/proc/self/status"))
        text = strstr(sensors->text, "\nCpus_allowed_list:");
    if (text == NULL)
        return;
    text = strchr(text + 1, ':') + 1;
    for (char *end; *text != '\n' && *text != '\0'; text = *end == ',' ? end + 1 : end) {
        long first = strtol(text, &end, 10), last = first;
        if (end == text)
            break;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        for (long core = first; core >= 0 && core <= last && core < MOST_CORES; core++)
            sensors->allowed[core] = true;
    }
}

struct cpu_sensors *cpu_sensors_open(const char *root, bool of_node)
{
    struct cpu_sensors *sensors = allocate(1, sizeof *sensors);
    snprintf(sensors->root, sizeof sensors->root, "%s", root);
    sensors->of_node = of_node;
    sensors->read_at = NAN;
    cores_allowed(sensors);
    return sensors;
}

/* Add user, nice, system, idle, iowait, irq, softirq, steal. User time includes guest time; stolen
 * time is not busy time. */
static void core_times_add(struct core_times *times, const char *text)
{
    enum { IDLE = 3, WAITING = 4, STOLEN = 7, FIELDS };
    for (int i = 0; i < FIELDS; i++) {
        char *end;
        double ticks = strtod(text, &end);
        if (end == text)
            break;
        text = end;
        times->all += ticks;
        if (i != IDLE && i != WAITING && i != STOLEN)
            times->busy += ticks;
    }
}

/* Read the times of the allowed cores from /proc/stat: a line for all cores, then one per core. */
static struct core_times core_times_read(struct cpu_sensors *sensors)
{
    struct core_times times = {0};
    if (!text_read(sensors, "/proc/stat"))
        return times;
    for (char *line = sensors->text, *end; strncmp(line, "cpu", 3) == 0; line = end + 1) {
        end = strchr(line, '\n');
        if (end == NULL)
            break;
        *end = '\0';
        const char *fields = strchr(line, ' ');
        long core = line[3] == ' ' ? -1 : strtol(line + 3, NULL, 10);
        if (fields != NULL && core >= 0 && core < MOST_CORES && sensors->allowed[core])
            core_times_add(&times, fields);
    }
    return times;
}

/* Read CPU time (ticks) and resident pages from /proc/self/stat. The program's name, in brackets,
 * may contain any character. */
static bool process_read(struct cpu_sensors *sensors, double *ticks, double *pages)
{
    enum { USER = 14, SYSTEM = 15, RESIDENT = 24 };
    const char *text = NULL;
    if (text_read(sensors, "/proc/self/stat"))
        text = strrchr(sensors->text, ')');
    if (text == NULL)
        return false;
    *ticks = 0;
    *pages = NAN;
    for (int field = 3; (text = strchr(text, ' ')) != NULL; field++, text++) {
        if (field == USER || field == SYSTEM)
            *ticks += strtod(text, NULL);
        else if (field == RESIDENT)
            *pages = strtod(text, NULL);
    }
    return !isnan(*pages);
}

/* Compute the means since the previous reading. */
static void rates_read(struct cpu_sensors *sensors, double now, double ticks, double *value)
{
    const double seconds = now - sensors->read_at;
    if (seconds < least_seconds)
        return;
    const struct core_times cores = core_times_read(sensors);
    const double all = cores.all - sensors->cores.all;
    if (!isnan(sensors->read_at)) {
        value[SENSOR_PROCESS_CORES] =
            (ticks - sensors->process_ticks) / (double)sysconf(_SC_CLK_TCK) / seconds;
        if (all > 0)
            value[SENSOR_CORES_BUSY] = fmin(1, fmax(0, (cores.busy - sensors->cores.busy) / all));
    }
    sensors->read_at = now;
    sensors->process_ticks = ticks;
    sensors->cores = cores;
}

void cpu_sensors_read(struct cpu_sensors *sensors, double now, struct sensor_reading *reading)
{
    double *value = reading->value, ticks = NAN, pages;
    if (process_read(sensors, &ticks, &pages))
        value[SENSOR_RESIDENT] = pages * (double)sysconf(_SC_PAGESIZE);
    if (sensors->of_node) {
        size_t available = memory_available(sensors->root);
        value[SENSOR_NODE_AVAILABLE] = available > 0 ? (double)available : NAN;
    }
    rates_read(sensors, now, ticks, value);
}

void cpu_sensors_close(struct cpu_sensors *sensors)
{
    free(sensors);
}
