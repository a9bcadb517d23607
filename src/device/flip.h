// SPDX-License-Identifier: BSD-3-Clause
/* Injected faults for tests of train.check_every (debug.flip). */
#ifndef VITTRAIN_DEVICE_FLIP_H
#define VITTRAIN_DEVICE_FLIP_H

#include "device/device.h"

/* Invert the highest bit of the mantissa of one value in device memory, chosen by `seed`: of the
 * largest of 64 consecutive values, so that the flip does not vanish by rounding. Waits for the
 * stream. */
void flip_bit(const struct device_backend *backend, struct stream *stream, enum data_type type,
              void *values, int64_t count, uint64_t seed);

#endif
