/* Names and types in a checkpoint file, shared by what writes its frame and what reads it; and
 * HDF5's errors as one line. Private to the checkpoint. */
#ifndef VITTRAIN_IO_CHECKPOINT_FORMAT_H
#define VITTRAIN_IO_CHECKPOINT_FORMAT_H

#include <hdf5.h>

#include "io/checkpoint_file.h"

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
hid_t format_text_type(size_t size);
hid_t format_number_type(enum format_type type); /* not to be closed */

/* Access properties for both ways. */
hid_t format_file_access(void);

/* HDF5 prints nothing from the first begin on; of a failure between begin and end the innermost
 * reason is kept. */
enum { FORMAT_REASON = 256 };

struct format_errors {
    char reason[FORMAT_REASON];
};

void format_errors_begin(struct format_errors *errors);

/* false: some call failed since begin. That is looked at and not only the results, as closing, too,
 * can fail to write. */
bool format_errors_end(struct format_errors *errors);

#endif
