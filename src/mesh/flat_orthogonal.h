// SPDX-License-Identifier: BSD-3-Clause
/* Orthogonal directions of matrices for Muon (Jordan et al. 2024), computed by the Newton-Schulz
 * iteration X <- a X + b X X^T X + c (X X^T)^2 X from the direction divided by its norm. For each
 * unit: the update writes this rank's part to flat_direction; then start, flat_orthogonalize, sum
 * and wait. Units less than ORTHOGONAL_SLOTS apart may be in progress, so that communication
 * overlaps with computation. All ranks must call the functions in the same order. */
#ifndef VITTRAIN_MESH_FLAT_ORTHOGONAL_H
#define VITTRAIN_MESH_FLAT_ORTHOGONAL_H

#include "mesh/flat.h"

enum { NEWTON_SCHULZ_STEPS = 5 };

struct newton_schulz {
    const double (*factors)[3]; /* [NEWTON_SCHULZ_STEPS]: a, b, c */
    double epsilon;             /* least norm */
    /* Returns the factor of an orthogonal direction. */
    double (*scale)(int64_t rows, int64_t columns);
};

/* Called by flat_open and flat_allocate: distributes the matrices over the ranks; takes memory. */
void flat_orthogonal_open(struct flat_model *flat);
void flat_orthogonal_allocate(struct flat_model *flat, struct arena *arena);

/* Returns this rank's part of the directions of a unit [shard_count], direction_type(compute type);
 * NULL if the unit has no matrix, and then the other functions do nothing. */
void *flat_direction(const struct flat_model *flat, int unit);
void flat_direction_start(struct flat_model *flat, int unit);
void flat_orthogonalize(struct flat_model *flat, int unit, const struct newton_schulz *rule);
void flat_direction_sum(struct flat_model *flat, int unit);
void flat_direction_wait(struct flat_model *flat, int unit);

#endif
