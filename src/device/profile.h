/* Time per unit and operation (debug.profile): a backend around the device's own, which measures
 * each operation from its start until the stream has run it. Slower than the plain backend where
 * streams run behind the host, and only then. */
#ifndef VITTRAIN_DEVICE_PROFILE_H
#define VITTRAIN_DEVICE_PROFILE_H

#include "device/device.h"

struct profile;

/* From here on the device's operations are timed. `units`: how many the model has. One device of a
 * process can be profiled at a time. */
struct profile *profile_open(struct device *device, int units);
void profile_close(struct profile *profile);

/* Which unit the next operations belong to; -1: to none (update, reduction). NULL: nothing. */
void profile_unit(struct profile *profile, int unit);

/* A line for each operation and each unit, longest first, as log lines. */
void profile_print(const struct profile *profile, const char *const *unit_names);

#endif
