// SPDX-License-Identifier: BSD-3-Clause
/* Injected faults for tests of train.check_every (debug.flip). */
#ifndef VITTRAIN_DEVICE_BIT_FLIP_H
#define VITTRAIN_DEVICE_BIT_FLIP_H

#include "device/device.h"

/* Invert the highest bit of the mantissa of one of values[count], in device memory. `seed` chooses
 * 64 consecutive values, of which the one with the largest magnitude is changed, so that rounding
 * does not hide the fault. count > 0. Waits for the stream. */
void flip_bit(const struct device_backend *backend, struct stream *stream, enum data_type type,
              void *values, int64_t count, uint64_t seed);

#endif
