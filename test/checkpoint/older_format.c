// SPDX-License-Identifier: BSD-3-Clause
/* Change checkpoints to format 2, as version 0.2 wrote it: without a description of the data. */
#include <hdf5.h>
#include <stdint.h>

int main(int argc, char **argv)
{
    const int64_t format = 2;
    for (int i = 1; i < argc; i++) {
        hid_t file = H5Fopen(argv[i], H5F_ACC_RDWR, H5P_DEFAULT);
        hid_t attribute = H5Aopen(file, "format", H5P_DEFAULT);
        if (H5Awrite(attribute, H5T_NATIVE_INT64, &format) < 0 ||
            H5Ldelete(file, "data", H5P_DEFAULT) < 0 || H5Aclose(attribute) < 0 ||
            H5Fclose(file) < 0)
            return 1;
    }
    return 0;
}
