// SPDX-License-Identifier: BSD-3-Clause
/* The frame of a checkpoint file. One rank writes the frame with HDF5's POSIX driver; then
 * all ranks write the vectors with pwrite, since HDF5's parallel driver (MPI-IO) hangs on a full
 * disk and is not faster (docs/checkpoint.md). In the file format of HDF5 1.8 all metadata have
 * checksums; tables and texts have a CRC32C as an attribute. Numbers are stored in native byte
 * order, and a machine of the other byte order refuses the file. */
#include "checkpoint/checkpoint_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/checkpoint_check.h"
#include "checkpoint/checkpoint_format.h"
#include "checkpoint/checkpoint_frame.h"
#include "checkpoint/checkpoint_message.h"
#include "config.h"
#include "core/clock.h"
#include "core/crc32c.h"
#include "core/durable.h"
#include "core/hdf5_file.h"
#include "core/subprocess.h"

enum {
    WRITER_ALIGNMENT = 1024 /* elements: writers begin at multiples of 4 KiB of their shard */
};

void checkpoint_contents_open(struct checkpoint_contents *contents, const struct unit *units,
                              int unit_count, const char *model, const char *compute,
                              const char *deck)
{
    size_t count = (size_t)unit_count;
    *contents = (struct checkpoint_contents){.deck = strdup(deck),
                                             .units = calloc(count, sizeof *contents->units),
                                             .units_borrowed = true,
                                             .unit_count = unit_count,
                                             .layout = calloc(count, sizeof *contents->layout)};
    ENSURE(contents->deck != NULL && contents->units != NULL && contents->layout != NULL,
           "no memory for a checkpoint's plan");
    snprintf(contents->model, sizeof contents->model, "%s", model);
    snprintf(contents->compute, sizeof contents->compute, "%s", compute);
    snprintf(contents->program, sizeof contents->program, "%s", PACKAGE_STRING);
    clock_stamp(contents->date, sizeof contents->date);
    memcpy(contents->units, units, count * sizeof *units);
    for (size_t u = 0; u < count; u++) {
        snprintf(contents->layout[u].name, TENSOR_NAME, "%s", units[u].name);
        contents->layout[u].count = units[u].count;
    }
}

bool checkpoint_has(const struct checkpoint_contents *contents, enum state_kind kind)
{
    switch (kind) {
    case STATE_PARAMETER:
        return true;
    case STATE_MOMENT1:
        return contents->moments >= 1;
    case STATE_MOMENT2:
        return contents->moments >= 2;
    default:
        return contents->averaged != 0;
    }
}

int64_t checkpoint_piece_offset(const struct checkpoint_contents *contents, int64_t u,
                                enum state_kind kind, int64_t p)
{
    return contents->layout[u].offset[kind] + contents->pieces[p].begin * (int64_t)sizeof(float);
}

/* The first element of writer `number` of `writers` in a shard of this length. */
static int64_t writer_begin(int64_t length, int64_t number, int64_t writers)
{
    if (number == writers)
        return length;
    return length * number / writers / WRITER_ALIGNMENT * WRITER_ALIGNMENT;
}

void checkpoint_range(const struct checkpoint_contents *contents, int64_t u, int64_t shard,
                      int64_t replica, int64_t *begin, int64_t *end)
{
    int64_t count = contents->units[u].count;
    int64_t length = flat_shard_count(count, (int)contents->shard);
    int64_t first = shard * length;
    if (length > count - first)
        length = count > first ? count - first : 0;
    *begin = first + writer_begin(length, replica, contents->replica);
    *end = first + writer_begin(length, replica + 1, contents->replica);
}

/* ---- create ---- */

static bool write_tensors(hid_t group, const struct unit *unit)
{
    struct tensor_row *rows = calloc((size_t)unit->tensor_count, sizeof *rows);
    if (rows == NULL)
        return false;
    for (int t = 0; t < unit->tensor_count; t++) {
        const struct unit_tensor *tensor = &unit->tensors[t];
        snprintf(rows[t].name, sizeof rows[t].name, "%s", tensor->name);
        rows[t].dimensions = tensor->dimensions;
        for (int d = 0; d < tensor->dimensions; d++)
            rows[t].shape[d] = tensor->shape[d];
        rows[t].offset = tensor->offset;
        rows[t].count = tensor->count;
        rows[t].kind = tensor->kind;
    }
    hid_t type = checkpoint_tensor_row_type();
    bool good = type >= 0 && hdf5_table_write(group, "tensors", type, unit->tensor_count, rows);
    H5Tclose(type);
    free(rows);
    return good;
}

