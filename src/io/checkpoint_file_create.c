/* Makes the frame of a checkpoint file: everything in it but the numbers of the vectors and the
 * table of pieces, for which it leaves space. One rank does this with HDF5's plain POSIX driver;
 * then all ranks write into the space with pwrite. HDF5's own way to write in parallel, over
 * MPI-IO, does not come back from a full disk and is not faster (docs/checkpoint.md). In this file
 * format (HDF5 1.8 and later) all metadata carry sums; the tables that are plain data get a CRC32C
 * as an attribute. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "config.h"
#include "core/clock.h"
#include "core/crc32c.h"
#include "io/checkpoint_format.h"
#include "io/durable.h"

static bool write_attribute(hid_t object, const char *name, hid_t type, const void *value)
{
    hid_t space = H5Screate(H5S_SCALAR);
    hid_t attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    bool good = attribute >= 0 && H5Awrite(attribute, type, value) >= 0;
    H5Aclose(attribute);
    H5Sclose(space);
    return good;
}

static bool write_text(hid_t object, const char *name, const char *text)
{
    hid_t type = format_text_type(strlen(text) + 1);
    bool good = type >= 0 && write_attribute(object, name, type, text);
    H5Tclose(type);
    return good;
}

/* A data set of one dimension (rows < 0: of none) whose space is taken from the file now, so that
 * its offset is known. */
static hid_t make_dataset(hid_t group, const char *name, hid_t type, int64_t rows)
{
    hsize_t extent = (hsize_t)rows;
    hid_t space = rows < 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &extent, NULL);
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    hid_t dataset = -1;
    if (space >= 0 && creation >= 0 && H5Pset_layout(creation, H5D_CONTIGUOUS) >= 0 &&
        H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY) >= 0 &&
        H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER) >= 0 &&
        H5Pset_obj_track_times(creation, false) >= 0)
        dataset = H5Dcreate2(group, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    H5Pclose(creation);
    H5Sclose(space);
    return dataset;
}

/* Space for rows that are written later without HDF5; *offset: where in the file. */
static bool leave_space(hid_t group, const char *name, hid_t type, int64_t rows, int64_t *offset)
{
    hid_t dataset = make_dataset(group, name, type, rows);
    haddr_t address = dataset < 0 ? HADDR_UNDEF : H5Dget_offset(dataset);
    *offset = (int64_t)address;
    H5Dclose(dataset);
    return address != HADDR_UNDEF;
}

/* A table with its sum. */
static bool write_table(hid_t group, const char *name, hid_t type, int64_t rows, const void *data)
{
    size_t bytes = H5Tget_size(type) * (size_t)(rows < 0 ? 1 : rows);
    uint32_t crc = crc32c_update(0, data, bytes);
    hid_t dataset = make_dataset(group, name, type, rows);
    bool good = dataset >= 0 && H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0 &&
                write_attribute(dataset, "crc32c", H5T_NATIVE_UINT32, &crc);
    H5Dclose(dataset);
    return good;
}

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
    bool good = type >= 0 && write_table(group, "tensors", type, unit->tensor_count, rows);
    H5Tclose(type);
    free(rows);
    return good;
}

/* A group whose members are listed in the order in which they were made. */
static hid_t make_group(hid_t parent, const char *name)
{
    hid_t creation = H5Pcreate(H5P_GROUP_CREATE);
    hid_t group = -1;
    if (creation >= 0 &&
        H5Pset_link_creation_order(creation, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED) >= 0 &&
        H5Pset_obj_track_times(creation, false) >= 0)
        group = H5Gcreate2(parent, name, H5P_DEFAULT, creation, H5P_DEFAULT);
    H5Pclose(creation);
    return group;
}

