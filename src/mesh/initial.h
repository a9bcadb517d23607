/* Where the weights start. Each element's value is a function of the seed, its tensor and its place
 * in the tensor, so that any rank can draw any part and the same on any mesh. */
#ifndef VITTRAIN_MESH_INITIAL_H
#define VITTRAIN_MESH_INITIAL_H

#include <stdint.h>

#include "mesh/unit.h"

/* Elements first..first + count - 1 of the tensor; first is a multiple of 4. */
void initial_draw(const struct unit_tensor *tensor, uint64_t seed, int64_t first, int64_t count,
                  float *values);

#endif
