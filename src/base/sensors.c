// SPDX-License-Identifier: BSD-3-Clause
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#include "base/sensors.h"

#include <math.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <time.h>

#include "base/file.h"
#include "base/text.h"

#define SENSOR_COLUMN(sensor, column, kind) {#column, SENSOR_##kind},
const struct sensor_column sensor_columns[SENSOR_COUNT] = {SENSORS(SENSOR_COLUMN)};

void sensor_reading_clear(struct sensor_reading *reading)
{
    *reading = (struct sensor_reading){.trouble = ""};
    for (int i = 0; i < SENSOR_COUNT; i++)
        reading->value[i] = NAN;
}

/* ---- available memory and CPU time ---- */

/* Available memory from /proc/meminfo and control groups, CPU quota from control groups. cgroup v2
 * has one hierarchy, v1 one for each controller. A container often sees its own group as the
 * root. */

/* Read the first number after `word` in a file of a group. */
static bool group_number(const char *group, const char *file, const char *word,
                         unsigned long long *number)
{
    OWNED char *path = allocate_text("%s/%s", group, file);
    return text_file_number(path, word, number);
}

/* Return the bytes that a group leaves; SIZE_MAX: no limit. */
static size_t memory_room(const char *group, bool v2)
{
    unsigned long long limit, used, cached = 0;
    if (!group_number(group, v2 ? "memory.max" : "memory.limit_in_bytes", "", &limit) ||
        !group_number(group, v2 ? "memory.current" : "memory.usage_in_bytes", "", &used))
        return SIZE_MAX;
    group_number(group, "memory.stat", v2 ? "inactive_file" : "total_inactive_file", &cached);
    used -= cached < used ? cached : used;
    return limit > used ? (size_t)(limit - used) : 1;
}

/* Return thousandths of a CPU. cgroup v2 has "QUOTA PERIOD" or "max PERIOD" in one file; v1 has one
 * file for each, and the quota -1 for no limit. */
static size_t core_room(const char *group, bool v2)
{
    long long quota = -1;
    unsigned long long period = 0;
    OWNED char *path = allocate_text("%s/%s", group, v2 ? "cpu.max" : "cpu.cfs_quota_us");
    OWNED char *text = text_file_read(path, NULL);
    if (text != NULL && sscanf(text, "%lld %llu", &quota, &period) == 1)
        group_number(group, "cpu.cfs_period_us", "", &period);
    return quota > 0 && period > 0 ? (size_t)quota * 1000 / (size_t)period : SIZE_MAX;
}

/* Return the minimum over the groups of this process and their ancestors, from the lines
 * "NUMBER:CONTROLLERS:PATH" of /proc/self/cgroup. Lines of version 2 have no controllers. */
static size_t control_room(const char *root, const char *controller,
                           size_t (*room)(const char *group, bool v2))
{
    OWNED char *path = allocate_text("%s/proc/self/cgroup", root);
    OWNED char *text = text_file_read(path, NULL);
    char *rest = text;
    size_t least = SIZE_MAX;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        strsep(&line, ":");
        const char *controllers = strsep(&line, ":");
        const bool v2 = line != NULL && controllers[0] == '\0';
        if (line == NULL || (!v2 && !text_has_item(controllers, controller)))
            continue;
        OWNED char *group = v2 ? allocate_text("%s/sys/fs/cgroup%s", root, line)
                               : allocate_text("%s/sys/fs/cgroup/%s%s", root, controller, line);
        const size_t tree = strlen(group) - strlen(line);
        for (char *end = group; end != NULL; end = strrchr(group + tree, '/')) {
            if (end != group)
                *end = '\0';
            const size_t left = room(group, v2);
            least = left < least ? left : least;
        }
    }
    return least;
}

size_t memory_available(const char *root)
{
    unsigned long long available;
    OWNED char *path = allocate_text("%s/proc/meminfo", root);
    size_t room = control_room(root, "memory", memory_room);
    if (text_file_number(path, "MemAvailable:", &available) && available * 1024 < room)
        room = (size_t)available * 1024;
    return room == SIZE_MAX ? 0 : room;
}

