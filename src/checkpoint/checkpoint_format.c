// SPDX-License-Identifier: BSD-3-Clause
/* The checkpoint's HDF5 types and its table of numbers. */
#include "checkpoint/checkpoint_format.h"

#include <float.h>
#include <stdio.h>

#include "core/hdf5_file.h"

/* clang-format off */
#define STATE(name, type, ...) \
    {#name, NUMBER_##type, offsetof(struct checkpoint_contents, state.name), 1, false, __VA_ARGS__}
#define STATE_2(name, type, ...) \
    {#name, NUMBER_##type, offsetof(struct checkpoint_contents, state.name), 2, false, __VA_ARGS__}
#define STATE_ANY(name, type) \
    {#name, NUMBER_##type, offsetof(struct checkpoint_contents, state.name), 1, true, 0, 0}
#define NUMBER(name, least, most) \
    {#name, NUMBER_INTEGER, offsetof(struct checkpoint_contents, name), 1, false, least, most}
#define COUNT 0, 9007199254740992.0 /* 2^53: int64_t and double represent it */
#define SECONDS -1, 1e12            /* a difference of clocks may be slightly negative */

const struct checkpoint_number checkpoint_numbers[CHECKPOINT_NUMBERS] = {
    STATE(step, INTEGER, COUNT),
    STATE(epoch, INTEGER, COUNT),
    STATE(epoch_step, INTEGER, COUNT),
    STATE(global_batch, INTEGER, COUNT),
    STATE_ANY(seed, UNSIGNED),
    STATE_ANY(best_metric, REAL),
    STATE(best_step, INTEGER, COUNT),
    STATE(evaluations_without_gain, INTEGER, COUNT),
    STATE(plateau_rate_factor, REAL, 0, DBL_MAX),
    STATE_ANY(plateau_best, REAL),
    STATE(plateau_bad, INTEGER, COUNT),
    STATE(epoch_loss_sum, REAL, -DBL_MAX, DBL_MAX),
    STATE(epoch_top1_sum, REAL, COUNT),
    STATE(epoch_top5_sum, REAL, COUNT),
    STATE(epoch_samples, REAL, COUNT),
    STATE(train_seconds, REAL, SECONDS),
    STATE(without_setup_seconds, REAL, SECONDS),
    STATE(total_seconds, REAL, SECONDS),
    STATE(parts, INTEGER, 0, INT32_MAX),
    STATE_2(loss_scale, REAL, 0, DBL_MAX),
    STATE_2(loss_scale_good_steps, INTEGER, COUNT),
    STATE_2(skipped_steps, INTEGER, COUNT),
    NUMBER(finished, 0, 1),
    NUMBER(moments, 0, 2),
    NUMBER(averaged, 0, 1),
    NUMBER(replica, 1, CHECKPOINT_MOST_RANKS),
    NUMBER(shard, 1, CHECKPOINT_MOST_RANKS),
};
/* clang-format on */

/* A new field of the state needs an entry above and a new format number. */
_Static_assert(sizeof(struct training_state) == 23 * 8, "struct training_state has changed");

hid_t checkpoint_number_type(enum number_type type)
{
    switch (type) {
    case NUMBER_INTEGER:
        return H5T_NATIVE_INT64;
    case NUMBER_UNSIGNED:
        return H5T_NATIVE_UINT64;
    default:
        return H5T_NATIVE_DOUBLE;
    }
}

hid_t checkpoint_tensor_row_type(void)
{
    hsize_t dimensions = TENSOR_DIMENSIONS;
    hid_t integer = H5T_NATIVE_INT64;
    hid_t name = hdf5_text_type(TENSOR_NAME);
    hid_t shape = H5Tarray_create2(integer, 1, &dimensions);
    hid_t row = H5Tcreate(H5T_COMPOUND, sizeof(struct tensor_row));
    bool good =
        name >= 0 && shape >= 0 && row >= 0 &&
        H5Tinsert(row, "name", offsetof(struct tensor_row, name), name) >= 0 &&
        H5Tinsert(row, "dimensions", offsetof(struct tensor_row, dimensions), integer) >= 0 &&
        H5Tinsert(row, "shape", offsetof(struct tensor_row, shape), shape) >= 0 &&
        H5Tinsert(row, "offset", offsetof(struct tensor_row, offset), integer) >= 0 &&
        H5Tinsert(row, "count", offsetof(struct tensor_row, count), integer) >= 0 &&
        H5Tinsert(row, "kind", offsetof(struct tensor_row, kind), integer) >= 0;
    H5Tclose(name);
    H5Tclose(shape);
    if (good)
        return row;
    H5Tclose(row);
    return -1;
}

hid_t checkpoint_piece_type(void)
{
    _Static_assert(sizeof(struct checkpoint_piece) == 32, "rows of the table have no padding");
    hid_t row = H5Tcreate(H5T_COMPOUND, sizeof(struct checkpoint_piece));
    bool good =
        row >= 0 &&
        H5Tinsert(row, "begin", offsetof(struct checkpoint_piece, begin), H5T_NATIVE_INT64) >= 0 &&
        H5Tinsert(row, "count", offsetof(struct checkpoint_piece, count), H5T_NATIVE_INT64) >= 0;
    for (enum state_kind kind = 0; good && kind < STATE_KINDS; kind++) {
        char name[32];
        snprintf(name, sizeof name, "crc32c_%s", state_name[kind]);
        size_t offset = offsetof(struct checkpoint_piece, crc) + (size_t)kind * sizeof(uint32_t);
        good = H5Tinsert(row, name, offset, H5T_NATIVE_UINT32) >= 0;
    }
    if (good)
        return row;
    H5Tclose(row);
    return -1;
}
