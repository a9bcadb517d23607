/* Makes the frame of a checkpoint file: everything in it but the numbers of the vectors and the
 * table of pieces, for which it leaves space. One rank does this with HDF5's plain POSIX driver;
 * then all ranks write into the space with pwrite. HDF5's own way to write in parallel, over
 * MPI-IO, does not come back from a full disk and is not faster (docs/checkpoint.md). In this file
 * format (HDF5 1.8 and later) all metadata carry sums; the tables that are plain data get a CRC32C
 * as an attribute. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/checkpoint_format.h"
#include "core/durable.h"

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
    hid_t type = format_tensor_row_type();
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
    hid_t piece = format_piece_type();
    bool good = group >= 0 && piece >= 0 && write_tensors(group, unit) &&
                hdf5_space_leave(group, "pieces", piece, 1, &pieces, &layout->table_offset);
    for (enum vector_kind kind = 0; good && kind < VECTOR_KINDS; kind++) {
        layout->offset[kind] = -1;
        if (checkpoint_has(contents, kind))
            good = hdf5_space_leave(group, vector_name[kind], H5T_NATIVE_FLOAT, 1, &count,
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
    for (int n = 0; good && n < format_number_count; n++)
        good = hdf5_attribute_write(file, format_numbers[n].name,
                                    format_number_type(format_numbers[n].type),
                                    (const char *)contents + format_numbers[n].offset);
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
    if (good && contents->algorithms != NULL)
        good = write_text(file, "algorithms", contents->algorithms);
    for (int64_t unit = 0; good && unit < contents->unit_count; unit++)
        good = make_unit(units, contents, unit);
    H5Gclose(units);
    return good;
}

/* More than the whole file takes. */
static int64_t expected_bytes(const struct checkpoint_contents *contents)
{
    int64_t bytes = (1 << 16) + (int64_t)strlen(contents->deck) +
                    contents->piece_count * (int64_t)sizeof(struct checkpoint_piece);
    if (contents->algorithms != NULL)
        bytes += (int64_t)strlen(contents->algorithms) + 4096;
    for (int64_t u = 0; u < contents->unit_count; u++) {
        const struct unit *unit = &contents->units[u];
        bytes += 16384 + unit->tensor_count * (int64_t)sizeof(struct tensor_row);
        for (enum vector_kind kind = 0; kind < VECTOR_KINDS; kind++)
            if (checkpoint_has(contents, kind))
                bytes += unit->count * (int64_t)sizeof(float) + 4096;
    }
    return bytes;
}

static bool fill_file(int descriptor, const char *path, struct checkpoint_contents *contents,
                      struct error *error)
{
    if (!durable_reserve(descriptor, path, expected_bytes(contents), error))
        return false;
    int frame = hdf5_frame_make(path, write_frame, contents, &contents->bytes, error);
    if (frame < 0)
        return false;
    bool good = hdf5_frame_copy(frame, descriptor, path, contents->bytes, error);
    close(frame);
    return good;
}

bool checkpoint_file_create(const char *path, struct checkpoint_contents *contents,
                            struct error *error)
{
    int descriptor = durable_create(path, error);
    if (descriptor < 0)
        return false;
    bool good = fill_file(descriptor, path, contents, error);
    return durable_close(descriptor, path, error) && good;
}
