// SPDX-License-Identifier: BSD-3-Clause
/* Memory and CPU time available to this machine or container, resident memory of this process, and
 * hardware sensors. One table has each sensor's name and aggregation; the columns of monitor.csv,
 * TensorBoard's tags and the summary of a run are made from it. docs/outputs.md explains them.
 * cpu_sensors and the GPU backend fill in readings. */
#ifndef VITTRAIN_BASE_SENSORS_H
#define VITTRAIN_BASE_SENSORS_H

#include <stdbool.h>
#include <stddef.h>

/* Return the available memory in bytes: that of the kernel, limited by the control groups (cgroup
 * v1 or v2) of this process. Page cache counts as available. 0: unknown. `root` is the prefix of
 * /proc and /sys; "" except in tests. */
size_t memory_available(const char *root);

/* Return the free bytes of /dev/shm; -1, with errno, if it cannot be used. */
double shared_memory_free(void);

/* True if this process can map `bytes` more: its address space may be limited (ulimit -v). */
bool memory_mappable(size_t bytes);

/* Return the CPU quota of the control groups in CPUs; 1.5 is one and a half. 0: no limit. */
double cores_quota(const char *root);

/* Return the bytes of a field of /proc/self/status; 0 if the kernel does not report it. "VmRSS:" is
 * the resident set, of which "RssAnon:" is private and "RssFile:" and "RssShmem:" are shared;
 * "VmHWM:" is its peak. */
size_t process_memory(const char *field);

/* Reset the peak of the resident set. Return false if the kernel does not allow it. */
bool resident_peak_reset(void);

/* ---- Sensors */

/* SENSOR(enumerator, column, aggregation), in the order of the columns. */
#define SENSORS(SENSOR)                                                                            \
    SENSOR(PROCESS_CORES, process_cores, LEVEL)                                                    \
    SENSOR(CORES_BUSY, cores_busy, LEVEL)                                                          \
    SENSOR(RESIDENT, resident_bytes, PEAK)                                                         \
    SENSOR(NODE_AVAILABLE, node_available_bytes, LEAST)                                            \
    SENSOR(GPU_BUSY, gpu_busy, LEVEL)                                                              \
    SENSOR(GPU_MEMORY_USED, gpu_memory_used_bytes, PEAK)                                           \
    SENSOR(GPU_MEMORY_TOTAL, gpu_memory_total_bytes, PEAK)                                         \
    SENSOR(GPU_POWER, gpu_power, LEVEL)                                                            \
    SENSOR(GPU_TEMPERATURE, gpu_temperature, LEVEL)

#define SENSOR_ENUMERATOR(sensor, column, kind) SENSOR_##sensor,
enum sensor { SENSORS(SENSOR_ENUMERATOR) SENSOR_COUNT };

/* Aggregation of a sensor over time, then over the ranks that have it. */
enum sensor_kind {
    SENSOR_LEVEL, /* mean over time, mean over ranks; also the maximum */
    SENSOR_PEAK,  /* maximum */
    SENSOR_LEAST  /* minimum */
};

struct sensor_column {
    const char *name;
    enum sensor_kind kind;
};

extern const struct sensor_column sensor_columns[SENSOR_COUNT];

enum { SENSOR_MESSAGE = 512 };

/* Values of all sensors at one time. */
struct sensor_reading {
    double value[SENSOR_COUNT];   /* NAN: unknown */
    char trouble[SENSOR_MESSAGE]; /* why a source cannot be read; rank 0 logs it once */
    char alarm[SENSOR_MESSAGE];   /* warning to be logged at once by this rank */
};

/* Set all values to unknown. */
void sensor_reading_clear(struct sensor_reading *reading);

/* Sensors of the cores and the process, from the files of /proc. */

struct cpu_sensors;

/* `of_node`: this process also reads the sensors of the whole node. `root` is the prefix of /proc
 * and /sys, which must stay valid; "" except in tests. */
struct cpu_sensors *cpu_sensors_open(const char *root, bool of_node);

/* Fill in the values of process and cores; unreadable values are unchanged. Numbers of busy cores
 * are means since the previous reading; they are unknown in the first reading and in one less than
 * 0.1 s after the previous one (the kernel counts in ticks of 10 ms). `now` is clock_now(). */
void cpu_sensors_read(struct cpu_sensors *sensors, double now, struct sensor_reading *reading);
void cpu_sensors_close(struct cpu_sensors *sensors); /* no-op for NULL */

#endif
