// SPDX-License-Identifier: BSD-3-Clause
/* Descriptions of HDF5 files (hdf5_reader.h): the part that calls HDF5. */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/hdf5_chunks.h"
#include "core/hdf5_file.h"
#include "core/hdf5_reader.h"
#include "core/text.h"

/* HDF5's limit is that of a header message, 64 KiB. */
enum { HDF5_MOST_COMPACT = 1 << 17 };

/* An array that grows, written as a file (open_memstream). */
struct stream {
    FILE *file;
    char *data;
    size_t bytes;
};

struct walk {
    struct hdf5_description *to;
    struct hdf5_errors *errors;
    struct stream objects, attributes, values, chunks;
    const char *datasets; /* of hdf5_reader */
    hsize_t user_block;   /* bytes before the file's first one in HDF5 */
    char path[HDF5_NAME]; /* of the current object */
};

/* The data set whose chunks are visited. */
struct chunk_walk {
    struct walk *walk;
    struct hdf5_object *to;
};

__attribute__((format(printf, 2, 3))) static bool fault_set(struct walk *walk, const char *format,
                                                            ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (walk->to->fault[0] == '\0')
        vsnprintf(walk->to->fault, sizeof walk->to->fault, format, arguments);
    va_end(arguments);
    return false;
}

static bool name_copy(struct walk *walk, char *to, const char *name)
{
    return snprintf(to, HDF5_NAME, "%s", name) < HDF5_NAME ||
           fault_set(walk, "the name %.60s... is longer than %d bytes", name, HDF5_NAME - 1);
}

/* True if the layout of a floating-point type is that of IEEE's half precision, for which HDF5
 * before 1.14.4 has no name. */
static bool is_half(hid_t type)
{
    size_t sign, exponent, exponent_bits, mantissa, mantissa_bits;
    return H5Tget_class(type) == H5T_FLOAT && H5Tget_size(type) == 2 &&
           H5Tget_precision(type) == 16 && H5Tget_ebias(type) == 15 &&
           H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) >= 0 &&
           sign == 15 && exponent == 10 && exponent_bits == 5 && mantissa == 0 &&
           mantissa_bits == 10;
}

static const char *number_text(hid_t type)
{
    const struct {
        const char *text;
        hid_t type;
    } numbers[] = {
        {"|i1", H5T_STD_I8LE},   {"|u1", H5T_STD_U8LE},   {"<i2", H5T_STD_I16LE},
        {"<u2", H5T_STD_U16LE},  {"<i4", H5T_STD_I32LE},  {"<u4", H5T_STD_U32LE},
        {"<i8", H5T_STD_I64LE},  {"<u8", H5T_STD_U64LE},  {"<f4", H5T_IEEE_F32LE},
        {"|i1", H5T_STD_I8BE},   {"|u1", H5T_STD_U8BE},   {">i2", H5T_STD_I16BE},
        {">u2", H5T_STD_U16BE},  {">i4", H5T_STD_I32BE},  {">u4", H5T_STD_U32BE},
        {">i8", H5T_STD_I64BE},  {">u8", H5T_STD_U64BE},  {">f4", H5T_IEEE_F32BE},
        {"<f8", H5T_IEEE_F64LE}, {">f8", H5T_IEEE_F64BE},
    };
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
        if (H5Tequal(type, numbers[n].type) > 0)
            return numbers[n].text;
    return !is_half(type) ? NULL : H5Tget_order(type) == H5T_ORDER_BE ? ">f2" : "<f2";
}

/* True if this is h5py's Boolean: an enumeration of FALSE=0 and TRUE=1. */
static bool is_boolean(hid_t type)
{
    static const char *const names[] = {"FALSE", "TRUE"};
    bool good = H5Tget_size(type) == 1 && H5Tget_nmembers(type) == 2;
    for (unsigned n = 0; good && n < 2; n++) {
        unsigned char value = 2;
        char *name = H5Tget_member_name(type, n);
        good = name != NULL && strcmp(name, names[n]) == 0 &&
               H5Tget_member_value(type, n, &value) >= 0 && value == n;
        H5free_memory(name);
    }
    return good;
}

