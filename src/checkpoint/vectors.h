/* The vectors of a model (masters, moments, averages) as files see them: one long vector for each
 * unit, of which each rank holds a part. Moves blocks of them between the ranks that hold them and
 * rank 0. */
#ifndef VITTRAIN_CHECKPOINT_VECTORS_H
#define VITTRAIN_CHECKPOINT_VECTORS_H

#include "mesh/flat.h"

enum vector_kind { VECTOR_MASTER, VECTOR_MOMENT1, VECTOR_MOMENT2, VECTOR_AVERAGE, VECTOR_KINDS };

extern const char *const vector_name[VECTOR_KINDS];

/* Elements of the largest block that is read, written or sent in one go: 4 MiB. */
enum { VECTOR_BLOCK = 1 << 20 };

/* This rank's part (device memory); NULL where the model keeps no such vector. */
float *vector_memory(const struct flat_buffer *buffer, enum vector_kind kind);

/* The world's rank that is number `shard` of its shard group and `replica` of its replica group, at
 * [shard * replicas + replica]. Collective; the caller frees it. */
int *vector_ranks(const struct mesh *mesh);

/* Stores what of block [begin, begin + count) of unit u belongs to this rank. */
void vector_keep(const struct flat_model *flat, int u, enum vector_kind kind, int64_t begin,
                 int64_t count, const float *block);

/* The other way: `block` gets elements [begin, begin + count), which this rank holds all of. */
void vector_take(const struct flat_model *flat, int u, enum vector_kind kind, int64_t begin,
                 int64_t count, float *block);

/* The same, but only queued on the model's stream: `block` is there when the stream has come to it.
 */
void vector_take_start(const struct flat_model *flat, int u, enum vector_kind kind, int64_t begin,
                       int64_t count, float *block);

/* Puts zeros behind the unit's last element, where the flat buffer is longer. */
void vector_clear_padding(const struct flat_model *flat, int u, enum vector_kind kind);

/* The moving average, where one is kept, starts anew at the masters. */
void vector_restart_average(const struct flat_model *flat);

/* Collective: rank 0's `block` gets the masters [begin, begin + count) of unit u from the first
 * replica of each shard. `ranks` is vector_ranks'. */
void vector_gather(const struct flat_model *flat, const int *ranks, int u, int64_t begin,
                   int64_t count, float *block);

#endif
