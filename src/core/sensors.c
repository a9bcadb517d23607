// SPDX-License-Identifier: BSD-3-Clause
/* The table of sensors. */
#include "core/sensors.h"

#include <math.h>

const struct sensor_column sensor_columns[SENSOR_COUNT] = {
    [SENSOR_PROCESS_CORES] = {"process_cores", SENSOR_LEVEL},
    [SENSOR_CORES_BUSY] = {"cores_busy", SENSOR_LEVEL},
    [SENSOR_RESIDENT] = {"resident_bytes", SENSOR_PEAK},
    [SENSOR_NODE_AVAILABLE] = {"node_available_bytes", SENSOR_LEAST},
    [SENSOR_GPU_BUSY] = {"gpu_busy", SENSOR_LEVEL},
    [SENSOR_GPU_MEMORY_USED] = {"gpu_memory_used_bytes", SENSOR_PEAK},
    [SENSOR_GPU_MEMORY_TOTAL] = {"gpu_memory_total_bytes", SENSOR_PEAK},
    [SENSOR_GPU_POWER] = {"gpu_power", SENSOR_LEVEL},
    [SENSOR_GPU_TEMPERATURE] = {"gpu_temperature", SENSOR_LEVEL},
};

void sensor_reading_clear(struct sensor_reading *reading)
{
    *reading = (struct sensor_reading){.trouble = ""};
    for (int i = 0; i < SENSOR_COUNT; i++)
        reading->value[i] = NAN;
}
