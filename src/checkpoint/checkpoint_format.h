// SPDX-License-Identifier: BSD-3-Clause
/* The HDF5 types of a checkpoint's tables, and the numbers that are attributes of its root group,
 * each with its valid range. Shared by writer, reader and check. Layout: docs/checkpoint.md. */
#ifndef VITTRAIN_CHECKPOINT_CHECKPOINT_FORMAT_H
#define VITTRAIN_CHECKPOINT_CHECKPOINT_FORMAT_H

#include <hdf5.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/checkpoint_file.h"

/* A row of the table `tensors` of a unit. */
struct tensor_row {
    char name[TENSOR_NAME];
    int64_t dimensions, shape[TENSOR_DIMENSIONS];
    int64_t offset, count; /* elements, in the unit's vectors */
    int64_t kind;          /* enum tensor_kind */
};

enum number_type { NUMBER_INTEGER, NUMBER_UNSIGNED, NUMBER_REAL };

struct checkpoint_number {
    const char *name;
    enum number_type type;
    size_t offset;      /* in struct checkpoint_contents */
    int64_t since;      /* first format with this number; it is 0 for older files */
    bool any;           /* every value is valid */
    double least, most; /* valid range, unless `any` */
};

enum { CHECKPOINT_NUMBERS = 27, CHECKPOINT_MOST_RANKS = 1 << 20 };
extern const struct checkpoint_number checkpoint_numbers[CHECKPOINT_NUMBERS];

hid_t checkpoint_number_type(enum number_type type);

/* New HDF5 types of the rows of both tables; the caller closes them. Negative on failure. */
hid_t checkpoint_tensor_row_type(void);
hid_t checkpoint_piece_type(void);

#endif
