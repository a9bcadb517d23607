// SPDX-License-Identifier: BSD-3-Clause
/* Numbers are stored in native byte order, which HDF5 records; a machine of the other byte order
 * rejects the file. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memfd_create, SEEK_DATA */
#endif
#include "hdf5/hdf5_writer.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "base/text.h"
#include "hdf5/hdf5_open.h"

/* Write an attribute of `count` values; -1: a scalar. */
static void values_write(hid_t object, const char *name, hid_t type, int64_t count,
                         const void *values)
{
    const hsize_t extent = (hsize_t)count;
    hid_t space = count < 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &extent, NULL);
    hid_t attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(attribute, type, values);
    H5Aclose(attribute);
    H5Sclose(space);
}

void hdf5_number_write(hid_t object, const struct hdf5_number *number, const void *from)
{
    const hid_t type = number->kind == HDF5_INTEGER    ? H5T_NATIVE_INT64
                       : number->kind == HDF5_UNSIGNED ? H5T_NATIVE_UINT64
                                                       : H5T_NATIVE_DOUBLE;
    values_write(object, number->name, type, -1, (const char *)from + number->offset);
}

static hid_t text_type(size_t size)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, size);
    return type;
}

void hdf5_text_write(hid_t object, const char *name, const char *text)
{
    hid_t type = text_type(strlen(text) + 1);
    values_write(object, name, type, -1, text);
    H5Tclose(type);
}

void hdf5_attribute_write(hid_t object, const char *name, const json_t *value)
{
    const bool is_list = json_is_array(value);
    const size_t size = is_list ? json_array_size(value) : 1;
    const int64_t count = size == 1 ? -1 : (int64_t)size;
    OWNED int64_t *integers = allocate(size, sizeof *integers);
    OWNED double *reals = allocate(size, sizeof *reals);
    OWNED const char **texts = allocate(size, sizeof *texts);
    size_t integer_count = 0, real_count = 0, text_count = 0;
    for (size_t n = 0; n < size; n++) {
        const json_t *item = is_list ? json_array_get(value, n) : value;
        integers[n] = json_integer_value(item);
        texts[n] = json_string_value(item);
        integer_count += json_is_integer(item);
        real_count += hdf5_real(item, &reals[n]);
        text_count += texts[n] != NULL;
    }
    hid_t text = text_type(H5T_VARIABLE);
    H5Tset_cset(text, H5T_CSET_UTF8);
    if (size > 0 && integer_count == size)
        values_write(object, name, H5T_NATIVE_INT64, count, integers);
    else if (size > 0 && real_count == size)
        values_write(object, name, H5T_NATIVE_DOUBLE, count, reals);
    else if (size > 0 && text_count == size)
        values_write(object, name, text, count, texts);
    H5Tclose(text);
}

hid_t hdf5_row_type(size_t size, const struct hdf5_member *members, size_t count)
{
    hid_t row = H5Tcreate(H5T_COMPOUND, size);
    for (size_t n = 0; n < count; n++) {
        const struct hdf5_member *member = &members[n];
        hid_t type = member->type == H5T_C_S1 ? text_type(member->count)
                     : member->count > 1      ? H5Tarray_create2(member->type, 1, &member->count)
                                              : H5Tcopy(member->type);
        H5Tinsert(row, member->name, member->offset, type);
        H5Tclose(type);
    }
    return row;
}

/* Create a data set (0 dimensions: a scalar) with early allocation, so that its offset is known. */
static hid_t make_dataset(hid_t group, const char *name, hid_t type, int dimensions,
                          const int64_t *extent)
{
    hsize_t sizes[HDF5_DIMENSIONS];
    for (int d = 0; d < dimensions; d++)
        sizes[d] = (hsize_t)extent[d];
    hid_t space =
        dimensions == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(dimensions, sizes, NULL);
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_layout(creation, H5D_CONTIGUOUS);
    H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER);
    H5Pset_obj_track_times(creation, false);
    hid_t dataset = H5Dcreate2(group, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    H5Pclose(creation);
    H5Sclose(space);
    return dataset;
}

void hdf5_dataset_reserve(hid_t group, const char *name, hid_t type, int dimensions,
                          const int64_t *extent, int64_t *offset)
{
    hid_t dataset = make_dataset(group, name, type, dimensions, extent);
    *offset = (int64_t)H5Dget_offset(dataset);
    H5Dclose(dataset);
}

