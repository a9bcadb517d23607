/* The folder that a run leaves: resolved deck, log, metrics.csv, epochs.csv, TensorBoard events,
 * checkpoints/, result.json. Only rank 0 makes and writes it; checkpoints follow checkpoint.h. */
#ifndef VITTRAIN_CHECKPOINT_RUN_FOLDER_H
#define VITTRAIN_CHECKPOINT_RUN_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/comm.h"
#include "config/option_types.h"
#include "mesh/mesh.h"

struct options;

struct run_folder {
    char path[OPTION_TEXT];
    char checkpoints[OPTION_TEXT + 16];
    bool resuming;          /* it holds checkpoints of this run, which will be gone on with */
    int64_t finished_steps; /* of the finished run that it tells of (result.json); -1: of none */
    bool locked;            /* by this process (rank 0's): a second run is kept out */
    int lock;               /* descriptor of the lock */
};

/* Collective. Decides and makes the folder, tries to write there, and begins the log. Which folder:
 * run.dir, if given. A folder that holds a run
 * is gone on with, but with checkpoint.resume=never it is an error; else, with
 * checkpoint.resume=auto, the newest runs/NAME-DATE that has checkpoints but no result.json and an
 * equal deck (options that may change on the way are not compared); else a new runs/NAME-DATE, DATE
 * being YYYYmmdd-HHMMSS and, where that is taken, -2, -3, ... A folder that another running job
 * holds is an error, and is passed over in the search. On nodes with private disks the folder is
 * made on each. */
bool run_folder_open(struct run_folder *folder, struct mesh *mesh, const struct options *options,
                     struct error *error);

/* Is this the name of a folder of the runs of that name, NAME-DATE? */
bool run_folder_is_of(const char *folder, const char *name);

/* Saves the options as deck.ini. Rank 0, when it is sure that the run begins: until then the deck
 * of the run that is there stays. */
bool run_folder_save_deck(const struct run_folder *folder, const struct options *options,
                          struct error *error);

/* Lets go of the folder; local. Nothing for a folder that was never opened (all zero). */
void run_folder_close(struct run_folder *folder);

/* Writes text to FOLDER/NAME through a .part file and rename. Rank 0. */
bool run_folder_write(const struct run_folder *folder, const char *name, const char *text,
                      struct error *error);

#endif
