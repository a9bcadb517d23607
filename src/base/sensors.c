// SPDX-License-Identifier: BSD-3-Clause
#include "base/sensors.h"

#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"

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

/* File names of a cgroup version. */
struct group_files {
    const char *controller; /* in /proc/self/cgroup; "" in version 2 */
    const char *tree, *limit, *used, *cached;
    /* Return the amount that one group leaves; SIZE_MAX: no limit. */
    size_t (*room)(const char *root, const struct group_files *files, const char *group);
};

/* Read the first number after `word` in a file of a group. */
static bool group_number(const char *root, const struct group_files *files, const char *group,
                         const char *file, const char *word, unsigned long long *number)
{
    OWNED char *path = allocate_text("%s%s%s/%s", root, files->tree, group, file);
    return text_file_number(path, word, number);
}

static size_t memory_room(const char *root, const struct group_files *files, const char *group)
{
    unsigned long long limit, used, cached = 0;
    if (!group_number(root, files, group, files->limit, "", &limit) ||
        !group_number(root, files, group, files->used, "", &used))
        return SIZE_MAX;
    group_number(root, files, group, "memory.stat", files->cached, &cached);
    used -= cached < used ? cached : used;
    return limit > used ? (size_t)(limit - used) : 1;
}

/* Return thousandths of a CPU. cgroup v2 has "QUOTA PERIOD" or "max PERIOD" in one file; v1 has one
 * file for each, and the quota -1 for no limit. */
static size_t core_room(const char *root, const struct group_files *files, const char *group)
{
    long long quota = -1;
    unsigned long long period = 0;
    OWNED char *path = allocate_text("%s%s%s/%s", root, files->tree, group, files->limit);
    OWNED char *text = text_file_read(path, NULL);
    if (text != NULL && sscanf(text, "%lld %llu", &quota, &period) == 1)
        group_number(root, files, group, files->used, "", &period);
    return quota > 0 && period > 0 ? (size_t)quota * 1000 / (size_t)period : SIZE_MAX;
}

static const struct group_files memory_files[] = {{"memory", "/sys/fs/cgroup/memory",
                                                   "memory.limit_in_bytes", "memory.usage_in_bytes",
                                                   "total_inactive_file", memory_room},
                                                  {"", "/sys/fs/cgroup", "memory.max",
                                                   "memory.current", "inactive_file", memory_room}},
                                core_files[] = {
                                    {"cpu", "/sys/fs/cgroup/cpu", "cpu.cfs_quota_us",
                                     "cpu.cfs_period_us", "", core_room},
                                    {"", "/sys/fs/cgroup", "cpu.max", "", "", core_room}};

/* Return the minimum over a group and its ancestors. Shortens `group` ("/a/b"). */
static size_t groups_room(const char *root, const struct group_files *files, char *group)
{
    size_t least = SIZE_MAX;
    for (;;) {
        size_t room = files->room(root, files, strcmp(group, "/") == 0 ? "" : group);
        least = room < least ? room : least;
        char *end = strrchr(group, '/');
        if (end == NULL || group[0] == '\0')
            return least;
        *end = '\0';
    }
}

/* True if a comma-separated list contains the word. */
static bool list_holds(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (; list != NULL; list = strchr(list, ','), list = list != NULL ? list + 1 : NULL)
        if (strncmp(list, word, length) == 0 && (list[length] == ',' || list[length] == '\0'))
            return true;
    return false;
}

/* Evaluate the lines "NUMBER:CONTROLLERS:PATH" of /proc/self/cgroup. `files` has both versions. */
static size_t control_room(const char *root, const struct group_files files[2])
{
    char line[PATH_MAX];
    size_t least = SIZE_MAX;
    OWNED char *path = allocate_text("%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL)
            continue;
        *group++ = '\0';
        for (int version = 0; version < 2; version++) {
            bool holds = list_holds(controllers + 1, files[version].controller);
            size_t room = holds ? groups_room(root, &files[version], group) : SIZE_MAX;
            least = room < least ? room : least;
            if (holds)
                break; /* groups_room has shortened the path */
        }
    }
    if (file != NULL)
        fclose(file);
    return least;
}

size_t memory_available(const char *root)
{
    unsigned long long available;
    OWNED char *path = allocate_text("%s/proc/meminfo", root);
    size_t room = control_room(root, memory_files);
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
    size_t thousandths = control_room(root, core_files);
    return thousandths == SIZE_MAX ? 0 : (double)thousandths / 1000;
}

/* Return a field of /proc/self/status ("VmRSS:"), which is in KiB, in bytes. */
static size_t resident_read(const char *name)
{
    unsigned long long kibibytes = 0;
    text_file_number("/proc/self/status", name, &kibibytes);
    return (size_t)kibibytes * 1024;
}

size_t resident_now(void)
{
    return resident_read("VmRSS:");
}

size_t resident_private(void)
{
    return resident_read("RssAnon:");
}

size_t resident_shared(void)
{
    return resident_read("RssFile:") + resident_read("RssShmem:");
}

size_t resident_peak(void)
{
    return resident_read("VmHWM:");
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

struct core_times {
    double busy, all; /* ticks */
};

struct cpu_sensors {
    const char *root;
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
    OWNED char *path = allocate_text("%s%s", sensors->root, name);
    char *text = text_file_read(path, NULL);
    return text != NULL ? text : allocate_copy("");
}

/* Parse Cpus_allowed_list ("0-3,8"). */
static void cores_allowed(struct cpu_sensors *sensors)
{
    static const char word[] = "\nCpus_allowed_list:";
    OWNED char *whole = text_read(sensors, "/proc/self/status");
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
}

struct cpu_sensors *cpu_sensors_open(const char *root, bool of_node)
{
    struct cpu_sensors *sensors = allocate(1, sizeof *sensors);
    sensors->root = root;
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
    OWNED char *text = text_read(sensors, "/proc/stat");
    char *rest = text;
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
    return times;
}

/* Read CPU time (ticks) and resident pages from /proc/self/stat. The program's name, in brackets,
 * may contain any character. */
static bool process_read(const struct cpu_sensors *sensors, double *ticks, double *pages)
{
    enum { USER = 14, SYSTEM = 15, RESIDENT = 24 };
    OWNED char *whole = text_read(sensors, "/proc/self/stat");
    const char *text = strrchr(whole, ')');
    *ticks = text != NULL ? 0 : (double)NAN;
    *pages = NAN;
    for (int field = 3; text != NULL && (text = strchr(text, ' ')) != NULL; field++, text++) {
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
