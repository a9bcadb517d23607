// SPDX-License-Identifier: BSD-3-Clause
/* The table of sensors. */
#include "core/sensors.h"

#include <math.h>

#define SHARE .unit = "0 to 1", .shown = "%", .scale = 0.01
#define BYTES .unit = "bytes", .shown = "MiB", .scale = 1048576
#define UNIT(text) .unit = (text), .shown = (text), .scale = 1
#define JOULES .unit = "J", .shown = "Wh", .scale = 3600
#define NUMBER .unit = "", .shown = "", .scale = 1

const struct sensor_column sensor_columns[SENSOR_COUNT] = {
    [SENSOR_PROCESS_CORES] = {"process_cores", UNIT("cores"), .kind = SENSOR_LEVEL,
                              .meaning = "processor time of the rank since the previous row, "
                                         "over the time passed"},
    [SENSOR_CORES_BUSY] = {"cores_busy", SHARE, .kind = SENSOR_LEVEL,
                           .meaning = "how busy the cores were that the rank may use, with "
                                      "whatever work"},
    [SENSOR_NODE_BUSY] = {"node_busy", SHARE, .kind = SENSOR_LEVEL, .of_node = true,
                          .meaning = "how busy all cores of the node were"},
    [SENSOR_RESIDENT] = {"resident_bytes", BYTES, .kind = SENSOR_PEAK,
                         .meaning = "memory of the rank's process"},
    [SENSOR_NODE_AVAILABLE] = {"node_available_bytes", BYTES, .kind = SENSOR_LEAST, .of_node = true,
                               .meaning = "memory that the node, or the job's control group, has "
                                          "left"},
    [SENSOR_CPU_CLOCK] = {"cpu_clock", UNIT("MHz"), .kind = SENSOR_LEVEL,
                          .meaning = "clock of the rank's cores (mean of up to 8 of them)"},
    [SENSOR_CPU_TEMPERATURE] = {"cpu_temperature", UNIT("C"), .kind = SENSOR_LEVEL, .of_node = true,
                                .meaning = "of the node's hottest processor"},
    [SENSOR_CPU_POWER] = {"cpu_power", UNIT("W"), .kind = SENSOR_LEVEL, .of_node = true,
                          .meaning = "mean since the previous row: processors and memory of "
                                     "the node (RAPL)"},
    [SENSOR_CPU_ENERGY] = {"cpu_energy", JOULES, .kind = SENSOR_COUNTER, .of_node = true,
                           .meaning = "energy of the node's processors and memory since this "
                                      "attempt began"},
    [SENSOR_CPU_THROTTLES] = {"cpu_throttles", NUMBER, .kind = SENSOR_DURATION,
                              .meaning = "how often heat slowed one of the rank's cores down, "
                                         "since the node was started"},
    [SENSOR_CPU_THROTTLED] = {"cpu_throttled_seconds", UNIT("s"), .kind = SENSOR_DURATION,
                              .meaning = "for how long, since the node was started"},
    [SENSOR_GPU_BUSY] = {"gpu_busy", SHARE, .kind = SENSOR_LEVEL,
                         .meaning = "share of the driver's last sample period (up to 1 s) in which "
                                    "a kernel ran on the rank's GPU"},
    [SENSOR_GPU_MEMORY_BUSY] = {"gpu_memory_busy", SHARE, .kind = SENSOR_LEVEL,
                                .meaning = "in which its memory was read or written"},
    [SENSOR_GPU_MEMORY_USED] = {"gpu_memory_used_bytes", BYTES, .kind = SENSOR_PEAK,
                                .meaning = "memory in use on it, by all processes"},
    [SENSOR_GPU_MEMORY_TOTAL] = {"gpu_memory_total_bytes", BYTES, .kind = SENSOR_PEAK,
                                 .meaning = "memory that it has"},
    [SENSOR_GPU_POWER] = {"gpu_power", UNIT("W"), .kind = SENSOR_LEVEL,
                          .meaning = "power that its board draws"},
    [SENSOR_GPU_ENERGY] = {"gpu_energy", JOULES, .kind = SENSOR_COUNTER,
                           .meaning = "energy since its driver was loaded"},
    [SENSOR_GPU_TEMPERATURE] = {"gpu_temperature", UNIT("C"), .kind = SENSOR_LEVEL,
                                .meaning = "temperature of its chip"},
    [SENSOR_GPU_SM_CLOCK] = {"gpu_sm_clock", UNIT("MHz"), .kind = SENSOR_LEVEL,
                             .meaning = "clock of its multiprocessors"},
    [SENSOR_GPU_MEMORY_CLOCK] = {"gpu_memory_clock", UNIT("MHz"), .kind = SENSOR_LEVEL,
                                 .meaning = "clock of its memory"},
    [SENSOR_GPU_THROTTLE_MASK] = {"gpu_throttle_mask", NUMBER, .kind = SENSOR_STATE,
                                  .meaning = "why its clock is not higher: NVML's clock event "
                                             "reasons as a number"},
    [SENSOR_GPU_THROTTLED] = {"gpu_throttled_seconds", UNIT("s"), .kind = SENSOR_DURATION,
                              .meaning = "time, in whole rows, with heat or hardware slowdown "
                                         "among the reasons, since this attempt began; the power "
                                         "cap does not count"},
    [SENSOR_GPU_ECC_CORRECTED] = {"gpu_ecc_corrected", NUMBER, .kind = SENSOR_COUNTER,
                                  .meaning = "memory errors that were corrected since its driver "
                                             "was loaded"},
    [SENSOR_GPU_ECC_UNCORRECTED] = {"gpu_ecc_uncorrected", NUMBER, .kind = SENSOR_COUNTER,
                                    .meaning = "and that could not be; one that comes during a run "
                                               "is also a warning"},
    [SENSOR_GPU_PCIE_REPLAYS] = {"gpu_pcie_replays", NUMBER, .kind = SENSOR_COUNTER,
                                 .meaning = "packets sent again on its PCIe link"},
};

void sensor_reading_clear(struct sensor_reading *reading)
{
    *reading = (struct sensor_reading){.throttle = ""};
    for (int i = 0; i < SENSOR_COUNT; i++)
        reading->value[i] = NAN;
}
