// SPDX-License-Identifier: BSD-3-Clause
/* The CPU's sensors, from a generated /proc with known numbers and with files missing one by one,
 * and from the real one. docs/outputs.md must contain the table of sensors. Available memory and
 * processors: the least of what kernel and control groups leave. */
#include "base/sensors.h"

#include <unistd.h>

#include "base/file.h"
#include "temporary.h"
#include "test.h"

static struct sensor_reading reading;

/* The process has used so many ticks, 3 of 4 of them its own; its name is made to mislead. */
static void write_process(int ticks)
{
    char text[256];
    snprintf(text, sizeof text,
             "77 (a) b 1 2) R 1 77 77 0 -1 4194304 100 0 0 0 %d %d 5 6 20 0 3 0 900 123456789 1000 "
             "18446744073709551615 1\n",
             ticks * 3 / 4, ticks / 4);
    temporary_write("proc/self/stat", text);
    temporary_write("proc/self/status",
                    "Name:\ta\nCpus_allowed:\tb\nCpus_allowed_list:\t1-2,3\nx:\t0\n");
}

/* Four cores; the process may use 1 to 3. `n` intervals of 100 ticks a core have passed: core 0 is
 * idle or waits, core 1 is busy, core 2 half busy, of core 3 half was stolen and nothing done. */
static void write_times(int n)
{
    char text[1024];
    int base = 1000;
    snprintf(text, sizeof text,
             "cpu  %d 0 %d %d %d 0 0 %d 999 999\n"
             "cpu0 %d 0 0 %d %d 0 0 0 0 0\n"
             "cpu1 %d 0 %d %d 0 0 0 0 999 999\n"
             "cpu2 %d 0 0 %d 0 0 0 0 0 0\n"
             "cpu3 %d 0 0 %d 0 0 0 %d 0 0\n"
             "intr 5 0 0\ncpu9 1 1 1 1\n",
             4 * base + 80 * n, 70 * n, 4 * base + 140 * n, 60 * n, 50 * n, /* all cores */
             base, base + 40 * n, 60 * n, base + 30 * n, 70 * n, base, base + 50 * n, base + 50 * n,
             base, base + 50 * n, 50 * n);
    temporary_write("proc/stat", text);
}

static const char *begin(void)
{
    const char *root = temporary_open();
    write_process(400);
    write_times(0);
    temporary_write("proc/meminfo", "MemTotal:  9000 kB\nMemAvailable:  8192 kB\n");
    return root;
}

static void read_at(struct cpu_sensors *sensors, double now)
{
    sensor_reading_clear(&reading);
    cpu_sensors_read(sensors, now, &reading);
}

#define assert_value(sensor, expected)                                                             \
    assert_true(fabs(reading.value[sensor] - (expected)) <= 1e-9 * fabs((double)(expected)))
#define assert_unknown(sensor) assert_true(isnan(reading.value[sensor]))

TEST(load_is_a_mean_since_the_reading_before)
{
    double tick = 1.0 / (double)sysconf(_SC_CLK_TCK);
    const char *root = begin();
    struct cpu_sensors *sensors = cpu_sensors_open(root, true);
    read_at(sensors, 10);
    assert_unknown(SENSOR_PROCESS_CORES);
    assert_unknown(SENSOR_CORES_BUSY);
    assert_value(SENSOR_RESIDENT, 1000.0 * (double)sysconf(_SC_PAGESIZE));
    assert_value(SENSOR_NODE_AVAILABLE, 8192.0 * 1024);
    write_process(800);
    write_times(1);
    read_at(sensors, 12);
    assert_value(SENSOR_PROCESS_CORES, 400 * tick / 2);
    assert_value(SENSOR_CORES_BUSY, 150.0 / 300);
    /* Too soon: the next one counts from the last that was not. */
    write_times(2);
    read_at(sensors, 12.05);
    assert_unknown(SENSOR_CORES_BUSY);
    assert_unknown(SENSOR_PROCESS_CORES);
    write_process(900);
    read_at(sensors, 13);
    assert_value(SENSOR_PROCESS_CORES, 100 * tick);
    assert_value(SENSOR_CORES_BUSY, 0.5);
    cpu_sensors_close(sensors);
    /* A rank that does not read the sensors of the node. */
    sensors = cpu_sensors_open(root, false);
    read_at(sensors, 10);
    assert_unknown(SENSOR_NODE_AVAILABLE);
    cpu_sensors_close(sensors);
    temporary_close();
}

TEST(without_proc_nothing_is_known)
{
    temporary_open();
    for (int pass = 0; pass < 2; pass++) {
        struct cpu_sensors *sensors = cpu_sensors_open(temporary_path(""), true);
        read_at(sensors, 10);
        read_at(sensors, 11);
        for (int i = 0; i < SENSOR_COUNT; i++)
            assert_unknown(i);
        cpu_sensors_close(sensors);
        temporary_write("proc/self/stat", "77 nonsense\n");
        temporary_write("proc/self/status", "Cpus_allowed_list:\n\nCpus_allowed_list:\t,,x-\n");
        temporary_write("proc/stat", "cpu");
    }
    temporary_close();
}

