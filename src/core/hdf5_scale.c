// SPDX-License-Identifier: BSD-3-Clause
#include "core/hdf5_scale.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/allocate.h"

/* An element of the attribute REFERENCE_LIST of a scale. */
struct scale_reference {
    hobj_ref_t dataset;
    int32_t dimension;
};

static void texts_write(hid_t object, const struct hdf5_attribute *attribute, const char *text)
{
    const char **texts = allocate((size_t)attribute->count, sizeof *texts);
    for (int64_t n = 0; n < attribute->count; n++, text += strlen(text) + 1)
        texts[n] = text;
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, H5T_VARIABLE);
    H5Tset_cset(type, H5T_CSET_UTF8);
    hdf5_values_write(object, attribute->name, type, attribute->count == 1 ? -1 : attribute->count,
                      texts);
    H5Tclose(type);
    free(texts);
}

void hdf5_attribute_write(hid_t object, const struct hdf5_attribute *attribute, const char *values)
{
    if (attribute->kind == HDF5_TEXT)
        texts_write(object, attribute, values + attribute->offset);
    else
        hdf5_values_write(
            object, attribute->name, hdf5_number_type((enum hdf5_value)attribute->kind),
            attribute->count == 1 ? -1 : attribute->count, values + attribute->offset);
}

hid_t hdf5_scale_make(hid_t file, const char *name, int64_t count, const double *coordinates)
{
    const hsize_t extent = (hsize_t)count;
    char title[80];
    hid_t space = H5Screate_simple(1, &extent, NULL);
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    hid_t type = coordinates != NULL ? H5T_NATIVE_DOUBLE : H5T_IEEE_F32BE;
    H5Pset_obj_track_times(creation, false);
    hid_t scale = H5Dcreate2(file, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    if (coordinates != NULL)
        H5Dwrite(scale, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, coordinates);
    snprintf(title, sizeof title, HDF5_DIMENSION_ONLY " variable.%10lld", (long long)count);
    hdf5_text_write(scale, "CLASS", "DIMENSION_SCALE");
    hdf5_text_write(scale, "NAME", coordinates != NULL ? name : title);
    H5Pclose(creation);
    H5Sclose(space);
    return scale;
}

/* Write the attribute REFERENCE_LIST of a scale: the dimensions that it is attached to. */
static void reference_list_write(hid_t file, const char *scale, const struct hdf5_scale_use *uses,
                                 int count)
{
    struct scale_reference *references = allocate((size_t)count, sizeof *references);
    int64_t used = 0;
    for (int n = 0; n < count; n++)
        if (strcmp(uses[n].scale, scale) == 0) {
            H5Rcreate(&references[used].dataset, file, uses[n].dataset, H5R_OBJECT, -1);
            references[used++].dimension = uses[n].dimension;
        }
    hid_t type = H5Tcreate(H5T_COMPOUND, sizeof *references);
    H5Tinsert(type, "dataset", offsetof(struct scale_reference, dataset), H5T_STD_REF_OBJ);
    H5Tinsert(type, "dimension", offsetof(struct scale_reference, dimension), H5T_NATIVE_INT32);
    hid_t object = H5Dopen2(file, scale, H5P_DEFAULT);
    hdf5_values_write(object, HDF5_SCALE_USES, type, used, references);
    H5Dclose(object);
    H5Tclose(type);
    free(references);
}

/* Write the attribute DIMENSION_LIST of a data set, whose uses are the first `count`. */
static void dimension_list_write(hid_t file, const struct hdf5_scale_use *uses, int count)
{
    hvl_t list[HDF5_DIMENSIONS] = {0};
    hobj_ref_t reference[HDF5_DIMENSIONS];
    hid_t type = H5Tvlen_create(H5T_STD_REF_OBJ);
    hid_t object = H5Dopen2(file, uses[0].dataset, H5P_DEFAULT);
    hid_t space = H5Dget_space(object);
    for (int n = 0; n < count; n++) {
        H5Rcreate(&reference[n], file, uses[n].scale, H5R_OBJECT, -1);
        list[uses[n].dimension] = (hvl_t){.len = 1, .p = &reference[n]};
    }
    hdf5_values_write(object, HDF5_SCALES, type, H5Sget_simple_extent_ndims(space), list);
    H5Sclose(space);
    H5Dclose(object);
    H5Tclose(type);
}

void hdf5_scales_attach(hid_t file, const struct hdf5_scale_use *uses, int count)
{
    for (int first = 0, next; first < count; first = next) {
        next = first + 1;
        while (next < count && strcmp(uses[next].dataset, uses[first].dataset) == 0)
            next++;
        dimension_list_write(file, uses + first, next - first);
    }
    for (int n = 0; n < count; n++) {
        int earlier = 0;
        while (earlier < n && strcmp(uses[earlier].scale, uses[n].scale) != 0)
            earlier++;
        if (earlier == n)
            reference_list_write(file, uses[n].scale, uses, count);
    }
}
