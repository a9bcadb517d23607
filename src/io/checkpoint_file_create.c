/* Makes the frame of a checkpoint file: everything in it but the numbers of the vectors and the
 * table of pieces, for which it leaves space. One rank does this with HDF5's plain POSIX driver;
 * then all ranks write into the space with pwrite. HDF5's own way to write in parallel, over
 * MPI-IO, does not come back from a full disk and is not faster (docs/checkpoint.md). In this file
 * format (HDF5 1.8 and later) all metadata carry sums; the tables that are plain data get a CRC32C
 * as an attribute. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memfd_create, SEEK_DATA */
#endif
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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
    bool good = write_attribute(file, "format", H5T_NATIVE_INT64, &format) &&
                write_text(file, "program", contents->program) &&
                write_text(file, "date", contents->date) &&
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
    /* the driver that takes a path which leads to no folder */
    hid_t file = access < 0 || H5Pset_fapl_stdio(access) < 0
                     ? -1
                     : H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    bool good = file >= 0 && write_frame(file, contents) && H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0;
    good = H5Fclose(file) >= 0 && good;
    H5Pclose(access);
    return good;
}

/* A file in memory with the frame; the space for vectors is a hole and takes none. HDF5 never
 * touches the disk: after a write that failed it may crash when the program ends. -1: failed. */
static int make_frame(const char *path, struct checkpoint_contents *contents, struct error *error)
{
    char name[64];
    int memory = memfd_create("checkpoint", MFD_CLOEXEC);
    if (memory < 0) {
        durable_failed(error, "make in memory", path, errno);
        return -1;
    }
    snprintf(name, sizeof name, "/proc/self/fd/%d", memory);
    struct format_errors errors;
    format_errors_begin(&errors);
    bool good = make_file(name, contents);
    if (format_errors_end(&errors) && good)
        return memory;
    error_set(error, ERROR_INTERNAL, "cannot make the frame of %s: %s", path, errors.reason);
    close(memory);
    return -1;
}

/* Copies what lies between holes. */
static bool copy_frame(int memory, int descriptor, const char *path, int64_t bytes,
                       struct error *error)
{
    char block[65536];
    off_t begin = 0, end;
    bool good = true;
    while (good && (begin = lseek(memory, begin, SEEK_DATA)) >= 0 && begin < bytes) {
        end = lseek(memory, begin, SEEK_HOLE); /* the file's end is one */
        for (; good && begin < end; begin += (off_t)sizeof block) {
            size_t count = (size_t)(end - begin);
            count = count < sizeof block ? count : sizeof block;
            good = durable_read(memory, path, block, count, begin, error) &&
                   durable_write(descriptor, path, block, count, begin, error);
        }
        begin = end;
    }
    if (good && begin < 0 && errno != ENXIO) /* which says that only a hole is left */
        good = durable_failed(error, "read the frame of", path, errno);
    return good;
}

/* More than the whole file takes. */
static int64_t expected_bytes(const struct checkpoint_contents *contents)
{
    int64_t bytes = (1 << 16) + (int64_t)strlen(contents->deck) +
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

static bool fill_file(int descriptor, const char *path, struct checkpoint_contents *contents,
                      struct error *error)
{
    struct stat frame;
    if (!durable_reserve(descriptor, path, expected_bytes(contents), error))
        return false;
    int memory = make_frame(path, contents, error);
    if (memory < 0)
        return false;
    bool good = fstat(memory, &frame) == 0 || durable_failed(error, "make", path, errno);
    contents->bytes = good ? (int64_t)frame.st_size : 0;
    good = good && copy_frame(memory, descriptor, path, contents->bytes, error);
    if (good && ftruncate(descriptor, contents->bytes) != 0)
        good = durable_failed(error, "cut", path, errno);
    close(memory);
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
