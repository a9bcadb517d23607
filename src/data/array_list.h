// SPDX-License-Identifier: BSD-3-Clause
/* The arrays of an HDF5 or NetCDF-4 file, a Zarr store or a folder of .npy files, with everything
 * that is known without reading values. */
#ifndef VITTRAIN_DATA_ARRAY_LIST_H
#define VITTRAIN_DATA_ARRAY_LIST_H

#include "data/array.h"
#include "data/array_formats.h"

struct array_entry {
    char *path; /* as in data.x: "/group/u" */
    bool has_shape, is_chunked;
    char type[32], filters[128];
    char kind;          /* of the elements: 'i', 'u', 'f', 'b' (Boolean); '\0': not numeric */
    bool is_coordinate; /* or bounds of coordinates or a grid mapping, not data */
    int dimensions;
    int64_t extent[ARRAY_DIMENSIONS], chunk[ARRAY_DIMENSIONS];
    char missing[80];   /* "1 of 4 chunks do not exist", or "" */
    bool channels_last; /* images of four dimensions are [N, H, W, C] */
    char *attributes;   /* those that change how values are read or describe them: "; units=K" */
    char *references;   /* names of its coordinates, bounds and grid mapping; NULL: none */
    char reason[ARRAY_REASON]; /* why the array cannot be read; "": it can */
};

/* Initialize with zeros. */
struct array_list {
    const char *container; /* "HDF5" */
    bool has_empty;        /* an array has no samples */
    struct array_entry *entry;
    size_t count, capacity;
};

/* List the arrays of a file or folder. Call array_list_free in any case. */
MUST_CHECK bool array_list_read(const char *path, struct array_list *list, struct error *error);

void array_list_free(struct array_list *list);

#endif