static bool make_unit(hid_t units, const struct checkpoint_contents *contents, int64_t number)
{
    const struct unit *unit = &contents->units[number];
    struct checkpoint_layout *layout = &contents->layout[number];
    hid_t group = make_group(units, unit->name);
    hid_t piece = format_piece_type();
    bool good = group >= 0 && piece >= 0 && write_tensors(group, unit) &&
                leave_space(group, "pieces", piece, layout->piece_count, &layout->table_offset);
    for (enum vector_kind kind = 0; good && kind < VECTOR_KINDS; kind++) {
        layout->offset[kind] = -1;
        if (checkpoint_has(contents, kind))
            good = leave_space(group, vector_name[kind], H5T_NATIVE_FLOAT, unit->count,
                               &layout->offset[kind]);
    }
    H5Tclose(piece);
    H5Gclose(group);
    return good;
}

static bool write_attributes(hid_t file, const struct checkpoint_contents *contents)
{
    int64_t format = CHECKPOINT_FORMAT;
    char date[64];
    clock_stamp(date, sizeof date);
    bool good = write_attribute(file, "format", H5T_NATIVE_INT64, &format) &&
                write_text(file, "program", PACKAGE_STRING) && write_text(file, "date", date) &&
                write_text(file, "model", contents->model) &&
                write_text(file, "compute", contents->compute);
    for (int n = 0; good && n < format_number_count; n++)
        good = write_attribute(file, format_numbers[n].name,
                               format_number_type(format_numbers[n].type),
                               (const char *)contents + format_numbers[n].offset);
    return good;
}

static bool write_frame(hid_t file, struct checkpoint_contents *contents)
{
    hid_t text = format_text_type(strlen(contents->deck) + 1);
    hid_t units = make_group(file, "units");
    bool good = text >= 0 && units >= 0 && write_attributes(file, contents) &&
                write_table(file, "deck", text, -1, contents->deck);
    for (int64_t unit = 0; good && unit < contents->unit_count; unit++)
        good = make_unit(units, contents, unit);
    H5Gclose(units);
    H5Tclose(text);
    return good;
}

static bool make_file(const char *path, struct checkpoint_contents *contents)
{
    hid_t access = format_file_access();
    hid_t file = access < 0 ? -1 : H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    bool good = file >= 0 && write_frame(file, contents);
    good = H5Fclose(file) >= 0 && good;
    H5Pclose(access);
    return good;
}

/* Before HDF5 writes anything: it does not recover well from a full disk. */
static bool try_space(const char *path, int64_t bytes, struct error *error)
{
    int descriptor = durable_create(path, error);
    if (descriptor < 0)
        return false;
    bool good = durable_reserve(descriptor, path, bytes, error);
    return durable_close(descriptor, path, error) && good;
}

/* HDF5 left holes where the vectors will be: now they get their blocks. */
static bool fill_holes(const char *path, int64_t *bytes, struct error *error)
{
    int descriptor = durable_open(path, error);
    if (descriptor < 0)
        return false;
    struct stat file;
    bool good = fstat(descriptor, &file) == 0 || durable_failed(error, "examine", path, errno);
    *bytes = good ? (int64_t)file.st_size : 0;
    good = good && durable_reserve(descriptor, path, *bytes, error);
    return durable_close(descriptor, path, error) && good;
}

/* More than the frame takes. */
static int64_t expected_bytes(const struct checkpoint_contents *contents)
{
    int64_t bytes = (1 << 20) + (int64_t)strlen(contents->deck) +
                    contents->piece_count * (int64_t)sizeof(struct checkpoint_piece);
    for (int64_t u = 0; u < contents->unit_count; u++) {
        const struct unit *unit = &contents->units[u];
        bytes += 16384 + unit->tensor_count * (int64_t)sizeof(struct tensor_row);
        for (enum vector_kind kind = 0; kind < VECTOR_KINDS; kind++)
            if (checkpoint_has(contents, kind))
                bytes += unit->count * (int64_t)sizeof(float) + 4096;
    }
    return bytes;
}

bool checkpoint_file_create(const char *path, struct checkpoint_contents *contents,
                            struct error *error)
{
    if (!try_space(path, expected_bytes(contents), error))
        return false;
    struct format_errors errors;
    format_errors_begin(&errors);
    bool good = make_file(path, contents);
    format_errors_end(&errors);
    if (!good)
        return error_set(error, ERROR_FILE, "cannot make the checkpoint %s: %s", path,
                         errors.reason);
    return fill_holes(path, &contents->bytes, error);
}
