// SPDX-License-Identifier: BSD-3-Clause
#include "hdf5_fixture.h"

#include "test.h"

hid_t hdf5_create(const char *path)
{
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(file >= 0);
    return file;
}

void hdf5_write(hid_t file, const char *name, int dimensions, const hsize_t *extent,
                const hsize_t *chunk, hid_t type, hid_t memory, const void *data)
{
    hid_t space = H5Screate_simple(dimensions, extent, NULL);
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    if (chunk != NULL) {
        H5Pset_chunk(creation, dimensions, chunk);
        H5Pset_deflate(creation, 1);
    }
    hid_t made = H5Dcreate2(file, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    assert_true(H5Dwrite(made, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
    H5Dclose(made);
    H5Pclose(creation);
    H5Sclose(space);
}

void hdf5_annotate_texts(hid_t file, const char *object, const char *name, hsize_t count,
                         const char *const *texts)
{
    hid_t space = H5Screate_simple(1, &count, NULL), type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, H5T_VARIABLE);
    hid_t attribute =
        H5Acreate_by_name(file, object, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Awrite(attribute, type, texts) >= 0);
    H5Aclose(attribute);
    H5Tclose(type);
    H5Sclose(space);
}
