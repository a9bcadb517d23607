// SPDX-License-Identifier: BSD-3-Clause
#include "data/array_formats.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/allocate.h"
#include "core/file.h"

enum { PLUGINS = 256 /* the first number of a filter that is not part of HDF5 */, LZF = 32000 };

/* Filters by their registered HDF5 numbers. */
static const struct filter {
    int64_t number;
    const char *name;
    int filter; /* enum array_filter; -1: not supported */
} filters[] = {
    {1, "deflate", ARRAY_DEFLATE},
    {2, "shuffle", ARRAY_SHUFFLE},
    {3, "fletcher32", ARRAY_FLETCHER32},
    {4, "szip", -1},
    {5, "nbit", -1},
    {6, "scaleoffset", -1},
    {305, "lzo", -1},
    {307, "bzip2", -1},
    {LZF, "lzf", -1},
    {32001, "blosc", ARRAY_BLOSC},
    {32004, "lz4", ARRAY_LZ4},
    {32008, "bitshuffle", -1},
    {32013, "zfp", -1},
    {32015, "zstd", ARRAY_ZSTD},
    {32026, "blosc2", -1},
};

enum { FILTERS = sizeof filters / sizeof filters[0] };

static const struct filter *filter_find(int64_t number)
{
    for (int n = 0; n < FILTERS; n++)
        if (filters[n].number == number)
            return &filters[n];
    return NULL;
}

static void filter_name(int64_t number, char *text, size_t size)
{
    const struct filter *known = filter_find(number);
    if (known != NULL)
        snprintf(text, size, "%s", known->name);
    else
        snprintf(text, size, "number %lld", (long long)number);
}

void array_hdf5_filter_names(const struct hdf5_object *dataset, char *text, size_t size)
{
    size_t used = 0;
    snprintf(text, size, "no filter");
    for (int n = 0; n < dataset->filter_count && used < size; n++) {
        char name[32];
        filter_name(dataset->filter[n], name, sizeof name);
        used += (size_t)snprintf(text + used, size - used, "%s%s", n > 0 ? ", " : "", name);
    }
}

static bool is_number(const struct hdf5_object *dataset)
{
    const int64_t bytes = dataset->element_bytes;
    const char kind = dataset->type[1];
    return (kind == 'i' || kind == 'u' || kind == 'f' || kind == 'b') &&
           (bytes != 1 || kind != 'f') && (bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8);
}

static bool is_swapped(const struct hdf5_object *dataset)
{
    return dataset->type[0] != '|' && dataset->type[0] != HDF5_NATIVE[0];
}

void array_hdf5_type_name(const struct hdf5_object *dataset, char *text, size_t size)
{
    const char kind = dataset->type[1];
    const char *name = kind == 'i' ? "int" : kind == 'u' ? "uint" : "float";
    if (kind == 'b')
        snprintf(text, size, "bool");
    else if (is_number(dataset))
        snprintf(text, size, "%s%s%lld",
                 !is_swapped(dataset)      ? ""
                 : dataset->type[0] == '>' ? "big-endian "
                                           : "little-endian ",
                 name, 8 * (long long)dataset->element_bytes);
    else
        snprintf(text, size, "%s", kind == 'S' || kind == 'O' ? "text" : "not numeric");
}

/* State a fault and how to rewrite the data set with Python; `modules` can read it. Unlike h5py,
 * h5repack leaves out a data set that it cannot decode, and ends with status 0. Return false. */
static bool advise_rewriting(char reason[ARRAY_REASON], const char *fault, const char *modules)
{
    snprintf(
        reason, ARRAY_REASON,
        "%s: rewrite it in a copy of the file, in the same folder: `python3 -c \"import %s; f = "
        "h5py.File('COPY.h5', 'r+'); d = f['NAME']; n, x, c, a = d.name, d[()], d.chunks, "
        "dict(d.attrs); del f[n]; f.create_dataset(n, data=x, chunks=c, compression=c and "
        "'gzip').attrs.update(a)\"`",
        fault, modules);
    return false;
}

