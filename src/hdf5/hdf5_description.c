// SPDX-License-Identifier: BSD-3-Clause
/* Descriptions of HDF5 files (hdf5_reader.h): the child's walk over an open file. */
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/columns.h"
#include "base/file.h"
#include "base/text.h"
#include "hdf5/hdf5_open.h"
#include "hdf5/hdf5_reader.h"

/* The values of larger attributes are left out. */
enum { MOST_VALUES = 1 << 20, TYPE = 32 /* bytes of a type's text */ };

struct walk {
    struct hdf5_errors *errors;
    json_t *objects, *attributes; /* of the current object */
    const char *path;             /* of the current object */
    char last[HDF5_NAME];         /* a copy, which is valid after the visit */
    const char *datasets;         /* of hdf5_reader */
};

/* Add a value under a name of the file, which may be no valid UTF-8. */
static void put(json_t *object, const char *name, json_t *value)
{
    json_t *key = value_name(name);
    value_put(object, json_string_value(key), value);
    json_decref(key);
}

/* Write the text of an integer type without unused bits, or of an IEEE type, which the bias of its
 * exponent identifies: HDF5 before 1.14.4 has no name for half precision. Return false for other
 * types. */
static bool number_write(hid_t type, char to[TYPE])
{
    const size_t bytes = H5Tget_size(type);
    const bool is_real = H5Tget_class(type) == H5T_FLOAT;
    const size_t bias = bytes == 2 ? 15 : bytes == 4 ? 127 : 1023;
    const H5T_order_t order = bytes == 1 ? H5T_ORDER_NONE : H5Tget_order(type);
    snprintf(to, TYPE, "%c%c%zu",
             order == H5T_ORDER_LE   ? '<'
             : order == H5T_ORDER_BE ? '>'
                                     : '|',
             is_real                             ? 'f'
             : H5Tget_sign(type) == H5T_SGN_NONE ? 'u'
                                                 : 'i',
             bytes);
    return H5Tget_precision(type) == 8 * bytes && order != H5T_ORDER_VAX &&
           (bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8) &&
           (!is_real || H5Tget_ebias(type) == bias);
}

/* True if this is h5py's Boolean: an enumeration of FALSE and TRUE. */
static bool is_boolean(hid_t type)
{
    char *name = H5Tget_member_name(type, 0);
    const bool good = name != NULL && strcmp(name, "FALSE") == 0 && H5Tget_size(type) == 1 &&
                      H5Tget_nmembers(type) == 2;
    H5free_memory(name);
    return good;
}

static void type_write(hid_t type, char to[TYPE])
{
    const H5T_class_t class = H5Tget_class(type);
    hid_t base = class == H5T_ENUM ? H5Tget_super(type) : type;
    const bool is_number =
        class == H5T_INTEGER || class == H5T_FLOAT || (class == H5T_ENUM && !is_boolean(type));
    if (class == H5T_ENUM && !is_number)
        snprintf(to, TYPE, "|b1");
    else if (class == H5T_STRING && H5Tis_variable_str(type) > 0)
        snprintf(to, TYPE, "|O");
    else if (!is_number || !number_write(base, to))
        snprintf(to, TYPE, "|%c%zu", class == H5T_STRING ? 'S' : 'V', H5Tget_size(type));
    if (base != type)
        H5Tclose(base);
}

/* True if the chunks of the current data set are described: hdf5_reader.datasets has it, or if it
 * has any, it is a dimension scale in use or a list with units, such as times. */
static bool chunks_are_wanted(const struct walk *walk, int dimensions)
{
    return text_has_item(walk->datasets, walk->path) ||
           (walk->datasets[0] != '\0' &&
            (json_object_get(walk->attributes, HDF5_SCALE_USES) != NULL ||
             (dimensions == 1 && json_object_get(walk->attributes, "units") != NULL)));
}

/* ---- attributes ---- */

/* JSON has no numbers that are not finite. */
static json_t *real_value(double value)
{
    return isfinite(value) ? json_real(value)
                           : value_text(isnan(value) ? "NaN"
                                        : value > 0  ? "Infinity"
                                                     : "-Infinity");
}

static bool numbers_read(hid_t attribute, hid_t type, hssize_t count, json_t *to)
{
    OWNED int64_t *integers = allocate((size_t)count, sizeof *integers);
    OWNED double *reals = allocate((size_t)count, sizeof *reals);
    const bool is_integer = H5Tget_class(type) == H5T_INTEGER;
    const bool good = H5Aread(attribute, H5T_NATIVE_DOUBLE, reals) >= 0 &&
                      (!is_integer || H5Aread(attribute, H5T_NATIVE_INT64, integers) >= 0);
    for (hssize_t n = 0; good && n < count; n++) /* a larger integer was clipped */
        value_append(to, is_integer && reals[n] <= 0x1p63 ? json_integer(integers[n])
                                                          : real_value(reals[n]));
    return good;
}

