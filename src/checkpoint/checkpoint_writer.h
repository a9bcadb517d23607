/* Writes the checkpoints of a run: each at once, or in the background of the steps that follow. In
 * the background a rank first takes a snapshot of its parts, in the order of its device's stream;
 * then a thread of its own sums, writes and syncs them while the run goes on. The thread calls
 * neither MPI nor HDF5. What ranks do together is done by their main threads, at the steps where
 * all of them see that all are ready. A file has its final name only when it is whole, either way.
 */
#ifndef VITTRAIN_CHECKPOINT_CHECKPOINT_WRITER_H
#define VITTRAIN_CHECKPOINT_CHECKPOINT_WRITER_H

#include "checkpoint/checkpoint.h"

struct checkpoint_writer;

/* A checkpoint to be written; nothing of it is needed when start has returned. */
struct checkpoint_order {
    const char *name; /* of the file */
    const char *model_name;
    const struct training_state *state;
    const char *deck_text;
    bool best;    /* best.h5 shall lead to it, too; last.h5 does in any case */
    int64_t keep; /* for checkpoint_prune */
};

/* Bytes of the snapshot of the rank whose is the largest: its part of masters, moments and average.
 * Ranks that hold the same shard divide it, so all snapshots together are as large as the file. */
size_t checkpoint_snapshot_bytes(const struct flat_model *flat);

/* snapshot: pinned host memory (the caller's) of checkpoint_snapshot_bytes; NULL, or a target of
 * WRITERS_NODE0: everything is written at once. NULL and an error: no thread can be started. */
struct checkpoint_writer *checkpoint_writer_open(const struct checkpoint_target *target,
                                                 const struct flat_model *flat, float *snapshot,
                                                 struct error *error);

/* Collective. Begins a checkpoint, after the one before is complete: all ranks get an error where
 * that one or this one failed. What is written are the vectors as the stream has them now. */
bool checkpoint_writer_start(struct checkpoint_writer *writer, const struct checkpoint_order *order,
                             struct error *error);

/* Local. Is the thread of this rank at work? */
bool checkpoint_writer_is_busy(struct checkpoint_writer *writer);

/* Collective, once a step. busy: whether any rank was, when the step began. Where none was, does
 * what is due: false, on all ranks, where the one that is being written failed. */
bool checkpoint_writer_follow(struct checkpoint_writer *writer, bool busy, struct error *error);

/* Collective. Waits until what was begun is complete. */
bool checkpoint_writer_finish(struct checkpoint_writer *writer, struct error *error);

/* Seconds that callers spent in these functions so far, and how many of them in waiting for one
 * that was being written. */
void checkpoint_writer_times(const struct checkpoint_writer *writer, double *stood, double *waited);

/* Local. What was not finished is lost. NULL is allowed. */
void checkpoint_writer_close(struct checkpoint_writer *writer);

#endif
