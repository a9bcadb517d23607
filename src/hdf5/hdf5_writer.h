// SPDX-License-Identifier: BSD-3-Clause
/* Writes HDF5 files. HDF5 writes the metadata (groups, attributes, tables). Large data sets are
 * contiguous and are written without HDF5, at the offsets that it returned. The file format is that
 * of HDF5 1.8, in which all metadata have checksums. Only the main thread calls HDF5. To read a
 * file: hdf5_reader.h. */
#ifndef VITTRAIN_HDF5_HDF5_WRITER_H
#define VITTRAIN_HDF5_HDF5_WRITER_H

#include <hdf5.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "hdf5/hdf5_reader.h"

/* Write everything that `fill` creates to the file `descriptor`, which is open for writing. Data
 * sets of hdf5_dataset_reserve are holes that the caller writes later. `reserves`: the disk space
 * of the whole file is reserved if the file system supports it. *bytes is the size of the file. */
MUST_CHECK bool hdf5_frame_create(int descriptor, const char *path,
                                  void (*fill)(hid_t file, void *context), void *context,
                                  bool reserves, int64_t *bytes, struct error *error);

/* The functions below are for `fill`. hdf5_frame_create reports their failures. */

/* Write an attribute: a number from the struct `from`, a text, or the value of struct hdf5_object's
 * `attributes`, unless it is null. */
void hdf5_number_write(hid_t object, const struct hdf5_number *number, const void *from);
void hdf5_text_write(hid_t object, const char *name, const char *text);
void hdf5_attribute_write(hid_t object, const char *name, const struct json_t *value);

/* Create a group whose members are listed in order of creation. Close it with H5Gclose. */
hid_t hdf5_group_make(hid_t parent, const char *name);

/* Create a data set to be written later without HDF5, at *offset in the file. `extent` has
 * `dimensions` elements. */
void hdf5_dataset_reserve(hid_t group, const char *name, hid_t type, int dimensions,
                          const int64_t *extent, int64_t *offset);

/* Write a table (rows < 0: a scalar) with its CRC32C as attribute crc32c. */
void hdf5_table_write(hid_t group, const char *name, hid_t type, int64_t rows, const void *data);

/* Write a table of texts of `size` bytes; rows < 0: a scalar. */
void hdf5_text_table_write(hid_t group, const char *name, size_t size, int64_t rows,
                           const void *texts);

/* A member of a row: `count` numbers, or one text of `count` bytes if `type` is H5T_C_S1. */
struct hdf5_member {
    const char *name;
    size_t offset;
    hid_t type;
    hsize_t count;
};

/* Return a new type of rows of `size` bytes; close it with H5Tclose. */
hid_t hdf5_row_type(size_t size, const struct hdf5_member *members, size_t count);

/* Dimension scales, as HDF5's specification defines them. */

/* Create a data set of `count` coordinates and mark it as a dimension scale; coordinates NULL: it
 * is only the name of a dimension, as in NetCDF-4. Close it with H5Dclose. */
hid_t hdf5_scale_make(hid_t file, const char *name, int64_t count, const double *coordinates);

/* A dimension of a data set and its scale. */
struct hdf5_scale_use {
    const char *dataset;
    int dimension;
    char scale[HDF5_NAME];
};

/* Attach data sets to scales. The uses have all dimensions of each data set, in order. */
void hdf5_scales_attach(hid_t file, const struct hdf5_scale_use *uses, int count);

#endif
