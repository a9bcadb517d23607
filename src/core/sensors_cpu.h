/* The processor's and the process's sensors, from /proc and /sys, as far as this machine has them
 * and lets us read them. */
#ifndef VITTRAIN_CORE_SENSORS_CPU_H
#define VITTRAIN_CORE_SENSORS_CPU_H

#include "core/sensors.h"

struct cpu_sensors;

/* Looks what there is. of_node: this process also reads what the node has only once. root: where
 * /proc and /sys lie; "" but in tests. */
struct cpu_sensors *cpu_sensors_open(const char *root, bool of_node);

/* Fills in the process's and the CPU's values; what cannot be read stays as it is. Utilisation and
 * power are means since the reading before, and unknown in the first one, and in one that comes
 * sooner than 0.1 s after (the kernel counts in ticks of 10 ms). now: seconds of clock_now. */
void cpu_sensors_read(struct cpu_sensors *sensors, double now, struct sensor_reading *reading);
void cpu_sensors_close(struct cpu_sensors *sensors); /* nothing for NULL */

#endif
