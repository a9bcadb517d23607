// SPDX-License-Identifier: BSD-3-Clause
/* Files and folders of arrays. The format is recognized by the content, not by the name. */
#ifndef VITTRAIN_DATA_ARRAY_PATH_H
#define VITTRAIN_DATA_ARRAY_PATH_H

#include "core/hdf5_reader.h"
#include "data/array.h"
#include "data/split.h"

/* Endings of the names of HDF5 and NetCDF-4 files, NULL-terminated. */
extern const char *const array_hdf5_endings[];

struct array_path {
    const char *path;
    bool is_folder;             /* a Zarr store, or a folder of files NAME.npy */
    bool is_npy;                /* a .npy file, else an HDF5 file if it is not a folder */
    struct hdf5_reader *reader; /* of the caller */
    struct open_file *file;     /* an HDF5 file, else NULL */
};

/* Find the files and folders of data.root (split.h). */
MUST_CHECK bool array_path_find(const char *root, struct split_files *files, struct comm *comm,
                                struct error *error);

/* Open a file or folder. `reader` reads HDF5 files; its `datasets` must name the data sets that
 * will be opened. `path` must stay valid. Call array_path_close in any case, after its arrays are
 * closed. */
MUST_CHECK bool array_path_open(struct array_path *self, const char *path,
                                struct hdf5_reader *reader, struct error *error);

/* True if it has an array, or another object, of this name. */
bool array_path_has(const struct array_path *self, const char *name);

/* Open one of its arrays. Open those of an HDF5 file before the reader opens another file. Call
 * array_close in any case. */
MUST_CHECK bool array_path_array(const struct array_path *self, const char *name,
                                 struct array *array, struct error *error);

void array_path_close(struct array_path *self);

#endif
