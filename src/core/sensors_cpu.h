// SPDX-License-Identifier: BSD-3-Clause
/* Sensors of the cores and the process, from the files of /proc. */
#ifndef VITTRAIN_CORE_SENSORS_CPU_H
#define VITTRAIN_CORE_SENSORS_CPU_H

#include "core/sensors.h"

struct cpu_sensors;

/* `of_node`: this process also reads the sensors of the whole node. `root` is the prefix of /proc
 * and /sys; "" except in tests. */
struct cpu_sensors *cpu_sensors_open(const char *root, bool of_node);

/* Fill in the values of process and cores; unreadable values are unchanged. Numbers of busy cores
 * are means since the previous reading; they are unknown in the first reading and in one less than
 * 0.1 s after the previous one (the kernel counts in ticks of 10 ms). `now` is clock_now(). */
void cpu_sensors_read(struct cpu_sensors *sensors, double now, struct sensor_reading *reading);
void cpu_sensors_close(struct cpu_sensors *sensors); /* no-op for NULL */

#endif