TEST(this_machine_has_a_process)
{
    struct cpu_sensors *sensors = cpu_sensors_open("", true);
    volatile double work = 1;
    read_at(sensors, 10);
    for (int i = 0; i < 30000000; i++)
        work = work * 1.000000001;
    read_at(sensors, 11); /* as if it had taken a second */
    assert_true(reading.value[SENSOR_PROCESS_CORES] > 0.01);
    assert_true(reading.value[SENSOR_CORES_BUSY] > 0 && reading.value[SENSOR_CORES_BUSY] <= 1);
    assert_true(reading.value[SENSOR_RESIDENT] > 1 << 20);
    assert_true(reading.value[SENSOR_NODE_AVAILABLE] > 1 << 20);
    cpu_sensors_close(sensors);
}

TEST(the_documentation_has_each_column)
{
    char row[512];
    OWNED char *path = allocate_text("%s/docs/outputs.md", getenv("TEST_SOURCE"));
    OWNED char *text = text_file_read(path, NULL);
    assert_non_null(text);
    for (int i = 0; i < SENSOR_COUNT; i++) {
        static const char *const summed[] = {" | mean, highest |", " | highest |", " | lowest |"};
        snprintf(row, sizeof row, "\n| `%s` | ", sensor_columns[i].name);
        char *line = strstr(text, row);
        assert_non_null(line);
        snprintf(row, sizeof row, "%.*s", (int)strcspn(line + 1, "\n"), line + 1);
        assert_has(row, summed[sensor_columns[i].kind]);
    }
}

/* ---- Available memory and processors ---- */

enum { MIB = 1 << 20 };

struct state {
    const char *files; /* NAME=CONTENT with | between them, which are added to those before */
    size_t memory;     /* that is available then */
    double cores;      /* of the quota */
};

/* Begin with 8 MiB that are available to all, and a process in these groups. */
static void states_check(const char *groups, const struct state *states, size_t count)
{
    const char *root = temporary_open();
    temporary_write("proc/meminfo",
                    "MemTotal:  9000 kB\nMemFree:   100 kB\nMemAvailable:  8192 kB\n");
    assert_int_equal(memory_available(root), 8 * MIB);
    assert_true(cores_quota(root) == 0);
    temporary_write("proc/self/cgroup", groups);
    for (size_t i = 0; i < count; i++) {
        char copy[512], *rest = copy, path[256];
        snprintf(copy, sizeof copy, "%s", states[i].files);
        for (char *name; (name = strsep(&rest, "|")) != NULL;) {
            char *content = strchr(name, '=');
            *content++ = '\0';
            snprintf(path, sizeof path, "sys/fs/cgroup/%s", name);
            temporary_write(path, content);
        }
        assert_int_equal(memory_available(root), states[i].memory);
        assert_true(cores_quota(root) == states[i].cores);
    }
    temporary_close();
}

TEST(groups_of_version_2_leave_less)
{
    static const struct state states[] = {
        {"job/step/memory.max=max\n|job/step/memory.current=1000\n|job/step/cpu.max=max 100000\n",
         8 * MIB, 0},
        {"job/memory.max=6291456\n|job/memory.current=3145728\n|job/cpu.max=150000 100000\n",
         3 * MIB, 1.5},
        {"job/memory.stat=anon 5\ninactive_file 1048576\nactive_file 7\n", 4 * MIB, 1.5},
        /* A container's own group is its root. */
        {"memory.max=2097152\n|memory.current=1048576\n", 1 * MIB, 1.5},
        /* Over its limit: little, but known. */
        {"memory.current=2097153\n", 1, 1.5}};
    states_check("0::/job/step\n", states, sizeof states / sizeof states[0]);
}

TEST(groups_of_version_1_leave_less)
{
    static const struct state states[] = {
        {"memory/memory.limit_in_bytes=5242880\n|memory/memory.usage_in_bytes=3145728\n|"
         "memory/memory.stat=inactive_file 1\ntotal_inactive_file 1048576\n|"
         "cpu/cpu.cfs_quota_us=-1\n|cpu/cpu.cfs_period_us=100000\n",
         3 * MIB, 0},
        {"memory/docker/abc/memory.limit_in_bytes=9223372036854771712\n|"
         "memory/docker/abc/memory.usage_in_bytes=3145728\n|"
         "cpu/x/cpu.cfs_quota_us=300000\n|cpu/x/cpu.cfs_period_us=100000\n",
         3 * MIB, 3}};
    states_check("5:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/\n", states,
                 sizeof states / sizeof states[0]);
}

TEST(without_proc_it_is_not_known)
{
    assert_int_equal(memory_available(temporary_open()), 0);
    temporary_write("proc/self/cgroup", "no group\n:\n");
    assert_int_equal(memory_available(temporary_path("")), 0);
    temporary_close();
    assert_true(memory_available("") > MIB);
}

TEST_MAIN()
