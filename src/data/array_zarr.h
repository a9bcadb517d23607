// SPDX-License-Identifier: BSD-3-Clause
/* The index of Zarr stores of versions 2 and 3 in folders. */
#ifndef VITTRAIN_DATA_ARRAY_ZARR_H
#define VITTRAIN_DATA_ARRAY_ZARR_H

#include "data/array.h"

/* True if a folder is a Zarr group or array. */
bool array_zarr_is_store(const char *folder);

/* Open the array `name` of a store, with NetCDF's conventions. If `name` is "", the store itself is
 * the array. `path` must stay valid. Call array_close in any case. */
MUST_CHECK bool array_zarr_open(const char *path, const char *name, struct array *array,
                                struct error *error);

#endif
