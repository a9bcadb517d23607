// SPDX-License-Identifier: BSD-3-Clause
/* The reduction of gradients over the mesh. Private to src/mesh. A unit's reduction has up to two
 * stages: over the shard group, then over the replica group. flat_gather.c calls the functions of
 * an implementation in this order. */
#ifndef VITTRAIN_MESH_REDUCTION_H
#define VITTRAIN_MESH_REDUCTION_H

#include "mesh/flat.h"

struct gradient_reduction {
    /* Take the memory of a unit's gradients from the arena, and that of flat->slots[number], which
     * several units share. */
    void (*allocate)(struct flat_model *flat, struct flat_buffer *buffer, struct arena *arena);
    void (*allocate_slot)(struct flat_model *flat, int number, struct arena *arena);
    /* Before a unit's backward pass: set buffer->overwrites. If the unit learns, also set to zero
     * what the pass adds to or does not write. samples: false if this rank has none in the pass. */
    void (*open)(struct flat_model *flat, struct flat_buffer *buffer, bool samples);
    /* After the backward pass of a unit that learns. */
    void (*close)(struct flat_model *flat, struct flat_buffer *buffer);
    /* Start and finish the collective in the shard group. Not called for a group of one rank. */
    void (*shards_start)(struct flat_model *flat, int unit);
    void (*shards_finish)(struct flat_model *flat, int unit);
    /* Start the collective in the replica group, then the one that distributes the sums (NULL: the
     * first one also does that). flat_reduce_wait waits for the last one. Not called for a group of
     * one rank. */
    void (*replicas_start)(struct flat_model *flat, int unit);
    void (*replicas_gather)(struct flat_model *flat, int unit);
};

/* Reduce-scatter and all-reduce. */
extern const struct gradient_reduction reduction_scatter;
/* Partial sums, which are added in the order of a tree. */
extern const struct gradient_reduction reduction_partial;

/* Return the elements of the largest unit that uses a slot. */
int64_t flat_slot_elements(const struct flat_model *flat, int number);
/* Take memory for a gradient. sent: true if it is the buffer of a reduction; it is then in shared
 * memory if flat->shares_memory is set. */
void *flat_gradient_take(struct flat_model *flat, bool sent, enum memory_class memory_class,
                         size_t bytes, struct arena *arena);

/* For Muon: assign each matrix to a rank; take memory from the arena. */
void flat_orthogonal_open(struct flat_model *flat);
void flat_orthogonal_allocate(struct flat_model *flat, struct arena *arena);

extern const enum comm_type comm_type_of[];

#endif
