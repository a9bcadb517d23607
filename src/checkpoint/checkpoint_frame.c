// SPDX-License-Identifier: BSD-3-Clause
/* HDF5 parses the frame of a checkpoint. A damaged file can crash it, so the program calls this in
 * a child process (checkpoint_file_read). */
#include "checkpoint/checkpoint_frame.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/checkpoint_format.h"
#include "core/crc32c.h"
#include "core/hdf5_file.h"

struct reading {
    struct checkpoint_contents *contents;
    char fault[HDF5_REASON]; /* first fault that was found; empty if only HDF5 reported one */
    const char *unit;        /* unit in which reading failed, or NULL */
};

__attribute__((format(printf, 2, 3))) static bool fault(struct reading *reading, const char *format,
                                                        ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (reading->fault[0] == '\0')
        vsnprintf(reading->fault, sizeof reading->fault, format, arguments);
    va_end(arguments);
    return false;
}

static bool read_attributes(hid_t file, struct reading *reading)
{
    struct checkpoint_contents *contents = reading->contents;
    int64_t format;
    if (!hdf5_number_read(file, "format", H5T_NATIVE_INT64, &format))
        return fault(reading, "it is an HDF5 file, but not a checkpoint of vittrain");
    if (format < CHECKPOINT_FORMAT_OLDEST || format > CHECKPOINT_FORMAT)
        return fault(reading, "its format is %lld, this program reads %d to %d", (long long)format,
                     CHECKPOINT_FORMAT_OLDEST, CHECKPOINT_FORMAT);
    contents->format = format;
    bool good = hdf5_text_read(file, "model", contents->model, sizeof contents->model) &&
                hdf5_text_read(file, "compute", contents->compute, sizeof contents->compute) &&
                hdf5_text_read(file, "program", contents->program, sizeof contents->program) &&
                hdf5_text_read(file, "date", contents->date, sizeof contents->date);
    for (int n = 0; good && n < CHECKPOINT_NUMBERS; n++) {
        const struct checkpoint_number *number = &checkpoint_numbers[n];
        if (format >= number->since)
            good = hdf5_number_read(file, number->name, checkpoint_number_type(number->type),
                                    (char *)contents + number->offset);
    }
    contents->state.finished = contents->finished != 0;
    return good;
}

/* Find the offset and the number of rows of a contiguous data set of this type. */
static bool find_dataset(struct reading *reading, hid_t dataset, hid_t type, int64_t *rows,
                         int64_t *offset)
{
    hid_t stored = H5Dget_type(dataset);
    hid_t space = H5Dget_space(dataset);
    hssize_t points = space < 0 ? -1 : H5Sget_simple_extent_npoints(space);
    haddr_t address = H5Dget_offset(dataset);
    bool good = stored >= 0 && points >= 1 && H5Tequal(stored, type) > 0;
    int64_t row = good ? (int64_t)H5Tget_size(type) : 1;
    if (!good)
        fault(reading, "a data set has an unexpected type");
    else if (address == HADDR_UNDEF || (int64_t)address > reading->contents->bytes ||
             points > (reading->contents->bytes - (int64_t)address) / row)
        good = fault(reading, "a data set is outside the file");
    *rows = points;
    *offset = (int64_t)address;
    H5Sclose(space);
    H5Tclose(stored);
    return good;
}

/* Read a table into new memory and verify its CRC32C. Return NULL on failure. */
static void *read_table(struct reading *reading, hid_t group, const char *name, hid_t type,
                        int64_t *rows)
{
    int64_t offset;
    uint32_t expected;
    hid_t dataset = hdf5_dataset_open(group, name);
    void *data = NULL;
    if (dataset >= 0 && find_dataset(reading, dataset, type, rows, &offset) &&
        hdf5_number_read(dataset, "crc32c", H5T_NATIVE_UINT32, &expected)) {
        size_t bytes = H5Tget_size(type) * (size_t)*rows;
        data = malloc(bytes);
        bool good =
            data != NULL && H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0;
        if (good && crc32c_update(0, data, bytes) != expected)
            good = fault(reading, "the checksum of its table '%s' is wrong: the file is damaged",
                         name);
        if (!good) {
            free(data);
            data = NULL;
        }
    }
    H5Dclose(dataset);
    return data;
}

