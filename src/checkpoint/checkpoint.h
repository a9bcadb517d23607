// SPDX-License-Identifier: BSD-3-Clause
/* Checkpoints: one HDF5 file each, written by all ranks to NAME.part, synced and renamed, so a file
 * with its final name is complete. Each unit is a group with one vector for its parameters, each
 * moment and the EMA; attributes hold the rest of the training state. A checkpoint can be read on
 * any mesh. Layout: docs/checkpoint.md. A process calls HDF5 only from its main thread.
 * This file: the training state, the folder of checkpoints, reading and writing. */
#ifndef VITTRAIN_CHECKPOINT_CHECKPOINT_H
#define VITTRAIN_CHECKPOINT_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "checkpoint/checkpoint_name.h"
#include "mesh/flat.h"
#include "options/option_types.h"

/* Format 2 of version 0.2 can be read, too. It has no description of the data. */
enum { CHECKPOINT_FORMAT = 3, CHECKPOINT_FORMAT_OLDEST = 2 };

/* Everything that a run needs besides the model's state to resume bit for bit. */
struct training_state {
    int64_t step;       /* optimizer steps done */
    int64_t epoch;      /* current or next epoch */
    int64_t epoch_step; /* steps done in it */
    int64_t global_batch;
    uint64_t seed;
    double best_metric; /* of checkpoint.monitor; NAN: none yet */
    int64_t best_step;
    int64_t evaluations_without_gain; /* early stopping */
    double plateau_rate_factor, plateau_best;
    int64_t plateau_bad;
    /* Sums over the current epoch; with epoch_step 0 over the last one. */
    double epoch_loss_sum, epoch_top1_sum, epoch_top5_sum, epoch_samples;
    double train_seconds, without_setup_seconds, total_seconds; /* sums over all attempts */
    int64_t parts;                                              /* attempts: starts of the run */
    double loss_scale;                                          /* of fp16; 0 for other types */
    int64_t loss_scale_good_steps, skipped_steps;
    int64_t finished; /* 0 or 1 */
};

/* The state of a run before its first step. */
struct training_state training_state_begin(int64_t global_batch, uint64_t seed);

struct options;
struct comm;

struct checkpoint_target {
    const char *directory;         /* of the checkpoints; with NODE0 only rank 0 reads and writes */
    enum writers_choice writers;   /* WRITERS_ALL or WRITERS_NODE0; checkpoint_read also accepts
                                    * WRITERS_AUTO */
    int64_t before;                /* checkpoint_find: only steps below this; 0: all */
    const struct options *options; /* model.name that a file must have to be read, and optim.name
                                    * that its moments must have; NULL: any */
};

/* A checkpoint to write. Its pointers are not used after checkpoint_writer_start. */
struct checkpoint_order {
    const struct options *options; /* of the run; also checkpoint.keep */
    const struct training_state *state;
    const char *metadata; /* JSON (model_metadata.h), or NULL */
    const char *data;     /* JSON (train/trainer_checkpoint.c), or NULL */
    bool best;            /* also point best.h5 to it; last.h5 always is */
};

/* ---- the folder of checkpoints */

/* Collective. Find the newest valid one of the files step-N.h5 in the directory, by N, and set
 * path. Newer files, which are skipped, are logged. Returns false without an error if there is no
 * valid checkpoint. ERROR_MEMORY if a file cannot be checked on this machine: an older checkpoint
 * is then not taken instead. */
MUST_CHECK bool checkpoint_find(const struct checkpoint_target *target, struct comm *world,
                                char *path, size_t size, struct error *error);

/* Collective. The highest N of the files step-N.h5 in the directory, or -1. */
int64_t checkpoint_newest_step(const struct checkpoint_target *target, struct comm *world);

/* Not collective; rank 0, after the checkpoint of `step` was written. Point the link last.h5, and
 * best.h5 if `best`, to it; then call checkpoint_prune. */
