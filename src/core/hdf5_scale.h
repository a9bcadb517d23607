// SPDX-License-Identifier: BSD-3-Clause
/* Attributes and dimension scales of an HDF5 file that is created (hdf5_file.h), as HDF5's
 * specification of dimension scales defines them. Call the functions in hdf5_frame_create's `fill`.
 */
#ifndef VITTRAIN_CORE_HDF5_SCALE_H
#define VITTRAIN_CORE_HDF5_SCALE_H

#include "core/hdf5_file.h"

/* Write an attribute of integers, reals or texts; values[attribute->offset] is the first. */
void hdf5_attribute_write(hid_t object, const struct hdf5_attribute *attribute, const char *values);

/* Create a data set of `count` coordinates and mark it as a dimension scale; coordinates NULL: it
 * is only the name of a dimension, as in NetCDF-4. Close it with H5Dclose. */
hid_t hdf5_scale_make(hid_t file, const char *name, int64_t count, const double *coordinates);

/* Attach dimension `dimension` of a data set to a scale. */
struct hdf5_scale_use {
    const char *dataset;
    int dimension;
    char scale[HDF5_NAME];
};

/* Attach data sets to scales. All uses of a data set are consecutive. */
void hdf5_scales_attach(hid_t file, const struct hdf5_scale_use *uses, int count);

#endif
