// SPDX-License-Identifier: BSD-3-Clause
/* Sensors of the CPU and the process. The files to read are found once, when the sensors are
 * opened. Clock and throttling are read for a few cores only, because reading interrupts the core.
 */
#include "core/sensors_cpu.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/allocate.h"
#include "core/available.h"
#include "core/folder.h"

/* TEXT_SIZE holds the lines of more than 1,000 cores in /proc/stat. */
enum { MOST_CORES = 8192, MOST_ASKED = 8, MOST_FILES = 16, NAME = 128, TEXT_SIZE = 1 << 17 };

static const double least_seconds = 0.1;

/* An energy counter that wraps around at `range`. */
struct energy_counter {
    char file[NAME];
    double range, last; /* microjoules */
};

struct core_times {
    double busy, all; /* ticks */
};

struct cpu_sensors {
    char root[PATH_MAX / 2];
    bool of_node;
    bool allowed[MOST_CORES]; /* cores in the CPU affinity of the process */
    int asked[MOST_ASKED], asked_count;
    bool has_cpufreq;
    char temperatures[MOST_FILES][NAME];
    int temperature_count;
    bool package_temperatures; /* the list has package sensors only */
    struct energy_counter energies[MOST_FILES];
    int energy_count;
    double joules;

    /* The previous reading. */
    double read_at; /* NAN: none yet */
    double process_ticks, read_joules;
    struct core_times own, node;
    char text[TEXT_SIZE]; /* content of the file being read */
};

/* ---- files */

/* Read a file into `text`, truncated to TEXT_SIZE. Return false if it is empty or unreadable. */
static bool text_read(struct cpu_sensors *sensors, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static bool text_read(struct cpu_sensors *sensors, const char *format, ...)
{
    char path[PATH_MAX];
    size_t used = strlen(sensors->root), length = 0;
    ssize_t got;
    va_list arguments;
    memcpy(path, sensors->root, used);
    va_start(arguments, format);
    vsnprintf(path + used, sizeof path - used, format, arguments);
    va_end(arguments);
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return false;
    while (length < TEXT_SIZE - 1 &&
           (got = read(file, sensors->text + length, TEXT_SIZE - 1 - length)) > 0)
        length += (size_t)got;
    close(file);
    sensors->text[length] = '\0';
    return length > 0;
}

/* Return the number at the start of text, or NAN. */
static double text_number(const char *text)
{
    char *end;
    double value = strtod(text, &end);
    return end == text ? NAN : value;
}

static double file_number(struct cpu_sensors *sensors, const char *file)
{
    return text_read(sensors, "%s", file) ? text_number(sensors->text) : NAN;
}

static bool text_begins(const struct cpu_sensors *sensors, const char *word)
{
    return strncmp(sensors->text, word, strlen(word)) == 0;
}

/* Call `look` with each entry of a folder below the root. */
static void folder_each(struct cpu_sensors *sensors, const char *folder,
                        void (*look)(struct cpu_sensors *, const char *folder, const char *name))
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s%s", sensors->root, folder);
    DIR *entries = NULL;
    for (const char *name; (name = folder_next(&entries, path)) != NULL;)
        if (strlen(name) < NAME / 4)
            look(sensors, folder, name);
}

/* ---- discovery */

/* Parse Cpus_allowed_list ("0-3,8"). Return the number of cores. */
static int cores_allowed(struct cpu_sensors *sensors)
{
    int count = 0;
    const char *text = NULL;
    if (text_read(sensors, "/proc/self/status"))
        text = strstr(sensors->text, "\nCpus_allowed_list:");
    if (text == NULL)
        return 0;
    text = strchr(text + 1, ':') + 1;
    for (char *end; *text != '\n' && *text != '\0'; text = *end == ',' ? end + 1 : end) {
        long first = strtol(text, &end, 10), last = first;
        if (end == text)
            break;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        for (long core = first; core >= 0 && core <= last && core < MOST_CORES; core++) {
            count += !sensors->allowed[core];
            sensors->allowed[core] = true;
        }
    }
    return count;
}