static bool make_unit(hid_t units, const struct checkpoint_contents *contents, int64_t number)
{
    const struct unit *unit = &contents->units[number];
    struct checkpoint_layout *layout = &contents->layout[number];
    hsize_t pieces = (hsize_t)layout->piece_count, count = (hsize_t)unit->count;
    hid_t group = hdf5_group_make(units, unit->name);
    hid_t piece = checkpoint_piece_type();
    bool good = group >= 0 && piece >= 0 && write_tensors(group, unit) &&
                hdf5_space_leave(group, "pieces", piece, 1, &pieces, &layout->table_offset);
    for (enum state_kind kind = 0; good && kind < STATE_KINDS; kind++) {
        layout->offset[kind] = -1;
        if (checkpoint_has(contents, kind))
            good = hdf5_space_leave(group, state_name[kind], H5T_NATIVE_FLOAT, 1, &count,
                                    &layout->offset[kind]);
    }
    H5Tclose(piece);
    H5Gclose(group);
    return good;
}

static bool write_attributes(hid_t file, const struct checkpoint_contents *contents)
{
    int64_t format = CHECKPOINT_FORMAT;
    bool good = hdf5_attribute_write(file, "format", H5T_NATIVE_INT64, &format) &&
                hdf5_text_write(file, "program", contents->program) &&
                hdf5_text_write(file, "date", contents->date) &&
                hdf5_text_write(file, "model", contents->model) &&
                hdf5_text_write(file, "compute", contents->compute);
    for (int n = 0; good && n < CHECKPOINT_NUMBERS; n++) {
        const struct checkpoint_number *number = &checkpoint_numbers[n];
        good = hdf5_attribute_write(file, number->name, checkpoint_number_type(number->type),
                                    (const char *)contents + number->offset);
    }
    return good;
}

static bool write_text(hid_t file, const char *name, const char *text)
{
    hid_t type = hdf5_text_type(strlen(text) + 1);
    bool good = type >= 0 && hdf5_table_write(file, name, type, -1, text);
    H5Tclose(type);
    return good;
}

static bool write_frame(hid_t file, void *context)
{
    struct checkpoint_contents *contents = context;
    hid_t units = hdf5_group_make(file, "units");
    bool good =
        units >= 0 && write_attributes(file, contents) && write_text(file, "deck", contents->deck);
    if (good && contents->metadata != NULL)
        good = write_text(file, "metadata", contents->metadata);
    if (good && contents->data != NULL)
        good = write_text(file, "data", contents->data);
    if (good && contents->algorithms != NULL)
        good = write_text(file, "algorithms", contents->algorithms);
    for (int64_t unit = 0; good && unit < contents->unit_count; unit++)
        good = make_unit(units, contents, unit);
    H5Gclose(units);
    return good;
}

/* Upper bound of the file's size. */
static int64_t expected_bytes(const struct checkpoint_contents *contents)
{
    int64_t bytes = (1 << 16) + (int64_t)strlen(contents->deck) +
                    contents->piece_count * (int64_t)sizeof(struct checkpoint_piece);
    if (contents->metadata != NULL)
        bytes += (int64_t)strlen(contents->metadata) + 4096;
    if (contents->data != NULL)
        bytes += (int64_t)strlen(contents->data) + 4096;
    if (contents->algorithms != NULL)
        bytes += (int64_t)strlen(contents->algorithms) + 4096;
    for (int64_t u = 0; u < contents->unit_count; u++) {
        const struct unit *unit = &contents->units[u];
        bytes += 16384 + unit->tensor_count * (int64_t)sizeof(struct tensor_row);
        for (enum state_kind kind = 0; kind < STATE_KINDS; kind++)
            if (checkpoint_has(contents, kind))
                bytes += unit->count * (int64_t)sizeof(float) + 4096;
    }
    return bytes;
}

