/* Names and types in a checkpoint file, shared by what writes its frame and what reads it. Private
 * to the checkpoint. */
#ifndef VITTRAIN_CHECKPOINT_CHECKPOINT_FORMAT_H
#define VITTRAIN_CHECKPOINT_CHECKPOINT_FORMAT_H

#include "checkpoint/checkpoint_file.h"
#include "core/hdf5_file.h"

/* A row of the table `tensors` of a unit. */
struct tensor_row {
    char name[TENSOR_NAME];
    int64_t dimensions, shape[TENSOR_DIMENSIONS];
    int64_t offset, count; /* elements, in the unit's vectors */
    int64_t kind;          /* enum tensor_kind */
};

enum format_type { FORMAT_INTEGER, FORMAT_UNSIGNED, FORMAT_REAL };

/* A number that is an attribute of the root; where it lies in struct checkpoint_contents. */
struct format_number {
    const char *name;
    enum format_type type;
    size_t offset;
    int64_t since; /* the format that had it first; in an older file it is 0 */
};

extern const struct format_number format_numbers[];
extern const int format_number_count;

/* New types, to be closed by the caller; negative when HDF5 failed. */
hid_t format_tensor_row_type(void);
hid_t format_piece_type(void);
hid_t format_number_type(enum format_type type); /* not to be closed */

#endif