/* Choose up to MOST_ASKED cores, evenly spaced among the allowed ones. */
static void cores_choose(struct cpu_sensors *sensors)
{
    int count = cores_allowed(sensors), seen = 0;
    int wanted = count < MOST_ASKED ? count : MOST_ASKED;
    for (int core = 0; core < MOST_CORES && sensors->asked_count < wanted; core++) {
        if (!sensors->allowed[core])
            continue;
        if (seen == sensors->asked_count * count / wanted)
            sensors->asked[sensors->asked_count++] = core;
        seen++;
    }
}

/* Add a temperature sensor. Sensors of single cores are dropped if there are package sensors. */
static void temperature_add(struct cpu_sensors *sensors, const char *file, bool package)
{
    if (package && !sensors->package_temperatures)
        sensors->temperature_count = 0;
    if ((sensors->package_temperatures && !package) || sensors->temperature_count == MOST_FILES)
        return;
    sensors->package_temperatures = package;
    snprintf(sensors->temperatures[sensors->temperature_count++], NAME, "%s", file);
}

static void hwmon_file_look(struct cpu_sensors *sensors, const char *folder, const char *name)
{
    char file[NAME];
    size_t length = strlen(name);
    if (strncmp(name, "temp", 4) != 0 || length < 7 || strcmp(name + length - 6, "_input") != 0)
        return;
    snprintf(file, sizeof file, "%s/%.*slabel", folder, (int)length - 5, name);
    bool package = text_read(sensors, "%s", file) &&
                   (text_begins(sensors, "Package") || text_begins(sensors, "Tctl") ||
                    text_begins(sensors, "Tdie"));
    snprintf(file, sizeof file, "%s/%s", folder, name);
    temperature_add(sensors, file, package);
}

/* Add the sensors of CPU chips; disks and network cards have hwmon entries too. */
static void hwmon_look(struct cpu_sensors *sensors, const char *folder, const char *name)
{
    static const char *const chips[] = {"coretemp\n", "k10temp\n", "zenpower\n", "cpu_thermal\n"};
    char chip[NAME];
    snprintf(chip, sizeof chip, "%s/%s", folder, name);
    bool known = false;
    if (text_read(sensors, "%s/name", chip))
        for (size_t i = 0; i < sizeof chips / sizeof chips[0]; i++)
            known = known || strcmp(sensors->text, chips[i]) == 0;
    if (known)
        folder_each(sensors, chip, hwmon_file_look);
}

static void zone_look(struct cpu_sensors *sensors, const char *folder, const char *name)
{
    char file[NAME];
    if (!text_read(sensors, "%s/%s/type", folder, name) ||
        (strstr(sensors->text, "cpu") == NULL && strstr(sensors->text, "CPU") == NULL &&
         !text_begins(sensors, "x86_pkg_temp")))
        return;
    snprintf(file, sizeof file, "%s/%s/temp", folder, name);
    temperature_add(sensors, file, text_begins(sensors, "x86_pkg_temp"));
}

/* Add RAPL's "package" and "dram" domains. "psys" includes both; "core" and "uncore" are parts of a
 * package. */
static void powercap_look(struct cpu_sensors *sensors, const char *folder, const char *name)
{
    if (strncmp(name, "intel-rapl:", 11) != 0 || !text_read(sensors, "%s/%s/name", folder, name) ||
        !(text_begins(sensors, "package") || text_begins(sensors, "dram")) ||
        sensors->energy_count == MOST_FILES)
        return;
    struct energy_counter *counter = &sensors->energies[sensors->energy_count++];
    snprintf(counter->file, sizeof counter->file, "%s/%s/max_energy_range_uj", folder, name);
    counter->range = file_number(sensors, counter->file);
    snprintf(counter->file, sizeof counter->file, "%s/%s/energy_uj", folder, name);
    counter->last = file_number(sensors, counter->file);
}

