// SPDX-License-Identifier: BSD-3-Clause
/* HDF5 parses the header of a packed file. A damaged file can crash it, so the program calls this
 * in a child process (packed_message.c). */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/crc32c.h"
#include "core/hdf5_file.h"
#include "data/packed.h"

/* A file that is being read, and the problem found: one sentence, or empty if HDF5 failed. */
struct reading {
    struct packed_set *set;
    int64_t file, bytes;
    char wrong[HDF5_REASON];
};

__attribute__((format(printf, 2, 3))) static bool wrong(struct reading *reading, const char *format,
                                                        ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (reading->wrong[0] == '\0')
        vsnprintf(reading->wrong, sizeof reading->wrong, format, arguments);
    va_end(arguments);
    return false;
}

static bool read_number(hid_t object, const char *name, int64_t least, int64_t most, int64_t *value,
                        struct reading *reading)
{
    if (!hdf5_number_read(object, name, H5T_NATIVE_INT64, value))
        return wrong(reading, "its attribute '%s' is missing or not a number", name);
    return (*value >= least && *value <= most) ||
           wrong(reading, "its attribute '%s' is invalid: %lld", name, (long long)*value);
}

static bool read_kind(hid_t file, struct reading *reading)
{
    int64_t version;
    char kind[16];
    if (!hdf5_number_read(file, "packed", H5T_NATIVE_INT64, &version))
        return wrong(reading, "it is an HDF5 file, but not a packed data set of vittrain");
    if (version != PACKED_VERSION)
        return wrong(reading, "its format is %lld, this program supports %d", (long long)version,
                     PACKED_VERSION);
    if (!hdf5_text_read(file, "kind", kind, sizeof kind))
        return wrong(reading, "its attribute 'kind' is missing or not a text");
    reading->set->encoded = strcmp(kind, "encoded") == 0;
    return reading->set->encoded || strcmp(kind, "decoded") == 0 ||
           wrong(reading, "its kind is '%s', this program supports encoded and decoded", kind);
}

/* Decoded images have as many channels as the transform of images supports. */
static bool read_channels(hid_t file, struct reading *reading)
{
    int64_t *channels = &reading->set->channels;
    if (!read_number(file, "channels", 1, INT32_MAX, channels, reading))
        return false;
    if (reading->set->encoded)
        return *channels == 3 ||
               wrong(reading, "it has encoded images with channels=%lld, must be 3",
                     (long long)*channels);
    return *channels <= IMAGE_CHANNELS ||
           wrong(reading,
                 "its images have %lld channels, this program reads images with at most %d",
                 (long long)*channels, IMAGE_CHANNELS);
}

static bool read_attributes(hid_t file, struct reading *reading)
{
    struct packed_set *set = reading->set;
    const int64_t side = set->encoded ? 0 : 1, most_side = set->encoded ? 0 : PACKED_MOST_SIDE;
    int64_t number, shuffled;
    const bool good = read_channels(file, reading) &&
                      read_number(file, "height", side, most_side, &set->height, reading) &&
                      read_number(file, "width", side, most_side, &set->width, reading) &&
                      read_number(file, "files", 1, PACKED_MOST_FILES, &set->files, reading) &&
                      read_number(file, "file", 0, set->files - 1, &number, reading) &&
                      read_number(file, "shuffled", 0, 1, &shuffled, reading) &&
                      hdf5_text_read(file, "source", set->source, sizeof set->source) &&
                      hdf5_text_read(file, "program", set->program, sizeof set->program);
    set->shuffled = good && shuffled != 0;
    return good && (number == reading->file ||
                    wrong(reading, "it is file %lld of its set, but its name says %lld",
                          (long long)number, (long long)reading->file));
}

/* Return the position of a data set of this type and extent; its bytes must be contiguous and
 * inside the file. */
static bool find_dataset(hid_t group, const char *name, hid_t type, int dimensions,
                         const int64_t *extent, int64_t *offset, struct reading *reading)
{
    hsize_t found[4] = {0};
    hid_t dataset = hdf5_dataset_open(group, name);
    hid_t stored = dataset < 0 ? -1 : H5Dget_type(dataset);
    hid_t space = dataset < 0 ? -1 : H5Dget_space(dataset);
    bool good = stored >= 0 && space >= 0 && H5Tequal(stored, type) > 0 &&
                H5Sget_simple_extent_ndims(space) == dimensions &&
                H5Sget_simple_extent_dims(space, found, NULL) == dimensions;
    int64_t bytes = good ? (int64_t)H5Tget_size(type) : 1;
    for (int d = 0; good && d < dimensions; d++)
        good = found[d] == (hsize_t)extent[d] && !__builtin_mul_overflow(bytes, extent[d], &bytes);
    haddr_t address = good ? H5Dget_offset(dataset) : HADDR_UNDEF;
    if (!good)
        wrong(reading, "its data set '%s' has the wrong type or size", name);
    else if (address == HADDR_UNDEF || bytes > reading->bytes ||
             (int64_t)address > reading->bytes - bytes)
        good = wrong(reading, "its data set '%s' is outside the file", name);
    *offset = (int64_t)address;
    H5Sclose(space);
    H5Tclose(stored);
    H5Dclose(dataset);
    return good;
}

