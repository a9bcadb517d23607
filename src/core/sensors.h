// SPDX-License-Identifier: BSD-3-Clause
/* Hardware sensors. One table has each sensor's name and aggregation; the columns of monitor.csv,
 * TensorBoard's tags and the summary of a run are made from it. docs/outputs.md explains them.
 * core/sensors_cpu.h and the GPU backend fill in readings. */
#ifndef VITTRAIN_CORE_SENSORS_H
#define VITTRAIN_CORE_SENSORS_H

#include <stdbool.h>

/* In the order of the columns. */
enum sensor {
    SENSOR_PROCESS_CORES,
    SENSOR_CORES_BUSY,
    SENSOR_RESIDENT,
    SENSOR_NODE_AVAILABLE,
    SENSOR_GPU_BUSY,
    SENSOR_GPU_MEMORY_USED,
    SENSOR_GPU_MEMORY_TOTAL,
    SENSOR_GPU_POWER,
    SENSOR_GPU_TEMPERATURE,
    SENSOR_COUNT
};

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

#endif
