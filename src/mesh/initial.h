// SPDX-License-Identifier: BSD-3-Clause
/* Initial weights. The value of an element is a function of the seed, the tensor and the element's
 * index, so any rank can draw any part, and the weights do not depend on the mesh. */
#ifndef VITTRAIN_MESH_INITIAL_H
#define VITTRAIN_MESH_INITIAL_H

#include <stdint.h>

#include "mesh/unit.h"

/* Draws elements first..first + count - 1 of the tensor. `first` must be a multiple of 4. */
void initial_draw(const struct unit_tensor *tensor, uint64_t seed, int64_t first, int64_t count,
                  float *values);

#endif
