// SPDX-License-Identifier: BSD-3-Clause
/* Orthogonal directions of matrices for Muon (Jordan et al. 2024). The Newton-Schulz iteration
 * X <- a X + b X X^T X + c (X X^T)^2 X starts from the direction divided by its Frobenius norm.
 *
 * For each unit, update this rank's part of flat_direction, then call flat_direction_start,
 * flat_orthogonalize, flat_direction_sum and flat_direction_wait. Units whose numbers differ by
 * less than ORTHOGONAL_SLOTS may be in progress together, so that communication overlaps with
 * computation. All ranks must call the functions in the same order. */
#ifndef VITTRAIN_MESH_FLAT_ORTHOGONAL_H
#define VITTRAIN_MESH_FLAT_ORTHOGONAL_H

#include "mesh/flat.h"

enum { NEWTON_SCHULZ_STEPS = 5 };

struct newton_schulz {
    const double (*factors)[3]; /* [NEWTON_SCHULZ_STEPS]: a, b, c */
    double epsilon;             /* smallest norm by which a direction is divided */
    /* Returns the factor by which the orthogonal direction is multiplied. */
    double (*scale)(int64_t rows, int64_t columns);
};

/* Assigns each matrix to a rank. Called by flat_open. */
void flat_orthogonal_open(struct flat_model *flat);
/* Takes the memory from the arena. Called by flat_allocate. */
void flat_orthogonal_allocate(struct flat_model *flat, struct arena *arena);

/* Returns this rank's part of the directions of a unit, [shard_count] direction_type(compute type),
 * or NULL if the unit has no matrix. Then do not call flat_direction_wait; the next three functions
 * return at once. */
void *flat_direction(const struct flat_model *flat, int unit);
/* Starts the all-gather of the directions in the shard group. */
void flat_direction_start(struct flat_model *flat, int unit);
/* Waits for the all-gather, orthogonalizes this rank's matrices, and starts the reduce-scatter in
 * the shard group. */
void flat_orthogonalize(struct flat_model *flat, int unit, const struct newton_schulz *rule);
/* Waits for the reduce-scatter and starts the all-reduce between replicas. */
void flat_direction_sum(struct flat_model *flat, int unit);
/* Waits for the all-reduce: flat_direction then contains the orthogonal directions. */
void flat_direction_wait(struct flat_model *flat, int unit);

#endif