/* Use all energy counters or none, as a part would be taken for the whole node's energy. They are
 * often readable by root only. */
static void energies_find(struct cpu_sensors *sensors)
{
    folder_each(sensors, "/sys/class/powercap", powercap_look);
    for (int i = 0; i < sensors->energy_count; i++)
        if (isnan(sensors->energies[i].last))
            sensors->energy_count = 0;
}

struct cpu_sensors *cpu_sensors_open(const char *root, bool of_node)
{
    struct cpu_sensors *sensors = allocate(1, sizeof *sensors);
    snprintf(sensors->root, sizeof sensors->root, "%s", root);
    sensors->of_node = of_node;
    sensors->read_at = NAN;
    cores_choose(sensors);
    if (sensors->asked_count > 0)
        sensors->has_cpufreq = text_read(
            sensors, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq", sensors->asked[0]);
    if (of_node) {
        folder_each(sensors, "/sys/class/hwmon", hwmon_look);
        if (sensors->temperature_count == 0)
            folder_each(sensors, "/sys/class/thermal", zone_look);
        energies_find(sensors);
    }
    return sensors;
}

/* ---- readings */

/* Parse user, nice, system, idle, iowait, irq, softirq, steal. User time includes guest time;
 * stolen time is not busy time. */
static struct core_times core_times_read(const char *text)
{
    enum { IDLE = 3, WAITING = 4, STOLEN = 7, FIELDS };
    struct core_times times = {0};
    for (int i = 0; i < FIELDS; i++) {
        char *end;
        double ticks = strtod(text, &end);
        if (end == text)
            break;
        text = end;
        times.all += ticks;
        if (i != IDLE && i != WAITING && i != STOLEN)
            times.busy += ticks;
    }
    return times;
}

/* Read /proc/stat: one line for all cores, then one per core. */
static bool core_times_add(struct cpu_sensors *sensors, struct core_times *own,
                           struct core_times *node)
{
    if (!text_read(sensors, "/proc/stat"))
        return false;
    for (char *line = sensors->text, *end; strncmp(line, "cpu", 3) == 0; line = end + 1) {
        end = strchr(line, '\n');
        if (end == NULL)
            break;
        *end = '\0';
        char *fields = strchr(line, ' ');
        if (fields == NULL)
            continue;
        struct core_times times = core_times_read(fields);
        long core = line[3] == ' ' ? -1 : strtol(line + 3, NULL, 10);
        if (core < 0) {
            *node = times;
        } else if (core < MOST_CORES && sensors->allowed[core]) {
            own->busy += times.busy;
            own->all += times.all;
        }
    }
    return node->all > 0;
}

static double share_since(const struct core_times *before, const struct core_times *now)
{
    double all = now->all - before->all;
    return all > 0 ? fmin(1, fmax(0, (now->busy - before->busy) / all)) : NAN;
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
        double value = text_number(text);
        if (field == USER || field == SYSTEM)
            *ticks += value;
        else if (field == RESIDENT)
            *pages = value;
    }
    return !isnan(*ticks) && !isnan(*pages);
}

/* Return the maximum of the chosen cores' throttle counters of this kind, or NAN. */
static double throttling_read(struct cpu_sensors *sensors, const char *tail)
{
    static const char *const levels[] = {"core", "package"};
    double most = NAN;
    for (int i = 0; i < sensors->asked_count; i++)
        for (int level = 0; level < 2; level++)
            if (text_read(sensors, "/sys/devices/system/cpu/cpu%d/thermal_throttle/%s_throttle_%s",
                          sensors->asked[i], levels[level], tail))
                most = fmax(most, text_number(sensors->text));
    return most;
}