static void type_describe(hid_t type, struct hdf5_object *to)
{
    const H5T_class_t class = H5Tget_class(type);
    const bool is_number = class == H5T_INTEGER || class == H5T_FLOAT;
    const char *text = is_number ? number_text(type) : NULL;
    if (class == H5T_ENUM) {
        hid_t base = H5Tget_super(type);
        text = is_boolean(type) ? "|b1" : number_text(base);
        H5Tclose(base);
    }
    if (class == H5T_STRING && H5Tis_variable_str(type) > 0)
        text = "|O";
    to->element_bytes = (int64_t)H5Tget_size(type);
    if (text != NULL)
        snprintf(to->type, sizeof to->type, "%s", text);
    else
        snprintf(to->type, sizeof to->type, "|%c%lld", class == H5T_STRING ? 'S' : 'V',
                 (long long)to->element_bytes);
}

/* True if hdf5_reader.datasets has the current object. */
static bool is_wanted(const struct walk *walk)
{
    size_t length;
    for (const char *item = text_next_item(walk->datasets, &length); item != NULL;
         item = text_next_item(item + length, &length))
        if (strlen(walk->path) == length && strncmp(walk->path, item, length) == 0)
            return true;
    return false;
}

/* True if the chunks and compact data of the current data set are described: hdf5_reader.datasets
 * has it, or if it has any, it is a dimension scale in use or a list with units, such as times. */
static bool data_are_wanted(const struct walk *walk, hid_t dataset, int64_t dimensions)
{
    return is_wanted(walk) ||
           (walk->datasets[0] != '\0' && (H5Aexists(dataset, HDF5_SCALE_USES) > 0 ||
                                          (dimensions == 1 && H5Aexists(dataset, "units") > 0)));
}

/* ---- attributes ---- */

static bool numbers_read(struct walk *walk, hid_t attribute, hid_t type, struct hdf5_attribute *to)
{
    hid_t memory = H5T_NATIVE_DOUBLE;
    to->kind = HDF5_REAL;
    if (H5Tget_class(type) == H5T_INTEGER) {
        const bool is_signed = H5Tget_sign(type) != H5T_SGN_NONE;
        to->kind = is_signed ? HDF5_INTEGER : HDF5_UNSIGNED;
        memory = is_signed ? H5T_NATIVE_INT64 : H5T_NATIVE_UINT64;
    }
    double *values = calloc((size_t)to->count + 1, sizeof *values);
    const bool good = values != NULL && H5Aread(attribute, memory, values) >= 0;
    if (good)
        fwrite(values, sizeof *values, (size_t)to->count, walk->values.file);
    free(values);
    return good;
}

static bool texts_read(struct walk *walk, hid_t attribute, hid_t type, struct hdf5_attribute *to)
{
    const bool variable = H5Tis_variable_str(type) > 0;
    const size_t size = H5Tget_size(type);
    char *values = calloc((size_t)to->count + 1, size), **texts = (char **)values;
    const bool good = values != NULL && H5Aread(attribute, type, values) >= 0;
    to->kind = HDF5_TEXT;
    for (int64_t n = 0; good && n < to->count; n++) {
        const char *text = variable ? texts[n] : values + (size_t)n * size;
        if (text != NULL)
            fwrite(text, 1, variable ? strlen(text) : strnlen(text, size), walk->values.file);
        fputc('\0', walk->values.file);
        if (variable)
            H5free_memory(texts[n]);
    }
    free(values);
    return good;
}

/* Write the paths of the first scale of each dimension as texts, "" if it has none. */
static bool scales_read(struct walk *walk, hid_t object, hid_t attribute, hid_t type,
                        struct hdf5_attribute *to)
{
    hid_t space = H5Aget_space(attribute);
    hvl_t *lists = calloc((size_t)to->count + 1, sizeof *lists);
    const bool good = lists != NULL && H5Aread(attribute, type, lists) >= 0;
    to->kind = HDF5_TEXT;
    for (int64_t n = 0; good && n < to->count; n++) {
        char path[HDF5_NAME] = "";
        hid_t scale =
            lists[n].len > 0 ? H5Rdereference2(object, H5P_DEFAULT, H5R_OBJECT, lists[n].p) : -1;
        if (scale >= 0 && H5Iget_name(scale, path, sizeof path) >= (ssize_t)sizeof path)
            path[0] = '\0';
        if (scale >= 0)
            H5Oclose(scale);
        fwrite(path, 1, strlen(path) + 1, walk->values.file);
    }
    if (good)
        H5Dvlen_reclaim(type, space, H5P_DEFAULT, lists);
    H5Sclose(space);
    free(lists);
    walk->errors->reason[0] = '\0'; /* a scale that was removed is no fault of the data set */
    return good;
}

