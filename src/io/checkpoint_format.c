/* Names and types in a checkpoint file. All numbers are stored as the machine has them, so that the
 * vectors can be written and read without HDF5; HDF5 notes the byte order, and a machine of the
 * other kind refuses the file when it reads it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* syscall */
#endif
#include "io/checkpoint_format.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

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

hid_t format_text_type(size_t size)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    if (type >= 0 && H5Tset_size(type, size) < 0) {
        H5Tclose(type);
        return -1;
    }
    return type;
}

static bool add_member(hid_t compound, const char *name, size_t offset, hid_t type)
{
    return H5Tinsert(compound, name, offset, type) >= 0;
}

hid_t format_tensor_row_type(void)
{
    hsize_t dimensions = TENSOR_DIMENSIONS;
    hid_t integer = H5T_NATIVE_INT64;
    hid_t name = format_text_type(TENSOR_NAME);
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

hid_t format_file_access(void)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    bool good = access >= 0 && H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V18) >= 0 &&
                H5Pset_alignment(access, 4096, 4096) >= 0;
#if H5_VERSION_GE(1, 10, 7)
    /* Some network file systems have no locks. One run owns a folder, so none are needed. */
    good = good && H5Pset_file_locking(access, false, true) >= 0;
#endif
    if (good)
        return access;
    H5Pclose(access);
    return -1;
}

static herr_t keep_innermost(unsigned depth, const H5E_error2_t *entry, void *data)
{
    struct format_errors *errors = data;
    if (depth == 0)
        snprintf(errors->reason, sizeof errors->reason, "%s",
                 entry->desc != NULL ? entry->desc : "HDF5 gives no reason");
    return 0;
}

static herr_t keep_first(hid_t stack, void *data)
{
    struct format_errors *errors = data;
    if (errors->reason[0] == '\0')
        H5Ewalk2(stack, H5E_WALK_UPWARD, keep_innermost, errors);
    return 0;
}

void format_errors_begin(struct format_errors *errors)
{
    ENSURE((pid_t)syscall(SYS_gettid) == getpid(),
           "HDF5 is called by another than the main thread");
    errors->reason[0] = '\0';
    H5Eset_auto2(H5E_DEFAULT, keep_first, errors);
}

bool format_errors_end(struct format_errors *errors)
{
    /* It stays silent: it loses count of what is open when a file is damaged, and would say so at
     * the end of the program. */
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    if (errors->reason[0] == '\0')
        return true;
    for (char *c = errors->reason; *c != '\0'; c++)
        if (*c == '\n')
            *c = ' ';
    return false;
}
