// SPDX-License-Identifier: BSD-3-Clause
/* The table of sensors. */
#include "core/sensors.h"

#include <math.h>

#define SHARE .unit = "0 to 1", .shown = "%", .scale = 0.01
#define BYTES .unit = "bytes", .shown = "MiB", .scale = 1048576
#define UNIT(text) .unit = (text), .shown = (text), .scale = 1

const struct sensor_column sensor_columns[SENSOR_COUNT] = {
    [SENSOR_PROCESS_CORES] = {"process_cores", UNIT("cores"), .kind = SENSOR_LEVEL,
                              .meaning = "processor time of the rank since the previous row, "
                                         "over the time passed"},
    [SENSOR_CORES_BUSY] = {"cores_busy", SHARE, .kind = SENSOR_LEVEL,
                           .meaning = "how busy the cores were that the rank may use, with "
                                      "whatever work"},
    [SENSOR_RESIDENT] = {"resident_bytes", BYTES, .kind = SENSOR_PEAK,
                         .meaning = "memory of the rank's process"},
    [SENSOR_NODE_AVAILABLE] = {"node_available_bytes", BYTES, .kind = SENSOR_LEAST, .of_node = true,
                               .meaning = "memory that the node, or the job's control group, has "
                                          "left"},
    [SENSOR_GPU_BUSY] = {"gpu_busy", SHARE, .kind = SENSOR_LEVEL,
                         .meaning = "share of the driver's last sample period (up to 1 s) in which "
                                    "a kernel ran on the rank's GPU"},
    [SENSOR_GPU_MEMORY_USED] = {"gpu_memory_used_bytes", BYTES, .kind = SENSOR_PEAK,
                                .meaning = "memory in use on it, by all processes"},
    [SENSOR_GPU_MEMORY_TOTAL] = {"gpu_memory_total_bytes", BYTES, .kind = SENSOR_PEAK,
                                 .meaning = "memory that it has"},
    [SENSOR_GPU_POWER] = {"gpu_power", UNIT("W"), .kind = SENSOR_LEVEL,
                          .meaning = "power that its board draws"},
    [SENSOR_GPU_TEMPERATURE] = {"gpu_temperature", UNIT("C"), .kind = SENSOR_LEVEL,
                                .meaning = "temperature of its chip"},
};

void sensor_reading_clear(struct sensor_reading *reading)
{
    *reading = (struct sensor_reading){.trouble = ""};
    for (int i = 0; i < SENSOR_COUNT; i++)
        reading->value[i] = NAN;
}
