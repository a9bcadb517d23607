// SPDX-License-Identifier: BSD-3-Clause
/* The index of HDF5 and NetCDF-4 files: describes their data sets as arrays. */
#ifndef VITTRAIN_DATA_ARRAY_HDF5_H
#define VITTRAIN_DATA_ARRAY_HDF5_H

#include "core/hdf5_reader.h"
#include "data/array.h"

/* Open the file with the reader. Its `datasets` must name the arrays that will be opened. A
 * NetCDF-3 file is an error with the command that converts it. */
MUST_CHECK bool array_hdf5_file_open(struct hdf5_reader *reader, const char *path,
                                     struct error *error);

/* Open a data set as an array, with the conventions of NetCDF: scale_factor, add_offset,
 * _FillValue, missing_value, valid_min, valid_max, valid_range. `path`, the path of `file`, must
 * stay valid. Call array_close in any case. */
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

#endif
