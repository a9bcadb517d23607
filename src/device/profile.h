// SPDX-License-Identifier: BSD-3-Clause
/* Time per unit and operation (debug.profile): a backend that wraps the device's own and measures
 * each operation until the stream has completed it. This serialises asynchronous streams, but only
 * while profiling. */
#ifndef VITTRAIN_DEVICE_PROFILE_H
#define VITTRAIN_DEVICE_PROFILE_H

#include "device/device.h"

struct profile;

/* Start timing the device's operations. `units`: number of units of the model. Only one device per
 * process can be profiled at a time. */
struct profile *profile_open(struct device *device, int units);
void profile_close(struct profile *profile);

/* Begin a training step. The third one discards the times of the first two, in which libraries load
 * and choose their kernels. No effect if profile is NULL. */
void profile_step(struct profile *profile);

/* Assign the following operations to a unit; -1: to none (update, reduction). No effect if profile
 * is NULL. */
void profile_unit(struct profile *profile, int unit);

/* Log one line per operation and per unit, longest first, and a warning if no times were discarded.
 */
void profile_print(const struct profile *profile, const char *const *unit_names);

#endif
