// SPDX-License-Identifier: BSD-3-Clause
/* Writes the HDF5 files of tests. The test fails if HDF5 fails. */
#ifndef VITTRAIN_TEST_HDF5_FIXTURE_H
#define VITTRAIN_TEST_HDF5_FIXTURE_H

#include <hdf5.h>

/* Create the file and return it; the caller closes it with H5Fclose. */
hid_t hdf5_create(const char *path);

/* Write a data set of `type` from data of the type `memory`: contiguous, or with deflate if the
 * extent of a chunk is given. */
void hdf5_write(hid_t file, const char *name, int dimensions, const hsize_t *extent,
                const hsize_t *chunk, hid_t type, hid_t memory, const void *data);

/* Write an attribute of an object of the file ("." is the root): an array of texts. */
void hdf5_annotate_texts(hid_t file, const char *object, const char *name, hsize_t count,
                         const char *const *texts);

#endif
