// SPDX-License-Identifier: BSD-3-Clause
/* Files and folders of arrays: HDF5 and NetCDF-4 files, Zarr stores, .npy files and folders of
 * them. The format is recognized by the content, not by the name. */
#ifndef VITTRAIN_ARRAYS_PATH_H
#define VITTRAIN_ARRAYS_PATH_H

#include "arrays/array.h"
#include "data/listing.h"
#include "data/split.h"
#include "hdf5/hdf5_reader.h"

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

/* Open a file or folder. `reader` reads HDF5 files; its `datasets` must name the data sets whose
 * values will be read. `path` must stay valid. Call array_path_close in any case, after its arrays
 * are closed. */
MUST_CHECK bool array_path_open(struct array_path *self, const char *path,
                                struct hdf5_reader *reader, struct error *error);

/* Return the format for messages: "HDF5". */
const char *array_path_format(const struct array_path *self);

/* Add the names of its arrays to an empty list. Call listing_free in any case. */
MUST_CHECK bool array_path_list(const struct array_path *self, struct listing *names,
                                struct error *error);

/* True if it has an array, or another object, of this name. */
bool array_path_has(const struct array_path *self, const char *name);

/* Write the path of the object `name` in the group of an array. Return false if there is none. */
bool array_path_sibling(const struct array_path *self, const char *array, const char *name,
                        char path[HDF5_NAME]);

/* Open one of its arrays, with the conventions of NetCDF (array_rule_set). Open those of an HDF5
 * file before the reader opens another file. After a failure, what is known of the array is set.
 * Call array_close in any case. */
MUST_CHECK bool array_path_array(const struct array_path *self, const char *name,
                                 struct array *array, struct error *error);

void array_path_close(struct array_path *self);

/* ---- Attributes: a JSON object as in struct hdf5_object. */

struct json_t;

/* The attribute that xarray writes in Zarr version 2 for the names of an array's dimensions. In
 * version 3, array_attributes adds it. */
#define ZARR_DIMENSIONS "_ARRAY_DIMENSIONS"

/* Return the attributes of an array, or of the file if the name is empty. The caller releases them
 * with json_decref. NULL: none, or they cannot be read. */
struct json_t *array_attributes(const struct array_path *source, const char *array);

/* Return an attribute that is a text, or the first of a list, or "". */
const char *array_attribute_text(const struct json_t *attributes, const char *name);

/* Copy at most `most` numbers of an attribute, and return their number. */
int array_attribute_numbers(const struct json_t *attributes, const char *name, double *numbers,
                            int most);

/* ---- Zarr stores; used by path.c only. */

/* Open the array `name` of a Zarr store of version 2 or 3, as array_path_array does. If `name` is
 * "", the store itself is the array. `path` must stay valid. */
MUST_CHECK bool array_zarr_open(const char *path, const char *name, struct array *array,
                                struct error *error);

/* True if a folder is a Zarr group or array; true if it is an array. */
bool array_zarr_is_store(const char *folder);
bool array_zarr_is_array(const char *folder);

/* Return the attributes of the array in a folder, as array_attributes does. */
struct json_t *array_zarr_attributes(const char *folder);

#endif
