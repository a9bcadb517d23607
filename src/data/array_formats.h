// SPDX-License-Identifier: BSD-3-Clause
/* The index of HDF5 and NetCDF-4 files, Zarr stores and .npy files: describes their data sets as
 * arrays. */
#ifndef VITTRAIN_DATA_ARRAY_FORMATS_H
#define VITTRAIN_DATA_ARRAY_FORMATS_H

#include "core/hdf5_reader.h"
#include "data/array.h"

/* ---- HDF5 and NetCDF-4. */

/* Open a data set that the reader has described as an array, with the conventions of NetCDF:
 * scale_factor, add_offset, _FillValue, missing_value, valid_min, valid_max, valid_range. `path`,
 * the path of `file`, must stay valid. Call array_close in any case. */
MUST_CHECK bool array_hdf5_open(const struct hdf5_reader *reader, const char *name,
                                const char *path, struct open_file *file, struct array *array,
                                struct error *error);

enum { ARRAY_REASON = 512 };

/* True if a data set can be read as an array; else `reason` states why not and what to do. */
bool array_hdf5_readable(const struct hdf5_object *dataset, char reason[ARRAY_REASON]);

/* Write NumPy's name of a type ("float32", "big-endian int16"), or "text" or "not numeric". */
void array_hdf5_type_name(const struct hdf5_object *dataset, char *text, size_t size);

/* Write the names of the filters ("shuffle, deflate"), or "no filter". */
void array_hdf5_filter_names(const struct hdf5_object *dataset, char *text, size_t size);

/* ---- Zarr stores of versions 2 and 3 in folders. */

/* True if a folder is a Zarr group or array. */
bool array_zarr_is_store(const char *folder);

/* True if a folder is a Zarr array. */
bool array_zarr_is_array(const char *folder);

/* The attribute that xarray writes in version 2 for the names of an array's dimensions. */
#define ZARR_DIMENSIONS "_ARRAY_DIMENSIONS"

struct json_t;

/* Return the attributes of the array in a folder, which the caller releases with json_decref; NULL
 * if it has none or they cannot be read. The names of its dimensions are the attribute
 * ZARR_DIMENSIONS in both versions. */
struct json_t *array_zarr_attributes(const char *folder);

/* Open the array `name` of a store, with NetCDF's conventions. If `name` is "", the store itself is
 * the array. `path` must stay valid. Call array_close in any case. */
MUST_CHECK bool array_zarr_open(const char *path, const char *name, struct array *array,
                                struct error *error);

/* ---- NumPy's .npy files, which have one array each. */

/* Open the file as an array. A .npz archive is an error. `name`: name of the array for messages.
 * `path` must stay valid. Call array_close in any case. */
MUST_CHECK bool array_npy_open(const char *path, const char *name, struct array *array,
                               struct error *error);

#endif