MUST_CHECK bool checkpoint_publish(const char *directory, int64_t step, bool best,
                                   int64_t best_step, int64_t keep, struct error *error);

/* Not collective; rank 0, before it writes the first checkpoint. Point last.h5 and best.h5 to the
 * files of these steps, if they exist. A run that was killed after it renamed a checkpoint has
 * older links. Remove all .part files. */
MUST_CHECK bool checkpoint_links_restore(const char *directory, int64_t step, int64_t best_step,
                                         struct error *error);

/* Not collective. Remove the oldest files step-N.h5 except the newest `keep` (0: keep all), that of
 * best_step, and those that last.h5 and best.h5 point to. Remove all .part files: a directory
 * belongs to one run, and the run calls this only while it writes none. */
void checkpoint_prune(const char *directory, int64_t best_step, int64_t keep);

/* Collective. Decide WRITERS_AUTO: WRITERS_ALL if the directory, which must exist on rank 0's node,
 * is the same on all nodes. Fails if rank 0 cannot create a file there. */
MUST_CHECK bool checkpoint_probe(const char *directory, struct comm *world,
                                 enum writers_choice asked, enum writers_choice *decided,
                                 struct error *error);

/* ---- reading */

/* Collective. Read the model's state into flat and the training state into *state. Format, model,
 * names and shapes are verified before flat changes, the checksum of each piece when it is read.
 * The device adopts the algorithms in the file (device.h: choices_adopt). weights_only (evaluation,
 * model.init): moments, training state and algorithms are skipped, and `state` may be NULL. If flat
 * keeps an EMA and the file has none, it is set to the parameters. */
MUST_CHECK bool checkpoint_read(const char *path, const struct checkpoint_target *target,
                                struct flat_model *flat, struct training_state *state,
                                bool weights_only, struct error *error);

/* Set the options from the deck of a checkpoint. An invalid deck is ERROR_CHECKPOINT. */
MUST_CHECK bool checkpoint_deck_parse(const char *text, const char *path, struct options *options,
                                      struct error *error);

/* ---- writing */

/* Writes the checkpoints of a run, in the foreground or in the background of the next steps. In the
 * background a rank first copies its shares to a snapshot, in the order of its device's stream.
 * Then a thread computes checksums, writes and syncs while training continues. The thread calls
 * neither MPI nor HDF5: the main threads do, at steps where all ranks know that all threads are
 * idle. */
struct checkpoint_writer;

/* The division of a checkpoint among the ranks, with WRITERS_ALL. A shard of at least 1 MiB (of one
 * vector) is divided among its replicas into ranges of at least 1 MiB. As many shorter shards as
 * fit in 1 MiB are one range: their ranks send them to one of these ranks. The ranges of all units
 * are assigned to the ranks in turn. A range is written in pieces of at most 4 MiB. */
struct checkpoint_division {
    int64_t pieces;        /* rows of all tables of pieces */
    int64_t writers;       /* ranks that write pieces */
    size_t snapshot_bytes; /* of the largest snapshot of any rank */
};

/* Not collective. The result is the same on all ranks. */
struct checkpoint_division checkpoint_divide(const struct flat_model *flat);

/* snapshot: pinned host memory of snapshot_bytes, owned by the caller. If it is NULL, or
 * target->writers is WRITERS_NODE0, all checkpoints are written in the foreground. */
struct checkpoint_writer *checkpoint_writer_open(const struct checkpoint_target *target,
                                                 const struct flat_model *flat, float *snapshot);

/* Collective. Wait until the previous checkpoint is complete, then start this one. All ranks get an
 * error if either failed. Writes the state as of the current position of the stream. */
MUST_CHECK bool checkpoint_writer_start(struct checkpoint_writer *writer,
                                        const struct checkpoint_order *order, struct error *error);

/* Not collective. True while this rank's thread works. writer may be NULL. */
bool checkpoint_writer_is_busy(const struct checkpoint_writer *writer);

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
