// SPDX-License-Identifier: BSD-3-Clause
/* One checkpoint file while it is written: NAME.part, which is renamed when it is complete. */
#ifndef VITTRAIN_CHECKPOINT_CHECKPOINT_PART_H
#define VITTRAIN_CHECKPOINT_CHECKPOINT_PART_H

#include <limits.h>

#include "checkpoint/checkpoint_file.h"
#include "comm/comm.h"

struct checkpoint_part {
    const struct flat_model *flat;
    struct comm *world;
    bool by_all; /* each rank writes; else rank 0 writes for all */
    char path[PATH_MAX], final_path[PATH_MAX];
    struct checkpoint_contents contents;
    int *owner;     /* [piece_count]: the rank that holds the piece and computes its checksum */
    int descriptor; /* of the part; -1: not open on this rank */
};

/* Collective. Set `contents` and `owner` without creating a file. They are the same on all ranks,
 * except the names of algorithms. */
void checkpoint_part_plan(struct checkpoint_part *part, const struct flat_model *flat,
                          const struct checkpoint_order *order);

/* Collective. Plan the file, create its frame (rank 0, HDF5) and open it on rank 0 and on the ranks
 * that write pieces. Always call checkpoint_part_end, also on failure. */
MUST_CHECK bool checkpoint_part_begin(struct checkpoint_part *part,
                                      const struct checkpoint_target *target,
                                      const struct flat_model *flat,
                                      const struct checkpoint_order *order, struct error *error);

/* Collective. Combine the checksums that the ranks computed, on all ranks. */
void checkpoint_part_gather_sums(struct checkpoint_part *part);

/* Rank 0, not collective. Write the tables of pieces. */
MUST_CHECK bool checkpoint_part_put_tables(const struct checkpoint_part *part, struct error *error);

/* Not collective. Close the file if it is open. */
MUST_CHECK bool checkpoint_part_close(struct checkpoint_part *part, struct error *error);

/* Not collective. Free everything; if not `good`, rank 0 removes the file. */
void checkpoint_part_end(struct checkpoint_part *part, bool good);

#endif