static bool texts_read(hid_t attribute, hid_t type, hssize_t count, json_t *to)
{
    const bool variable = H5Tis_variable_str(type) > 0;
    const size_t size = H5Tget_size(type);
    OWNED char *values = calloc((size_t)count + 1, size);
    char **texts = (char **)values;
    const bool good = values != NULL && H5Aread(attribute, type, values) >= 0;
    for (hssize_t n = 0; good && n < count; n++) {
        const char *text = variable ? texts[n] : values + (size_t)n * size;
        if (text == NULL)
            text = "";
        OWNED char *copy = allocate_text("%.*s", variable ? -1 : (int)size, text);
        value_append(to, value_name(copy));
        if (variable)
            H5free_memory(texts[n]);
    }
    return good;
}

/* Add the path of the first scale of each dimension, "" if it has none. */
static bool scales_read(struct walk *walk, hid_t object, hid_t attribute, hid_t type,
                        hssize_t count, json_t *to)
{
    hid_t space = H5Aget_space(attribute);
    OWNED hvl_t *lists = allocate((size_t)count, sizeof *lists);
    const bool good = H5Aread(attribute, type, lists) >= 0;
    for (hssize_t n = 0; good && n < count; n++) {
        char path[HDF5_NAME] = "";
        hid_t scale =
            lists[n].len > 0 ? H5Rdereference2(object, H5P_DEFAULT, H5R_OBJECT, lists[n].p) : -1;
        if (scale >= 0 && H5Iget_name(scale, path, sizeof path) >= (ssize_t)sizeof path)
            path[0] = '\0';
        if (scale >= 0)
            H5Oclose(scale);
        value_append(to, value_name(path));
    }
    if (good)
        H5Dvlen_reclaim(type, space, H5P_DEFAULT, lists);
    H5Sclose(space);
    walk->errors->reason[0] = '\0'; /* a scale that was removed is no fault of the data set */
    return good;
}

static herr_t attribute_describe(hid_t object, const char *name, const H5A_info_t *info,
                                 void *context)
{
    struct walk *walk = context;
    hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
    hid_t type = H5Aget_type(attribute), space = H5Aget_space(attribute);
    const H5T_class_t class = H5Tget_class(type);
    const hssize_t count = H5Sget_simple_extent_npoints(space);
    json_t *values = json_array();
    (void)info;
    bool good = type >= 0 && count >= 0;
    if (good && count <= MOST_VALUES) {
        if (class == H5T_INTEGER || class == H5T_FLOAT)
            good = numbers_read(attribute, type, count, values);
        else if (class == H5T_STRING)
            good = texts_read(attribute, type, count, values);
        else if ((walk->datasets[0] == '\0' || text_has_item(walk->datasets, walk->path)) &&
                 strcmp(name, HDF5_SCALES) == 0 && class == H5T_VLEN &&
                 H5Tdetect_class(type, H5T_REFERENCE) > 0)
            good = scales_read(walk, object, attribute, type, count, values);
    }
    const size_t read = json_array_size(values);
    put(walk->attributes, name,
        read == 1                       ? json_incref(json_array_get(values, 0))
        : good && read == (size_t)count ? json_incref(values)
                                        : json_null());
    json_decref(values);
    H5Sclose(space);
    H5Tclose(type);
    H5Aclose(attribute);
    return good ? 0 : -1;
}

/* ---- chunks ---- */

/* The data set whose chunks are visited. */
struct chunk_walk {
    const struct hdf5_object *dataset;
    hsize_t shift; /* of offsets */
    FILE *text;
};

/* Write the line of a chunk, with the index of its first element in each dimension. */
static int chunk_write(const hsize_t *first, unsigned skipped, haddr_t offset, hsize_t bytes,
                       void *context)
{
    const struct chunk_walk *walk = context;
    const struct hdf5_object *dataset = walk->dataset;
    int64_t index = 0;
    for (int d = 0; d < dataset->dimensions; d++) {
        if ((int64_t)first[d] >= dataset->extent[d])
            return 0;
        index = index * round_up_division(dataset->extent[d], dataset->chunk[d]) +
                (int64_t)first[d] / dataset->chunk[d];
    }
    fprintf(walk->text, "%llx %llx %llx %x\n", (unsigned long long)index,
            (unsigned long long)(offset + walk->shift), (unsigned long long)bytes, skipped);
    return 0;
}