/* True if the filters are supported. */
static bool filters_readable(const struct hdf5_object *dataset, char reason[ARRAY_REASON])
{
    char name[32], fault[80];
    for (int n = 0; n < dataset->filter_count; n++) {
        const int64_t number = dataset->filter[n];
        const struct filter *known = filter_find(number);
        if (known != NULL && known->filter >= 0)
            continue;
        filter_name(number, name, sizeof name);
        snprintf(fault, sizeof fault, "its filter %s is not supported", name);
        return advise_rewriting(reason, fault,
                                number >= PLUGINS && number != LZF ? "h5py, hdf5plugin" : "h5py");
    }
    return true;
}

bool array_hdf5_readable(const struct hdf5_object *dataset, char reason[ARRAY_REASON])
{
    if (dataset->kind == HDF5_LINK && dataset->target[0] != '\0')
        snprintf(reason, ARRAY_REASON, "it is a link to '%s': name that data set", dataset->target);
    else if (dataset->kind == HDF5_LINK)
        snprintf(reason, ARRAY_REASON, "it is a link: name the data set itself");
    else if (dataset->kind == HDF5_GROUP)
        snprintf(reason, ARRAY_REASON, "it is a group: name a data set in it");
    else if (dataset->fault[0] != '\0')
        snprintf(reason, ARRAY_REASON,
                 "HDF5 reports \"%s\": if a newer HDF5 wrote the file, write it with "
                 "h5py.File(FILE, 'w', libver=('earliest', 'v110'))",
                 dataset->fault);
    else if (dataset->kind != HDF5_DATASET)
        snprintf(reason, ARRAY_REASON, "it is not a data set of at most %d dimensions",
                 HDF5_DIMENSIONS);
    else if (dataset->layout == HDF5_VIRTUAL || dataset->layout == HDF5_EXTERNAL)
        return advise_rewriting(reason,
                                dataset->layout == HDF5_VIRTUAL ? "it is a virtual data set"
                                                                : "it is in external files",
                                "h5py");
    else if (!is_number(dataset))
        snprintf(reason, ARRAY_REASON,
                 "its type is not an integer or a floating-point number of 1, 2, 4 or 8 bytes: "
                 "write its numbers as separate data sets");
    else
        return filters_readable(dataset, reason);
    return false;
}

/* ---- data sets ---- */

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

/* Set the shape. Return false if it is empty or too large. */
static bool shape_read(const struct hdf5_object *dataset, struct array *array)
{
    int64_t bytes = array->element_bytes;
    array->dimensions = dataset->dimensions;
    for (int d = 0; d < array->dimensions; d++) {
        array->extent[d] = dataset->extent[d];
        array->chunk[d] = dataset->layout == HDF5_CHUNKED ? dataset->chunk[d] : dataset->extent[d];
        if (array->extent[d] < 1 || __builtin_mul_overflow(bytes, array->extent[d], &bytes))
            return false;
    }
    return true;
}

bool array_hdf5_open(const struct hdf5_reader *reader, const char *name, const char *path,
                     struct open_file *file, struct array *array, struct error *error)
{
    char reason[ARRAY_REASON];
    struct hdf5_object dataset;
    array_begin(array, path, name, file, &reader->stamp);
    if (!hdf5_object_find(reader, name, &dataset))
        return error_set(error, ERROR_DATA,
                         "%s has no data set '%s': `vittrain data describe %s` lists them", path,
                         name, path);
    if (!array_hdf5_readable(&dataset, reason))
        return error_set(error, ERROR_DATA, "%s: cannot read '%s': %s", path, name, reason);
    array->is_bool = dataset.type[1] == 'b';
    array->kind = array->is_bool ? 'u' : dataset.type[1];
    array->swapped = is_swapped(&dataset);
    array->element_bytes = dataset.element_bytes;
    array->fill = dataset.fill;
    array->filter_count = dataset.filter_count;
    for (int n = 0; n < array->filter_count; n++)
        array->filter[n] = (enum array_filter)filter_find(dataset.filter[n])->filter;
    if (!shape_read(&dataset, array))
        return array_refuse_empty(array, error);
    return array_rule_set(array, dataset.attributes, error) &&
           places_read(&dataset, array, error) && array_open(array, error);
}
