// SPDX-License-Identifier: BSD-3-Clause
#include "core/sensors.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/allocate.h"
#include "core/file.h"
#include "core/memory.h"

#define SENSOR_COLUMN(sensor, column, kind) {#column, SENSOR_##kind},
const struct sensor_column sensor_columns[SENSOR_COUNT] = {SENSORS(SENSOR_COLUMN)};

void sensor_reading_clear(struct sensor_reading *reading)
{
    *reading = (struct sensor_reading){.trouble = ""};
    for (int i = 0; i < SENSOR_COUNT; i++)
        reading->value[i] = NAN;
}

enum { MOST_CORES = 8192 };

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
};

/* Return the text of a file below the root, "" if it is unreadable; the caller frees it. */
static char *text_read(const struct cpu_sensors *sensors, const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s%s", sensors->root, name);
    char *text = text_file_read(path, NULL);
    return text != NULL ? text : allocate_copy("");
}

/* Parse Cpus_allowed_list ("0-3,8"). */
static void cores_allowed(struct cpu_sensors *sensors)
{
    static const char word[] = "\nCpus_allowed_list:";
    char *whole = text_read(sensors, "/proc/self/status");
    const char *text = strstr(whole, word);
    text = text != NULL ? text + strlen(word) : "";
    for (char *end; *text != '\n' && *text != '\0'; text = *end == ',' ? end + 1 : end) {
        long first = strtol(text, &end, 10), last = first;
        if (end == text)
            break;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        for (long core = first; core >= 0 && core <= last && core < MOST_CORES; core++)
            sensors->allowed[core] = true;
    }
    free(whole);
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

/* Read the times of the allowed cores from /proc/stat: a line for all cores, then one per core with
 * user, nice, system, idle, iowait, irq, softirq, steal. User time includes guest time; stolen time
 * is not busy time. */
static struct core_times core_times_read(const struct cpu_sensors *sensors)
{
    enum { IDLE = 3, WAITING = 4, STOLEN = 7, FIELDS };
    struct core_times times = {0};
    char *text = text_read(sensors, "/proc/stat"), *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL && strncmp(line, "cpu", 3) == 0;) {
        char *fields = strchr(line, ' '), *end;
        const long core = line[3] == ' ' ? -1 : strtol(line + 3, NULL, 10);
        if (fields == NULL || core < 0 || core >= MOST_CORES || !sensors->allowed[core])
            continue;
        for (int i = 0; i < FIELDS; i++, fields = end) {
            const double ticks = strtod(fields, &end);
            if (end == fields)
                break;
            times.all += ticks;
            if (i != IDLE && i != WAITING && i != STOLEN)
                times.busy += ticks;
        }
    }
    free(text);
    return times;
}

/* Read CPU time (ticks) and resident pages from /proc/self/stat. The program's name, in brackets,
 * may contain any character. */
static bool process_read(const struct cpu_sensors *sensors, double *ticks, double *pages)
{
    enum { USER = 14, SYSTEM = 15, RESIDENT = 24 };
    char *whole = text_read(sensors, "/proc/self/stat");
    const char *text = strrchr(whole, ')');
    *ticks = text != NULL ? 0 : (double)NAN;
    *pages = NAN;
    for (int field = 3; text != NULL && (text = strchr(text, ' ')) != NULL; field++, text++) {
        if (field == USER || field == SYSTEM)
            *ticks += strtod(text, NULL);
        else if (field == RESIDENT)
            *pages = strtod(text, NULL);
    }
    free(whole);
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
