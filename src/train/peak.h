// SPDX-License-Identifier: BSD-3-Clause
/* The peak rate of matrix products of a rank's device, for the MFU. */
#ifndef VITTRAIN_TRAIN_PEAK_H
#define VITTRAIN_TRAIN_PEAK_H

#include "device/device.h"

/* Return the peak rate in FLOP/s in this type: of the data sheet for GPUs; for CPUs the number of
 * threads times the rate of one thread, which is read from FOLDER/peaks, or measured (0.05 s of CPU
 * time, at most 0.5 s) and stored there. folder "": measured and not stored. NAN: unknown. */
double peak_find(struct device *device, enum data_type type, const char *folder);

/* Remove the stored rate of this device and type, because a run was faster. The next peak_find
 * measures again. */
void peak_forget(struct device *device, enum data_type type, const char *folder);

#endif
