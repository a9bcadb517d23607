/* The steps of writing one checkpoint, which both ways share: at once (checkpoint_write.c) and in
 * the background (checkpoint_writer.c). Private to the checkpoint. */
#ifndef VITTRAIN_CHECKPOINT_CHECKPOINT_WRITING_H
#define VITTRAIN_CHECKPOINT_CHECKPOINT_WRITING_H

#include <limits.h>

#include "checkpoint/checkpoint_file.h"
#include "comm/comm.h"

struct checkpoint_writing {
    const struct flat_model *flat;
    struct comm *world;
    bool by_all; /* each rank writes; else rank 0 for everybody */
    char part[PATH_MAX], final[PATH_MAX];
    struct checkpoint_contents contents;
    int *owner;     /* [piece_count]: the rank that holds and sums the piece */
    int descriptor; /* of the part; -1: this rank does not write */
};

/* Collective. Plans the file, makes its frame as NAME.part (rank 0, HDF5) and opens it where it is
 * written. Give it to checkpoint_writing_end in any case. */
bool checkpoint_writing_begin(struct checkpoint_writing *writing,
                              const struct checkpoint_target *target, const char *name,
                              const struct flat_model *flat, const char *model_name,
                              const struct training_state *state, const char *deck_text,
                              struct error *error);

/* Collective. All ranks get the sums of all pieces. */
void checkpoint_writing_gather_sums(struct checkpoint_writing *writing);

/* Rank 0, local: the tables of pieces. */
bool checkpoint_writing_put_tables(const struct checkpoint_writing *writing, struct error *error);

/* Local: closes the part where it is open. */
bool checkpoint_writing_close(struct checkpoint_writing *writing, struct error *error);

/* Local: frees all; of what failed rank 0 removes the part. */
void checkpoint_writing_end(struct checkpoint_writing *writing, bool good);

#endif