/* Return the mean clock in MHz from /proc/cpuinfo, for virtual machines without cpufreq. */
static double clock_from_cpuinfo(struct cpu_sensors *sensors)
{
    double sum = 0;
    long core = -1;
    int count = 0;
    if (!text_read(sensors, "/proc/cpuinfo"))
        return NAN;
    for (char *line = sensors->text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        char *value = strpbrk(line, ":\n");
        if (value == NULL || *value != ':')
            continue;
        if (strncmp(line, "processor", 9) == 0)
            core = strtol(value + 1, NULL, 10);
        if (strncmp(line, "cpu MHz", 7) != 0 || core < 0 || core >= MOST_CORES ||
            !sensors->allowed[core])
            continue;
        sum += text_number(value + 1);
        count++;
    }
    return count > 0 ? sum / count : NAN;
}

static double clock_read(struct cpu_sensors *sensors)
{
    double sum = 0;
    int count = 0;
    if (!sensors->has_cpufreq)
        return clock_from_cpuinfo(sensors);
    for (int i = 0; i < sensors->asked_count; i++)
        if (text_read(sensors, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq",
                      sensors->asked[i])) {
            sum += text_number(sensors->text) / 1000; /* from kHz */
            count++;
        }
    return count > 0 ? sum / count : NAN;
}

static double temperature_read(struct cpu_sensors *sensors)
{
    double hottest = NAN;
    for (int i = 0; i < sensors->temperature_count; i++)
        hottest = fmax(hottest, file_number(sensors, sensors->temperatures[i]) / 1000);
    return hottest;
}

/* Return joules since the sensors were opened. */
static double energy_read(struct cpu_sensors *sensors)
{
    for (int i = 0; i < sensors->energy_count; i++) {
        struct energy_counter *counter = &sensors->energies[i];
        double value = file_number(sensors, counter->file);
        double used = value - counter->last;
        if (used < 0)
            used += counter->range;
        if (isnan(used) || used < 0)
            sensors->energy_count = 0; /* no longer readable */
        else
            sensors->joules += used * 1e-6;
        counter->last = value;
    }
    return sensors->energy_count > 0 ? sensors->joules : NAN;
}

/* Compute the means since the previous reading. */
static void rates_read(struct cpu_sensors *sensors, double now, double ticks, double *value)
{
    struct core_times own = {0}, node = {0};
    double seconds = now - sensors->read_at;
    bool counted = core_times_add(sensors, &own, &node), first = isnan(sensors->read_at);
    if (!first && seconds < least_seconds)
        return;
    if (!first) {
        value[SENSOR_PROCESS_CORES] =
            (ticks - sensors->process_ticks) / (double)sysconf(_SC_CLK_TCK) / seconds;
        if (counted)
            value[SENSOR_CORES_BUSY] = share_since(&sensors->own, &own);
        if (counted && sensors->of_node)
            value[SENSOR_NODE_BUSY] = share_since(&sensors->node, &node);
        if (sensors->energy_count > 0)
            value[SENSOR_CPU_POWER] = (sensors->joules - sensors->read_joules) / seconds;
    }
    sensors->read_at = now;
    sensors->process_ticks = ticks;
    sensors->read_joules = sensors->joules;
    sensors->own = own;
    sensors->node = node;
}

void cpu_sensors_read(struct cpu_sensors *sensors, double now, struct sensor_reading *reading)
{
    double *value = reading->value, ticks = NAN, pages;
    if (process_read(sensors, &ticks, &pages))
        value[SENSOR_RESIDENT] = pages * (double)sysconf(_SC_PAGESIZE);
    value[SENSOR_CPU_CLOCK] = clock_read(sensors);
    value[SENSOR_CPU_THROTTLES] = throttling_read(sensors, "count");
    value[SENSOR_CPU_THROTTLED] = throttling_read(sensors, "total_time_ms") / 1000;
    if (sensors->of_node) {
        size_t available = memory_available(sensors->root);
        value[SENSOR_NODE_AVAILABLE] = available > 0 ? (double)available : NAN;
        value[SENSOR_CPU_TEMPERATURE] = temperature_read(sensors);
        value[SENSOR_CPU_ENERGY] = energy_read(sensors);
    }
    rates_read(sensors, now, ticks, value);
}

void cpu_sensors_close(struct cpu_sensors *sensors)
{
    free(sensors);
}
