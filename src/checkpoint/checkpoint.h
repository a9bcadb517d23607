/* Checkpoints: one HDF5 file, written by all ranks into NAME.part, synced, renamed: a file with its
 * final name is whole. A group per unit holds the tensors of masters, moments and averages as one
 * vector each, with the CRC32C of each piece as written; attributes hold the rest. Loads on any
 * mesh. Layout: docs/checkpoint.md. A process calls HDF5 from its main thread alone. */
#ifndef VITTRAIN_CHECKPOINT_CHECKPOINT_H
#define VITTRAIN_CHECKPOINT_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "config/run_options.h"
#include "core/error.h"
#include "mesh/flat.h"

/* Format 1 is read, too: it has no loss scale. */
enum { CHECKPOINT_FORMAT = 2, CHECKPOINT_FORMAT_OLDEST = 1 };

/* All that a run needs besides tensors to go on bit for bit. */
struct training_state {
    int64_t step;       /* optimizer steps done */
    int64_t epoch;      /* the epoch that is running or comes next */
    int64_t epoch_step; /* steps done in it */
    int64_t global_batch;
    uint64_t seed;
    double best_metric; /* of checkpoint.monitor; NAN: none yet */
    int64_t best_step;
    int64_t evaluations_without_gain; /* early stopping */
    double plateau_rate_factor, plateau_best;
    int64_t plateau_bad;
    double epoch_loss_sum, epoch_top1_sum, epoch_top5_sum, epoch_samples; /* of the epoch so far */
    double train_seconds, without_setup_seconds, total_seconds; /* over all parts of the run */
    int64_t parts;                                              /* how often it was started */
    double loss_scale; /* of fp16; 0: computing in another type */
    int64_t loss_scale_good_steps, skipped_steps;
    bool finished;
};

/* Of a run that has done nothing yet. */
struct training_state training_state_begin(int64_t global_batch, uint64_t seed);

struct checkpoint_target {
    const char *directory;       /* of the checkpoints; looked at on rank 0 only with NODE0 */
    enum writers_choice writers; /* decided: WRITERS_ALL or WRITERS_NODE0; AUTO for
                                  * checkpoint_read alone, which finds out */
    const char *model;           /* registry name that a file to be read must carry; NULL: any */
};

/* Collective. Writes directory/NAME at once (a run does so by checkpoint_writer.h); on failure the
 * older files are untouched, the part is removed and all ranks get the error. */
bool checkpoint_write(const struct checkpoint_target *target, const char *name,
                      const struct flat_model *flat, const char *model_name,
                      const struct training_state *state, const char *deck_text,
                      struct error *error);

/* Collective. Reads state and tensors into flat (masters, moments, average) whatever mesh wrote it;
 * checks format, model, names, shapes and sums before anything in flat changes. The device adopts
 * the algorithms in the file (device.h: choices_adopt).
 * weights_only: neither moments nor state nor algorithms are needed (evaluation, model.init),
 * `state` may be NULL; where flat keeps an average and the file has none, it starts at the masters.
 */
bool checkpoint_read(const char *path, const struct checkpoint_target *target,
                     struct flat_model *flat, struct training_state *state, bool weights_only,
                     struct error *error);

/* Collective. The state alone, from the file's frame; sums of tensors are not looked at. */
bool checkpoint_read_state(const char *path, struct comm *world, struct training_state *state,
                           struct error *error);

/* Collective. The deck saved in a checkpoint (caller frees), for eval and predict. */
bool checkpoint_read_deck(const char *path, struct comm *world, char **deck_text,
                          struct error *error);

/* Collective. The newest good checkpoint of a directory (by step, then time): path gets its name,
 * `report` one line for each file that was passed over and why. False and no error: there is none.
 */
bool checkpoint_find(const struct checkpoint_target *target, struct comm *world, char *path,
                     size_t size, char *report, size_t report_size, struct error *error);

/* Collective. The highest N of the directory's step-N.h5; -1: there is none. */
int64_t checkpoint_newest_step(const struct checkpoint_target *target, struct comm *world);

/* What follows a checkpoint, for rank 0 alone, not collective. The links last.h5 and, of the best
 * so far, best.h5 lead to it, in the place of what had that name; then checkpoint_prune. */
bool checkpoint_publish(const char *directory, const char *name, bool best, int64_t keep,
                        struct error *error);

/* Removes the oldest step-*.h5 files so that the newest `keep` remain (0: all), and those to which
 * a link points. Removes .part files, which only dead runs leave: one run at a time owns a
 * directory, and what it writes itself has its name by then. */
void checkpoint_prune(const char *directory, int64_t keep);

/* Collective: is this directory (it must exist on rank 0's node) one and the same on all nodes, and
 * do writing and renaming work there? Decides WRITERS_AUTO. */
bool checkpoint_probe(const char *directory, struct mesh *mesh, enum writers_choice asked,
                      enum writers_choice *decided, struct error *error);

#endif