/* Read a small table and verify its checksum. *size: bytes of a row. */
static char *read_table(hid_t file, const char *name, bool text, int64_t *rows, size_t *size,
                        struct reading *reading)
{
    uint32_t expected;
    char *data = NULL;
    hid_t dataset = hdf5_dataset_open(file, name);
    hid_t type = dataset < 0 ? -1 : H5Dget_type(dataset);
    hid_t space = dataset < 0 ? -1 : H5Dget_space(dataset);
    const hssize_t points = space < 0 ? -1 : H5Sget_simple_extent_npoints(space);
    *size = type < 0 ? 0 : H5Tget_size(type);
    bool good = points > 0 && *size > 0 && points <= CLASSES_MOST && *size <= 4096 &&
                (text ? H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0
                      : H5Tequal(type, H5T_NATIVE_DOUBLE) > 0) &&
                hdf5_number_read(dataset, "crc32c", H5T_NATIVE_UINT32, &expected) &&
                (data = malloc((size_t)points * *size)) != NULL &&
                H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0;
    *rows = points;
    if (good && crc32c_update(0, data, (size_t)points * *size) != expected)
        good = wrong(reading, "wrong checksum of its table '%s': the file is damaged", name);
    H5Sclose(space);
    H5Tclose(type);
    H5Dclose(dataset);
    if (good)
        return data;
    wrong(reading, "its table '%s' is missing or invalid", name);
    free(data);
    return NULL;
}

static bool read_classes(hid_t file, struct reading *reading)
{
    struct packed_set *set = reading->set;
    size_t size;
    char *table = read_table(file, "classes", true, &set->classes, &size, reading);
    if (table == NULL)
        return false;
    set->class_name = calloc((size_t)set->classes, sizeof *set->class_name);
    bool good = set->class_name != NULL;
    for (int64_t i = 0; good && i < set->classes; i++) {
        set->class_name[i] = strndup(table + (size_t)i * size, size);
        good = set->class_name[i] != NULL;
    }
    free(table);
    return good || wrong(reading, "no memory for its class names");
}

static bool read_normalisation(hid_t file, const char *name, double values[IMAGE_CHANNELS],
                               struct reading *reading)
{
    int64_t rows;
    size_t size;
    char *table = read_table(file, name, false, &rows, &size, reading);
    const bool good =
        table != NULL && (rows == reading->set->channels ||
                          wrong(reading, "its table '%s' does not have one row per channel", name));
    if (good)
        memcpy(values, table, (size_t)rows * sizeof *values);
    free(table);
    return good;
}

static bool read_part(hid_t file, int split, struct reading *reading)
{
    struct packed_set *set = reading->set;
    struct packed_part *part = &set->part[reading->file][split];
    hid_t group = H5Gopen2(file, packed_split_name[split], H5P_DEFAULT);
    const int64_t most = UINT32_MAX;
    bool good =
        group >= 0 && read_number(group, "records", 1, most, &part->records, reading) &&
        read_number(group, "total", part->records, most, &set->total[split], reading) &&
        read_number(group, "first", 0, set->total[split] - part->records, &part->first, reading);
    const int64_t ends = part->records + 1;
    const int64_t decoded[4] = {part->records, set->channels, set->height, set->width};
    if (good && set->encoded) {
        hid_t bytes = hdf5_dataset_open(group, "bytes");
        hid_t space = bytes < 0 ? -1 : H5Dget_space(bytes);
        part->byte_count = space < 0 ? -1 : H5Sget_simple_extent_npoints(space);
        H5Sclose(space);
        H5Dclose(bytes);
        good = find_dataset(group, "bytes", H5T_NATIVE_UINT8, 1, &part->byte_count, &part->bytes,
                            reading) &&
               find_dataset(group, "offset", H5T_NATIVE_INT64, 1, &ends, &part->offset, reading);
    } else if (good) {
        good = find_dataset(group, "bytes", H5T_NATIVE_UINT8, 4, decoded, &part->bytes, reading);
        part->byte_count = good ? part->records * set->channels * set->height * set->width : 0;
    }
    good = good &&
           find_dataset(group, "label", H5T_NATIVE_INT32, 1, decoded, &part->label, reading) &&
           find_dataset(group, "crc", H5T_NATIVE_UINT32, 1, decoded, &part->crc, reading);
    H5Gclose(group);
    return good;
}

static bool read_frame(hid_t file, struct reading *reading)
{
    struct packed_set *set = reading->set;
    bool good =
        read_kind(file, reading) && read_attributes(file, reading) && read_classes(file, reading);
    set->normalised = good && H5Lexists(file, "mean", H5P_DEFAULT) > 0;
    if (set->normalised)
        good = read_normalisation(file, "mean", set->mean, reading) &&
               read_normalisation(file, "std", set->std, reading);
    for (int split = 0; good && split < PACKED_SPLITS; split++)
        if (H5Lexists(file, packed_split_name[split], H5P_DEFAULT) > 0)
            good = read_part(file, split, reading);
    return good;
}

bool packed_frame_read(const char *path, int64_t bytes, struct packed_set *set, int64_t number,
                       struct error *error)
{
    struct reading reading = {.set = set, .file = number, .bytes = bytes};
    struct hdf5_errors errors;
    int64_t have, needed;
    hdf5_errors_begin(&errors);
    hid_t file = hdf5_file_open(path);
    const bool good = file >= 0 && read_frame(file, &reading);
    H5Fclose(file);
    if (hdf5_errors_end(&errors) && good)
        return true;
    if (hdf5_is_cut(errors.reason, &have, &needed))
        wrong(&reading, "it is truncated: it has %lld of %lld bytes", (long long)have,
              (long long)needed);
    wrong(&reading, "%s", errors.reason[0] != '\0' ? errors.reason : "a part of it is missing");
    return error_set(error, ERROR_DATA, "cannot use %s as packed data: %s", path, reading.wrong);
}
