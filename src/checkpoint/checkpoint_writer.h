// SPDX-License-Identifier: BSD-3-Clause
/* Writes the checkpoints of a run, in the foreground or in the background of the next steps. In the
 * background a rank first copies its pieces to a snapshot, in the order of its device's stream.
 * Then a thread computes checksums, writes and syncs while training continues. The thread calls
 * neither MPI nor HDF5: the main threads do, at steps where all ranks know that all threads are
 * idle. */
#ifndef VITTRAIN_CHECKPOINT_CHECKPOINT_WRITER_H
#define VITTRAIN_CHECKPOINT_CHECKPOINT_WRITER_H

#include "checkpoint/checkpoint.h"

struct checkpoint_writer;

/* Collective. Write the file in the foreground, without links. On failure older files are
 * untouched, the part is removed and all ranks get the error. */
MUST_CHECK bool checkpoint_write(const struct checkpoint_target *target,
                                 const struct flat_model *flat,
                                 const struct checkpoint_order *order, struct error *error);

/* Size in bytes of the largest snapshot of any rank. All snapshots together are as large as the
 * file, since ranks that hold the same shard divide it. */
size_t checkpoint_snapshot_bytes(const struct flat_model *flat);

/* snapshot: pinned host memory of checkpoint_snapshot_bytes, owned by the caller. If it is NULL, or
 * target->writers is WRITERS_NODE0, all checkpoints are written in the foreground. Returns NULL and
 * sets the error if the thread cannot be started. */
struct checkpoint_writer *checkpoint_writer_open(const struct checkpoint_target *target,
                                                 const struct flat_model *flat, float *snapshot,
                                                 struct error *error);

/* Collective. Wait until the previous checkpoint is complete, then start this one. All ranks get an
 * error if either failed. Writes the state as of the current position of the stream. */
MUST_CHECK bool checkpoint_writer_start(struct checkpoint_writer *writer,
                                        const struct checkpoint_order *order, struct error *error);

/* Not collective. True while this rank's thread works. writer may be NULL. */
bool checkpoint_writer_is_busy(struct checkpoint_writer *writer);

/* True on all ranks while a checkpoint is incomplete. */
bool checkpoint_writer_is_writing(const struct checkpoint_writer *writer);

/* True on all ranks while a checkpoint of the best evaluation is incomplete. */
bool checkpoint_writer_writes_best(const struct checkpoint_writer *writer);

/* Collective, once per step. busy: true if any rank's thread was busy when the step began. If none
 * was, do the next stage of the checkpoint. Returns false on all ranks if the checkpoint failed.
 * writer may be NULL. */
MUST_CHECK bool checkpoint_writer_follow(struct checkpoint_writer *writer, bool busy,
                                         struct error *error);

/* Collective. Wait until the checkpoint that was started is complete. */
MUST_CHECK bool checkpoint_writer_finish(struct checkpoint_writer *writer, struct error *error);

/* Seconds that training was blocked in these functions so far, and the part of them that it waited
 * for a checkpoint in the background. */
void checkpoint_writer_times(const struct checkpoint_writer *writer, double *blocked,
                             double *waited);

/* Not collective. Discards an unfinished checkpoint. writer may be NULL. */
void checkpoint_writer_close(struct checkpoint_writer *writer);

#endif
