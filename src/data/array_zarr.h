// SPDX-License-Identifier: BSD-3-Clause
/* The index of Zarr stores of versions 2 and 3 in folders. */
#ifndef VITTRAIN_DATA_ARRAY_ZARR_H
#define VITTRAIN_DATA_ARRAY_ZARR_H

#include "data/array.h"

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

#endif
