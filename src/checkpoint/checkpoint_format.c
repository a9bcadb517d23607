/* Names and types in a checkpoint file. All numbers are stored as the machine has them, so that the
 * vectors can be written and read without HDF5; HDF5 notes the byte order, and a machine of the
 * other kind refuses the file when it reads it. */
#include "checkpoint/checkpoint_format.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define STATE(name, type)                                                                          \
    {                                                                                              \
#name, type, offsetof(struct checkpoint_contents, state.name), 1                           \
    }
#define STATE_SINCE(format, name, type)                                                            \
    {                                                                                              \
#name, type, offsetof(struct checkpoint_contents, state.name), format                      \
    }
#define NUMBER(name, type)                                                                         \
    {                                                                                              \
#name, type, offsetof(struct checkpoint_contents, name), 1                                 \
    }

const struct format_number format_numbers[] = {
    STATE(step, FORMAT_INTEGER),
    STATE(epoch, FORMAT_INTEGER),
    STATE(epoch_step, FORMAT_INTEGER),
    STATE(global_batch, FORMAT_INTEGER),
    STATE(seed, FORMAT_UNSIGNED),
    STATE(best_metric, FORMAT_REAL),
    STATE(best_step, FORMAT_INTEGER),
    STATE(evaluations_without_gain, FORMAT_INTEGER),
    STATE(plateau_rate_factor, FORMAT_REAL),
    STATE(plateau_best, FORMAT_REAL),
    STATE(plateau_bad, FORMAT_INTEGER),
    STATE(epoch_loss_sum, FORMAT_REAL),
    STATE(epoch_top1_sum, FORMAT_REAL),
    STATE(epoch_top5_sum, FORMAT_REAL),
    STATE(epoch_samples, FORMAT_REAL),
    STATE(train_seconds, FORMAT_REAL),
    STATE(without_setup_seconds, FORMAT_REAL),
    STATE(total_seconds, FORMAT_REAL),
    STATE(parts, FORMAT_INTEGER),
    STATE_SINCE(2, loss_scale, FORMAT_REAL),
    STATE_SINCE(2, loss_scale_good_steps, FORMAT_INTEGER),
    STATE_SINCE(2, skipped_steps, FORMAT_INTEGER),
    NUMBER(finished, FORMAT_INTEGER),
    NUMBER(moments, FORMAT_INTEGER),
    NUMBER(averaged, FORMAT_INTEGER),
    NUMBER(replica, FORMAT_INTEGER),
    NUMBER(shard, FORMAT_INTEGER),
};
const int format_number_count = sizeof format_numbers / sizeof *format_numbers;

/* A field that is added to the state must be added to the list above (and the format's number goes
 * up). */
_Static_assert(sizeof(struct training_state) == 23 * 8, "struct training_state has changed");

hid_t format_number_type(enum format_type type)
{
    switch (type) {
    case FORMAT_INTEGER:
        return H5T_NATIVE_INT64;
    case FORMAT_UNSIGNED:
        return H5T_NATIVE_UINT64;
    default:
        return H5T_NATIVE_DOUBLE;
    }
}

static bool add_member(hid_t compound, const char *name, size_t offset, hid_t type)
{
    return H5Tinsert(compound, name, offset, type) >= 0;
}

hid_t format_tensor_row_type(void)
{
    hsize_t dimensions = TENSOR_DIMENSIONS;
    hid_t integer = H5T_NATIVE_INT64;
    hid_t name = hdf5_text_type(TENSOR_NAME);
    hid_t shape = H5Tarray_create2(integer, 1, &dimensions);
    hid_t row = H5Tcreate(H5T_COMPOUND, sizeof(struct tensor_row));
    bool good = name >= 0 && shape >= 0 && row >= 0 &&
                add_member(row, "name", offsetof(struct tensor_row, name), name) &&
                add_member(row, "dimensions", offsetof(struct tensor_row, dimensions), integer) &&
                add_member(row, "shape", offsetof(struct tensor_row, shape), shape) &&
                add_member(row, "offset", offsetof(struct tensor_row, offset), integer) &&
                add_member(row, "count", offsetof(struct tensor_row, count), integer) &&
                add_member(row, "kind", offsetof(struct tensor_row, kind), integer);
    H5Tclose(name);
    H5Tclose(shape);
    if (good)
        return row;
    H5Tclose(row);
    return -1;
}

hid_t format_piece_type(void)
{
    _Static_assert(sizeof(struct checkpoint_piece) == 32, "the table has no gaps");
    hid_t row = H5Tcreate(H5T_COMPOUND, sizeof(struct checkpoint_piece));
    bool good =
        row >= 0 &&
        add_member(row, "begin", offsetof(struct checkpoint_piece, begin), H5T_NATIVE_INT64) &&
        add_member(row, "count", offsetof(struct checkpoint_piece, count), H5T_NATIVE_INT64);
    for (enum vector_kind kind = 0; good && kind < VECTOR_KINDS; kind++) {
        char name[32];
        snprintf(name, sizeof name, "crc32c_%s", vector_name[kind]);
        size_t offset = offsetof(struct checkpoint_piece, crc) + (size_t)kind * sizeof(uint32_t);
        good = add_member(row, name, offset, H5T_NATIVE_UINT32);
    }
    if (good)
        return row;
    H5Tclose(row);
    return -1;
}
