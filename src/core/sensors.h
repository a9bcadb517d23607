/* What a run can measure of the hardware under it. One table says for each sensor its name, unit
 * and how it is summed up: the columns of monitor.csv, TensorBoard's tags, the summary of a run and
 * docs/outputs.md follow from it. Sources (core/sensors_cpu.h, a GPU's backend) fill in readings.
 */
#ifndef VITTRAIN_CORE_SENSORS_H
#define VITTRAIN_CORE_SENSORS_H

#include <stdbool.h>

/* In the order of the columns. */
enum sensor {
    SENSOR_PROCESS_CORES,
    SENSOR_CORES_BUSY,
    SENSOR_NODE_BUSY,
    SENSOR_RESIDENT,
    SENSOR_NODE_AVAILABLE,
    SENSOR_CPU_CLOCK,
    SENSOR_CPU_TEMPERATURE,
    SENSOR_CPU_POWER,
    SENSOR_CPU_ENERGY,
    SENSOR_CPU_THROTTLES,
    SENSOR_CPU_THROTTLED,
    SENSOR_GPU_BUSY,
    SENSOR_GPU_MEMORY_BUSY,
    SENSOR_GPU_MEMORY_USED,
    SENSOR_GPU_MEMORY_TOTAL,
    SENSOR_GPU_POWER,
    SENSOR_GPU_ENERGY,
    SENSOR_GPU_TEMPERATURE,
    SENSOR_GPU_SM_CLOCK,
    SENSOR_GPU_MEMORY_CLOCK,
    SENSOR_GPU_THROTTLE_MASK,
    SENSOR_GPU_THROTTLED,
    SENSOR_GPU_ECC_CORRECTED,
    SENSOR_GPU_ECC_UNCORRECTED,
    SENSOR_GPU_PCIE_REPLAYS,
    SENSOR_COUNT
};

/* How a run sums a sensor up, over time and then over the ranks that have it. */
enum sensor_kind {
    SENSOR_LEVEL,    /* mean over time, mean of the ranks; and the highest of all */
    SENSOR_PEAK,     /* the highest */
    SENSOR_LEAST,    /* the lowest */
    SENSOR_COUNTER,  /* last minus first, the sum of the ranks; unknown where one lacks it */
    SENSOR_DURATION, /* last minus first, the highest of the ranks */
    SENSOR_STATE     /* not summed up */
};

struct sensor_column {
    const char *name, *unit;
    enum sensor_kind kind;
    bool of_node;      /* only one rank of a node has it */
    const char *shown; /* unit for people, and that unit in `unit`s */
    double scale;
    const char *meaning; /* as docs/outputs.md has it */
};

extern const struct sensor_column sensor_columns[SENSOR_COUNT];

enum { SENSOR_WORDS = 128, SENSOR_MESSAGE = 512 };

/* What was read at one moment. */
struct sensor_reading {
    double value[SENSOR_COUNT];   /* NAN: not known */
    char throttle[SENSOR_WORDS];  /* why the GPU's clock is held down: words with blanks between */
    char trouble[SENSOR_MESSAGE]; /* why a source cannot be read: for rank 0 to say, once */
    char alarm[SENSOR_MESSAGE];   /* what must be said at once, by whichever rank it happens to */
};

/* A reading in which nothing is known. */
void sensor_reading_clear(struct sensor_reading *reading);

#endif