/* True if the type is that of the attribute DIMENSION_LIST: lists of references to scales. */
static bool is_scale_list(const char *name, hid_t type)
{
    if (strcmp(name, HDF5_SCALES) != 0 || H5Tget_class(type) != H5T_VLEN)
        return false;
    hid_t base = H5Tget_super(type);
    const bool is_reference = H5Tequal(base, H5T_STD_REF_OBJ) > 0;
    H5Tclose(base);
    return is_reference;
}

static herr_t attribute_describe(hid_t object, const char *name, const H5A_info_t *info,
                                 void *context)
{
    struct walk *walk = context;
    hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
    hid_t type = H5Aget_type(attribute), space = H5Aget_space(attribute);
    const H5T_class_t class = H5Tget_class(type);
    struct hdf5_attribute to = {.count = H5Sget_simple_extent_npoints(space),
                                .offset = ftello(walk->values.file)};
    (void)info;
    bool good = type >= 0 && to.count >= 0 && name_copy(walk, to.name, name);
    const bool is_last = walk->to->attribute_count++ >= HDF5_MOST_ATTRIBUTES;
    if (good && (is_last || to.count > (HDF5_MOST_VALUES - to.offset) / 8))
        good = fault_set(walk, "it has too many attributes");
    if (good && (class == H5T_INTEGER || class == H5T_FLOAT))
        good = numbers_read(walk, attribute, type, &to);
    else if (good && class == H5T_STRING)
        good = texts_read(walk, attribute, type, &to);
    else if (good && is_wanted(walk) && is_scale_list(name, type))
        good = scales_read(walk, object, attribute, type, &to);
    if (!good)
        to = (struct hdf5_attribute){.kind = HDF5_NO_VALUE};
    fwrite(&to, sizeof to, 1, walk->attributes.file);
    H5Sclose(space);
    H5Tclose(type);
    H5Aclose(attribute);
    return good ? 0 : -1;
}

/* ---- objects ---- */

/* Add a chunk to the object that `context` describes (hdf5_chunk_visit). */
static int chunk_add(const hsize_t *first, unsigned skipped, haddr_t offset, hsize_t bytes,
                     void *context)
{
    struct chunk_walk *chunks = context;
    struct walk *walk = chunks->walk;
    struct hdf5_object *to = chunks->to;
    struct hdf5_chunk chunk = {
        .offset = (int64_t)offset, .bytes = (uint32_t)bytes, .skipped = skipped};
#if H5_VERSION_GE(1, 14, 0) && !H5_VERSION_GE(1, 14, 4)
    chunk.offset += (int64_t)walk->user_block; /* H5Dchunk_iter leaves it out */
#endif
    for (int64_t d = 0; d < to->dimensions; d++) {
        if ((int64_t)first[d] >= to->extent[d])
            return 0;
        chunk.index = chunk.index * ((to->extent[d] + to->chunk[d] - 1) / to->chunk[d]) +
                      (int64_t)first[d] / to->chunk[d];
    }
    to->chunk_count++;
    fwrite(&chunk, sizeof chunk, 1, walk->chunks.file);
    return walk->to->chunk_count++ < HDF5_MOST_CHUNKS || fault_set(walk, "it has too many chunks")
               ? 0
               : -1;
}

static bool chunks_describe(struct walk *walk, hid_t dataset, struct hdf5_object *to)
{
    struct chunk_walk chunks = {.walk = walk, .to = to};
    to->first_chunk = walk->to->chunk_count;
    return hdf5_chunks_visit(dataset, (int)to->dimensions, to->extent, to->chunk, chunk_add,
                             &chunks);
}

/* Copy the data of a compact data set, which are in its header. */
static bool compact_describe(struct walk *walk, hid_t dataset, hid_t type, struct hdf5_object *to)
{
    char *data = calloc(1, HDF5_MOST_COMPACT);
    const bool good = data != NULL && H5Dget_storage_size(dataset) <= HDF5_MOST_COMPACT &&
                      H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0;
    to->offset = ftello(walk->values.file);
    if (good)
        fwrite(data, 1, (size_t)H5Dget_storage_size(dataset), walk->values.file);
    free(data);
    return good;
}