/* Write the lines of the chunks that exist. The time is proportional to their number. */
static bool chunks_describe(hid_t dataset, const struct hdf5_object *to, json_t *json)
{
    struct text_stream text;
    struct chunk_walk walk = {.dataset = to, .text = text_stream_open(&text)};
#if H5_VERSION_GE(1, 14, 0)
#if !H5_VERSION_GE(1, 14, 4)
    /* H5Dchunk_iter leaves out the size of the user block, which MATLAB for example writes before
     * the file. */
    hid_t file = H5Iget_file_id(dataset), creation = H5Fget_create_plist(file);
    H5Pget_userblock(creation, &walk.shift);
    H5Pclose(creation);
    H5Fclose(file);
#endif
    const bool good = H5Dchunk_iter(dataset, H5P_DEFAULT, chunk_write, &walk) >= 0;
#else
    static char unused; /* the driver does not write to the buffer */
    hsize_t first[H5S_MAX_RANK] = {0}, count = 0, found = 0, bytes;
    hid_t space = H5Dget_space(dataset);
    bool good = H5Dget_num_chunks(dataset, space, &count) >= 0, exists;
    H5Sclose(space);
    for (int d = 0; good && found < count && d >= 0;) {
        /* It fails if the chunk does not exist. */
        H5E_BEGIN_TRY
        {
            exists = H5Dget_chunk_storage_size(dataset, first, &bytes) >= 0 && bytes > 0;
        }
        H5E_END_TRY
        if (exists) {
            uint32_t skipped = 0;
            hdf5_chunk_note_begin();
            good = H5Dread_chunk(dataset, H5P_DEFAULT, first, &skipped, &unused) >= 0;
            const haddr_t offset = hdf5_chunk_note_end();
            if (good)
                chunk_write(first, skipped, offset, bytes, &walk);
            found++;
        }
        for (d = to->dimensions - 1; d >= 0; d--) {
            first[d] += (hsize_t)to->chunk[d];
            if ((int64_t)first[d] < to->extent[d])
                break;
            first[d] = 0;
        }
    }
    good = good && found == count;
#endif
    OWNED char *lines = text_stream_close(&text);
    value_put(json, "chunks", json_string(lines));
    return good;
}

/* ---- objects ---- */

static json_t *sizes_value(const int64_t *values, int count)
{
    json_t *list = json_array();
    for (int n = 0; n < count; n++)
        value_append(list, json_integer(values[n]));
    return list;
}

