// SPDX-License-Identifier: BSD-3-Clause
/* Checkpoints: one HDF5 file each, written by all ranks to NAME.part, synced and renamed, so a file
 * with its final name is complete. Each unit is a group with one vector for its parameters, each
 * moment and the EMA; attributes hold the rest of the training state. A checkpoint can be read on
 * any mesh. Layout: docs/checkpoint.md. A process calls HDF5 only from its main thread.
 * This file: the training state, and the folder of checkpoints. */
#ifndef VITTRAIN_CHECKPOINT_CHECKPOINT_H
#define VITTRAIN_CHECKPOINT_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "config/option_types.h"
#include "core/error.h"
#include "mesh/flat.h"

/* Older formats can be read, too: 1 has no loss scale, 1 and 2 have no description of the data. */
enum { CHECKPOINT_FORMAT = 3, CHECKPOINT_FORMAT_OLDEST = 1 };

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
    bool finished;
};

/* The state of a run before its first step. */
struct training_state training_state_begin(int64_t global_batch, uint64_t seed);

struct options;

struct checkpoint_target {
    const char *directory;         /* of the checkpoints; with NODE0 used by rank 0 only */
    enum writers_choice writers;   /* WRITERS_ALL or WRITERS_NODE0; checkpoint_read also accepts
                                    * WRITERS_AUTO */
    const char *model;             /* model.name that a file must have to be read; NULL: any */
    int64_t before;                /* checkpoint_find: only steps below this; 0: all */
    const struct options *options; /* optim.name that moments must have; NULL: any */
    bool verified;                 /* checkpoint_read: checkpoint_find or memory_find has verified
                                    * the checksums of the file */
};

/* A checkpoint to write. Its pointers are not used after checkpoint_write or
 * checkpoint_writer_start. */
struct checkpoint_order {
    const char *name; /* of the file */
    const char *model_name;
    const struct training_state *state;
    const char *deck_text;
    const char *metadata; /* JSON (model_metadata.h), or NULL */
    const char *data;     /* JSON (train/resume.h), or NULL */
    bool best;            /* also point best.h5 to it; last.h5 always is */
    int64_t keep;         /* for checkpoint_prune */
};

/* Collective. Find the newest valid checkpoint of a directory (by step, then time) and set path.
 * `report` gets one line for each file that was skipped, with the reason. Returns false without an
 * error if there is no valid checkpoint. ERROR_MEMORY if a file cannot be checked on this machine:
 * an older checkpoint is then not taken instead. */
MUST_CHECK bool checkpoint_find(const struct checkpoint_target *target, struct comm *world,
                                char *path, size_t size, char *report, size_t report_size,
                                struct error *error);

/* Collective. The highest N of the files step-N.h5 in the directory, or -1. */
int64_t checkpoint_newest_step(const struct checkpoint_target *target, struct comm *world);

/* Not collective; rank 0, after a checkpoint was written. Point the link last.h5, and best.h5 if
 * `best`, to it; then call checkpoint_prune. */
MUST_CHECK bool checkpoint_publish(const char *directory, const char *name, bool best,
                                   int64_t best_step, int64_t keep, struct error *error);

/* Not collective; rank 0, before it writes the first checkpoint. Point last.h5 to the newest file
 * up to `step`, and best.h5 to that of best_step, if they exist. A run that was killed after it
 * renamed a checkpoint has older links. Remove all .part files. */
MUST_CHECK bool checkpoint_links_restore(const char *directory, int64_t step, int64_t best_step,
                                         struct error *error);

/* Not collective. Remove the oldest step-*.h5 files except the newest `keep` (0: keep all), that of
 * best_step, those that a link points to and those that another process reads (weights_file_hold).
 * Remove all .part files: a directory belongs to one run, and the run calls this only while it
 * writes none. */
void checkpoint_prune(const char *directory, int64_t best_step, int64_t keep);

/* Collective. Decide WRITERS_AUTO: WRITERS_ALL if the directory, which must exist on rank 0's node,
 * is the same on all nodes. Fails if rank 0 cannot create a file there. */
MUST_CHECK bool checkpoint_probe(const char *directory, struct comm *world,
                                 enum writers_choice asked, enum writers_choice *decided,
                                 struct error *error);

#endif