bool checkpoint_file_create(const char *path, struct checkpoint_contents *contents,
                            struct error *error)
{
    int descriptor = durable_create(path, error);
    if (descriptor < 0)
        return false;
    int frame = durable_reserve(descriptor, path, expected_bytes(contents), error)
                    ? hdf5_frame_make(path, write_frame, contents, &contents->bytes, error)
                    : -1;
    bool good = frame >= 0 && hdf5_frame_copy(frame, descriptor, path, contents->bytes, error);
    if (frame >= 0)
        close(frame);
    return durable_close(descriptor, path, error) && good;
}

/* ---- read ---- */

/* Check that the file is a regular file and not empty, for clearer messages than HDF5's. */
static bool examine(const char *path, int64_t *bytes, struct error *error)
{
    struct stat file;
    /* O_NONBLOCK: opening a FIFO must not block. */
    int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0 || fstat(descriptor, &file) != 0) {
        durable_unreadable(error, path, errno);
        if (descriptor >= 0)
            close(descriptor);
        return false;
    }
    close(descriptor);
    *bytes = (int64_t)file.st_size;
    if (!S_ISREG(file.st_mode))
        return error_set(error, ERROR_CHECKPOINT, "cannot read %s: it is not a file", path);
    if (file.st_size == 0)
        return error_set(error, ERROR_CHECKPOINT, "%s is empty", path);
    return true;
}

/* Read the frame in a child process, since a damaged file can crash HDF5 or keep it busy. */
static bool read_in_child(const char *path, struct checkpoint_contents *contents,
                          struct error *error)
{
    const char *const words[] = {CHECKPOINT_READ_FRAME, path, NULL};
    struct subprocess child;
    struct error theirs = {.kind = ERROR_NONE};
    if (!subprocess_start(&child, words, error))
        return false;
    bool whole = checkpoint_message_receive(&child, contents, &theirs);
    if (!subprocess_end(&child, whole, path, ERROR_CHECKPOINT, error))
        return false;
    return theirs.kind == ERROR_NONE || error_set(error, ERROR_CHECKPOINT, "%s", theirs.text);
}

bool checkpoint_file_read(const char *path, struct checkpoint_contents *contents,
                          struct error *error)
{
    int64_t bytes;
    memset(contents, 0, sizeof *contents);
    if (!examine(path, &bytes, error))
        return false;
    contents->bytes = bytes;
    bool good = subprocess_has_program() ? read_in_child(path, contents, error)
                                         : checkpoint_frame_read(path, contents, error);
    contents->bytes = bytes;
    return good && checkpoint_check(path, contents, error);
}

bool checkpoint_piece_read(int descriptor, const char *path,
                           const struct checkpoint_contents *contents, int64_t u, int64_t p,
                           enum state_kind kind, float *block, struct error *error)
{
    const struct checkpoint_piece *piece = &contents->pieces[p];
    size_t bytes = (size_t)piece->count * sizeof(float);
    int64_t offset = checkpoint_piece_offset(contents, u, kind, p);
    if (!durable_read(descriptor, path, block, bytes, offset, error))
        return false;
    if (crc32c_update(0, block, bytes) == piece->crc[kind])
        return true;
    return error_set(
        error, ERROR_CHECKPOINT,
        "%s is damaged: the checksum of bytes %lld to %lld is wrong (%s of unit %s); use "
        "another checkpoint",
        path, (long long)offset, (long long)offset + (long long)bytes - 1, state_name[kind],
        contents->layout[u].name);
}

void checkpoint_contents_free(struct checkpoint_contents *contents)
{
    for (int64_t unit = 0; !contents->units_borrowed && unit < contents->unit_count; unit++)
        if (contents->units != NULL)
            free(contents->units[unit].tensors);
    free(contents->units);
    free(contents->layout);
    free(contents->pieces);
    free(contents->deck);
    free(contents->metadata);
    free(contents->data);
    free(contents->algorithms);
    memset(contents, 0, sizeof *contents);
}