static void layout_describe(hid_t dataset, hid_t creation, struct hdf5_object *to)
{
    hsize_t chunk[H5S_MAX_RANK];
    switch (H5Pget_layout(creation)) {
    case H5D_CONTIGUOUS:
        to->layout = H5Pget_external_count(creation) == 0 ? HDF5_CONTIGUOUS : HDF5_EXTERNAL;
        /* With a user block, the offset of a data set without storage is not HADDR_UNDEF. */
        to->offset = to->layout == HDF5_CONTIGUOUS && H5Dget_storage_size(dataset) > 0
                         ? (int64_t)H5Dget_offset(dataset)
                         : -1;
        break;
    case H5D_CHUNKED:
        to->layout = HDF5_CHUNKED;
        for (int d = H5Pget_chunk(creation, H5S_MAX_RANK, chunk); d-- > 0;)
            if (d < HDF5_DIMENSIONS)
                to->chunk[d] = (int64_t)chunk[d];
        break;
    case H5D_COMPACT:
        to->layout = HDF5_COMPACT;
        to->offset = -1;
        break;
    default:
        to->layout = HDF5_VIRTUAL;
    }
    to->filter_count = H5Pget_nfilters(creation);
    for (int64_t n = 0; n < to->filter_count && n < HDF5_FILTERS; n++) {
        unsigned flags, settings;
        size_t none = 0;
        to->filter[n] =
            H5Pget_filter2(creation, (unsigned)n, &flags, &none, NULL, 0, NULL, &settings);
    }
}

/* Describe where the values of a data set are, and the fill value. */
static bool values_describe(struct walk *walk, hid_t dataset, hid_t type, hid_t creation,
                            struct hdf5_object *to)
{
    const bool is_number = to->type[0] != '\0' && strchr("iufb", to->type[1]) != NULL;
    const bool has_data = is_number && data_are_wanted(walk, dataset, to->dimensions);
    H5D_fill_value_t defined = H5D_FILL_VALUE_UNDEFINED;
    bool good = true;
    if (H5Tget_class(type) != H5T_ENUM && is_number &&
        H5Pfill_value_defined(creation, &defined) >= 0 && defined != H5D_FILL_VALUE_UNDEFINED)
        good = H5Pget_fill_value(creation, H5T_NATIVE_DOUBLE, &to->fill) >= 0;
    if (good && has_data && to->layout == HDF5_CHUNKED)
        good = chunks_describe(walk, dataset, to);
    if (good && has_data && to->layout == HDF5_COMPACT)
        good = compact_describe(walk, dataset, type, to);
    return good;
}

static bool dataset_describe(struct walk *walk, hid_t dataset, struct hdf5_object *to)
{
    hsize_t extent[H5S_MAX_RANK];
    hid_t type = H5Dget_type(dataset), creation = H5Dget_create_plist(dataset), space = -1;
    bool good = type >= 0 && creation >= 0;
    to->kind = HDF5_DATASET;
    type_describe(type, to);
    layout_describe(dataset, creation, to);
    if (good && to->layout != HDF5_VIRTUAL) { /* HDF5 may open other files for it */
        space = H5Dget_space(dataset);
        const int dimensions = H5Sget_simple_extent_dims(space, extent, NULL);
        good = dimensions >= 0;
        if (dimensions > HDF5_DIMENSIONS || to->filter_count > HDF5_FILTERS)
            to->kind = HDF5_OTHER;
        for (int d = 0; to->kind == HDF5_DATASET && d < dimensions; d++)
            to->extent[d] = (int64_t)extent[d];
        to->dimensions = to->kind == HDF5_DATASET ? dimensions : 0;
        good = good &&
               (to->kind != HDF5_DATASET || values_describe(walk, dataset, type, creation, to));
        H5Sclose(space);
    }
    H5Pclose(creation);
    H5Tclose(type);
    return good;
}

/* Describe the object at this path and its attributes. */
static bool object_describe(struct walk *walk, hid_t file, const char *path, struct hdf5_object *to)
{
    hid_t object = H5Oopen(file, path, H5P_DEFAULT);
    const H5I_type_t kind = object < 0 ? H5I_BADID : H5Iget_type(object);
    to->kind = kind == H5I_GROUP ? HDF5_GROUP : HDF5_OTHER;
    to->first_attribute = walk->to->attribute_count;
    bool good =
        kind != H5I_BADID &&
        H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, attribute_describe, walk) >= 0 &&
        (kind != H5I_DATASET || dataset_describe(walk, object, to));
    to->attribute_count = walk->to->attribute_count - to->first_attribute;
    H5Oclose(object);
    return good && walk->errors->reason[0] == '\0';
}

/* Keep the reason of the failure of object_describe, so that the other objects can be described.
 * Return false if the file has a fault. */