void hdf5_table_write(hid_t group, const char *name, hid_t type, int64_t rows, const void *data)
{
    uint32_t crc = crc32c_update(0, data, H5Tget_size(type) * (size_t)(rows < 0 ? 1 : rows));
    hid_t dataset = make_dataset(group, name, type, rows < 0 ? 0 : 1, &rows);
    H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data);
    values_write(dataset, "crc32c", H5T_NATIVE_UINT32, -1, &crc);
    H5Dclose(dataset);
}

void hdf5_text_table_write(hid_t group, const char *name, size_t size, int64_t rows,
                           const void *texts)
{
    hid_t type = text_type(size);
    hdf5_table_write(group, name, type, rows, texts);
    H5Tclose(type);
}

hid_t hdf5_group_make(hid_t parent, const char *name)
{
    hid_t creation = H5Pcreate(H5P_GROUP_CREATE);
    H5Pset_link_creation_order(creation, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
    H5Pset_obj_track_times(creation, false);
    hid_t group = H5Gcreate2(parent, name, H5P_DEFAULT, creation, H5P_DEFAULT);
    H5Pclose(creation);
    return group;
}

/* ---- dimension scales ---- */

/* An element of the attribute REFERENCE_LIST of a scale. */
struct scale_reference {
    hobj_ref_t dataset;
    int32_t dimension;
};

hid_t hdf5_scale_make(hid_t file, const char *name, int64_t count, const double *coordinates)
{
    const hsize_t extent = (hsize_t)count;
    char title[80];
    hid_t space = H5Screate_simple(1, &extent, NULL);
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    hid_t type = coordinates != NULL ? H5T_NATIVE_DOUBLE : H5T_IEEE_F32BE;
    H5Pset_obj_track_times(creation, false);
    hid_t scale = H5Dcreate2(file, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    if (coordinates != NULL)
        H5Dwrite(scale, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, coordinates);
    snprintf(title, sizeof title, HDF5_DIMENSION_ONLY " variable.%10lld", (long long)count);
    hdf5_text_write(scale, "CLASS", "DIMENSION_SCALE");
    hdf5_text_write(scale, "NAME", coordinates != NULL ? name : title);
    H5Pclose(creation);
    H5Sclose(space);
    return scale;
}

/* Write an attribute of an object in the file. */
static void list_write(hid_t file, const char *object, const char *name, hid_t type, int64_t count,
                       const void *values)
{
    hid_t owner = H5Oopen(file, object, H5P_DEFAULT);
    values_write(owner, name, type, count, values);
    H5Oclose(owner);
}

void hdf5_scales_attach(hid_t file, const struct hdf5_scale_use *uses, int count)
{
    static const size_t dimension_at = offsetof(struct scale_reference, dimension);
    const struct hdf5_member members[] = {{"dataset", 0, H5T_STD_REF_OBJ, 1},
                                          {"dimension", dimension_at, H5T_NATIVE_INT32, 1}};
    hid_t row = hdf5_row_type(sizeof(struct scale_reference), members, 2);
    hid_t list = H5Tvlen_create(H5T_STD_REF_OBJ);
    OWNED struct scale_reference *references = allocate((size_t)count, sizeof *references);
    for (int n = 0; n < count; n++) {
        /* DIMENSION_LIST of a data set, with the scales of its dimensions. */
        const bool is_first = n == 0 || strcmp(uses[n].dataset, uses[n - 1].dataset) != 0;
        hvl_t scales[HDF5_DIMENSIONS] = {0};
        hobj_ref_t scale[HDF5_DIMENSIONS];
        int dimensions = 0, used = 0, earlier = 0;
        while (is_first && n + dimensions < count &&
               strcmp(uses[n + dimensions].dataset, uses[n].dataset) == 0) {
            H5Rcreate(&scale[dimensions], file, uses[n + dimensions].scale, H5R_OBJECT, -1);
            scales[dimensions] = (hvl_t){.len = 1, .p = &scale[dimensions]};
            dimensions++;
        }
        if (is_first)
            list_write(file, uses[n].dataset, HDF5_SCALES, list, dimensions, scales);
        /* REFERENCE_LIST of a scale, with the dimensions that it is attached to. */
        while (strcmp(uses[earlier].scale, uses[n].scale) != 0)
            earlier++;
        for (int m = n; earlier == n && m < count; m++)
            if (strcmp(uses[m].scale, uses[n].scale) == 0) {
                H5Rcreate(&references[used].dataset, file, uses[m].dataset, H5R_OBJECT, -1);
                references[used++].dimension = uses[m].dimension;
            }
        if (earlier == n)
            list_write(file, uses[n].scale, HDF5_SCALE_USES, row, used, references);
    }
    H5Tclose(list);
    H5Tclose(row);
}

/* ---- files ---- */

/* Objects of at least this size begin at multiples of it. */
enum { ALIGNMENT = 4096 };

/* True if this errno can be from a failed write or open. Other values may be left from earlier
 * calls whose failure is not an error. */
static bool is_of_writing(int number)
{
    static const int numbers[] = {ENOSPC, EDQUOT, EFBIG, EIO, EMFILE, ENFILE, ENOMEM};
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
        if (number == numbers[n])
            return true;
    return false;
}

/* Copy the file in memory except for its holes, and truncate the output to its size. */
static bool frame_copy(int frame, int descriptor, const char *path, int64_t bytes,
                       struct error *error)
{
    char block[65536];
    off_t begin = 0, end;
    bool good = true;
    while (good && (begin = lseek(frame, begin, SEEK_DATA)) >= 0 && begin < bytes) {
        end = lseek(frame, begin, SEEK_HOLE); /* the end of the file counts as a hole */
        for (; good && begin < end; begin += (off_t)sizeof block) {
            size_t count = (size_t)(end - begin);
            count = count < sizeof block ? count : sizeof block;
            good = durable_read(frame, path, block, count, begin, error) &&
                   durable_write(descriptor, path, block, count, begin, error);
        }
        begin = end;
    }
    if (good && begin < 0 && errno != ENXIO) /* ENXIO: only a hole is left */
        good = durable_failed(error, "read the metadata of", path, errno);
    return good &&
           (ftruncate(descriptor, bytes) == 0 || durable_failed(error, "truncate", path, errno));
}

/* The file is created in memory, with holes for unwritten data sets. HDF5 does not write to disk,
 * because it may crash at exit after a failed write. */
bool hdf5_frame_create(int descriptor, const char *path, void (*fill)(hid_t file, void *context),
                       void *context, bool reserves, int64_t *bytes, struct error *error)
{
    char name[64];
    struct stat status;
    struct hdf5_errors errors;
    const int frame = memfd_create("frame", MFD_CLOEXEC);
    if (frame < 0)
        return durable_failed(error, "create in memory", path, errno);
    snprintf(name, sizeof name, "/proc/self/fd/%d", frame);
    hdf5_errors_begin(&errors);
    errno = 0;
    hid_t access = hdf5_access_open();
    hid_t creation = H5Pcreate(H5P_FILE_CREATE);
    /* Without times, the same content gives the same file. The stdio driver accepts a path in
     * /proc/self/fd. */
    H5Pset_obj_track_times(creation, false);
    H5Pset_fapl_stdio(access);
    H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V18);
    H5Pset_alignment(access, ALIGNMENT, ALIGNMENT);
    hid_t file = H5Fcreate(name, H5F_ACC_TRUNC, creation, access);
    if (file >= 0)
        fill(file, context);
    H5Fflush(file, H5F_SCOPE_GLOBAL);
    H5Fclose(file);
    H5Pclose(creation);
    H5Pclose(access);
    const int number = errno; /* HDF5's text does not contain it */
    bool good = hdf5_errors_end(&errors);
    if (!good && is_of_writing(number))
        durable_failed(error, "create the metadata of", path, number);
    else if (!good)
        error_set(error, ERROR_INTERNAL, "cannot create the metadata of %s: %s", path,
                  errors.reason);
    else if (fstat(frame, &status) != 0)
        good = durable_failed(error, "create", path, errno);
    if (good) {
        *bytes = (int64_t)status.st_size;
        good = (!reserves || durable_reserve(descriptor, path, *bytes, error)) &&
               frame_copy(frame, descriptor, path, *bytes, error);
    }
    close(frame);
    return good;
}