/* Read a text into new memory and verify its CRC32C. Return NULL on failure. */
static char *read_text(hid_t file, struct reading *reading, const char *name)
{
    hid_t dataset = hdf5_dataset_open(file, name);
    hid_t type = dataset < 0 ? -1 : H5Dget_type(dataset);
    int64_t rows;
    bool good = type >= 0 && H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0;
    char *text = good ? read_table(reading, file, name, type, &rows) : NULL;
    if (text != NULL)
        text[H5Tget_size(type) * (size_t)rows - 1] = '\0';
    H5Tclose(type);
    H5Dclose(dataset);
    return text;
}

/* Set *text if the file has it. Return false if it cannot be read. */
static bool read_optional(hid_t file, struct reading *reading, const char *name, char **text)
{
    const htri_t exists = H5Lexists(file, name, H5P_DEFAULT);
    if (exists > 0)
        *text = read_text(file, reading, name);
    return exists == 0 || *text != NULL;
}

static bool read_texts(hid_t file, struct reading *reading)
{
    struct checkpoint_contents *contents = reading->contents;
    contents->deck = read_text(file, reading, "deck");
    return contents->deck != NULL &&
           read_optional(file, reading, "metadata", &contents->metadata) &&
           read_optional(file, reading, "data", &contents->data) &&
           read_optional(file, reading, "algorithms", &contents->algorithms);
}

static bool tensor_parse(struct unit_tensor *tensor, const struct tensor_row *row)
{
    if (memchr(row->name, '\0', sizeof row->name) == NULL || row->dimensions < 0 ||
        row->dimensions > TENSOR_DIMENSIONS || row->offset < 0 || row->count < 0 ||
        row->offset > INT64_MAX - row->count)
        return false;
    memcpy(tensor->name, row->name, sizeof tensor->name);
    tensor->dimensions = (int)row->dimensions;
    memcpy(tensor->shape, row->shape, sizeof tensor->shape);
    tensor->offset = row->offset;
    tensor->count = row->count;
    tensor->kind = row->kind == TENSOR_STATE ? TENSOR_STATE : TENSOR_PARAMETER;
    return true;
}

static bool read_tensors(hid_t group, struct reading *reading, struct unit *unit)
{
    int64_t rows = 0;
    hid_t type = checkpoint_tensor_row_type();
    struct tensor_row *row = type < 0 ? NULL : read_table(reading, group, "tensors", type, &rows);
    H5Tclose(type);
    bool good = row != NULL && rows < INT32_MAX;
    if (good)
        unit->tensors = calloc((size_t)rows, sizeof *unit->tensors);
    good = good && unit->tensors != NULL;
    for (int64_t t = 0; good && t < rows; t++) {
        good = tensor_parse(&unit->tensors[t], &row[t]) ||
               fault(reading, "the table of tensors of unit %s is invalid", unit->name);
        unit->tensor_count++;
    }
    free(row);
    return good;
}

static bool read_pieces(hid_t group, struct reading *reading, struct checkpoint_layout *layout)
{
    struct checkpoint_contents *contents = reading->contents;
    hid_t dataset = hdf5_dataset_open(group, "pieces");
    hid_t type = checkpoint_piece_type();
    layout->first_piece = contents->piece_count;
    bool good = dataset >= 0 && type >= 0 &&
                find_dataset(reading, dataset, type, &layout->piece_count, &layout->table_offset);
    if (good) {
        size_t total = (size_t)(contents->piece_count + layout->piece_count);
        struct checkpoint_piece *grown = realloc(contents->pieces, total * sizeof *grown);
        good = grown != NULL;
        if (good) {
            contents->pieces = grown;
            contents->piece_count = (int64_t)total;
            good = H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                           grown + layout->first_piece) >= 0;
        }
    }
    H5Tclose(type);
    H5Dclose(dataset);
    return good;
}

