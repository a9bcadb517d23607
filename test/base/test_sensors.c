// SPDX-License-Identifier: BSD-3-Clause
/* The CPU's sensors, from a generated /proc with known numbers and from the real one. Available
 * memory and processors: the least of what kernel and control groups leave. */
#define _GNU_SOURCE /* sched_setaffinity */
#include "base/sensors.h"

#include <sched.h>

#include "base/text.h"
#include "temporary.h"
#include "test.h"

static struct sensor_reading reading;

/* The process may use one core. `n` intervals of 100 ticks have passed: it was half busy, and a
 * tenth of it was stolen; the cores before and after it were busy. */
static void write_times(int core, int n)
{
    struct text_stream text;
    FILE *stream = text_stream_open(&text);
    fputs("cpu  1 2 3 4 5 6 7 8 999 999\n", stream);
    for (int i = 0; i <= core + 1; i++)
        if (i == core)
            fprintf(stream, "cpu%d %d 0 %d %d %d 0 0 %d 999 0\n", i, 1000 + 30 * n, 20 * n, 10 * n,
                    1000 + 30 * n, 10 * n);
        else
            fprintf(stream, "cpu%d %d 0 0 0 0 0 0 0 0 0\n", i, 100 * n);
    fputs("intr 5 0 0\ncpu9 1 1 1 1 1 1 1 1\n", stream);
    OWNED char *written = text_stream_close(&text);
    temporary_write("proc/stat", written);
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
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    size_t chosen = 0;
    while (!CPU_ISSET(chosen, &before))
        chosen++;
    CPU_ZERO(&one);
    CPU_SET(chosen, &one);
    const int core = (int)chosen;
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    const char *root = temporary_open();
    temporary_write("proc/meminfo", "MemTotal:  9000 kB\nMemAvailable:  8192 kB\n");
    write_times(core, 0);
    struct cpu_sensors *sensors = cpu_sensors_open(root, true);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    read_at(sensors, 10);
    assert_unknown(SENSOR_PROCESS_CORES);
    assert_unknown(SENSOR_CORES_BUSY);
    assert_value(SENSOR_NODE_AVAILABLE, 8192.0 * 1024);
    write_times(core, 1);
    read_at(sensors, 12);
    assert_value(SENSOR_CORES_BUSY, 0.5);
    /* Too soon: the next one counts from the last that was not. */
    write_times(core, 2);
    read_at(sensors, 12.05);
    assert_unknown(SENSOR_CORES_BUSY);
    assert_unknown(SENSOR_PROCESS_CORES);
    read_at(sensors, 13);
    assert_value(SENSOR_CORES_BUSY, 0.5);
    assert_true(reading.value[SENSOR_PROCESS_CORES] >= 0);
    cpu_sensors_close(sensors);
    /* A rank that does not read the sensors of the node. */
    sensors = cpu_sensors_open(root, false);
    temporary_write("proc/stat", "cpu\ncpu0");
    read_at(sensors, 10);
    read_at(sensors, 11);
    assert_unknown(SENSOR_NODE_AVAILABLE);
    assert_unknown(SENSOR_CORES_BUSY);
    cpu_sensors_close(sensors);
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