double shared_memory_free(void)
{
    struct statvfs disk;
    return statvfs("/dev/shm", &disk) == 0 ? (double)disk.f_bavail * (double)disk.f_frsize : -1;
}

bool memory_mappable(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory != MAP_FAILED && munmap(memory, bytes) == 0;
}

double cores_quota(const char *root)
{
    size_t thousandths = control_room(root, "cpu", core_room);
    return thousandths == SIZE_MAX ? 0 : (double)thousandths / 1000;
}

size_t process_memory(const char *field)
{
    unsigned long long kibibytes = 0;
    text_file_number("/proc/self/status", field, &kibibytes);
    return (size_t)kibibytes * 1024;
}

bool resident_peak_reset(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "we");
    if (file == NULL)
        return false;
    bool good = fputs("5", file) >= 0;
    return fclose(file) == 0 && good;
}

/* ---- sensors of the CPU ---- */

enum { MOST_CORES = 8192 };

static const double least_seconds = 0.1;

struct cpu_sensors {
    const char *root;
    bool of_node;
    cpu_set_t allowed[MOST_CORES / CPU_SETSIZE]; /* CPU affinity */

    /* The previous reading. */
    double read_at;         /* NAN: none yet */
    double process_seconds; /* CPU time of the process */
    double busy, all;       /* ticks of the allowed cores */
};

struct cpu_sensors *cpu_sensors_open(const char *root, bool of_node)
{
    struct cpu_sensors *sensors = allocate(1, sizeof *sensors);
    sensors->root = root;
    sensors->of_node = of_node;
    sensors->read_at = NAN;
    sched_getaffinity(0, sizeof sensors->allowed, sensors->allowed);
    return sensors;
}

/* Add up the times of the allowed cores from /proc/stat: a line for all cores, then one per core
 * with user, nice, system, idle, iowait, irq, softirq, steal. User time includes guest time; stolen
 * time is not busy time. */
static void core_times_read(const struct cpu_sensors *sensors, double *busy, double *all)
{
    enum { IDLE = 3, WAITING = 4, STOLEN = 7, FIELDS };
    char line[512];
    OWNED char *path = allocate_text("%s/proc/stat", sensors->root);
    FILE *file = fopen(path, "re");
    *busy = *all = 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL && strncmp(line, "cpu", 3) == 0) {
        char *fields = line;
        const long core = line[3] == ' ' ? -1 : strtol(line + 3, &fields, 10);
        if (core < 0 || core >= MOST_CORES ||
            !CPU_ISSET_S((size_t)core, sizeof sensors->allowed, sensors->allowed))
            continue;
        for (int i = 0; i < FIELDS; i++) {
            const double ticks = strtod(fields, &fields);
            *all += ticks;
            *busy += i == IDLE || i == WAITING || i == STOLEN ? 0 : ticks;
        }
    }
    if (file != NULL)
        fclose(file);
}

void cpu_sensors_read(struct cpu_sensors *sensors, double now, struct sensor_reading *reading)
{
    double *value = reading->value, busy, all;
    const size_t resident = process_memory("VmRSS:");
    const size_t available = sensors->of_node ? memory_available(sensors->root) : 0;
    const double seconds = now - sensors->read_at;
    value[SENSOR_RESIDENT] = resident > 0 ? (double)resident : NAN;
    value[SENSOR_NODE_AVAILABLE] = available > 0 ? (double)available : NAN;
    if (seconds < least_seconds)
        return;
    const double process_seconds = (double)clock() / CLOCKS_PER_SEC;
    core_times_read(sensors, &busy, &all);
    if (!isnan(seconds)) {
        const double share = (busy - sensors->busy) / (all - sensors->all);
        value[SENSOR_PROCESS_CORES] = (process_seconds - sensors->process_seconds) / seconds;
        if (all > sensors->all)
            value[SENSOR_CORES_BUSY] = fmin(1, fmax(0, share));
    }
    sensors->read_at = now;
    sensors->process_seconds = process_seconds;
    sensors->busy = busy;
    sensors->all = all;
}

void cpu_sensors_close(struct cpu_sensors *sensors)
{
    free(sensors);
}