static bool find_vector(hid_t group, struct reading *reading, enum state_kind kind,
                        struct checkpoint_layout *layout)
{
    int64_t count = 0;
    hid_t dataset = hdf5_dataset_open(group, state_name[kind]);
    bool good = dataset >= 0 &&
                find_dataset(reading, dataset, H5T_NATIVE_FLOAT, &count, &layout->offset[kind]);
    H5Dclose(dataset);
    if (kind == STATE_PARAMETER)
        layout->count = count;
    if (good && count != layout->count)
        good = fault(reading, "vectors of one unit differ in length");
    return good;
}

static bool read_unit(hid_t units, struct reading *reading, int64_t number)
{
    struct checkpoint_contents *contents = reading->contents;
    struct unit *unit = &contents->units[number];
    struct checkpoint_layout *layout = &contents->layout[number];
    ssize_t length =
        H5Lget_name_by_idx(units, ".", H5_INDEX_CRT_ORDER, H5_ITER_INC, (hsize_t)number, unit->name,
                           sizeof unit->name, H5P_DEFAULT);
    if (length < 0 || length >= (ssize_t)sizeof unit->name)
        return false;
    memcpy(layout->name, unit->name, sizeof layout->name);
    hid_t group = H5Gopen2(units, unit->name, H5P_DEFAULT);
    bool good =
        group >= 0 && read_tensors(group, reading, unit) && read_pieces(group, reading, layout);
    for (enum state_kind kind = 0; good && kind < STATE_KINDS; kind++) {
        layout->offset[kind] = -1;
        if (checkpoint_has(contents, kind))
            good = find_vector(group, reading, kind, layout);
    }
    unit->count = layout->count;
    H5Gclose(group);
    reading->unit = good ? NULL : unit->name;
    return good;
}

static bool read_units(hid_t file, struct reading *reading)
{
    struct checkpoint_contents *contents = reading->contents;
    H5G_info_t info = {.nlinks = 0};
    hid_t units = H5Gopen2(file, "units", H5P_DEFAULT);
    bool good = units >= 0 && H5Gget_info(units, &info) >= 0 && info.nlinks > 0;
    if (good) {
        contents->units = calloc(info.nlinks, sizeof *contents->units);
        contents->layout = calloc(info.nlinks, sizeof *contents->layout);
        contents->unit_count = (int64_t)info.nlinks;
        good = contents->units != NULL && contents->layout != NULL;
    }
    for (int64_t unit = 0; good && unit < contents->unit_count; unit++)
        good = read_unit(units, reading, unit);
    H5Gclose(units);
    return good;
}

/* Set reading->fault from HDF5's message, unless a fault was found before. */
static void explain(struct reading *reading, const char *reason)
{
    int64_t bytes, needed;
    if (hdf5_is_cut(reason, &bytes, &needed))
        fault(reading, "it is truncated: it has %lld of its %lld bytes", (long long)bytes,
              (long long)needed);
    else if (reading->unit != NULL)
        fault(reading, "unit %s: %s", reading->unit,
              reason[0] != '\0' ? reason : "an object is missing");
    else
        fault(reading, "%s", reason[0] != '\0' ? reason : "an object is missing");
}

bool checkpoint_frame_read(const char *path, struct checkpoint_contents *contents,
                           struct error *error)
{
    struct reading reading = {.contents = contents};
    struct hdf5_errors errors;
    hdf5_errors_begin(&errors);
    hid_t file = hdf5_file_open(path);
    bool good = file >= 0 && read_attributes(file, &reading) && read_texts(file, &reading) &&
                read_units(file, &reading);
    H5Fclose(file);
    if (hdf5_errors_end(&errors) && good)
        return true;
    explain(&reading, errors.reason);
    return error_set(error, ERROR_CHECKPOINT, "%s cannot be used as a checkpoint: %s", path,
                     reading.fault);
}
