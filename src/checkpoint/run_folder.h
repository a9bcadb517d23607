// SPDX-License-Identifier: BSD-3-Clause
/* The folder of a run: deck, log, metrics.csv, TensorBoard events, checkpoints/ and result.json.
 * Only rank 0 writes to it, except for checkpoints (checkpoint.h). */
#ifndef VITTRAIN_CHECKPOINT_RUN_FOLDER_H
#define VITTRAIN_CHECKPOINT_RUN_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/comm.h"
#include "mesh/mesh.h"
#include "options/option_types.h"

struct options;

struct run_folder {
    char path[OPTION_TEXT];
    char checkpoints[OPTION_TEXT + 16];
    bool resuming;          /* it has checkpoints on disk */
    int64_t finished_steps; /* steps of the finished run in it (result.json); -1: none */
    bool fresh;             /* it had no files of a run */
    bool locked;            /* by this process (rank 0) against a second run */
    int lock;               /* descriptor of the lock file */
};

/* Collective. Choose and create the folder, check that it is writable, and start the log file.
 * - run.dir, if given. If it holds a run, that run is resumed; with checkpoint.resume=never this is
 *   an error. It is also an error if another job uses the folder.
 * - Else, with checkpoint.resume=auto, the newest runs/NAME-DATE that has checkpoints or may
 *   have some in memory, is not finished, is used by no other job, and has an equal deck (except
 * for options that may change between attempts).
 * - Else a new folder runs/NAME-DATE; DATE is YYYYmmdd-HHMMSS, followed by -2, -3, ... if needed.
 * A damaged result.json is renamed, with a warning; one of a newer version is an error. If nodes do
 * not share the disk, the folder is created on each node. */
MUST_CHECK bool run_folder_open(struct run_folder *folder, struct mesh *mesh,
                                const struct options *options, struct error *error);

/* Not collective. True if a run with these options may find a checkpoint from which it resumes. */
bool run_folder_may_resume(const struct options *options);

/* `format` in result.json, which is the version of the folder (docs/outputs.md). */
enum { RUN_FORMAT = 2 };

/* Not collective. Return the number of steps in result.json; -1 if the file is missing or damaged,
 * or if the run is not finished. */
int64_t run_folder_finished_steps(const char *folder);

/* Rank 0. Save the options as deck.ini. */
MUST_CHECK bool run_folder_save_deck(const struct run_folder *folder, const struct options *options,
                                     struct error *error);

/* Rank 0. Write into .lock that an attempt is running, as run_folder_open does, or has ended
 * without an error: "attempt 2 ended" (docs/outputs.md). */
void run_folder_mark(const struct run_folder *folder, bool ended);

/* Not collective. Release the lock. Does nothing for a folder that is all zero. */
void run_folder_close(struct run_folder *folder);

/* Rank 0. Write text to FOLDER/NAME through a .part file and rename. */
MUST_CHECK bool run_folder_write(const struct run_folder *folder, const char *name,
                                 const char *text, struct error *error);

#endif