static bool fault_keep(struct walk *walk, struct hdf5_object *to)
{
    char *reason = walk->errors->reason;
    if (walk->to->fault[0] != '\0')
        return false;
    if (reason[0] == '\0')
        snprintf(reason, sizeof walk->errors->reason, "HDF5 cannot read it");
    text_remove_control(reason);
    snprintf(to->fault, sizeof to->fault, "%.*s", HDF5_FAULT - 1, reason);
    if (walk->to->object_fault[0] == '\0')
        snprintf(walk->to->object_fault, sizeof walk->to->object_fault, "%.100s%s%.150s",
                 walk->path, walk->path[0] == '\0' ? "" : ": ", reason);
    reason[0] = '\0';
    return true;
}

static herr_t link_describe(hid_t file, const char *path, const H5L_info_t *link, void *context)
{
    struct walk *walk = context;
    struct hdf5_object to = {.kind = HDF5_LINK, .depth = link != NULL};
    const char *name = link != NULL ? path : "";
    for (const char *slash; (slash = strchr(name, '/')) != NULL; name = slash + 1)
        to.depth++;
    snprintf(walk->path, sizeof walk->path, "%s", link != NULL ? path : "");
    if (link != NULL && link->type == H5L_TYPE_SOFT && link->u.val_size <= sizeof to.fault)
        H5Lget_val(file, path, to.fault, sizeof to.fault, H5P_DEFAULT);
    bool good = (walk->to->object_count++ < HDF5_MOST_OBJECTS ||
                 fault_set(walk, "it has too many objects")) &&
                name_copy(walk, to.name, name);
    if (good && (link == NULL || link->type == H5L_TYPE_HARD))
        good = object_describe(walk, file, path, &to) || fault_keep(walk, &to);
    fwrite(&to, sizeof to, 1, walk->objects.file);
    return good ? 0 : -1;
}

static bool stream_open(struct stream *stream)
{
    stream->file = open_memstream(&stream->data, &stream->bytes);
    return stream->file != NULL;
}

static void *stream_close(struct stream *stream, bool *good)
{
    *good = stream->file != NULL && fclose(stream->file) == 0 && *good;
    return stream->data;
}

/* Return the size of the user block, which MATLAB for example writes before the file. */
static hsize_t user_block_of(hid_t file)
{
    hsize_t bytes = 0;
    hid_t creation = file >= 0 ? H5Fget_create_plist(file) : -1;
    if (creation >= 0) {
        H5Pget_userblock(creation, &bytes);
        H5Pclose(creation);
    }
    return bytes;
}

void hdf5_describe(const char *path, const char *datasets, struct hdf5_description *description)
{
    struct hdf5_errors errors;
    struct walk walk = {.to = description, .errors = &errors, .datasets = datasets};
    long long bytes, base, needed;
    memset(description, 0, sizeof *description);
    bool memory = stream_open(&walk.objects) && stream_open(&walk.attributes) &&
                  stream_open(&walk.values) && stream_open(&walk.chunks);
    hdf5_errors_begin(&errors);
    hid_t file = memory ? hdf5_file_open(path) : -1;
    walk.user_block = user_block_of(file);
    bool good = file >= 0 && link_describe(file, ".", NULL, &walk) >= 0 &&
                H5Lvisit(file, H5_INDEX_CRT_ORDER, H5_ITER_INC, link_describe, &walk) >= 0;
    H5Fclose(file);
    good = hdf5_errors_end(&errors) && good;
    description->objects = stream_close(&walk.objects, &memory);
    description->attributes = stream_close(&walk.attributes, &memory);
    description->values = stream_close(&walk.values, &memory);
    description->chunks = stream_close(&walk.chunks, &memory);
    description->value_bytes = (int64_t)walk.values.bytes;
    if (sscanf(errors.reason,
               "truncated file: eof = %lld, sblock->base_addr = %lld, stored_eof = %lld", &bytes,
               &base, &needed) == 3)
        fault_set(&walk, "it is truncated: it has %lld of its %lld bytes", bytes, needed);
    if (!memory)
        fault_set(&walk, "no memory for its structure");
    if (!good)
        fault_set(&walk, "%s%s%.150s", walk.path, walk.path[0] == '\0' ? "" : ": ",
                  errors.reason[0] != '\0' ? errors.reason : "HDF5 cannot read it");
    if (description->fault[0] != '\0')
        description->object_count = description->attribute_count = description->value_bytes =
            description->chunk_count = 0;
}

void hdf5_description_free(struct hdf5_description *description)
{
    free(description->objects);
    free(description->attributes);
    free(description->values);
    free(description->chunks);
    memset(description, 0, sizeof *description);
}
