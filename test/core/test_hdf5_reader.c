// SPDX-License-Identifier: BSD-3-Clause
/* The description of an HDF5 file that is neither a checkpoint nor packed data: types of both byte
 * orders, layouts, filters, attributes and links, as NetCDF-4 and h5py write them. */
#include "core/hdf5_reader.h"
#include "hdf5_fixture.h"
#include "temporary.h"
#include "test.h"

static char path[512];

static void dataset_make(hid_t file, const char *name, hid_t type, hid_t creation, const void *data)
{
    const hsize_t extent[] = {6, 4};
    hid_t space = H5Screate_simple(2, extent, NULL);
    hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    assert_true(H5Dwrite(dataset, H5T_NATIVE_INT16, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
    H5Dclose(dataset);
    H5Sclose(space);
}

static int file_make(void **state)
{
    static const int16_t data[6][4] = {{1, 2, 3}, {4, 5, 6}};
    static const double scale[] = {0.5};
    static const float range[] = {-1, 2};
    static const uint16_t fill = 65535;
    const char *texts[] = {"cat", "a long name", ""};
    const hsize_t chunk[] = {2, 4};
    temporary_setup(state);
    snprintf(path, sizeof path, "%s", temporary_path("any.nc"));
    hid_t file = hdf5_create(path);
    hid_t group = H5Gcreate2(file, "fields", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t chunked = H5Pcreate(H5P_DATASET_CREATE), compact = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(chunked, 2, chunk);
    H5Pset_shuffle(chunked);
    H5Pset_deflate(chunked, 3);
    H5Pset_layout(compact, H5D_COMPACT);
    dataset_make(group, "u", H5T_IEEE_F32BE, chunked, data);
    dataset_make(group, "level", H5T_STD_I16LE, H5P_DEFAULT, data);
    dataset_make(group, "small", H5T_STD_U8LE, compact, data);
    hdf5_annotate(file, "fields", "scale_factor", H5T_NATIVE_DOUBLE, 1, scale);
    hdf5_annotate(file, "fields", "valid_range", H5T_NATIVE_FLOAT, 2, range);
    hdf5_annotate(file, "fields", "_FillValue", H5T_NATIVE_UINT16, 1, &fill);
    hdf5_annotate_texts(file, ".", "names", 3, texts);
    H5Lcreate_soft("/fields/u", file, "alias", H5P_DEFAULT, H5P_DEFAULT);
    H5Pclose(chunked);
    H5Pclose(compact);
    H5Gclose(group);
    return H5Fclose(file) < 0;
}

static void dataset_check(const struct hdf5_object *found, const char *type, int64_t bytes,
                          enum hdf5_layout layout)
{
    assert_non_null(found);
    assert_int_equal(found->kind, HDF5_DATASET);
    assert_string_equal(found->type, type);
    assert_int_equal(found->element_bytes, bytes);
    assert_int_equal(found->layout, layout);
    assert_int_equal(found->dimensions, 2);
    assert_int_equal(found->extent[0], 6);
    assert_int_equal(found->extent[1], 4);
}

static void file_check(void)
{
    struct hdf5_reader reader = {.kind = ERROR_DATA, .purpose = "an array"};
    struct error error = {0};
    assert_true(hdf5_reader_open(&reader, path, &error));
    const struct hdf5_object *root = reader.file.objects, *fields, *found;
    assert_int_equal(reader.file.object_count, 6);
    assert_int_equal(hdf5_find(&reader, root, "alias")->kind, HDF5_LINK);
    assert_null(hdf5_find(&reader, root, "u"));
    fields = hdf5_find(&reader, root, "fields");
    assert_non_null(fields);

    found = hdf5_find(&reader, fields, "u");
    dataset_check(found, ">f4", 4, HDF5_CHUNKED);
    assert_true(found->chunk[0] == 2 && found->chunk[1] == 4 && found->filter_count == 2);
    assert_true(found->filter[0] == H5Z_FILTER_SHUFFLE && found->filter[1] == H5Z_FILTER_DEFLATE);
    dataset_check(hdf5_find(&reader, fields, "small"), "|u1", 1, HDF5_COMPACT);
    dataset_check(hdf5_find(&reader, fields, "level"), "<i2", 2, HDF5_CONTIGUOUS);
    found = hdf5_dataset_find(&reader, fields, "level", "<i2", &error);
    int16_t *data = hdf5_dataset_read(&reader, found, &error);
    assert_true(data[0] == 1 && data[6] == 6);
    free(data);

    double scale;
    uint64_t fill;
    char name[16];
    assert_true(hdf5_number_get(&reader, fields, "scale_factor", HDF5_REAL, &scale));
    assert_true(scale == 0.5);
    assert_true(hdf5_number_get(&reader, fields, "_FillValue", HDF5_INTEGER, &fill));
    assert_int_equal(fill, 65535);
    assert_false(hdf5_number_get(&reader, fields, "valid_range", HDF5_REAL, &scale));
    assert_true(hdf5_text_read(&reader, root, "names", name, sizeof name, &error));
    assert_string_equal(name, "cat");
    const struct hdf5_attribute *names = reader.file.attributes + root->first_attribute;
    assert_int_equal(names->count, 3);
    assert_string_equal(reader.file.values + names->offset + sizeof "cat", "a long name");

    assert_null(hdf5_dataset_find(&reader, fields, "u", ">f4", &error));
    assert_non_null(strstr(error.text, "any.nc cannot be used as an array: its data set 'fields/u' "
                                       "is chunked, virtual or in another file"));
    hdf5_reader_close(&reader);
}

TEST(test_in_this_process)
{
    subprocess_set_program(NULL);
    file_check();
}

TEST(test_in_a_child)
{
    subprocess_set_program("./vittrain");
    file_check();
}

TEST_MAIN(.setup = file_make, .teardown = temporary_teardown)