/* Describe a data set. HDF5 may open other files for the shape of a virtual one. */
static bool dataset_describe(const struct walk *walk, hid_t dataset, json_t *json)
{
    static const enum hdf5_layout layouts[H5D_NLAYOUTS] = {[H5D_COMPACT] = HDF5_COMPACT,
                                                           [H5D_CONTIGUOUS] = HDF5_CONTIGUOUS,
                                                           [H5D_CHUNKED] = HDF5_CHUNKED,
                                                           [H5D_VIRTUAL] = HDF5_VIRTUAL};
    struct hdf5_object to = {.kind = HDF5_DATASET, .offset = -1};
    hsize_t extent[H5S_MAX_RANK], chunk[H5S_MAX_RANK] = {0};
    char text[TYPE];
    H5D_fill_value_t defined = H5D_FILL_VALUE_UNDEFINED;
    hid_t type = H5Dget_type(dataset), creation = H5Dget_create_plist(dataset);
    const H5D_layout_t layout = H5Pget_layout(creation);
    bool good = type >= 0 && layout >= 0;
    type_write(type, text);
    to.layout = good ? layouts[layout] : HDF5_VIRTUAL;
    if (to.layout == HDF5_CONTIGUOUS && H5Pget_external_count(creation) > 0)
        to.layout = HDF5_EXTERNAL;
    if (to.layout == HDF5_CHUNKED)
        H5Pget_chunk(creation, H5S_MAX_RANK, chunk);
    /* With a user block, the offset of a data set without storage is not HADDR_UNDEF. */
    if (to.layout == HDF5_CONTIGUOUS && H5Dget_storage_size(dataset) > 0)
        to.offset = (int64_t)H5Dget_offset(dataset);
    if (to.layout != HDF5_VIRTUAL) {
        hid_t space = H5Dget_space(dataset);
        to.dimensions = H5Sget_simple_extent_dims(space, extent, NULL);
        to.filter_count = H5Pget_nfilters(creation);
        good = good && to.dimensions >= 0 && to.filter_count >= 0;
        H5Sclose(space);
    }
    if (to.dimensions > HDF5_DIMENSIONS || to.filter_count > HDF5_FILTERS) {
        to.kind = HDF5_OTHER;
        to.dimensions = to.filter_count = 0;
    }
    for (int d = 0; d < to.dimensions; d++) {
        to.extent[d] = (int64_t)extent[d];
        to.chunk[d] = (int64_t)chunk[d];
    }
    for (int n = 0; n < to.filter_count; n++) {
        unsigned flags, settings;
        size_t none = 0;
        to.filter[n] =
            H5Pget_filter2(creation, (unsigned)n, &flags, &none, NULL, 0, NULL, &settings);
    }
    const bool is_number = strchr("iufb", text[1]) != NULL;
    if (good && is_number && H5Tget_class(type) != H5T_ENUM &&
        H5Pfill_value_defined(creation, &defined) >= 0 && defined != H5D_FILL_VALUE_UNDEFINED)
        good = H5Pget_fill_value(creation, H5T_NATIVE_DOUBLE, &to.fill) >= 0;
    value_put(json, "kind", json_integer(to.kind));
    value_put(json, "type", json_string(text));
    value_put(json, "layout", json_integer(to.layout));
    value_put(json, "offset", json_integer(to.offset));
    value_put(json, "extent", sizes_value(to.extent, to.dimensions));
    value_put(json, "chunk", sizes_value(to.chunk, to.layout == HDF5_CHUNKED ? to.dimensions : 0));
    value_put(json, "filters", sizes_value(to.filter, to.filter_count));
    value_put(json, "fill", real_value(to.fill));
    if (good && to.kind == HDF5_DATASET && is_number && to.layout == HDF5_CHUNKED &&
        chunks_are_wanted(walk, to.dimensions))
        good = chunks_describe(dataset, &to, json);
    H5Pclose(creation);
    H5Tclose(type);
    return good;
}

/* Describe an object and its attributes. If it has a fault, state it, so that the other objects can
 * be described. */
static herr_t link_describe(hid_t file, const char *path, const H5L_info_t *link, void *context)
{
    struct walk *walk = context;
    char *reason = walk->errors->reason;
    json_t *to = json_object();
    walk->path = link != NULL ? path : "";
    snprintf(walk->last, sizeof walk->last, "%s", walk->path);
    put(walk->objects, walk->path, to);
    if (link != NULL && link->type != H5L_TYPE_HARD) {
        value_put(to, "kind", json_integer(HDF5_OTHER));
        return 0;
    }
    hid_t object = H5Oopen(file, path, H5P_DEFAULT);
    const H5I_type_t kind = object < 0 ? H5I_BADID : H5Iget_type(object);
    walk->attributes = json_object();
    value_put(to, "attributes", walk->attributes);
    value_put(to, "kind", json_integer(kind == H5I_GROUP ? HDF5_GROUP : HDF5_OTHER));
    const bool good =
        kind != H5I_BADID &&
        H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, attribute_describe, walk) >= 0 &&
        (kind != H5I_DATASET || dataset_describe(walk, object, to));
    H5Oclose(object);
    text_remove_control(reason);
    if (!good || reason[0] != '\0')
        value_put(to, "fault", value_name(reason[0] != '\0' ? reason : "HDF5 cannot read it"));
    reason[0] = '\0';
    return 0;
}

char *hdf5_describe(const char *path, const char *datasets)
{
    struct hdf5_errors errors;
    struct walk walk = {.errors = &errors, .objects = json_object(), .datasets = datasets};
    json_t *description = json_object();
    value_put(description, "objects", walk.objects);
    hdf5_errors_begin(&errors);
    hid_t file = hdf5_file_open(path);
    bool good = file >= 0 && link_describe(file, ".", NULL, &walk) >= 0 &&
                H5Lvisit(file, H5_INDEX_CRT_ORDER, H5_ITER_INC, link_describe, &walk) >= 0;
    H5Fclose(file);
    good = hdf5_errors_end(&errors) && good;
    if (!good) {
        OWNED char *fault =
            allocate_text("%s%s%s", walk.last, walk.last[0] != '\0' ? ": " : "",
                          errors.reason[0] != '\0' ? errors.reason : "HDF5 cannot read it");
        value_put(description, "fault", value_name(fault));
    }
    char *text = json_dumps(description, JSON_COMPACT);
    ENSURE_MEMORY(text != NULL, "no memory for JSON");
    json_decref(description);
    return text;
}
