// SPDX-License-Identifier: BSD-3-Clause
/* The index of HDF5 and NetCDF-4 files: describes their data sets as arrays. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrays/decode.h"
#include "arrays/path.h"
#include "base/allocate.h"

/* State a fault and how to rewrite the data set with Python; `modules` can read it. Unlike h5py,
 * h5repack leaves out a data set that it cannot decode, and ends with status 0. Return false. */
static bool rewriting_advise(const struct array *array, const char *fault, const char *modules,
                             struct error *error)
{
    return array_refuse(
        array, error,
        "%s: rewrite it in a copy of the file, in the same folder: `python3 -c \"import %s; f = "
        "h5py.File('COPY.h5', 'r+'); d = f['NAME']; n, x, c, a = d.name, d[()], d.chunks, "
        "dict(d.attrs); del f[n]; f.create_dataset(n, data=x, chunks=c, compression=c and "
        "'gzip').attrs.update(a)\"`",
        fault, modules);
}

/* Set shape and filters, unless the object has none. */
static bool shape_read(const struct hdf5_object *dataset, struct array *array, struct error *error)
{
    if (dataset->kind == HDF5_LINK && dataset->target[0] != '\0')
        return array_refuse(array, error, "it is a link to '%s': name that data set",
                            dataset->target);
    if (dataset->kind == HDF5_LINK)
        return array_refuse(array, error, "it is a link: name the data set itself");
    if (dataset->kind == HDF5_GROUP)
        return array_refuse(array, error, "it is a group: name a data set in it");
    if (dataset->fault[0] != '\0')
        return array_refuse(array, error,
                            "HDF5 reports \"%s\": if a newer HDF5 wrote the file, write it with "
                            "h5py.File(FILE, 'w', libver=('earliest', 'v110'))",
                            dataset->fault);
    if (dataset->kind != HDF5_DATASET)
        return array_refuse(array, error, "it is not a data set of at most %d dimensions",
                            HDF5_DIMENSIONS);
    if (dataset->layout == HDF5_VIRTUAL)
        return rewriting_advise(array, "it is a virtual data set", "h5py", error);
    array->has_shape = true;
    array->is_chunked = dataset->layout == HDF5_CHUNKED;
    array->dimensions = dataset->dimensions;
    for (int d = 0; d < array->dimensions; d++) {
        array->extent[d] = dataset->extent[d];
        array->chunk[d] = array->is_chunked ? dataset->chunk[d] : dataset->extent[d];
    }
    array->filter_count = dataset->filter_count;
    for (int n = 0; n < array->filter_count; n++)
        array->filter[n] = dataset->filter[n];
    return true;
}

/* Check that the program can read values of this type, layout and with these filters. */
static bool values_check(const struct hdf5_object *dataset, struct array *array,
                         struct error *error)
{
    enum { PLUGINS = 256 /* the first filter that is not part of HDF5 */, LZF = 32000 };
    char name[FILTER_NAME], fault[80];
    const bool is_number = array_type_set(array, dataset->type);
    if (dataset->layout == HDF5_EXTERNAL)
        return rewriting_advise(array, "it is in external files", "h5py", error);
    if (!is_number)
        return array_refuse(array, error,
                            "its type is not an integer or a floating-point number of 1, 2, 4 or 8 "
                            "bytes: write its numbers as separate data sets");
    for (int n = 0; n < array->filter_count; n++) {
        if (filter_find(array->filter[n], name))
            continue;
        snprintf(fault, sizeof fault, "its filter %s is not supported", name);
        return rewriting_advise(
            array, fault,
            array->filter[n] >= PLUGINS && array->filter[n] != LZF ? "h5py, hdf5plugin" : "h5py",
            error);
    }
    int64_t bytes = array->element_bytes;
    for (int d = 0; d < array->dimensions; d++)
        if (array->extent[d] < 1 || __builtin_mul_overflow(bytes, array->extent[d], &bytes))
            return array_refuse_empty(array, error);
    return true;
}

/* Read the table of chunks or, if the layout is compact, the values. */
static bool places_read(const struct hdf5_object *dataset, struct array *array, struct error *error)
{
    const size_t bytes = (size_t)(array_elements(array) * array->element_bytes);
    size_t capacity = 0;
    if (dataset->layout == HDF5_CONTIGUOUS && dataset->offset >= 0) {
        array->chunks = allocate(1, sizeof *array->chunks);
        array->chunks[array->chunk_count++].offset = dataset->offset;
    }
    char *end;
    for (const char *line = dataset->chunks; isxdigit((unsigned char)*line);
         line = end + (*end == '\n')) {
        array->chunks = allocate_more(array->chunks, &capacity, (size_t)array->chunk_count,
                                      sizeof *array->chunks);
        struct array_chunk *chunk = &array->chunks[array->chunk_count++];
        chunk->index = (int64_t)strtoull(line, &end, 16);
        chunk->offset = (int64_t)strtoull(end, &end, 16);
        chunk->bytes = (uint32_t)strtoul(end, &end, 16);
        chunk->skipped = (uint32_t)strtoul(end, &end, 16);
    }
    if (dataset->layout != HDF5_COMPACT)
        return true;
    if (strlen(dataset->data) != 2 * bytes)
        return array_refuse(array, error, "it has an invalid size: the file is damaged");
    array->data = allocate(bytes, 1);
    for (size_t b = 0; b < bytes; b++)
        array->data[b] = (uint8_t)strtoul(
            (const char[]){dataset->data[2 * b], dataset->data[2 * b + 1], '\0'}, NULL, 16);
    return true;
}

bool array_hdf5_open(const struct array_path *source, const char *name, struct array *array,
                     struct error *error)
{
    struct hdf5_object dataset;
    const struct hdf5_reader *reader = source->reader;
    array_begin(array, source->path, name, source->file, &reader->stamp);
    if (!hdf5_object_find(reader, name, &dataset))
        return error_set(error, ERROR_DATA,
                         "%s has no data set '%s': `vittrain data describe %s` lists them",
                         source->path, name, source->path);
    array->fill = dataset.fill;
    /* A reader without a list of data sets has described no chunks and no values. */
    return shape_read(&dataset, array, error) && values_check(&dataset, array, error) &&
           array_rule_set(array, dataset.attributes, error) &&
           (reader->datasets == NULL || places_read(&dataset, array, error)) &&
           array_open(array, error);
}
