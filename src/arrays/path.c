// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/path.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arrays/decode.h"
#include "base/allocate.h"
#include "base/file.h"
#include "base/text.h"

const char *const array_hdf5_endings[] = {".h5", ".hdf5", ".he5", ".nc", ".nc4", NULL};

static const char npy[] = ".npy";

static bool is_npy_name(const char *name)
{
    return text_ends_with(name, npy);
}

/* True if a folder is a Zarr store or has .npy files. */
static bool is_container(const char *folder)
{
    DIR *entries = NULL;
    const char *name;
    if (array_zarr_is_store(folder))
        return true;
    while ((name = folder_next(&entries, folder)) != NULL)
        if (is_npy_name(name)) {
            closedir(entries);
            return true;
        }
    return false;
}

bool array_path_find(const char *root, struct split_files *files, struct comm *comm,
                     struct error *error)
{
    static const struct split_file_kind kind = {
        .endings = array_hdf5_endings,
        .is_file = is_container,
        .plural = "files",
        .expected =
            "no files of arrays (*.h5, *.hdf5, *.he5, *.nc, *.nc4), Zarr stores or .npy files",
        .advice = "set data.root to a file, to a folder of files, or to their names"};
    return split_files_find(root, &kind, files, comm, error);
}

bool array_path_open(struct array_path *self, const char *path, struct hdf5_reader *reader,
                     struct error *error)
{
    struct stat status;
    unsigned char first[6] = {0};
    struct file_stamp stamp;
    *self = (struct array_path){.path = path, .reader = reader};
    self->is_folder = stat(path, &status) == 0 && S_ISDIR(status.st_mode);
    if (self->is_folder)
        return true;
    self->file = open_file_new(path, &stamp);
    const int descriptor = self->file != NULL ? open_file_take(self->file) : -1;
    if (descriptor < 0)
        return durable_unreadable(error, ERROR_DATA, path, errno);
    const size_t count = durable_pread(descriptor, first, sizeof first, 0);
    open_file_give(self->file);
    self->is_npy = (count == sizeof first && memcmp(first, "\x93NUMPY", sizeof first) == 0) ||
                   (count >= 4 && memcmp(first, "PK\3\4", 4) == 0); /* .npz */
    if (self->is_npy)
        array_path_close(self);
    if (memcmp(first, "CDF", 3) == 0)
        return error_set(error, ERROR_DATA,
                         "%s is a NetCDF-3 file: convert it with `nccopy -k nc4 %s NEW.nc`", path,
                         path);
    if (self->is_npy || hdf5_reader_describe(reader, path, &stamp, error))
        return true;
    if (strstr(error->text, "file signature not found") == NULL)
        return false;
    error_clear(error);
    return error_set(error, ERROR_DATA, "%s is not an HDF5 or NetCDF-4 file", path);
}

const char *array_path_format(const struct array_path *self)
{
    return self->is_npy                      ? ".npy file"
           : !self->is_folder                ? "HDF5"
           : array_zarr_is_store(self->path) ? "Zarr store"
                                             : "folder of .npy files";
}

void array_path_close(struct array_path *self)
{
    open_file_close(self->file);
    self->file = NULL;
}

/* ---- HDF5 and NetCDF-4 ---- */

/* Read the table of chunks. */
static void chunks_read(const struct hdf5_object *dataset, struct array *array)
{
    size_t capacity = 0;
    char *end;
    if (dataset->layout == HDF5_CONTIGUOUS && dataset->offset >= 0) {
        array->chunks = allocate(1, sizeof *array->chunks);
        array->chunks[array->chunk_count++].offset = dataset->offset;
    }
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
}

static bool hdf5_open(const struct array_path *source, const char *name, struct array *array,
                      struct error *error)
{
    static const char *const faults[] = {[HDF5_COMPACT] = "its layout is compact",
                                         [HDF5_VIRTUAL] = "it is a virtual data set",
                                         [HDF5_EXTERNAL] = "it is in external files"};
    struct hdf5_object dataset;
    array_begin(array, source->path, name, source->file, &source->reader->stamp);
    if (!hdf5_object_find(source->reader, name, &dataset))
        return error_set(error, ERROR_DATA,
                         "%s has no data set '%s': `vittrain data describe %s` lists them",
                         source->path, name, source->path);
    if (dataset.fault[0] != '\0')
        return array_refuse(array, error,
                            "HDF5 reports \"%s\": if a newer HDF5 wrote the file, write it with "
                            "h5py.File(FILE, 'w', libver=('earliest', 'v110'))",
                            dataset.fault);
    if (dataset.kind != HDF5_DATASET)
        return array_refuse(array, error,
                            "it is a group, a link, or no data set of at most %d dimensions",
                            HDF5_DIMENSIONS);
    const bool is_number = array_type_set(array, dataset.type);
    array->fill = dataset.fill;
    array->has_shape = dataset.layout != HDF5_VIRTUAL;
    array->is_chunked = dataset.layout == HDF5_CHUNKED;
    array->dimensions = dataset.dimensions;
    for (int d = 0; d < array->dimensions; d++) {
        array->extent[d] = dataset.extent[d];
        array->chunk[d] = array->is_chunked ? dataset.chunk[d] : dataset.extent[d];
    }
    array->filter_count = dataset.filter_count;
    memcpy(array->filter, dataset.filter, sizeof array->filter);
    if (dataset.layout != HDF5_CONTIGUOUS && dataset.layout != HDF5_CHUNKED)
        return array_refuse(array, error,
                            "%s: rewrite it in a copy of the file, in the same folder (`What is "
                            "read` in docs/arrays.md)",
                            faults[dataset.layout]);
    if (!is_number)
        return array_refuse(array, error,
                            "its type is not an integer or a floating-point number of 1, 2, 4 or 8 "
                            "bytes: write its numbers as separate data sets");
    if (!array_rule_set(array, dataset.attributes, error))
        return false;
    if (source->reader->datasets != NULL) /* else it has described no chunks */
        chunks_read(&dataset, array);
    return array_open(array, error);
}

/* ---- .npy files ---- */

enum { PREFIX = 12, MOST_HEADER = 1 << 12 };

/* Set the shape from a tuple: "(3, 4)", "(3,)" or "()". */
static bool shape_read(const char *text, struct array *array, struct error *error)
{
    bool good = *text++ == '(';
    while (good && *(text += strspn(text, " ")) != ')') {
        char *end;
        errno = 0;
        const int64_t extent = strtoll(text, &end, 10);
        good = end > text && errno == 0 && extent >= 0;
        if (!good)
            break;
        if (array->dimensions == ARRAY_DIMENSIONS)
            return array_refuse(array, error, "it has more than %d dimensions", ARRAY_DIMENSIONS);
        array->extent[array->dimensions] = array->chunk[array->dimensions] = extent;
        array->dimensions++;
        text = end + (*end == 'L'); /* Python 2 */
        text += strspn(text, " ");
        good = *text == ',' || *text == ')';
        text += *text == ',';
    }
    array->has_shape = good;
    return good || array_refuse(array, error, "its header is damaged: copy the file again");
}

/* Read the header, a Python dictionary as NumPy writes it. */
static bool header_read(const char *header, struct array *array, struct error *error)
{
    char type[16] = "", order[8] = "";
    int shape = 0;
    const char *descr = strchr(header, ':');
    descr = descr != NULL ? descr + 1 : "";
    sscanf(header, "{'descr': '%15[^']', 'fortran_order': %7[A-Za-z], 'shape': %n", type, order,
           &shape);
    if (!array_type_set(array, type))
        return array_refuse(array, error,
                            "its type%.*s is not an integer or a floating-point number of 1, 2, "
                            "4 or 8 bytes: convert it with ARRAY.astype('float32')",
                            (int)strcspn(descr, ",}"), descr);
    if (strcmp(order, "True") == 0)
        return array_refuse(array, error,
                            "it is in Fortran order: write it with "
                            "numpy.save(FILE, numpy.ascontiguousarray(ARRAY))");
    return shape_read(header + shape, array, error);
}

static bool npy_open(const char *path, const char *name, struct array *array, struct error *error)
{
    char start[PREFIX + MOST_HEADER + 1] = "";
    const uint8_t *prefix = (const uint8_t *)start;
    struct file_stamp stamp = {0};
    struct open_file *file = open_file_new(path, &stamp);
    const int descriptor = file != NULL ? open_file_take(file) : -1;
    const int reason = errno;
    array_begin(array, path, name, file, &stamp);
    array->owns_file = true;
    if (descriptor < 0)
        return durable_unreadable(error, ERROR_DATA, path, reason);
    const size_t count = durable_pread(descriptor, start, sizeof start - 1, 0);
    open_file_give(file);
    if (memcmp(start, "PK\3\4", 4) == 0)
        return error_set(error, ERROR_DATA,
                         "%s is an archive (.npz, .zip): unpack it, or write each array to a "
                         "separate file with numpy.save",
                         path);
    /* Version 1 has the length of the header in two bytes, others in four. */
    const size_t begin = prefix[6] > 1 ? PREFIX : PREFIX - 2;
    const size_t end = begin + (size_t)little_endian(prefix + 8, (int)begin - 8);
    if (memcmp(start, "\x93NUMPY", 6) != 0 || prefix[6] < 1 || prefix[6] > 3 || end > count)
        return error_set(error, ERROR_DATA,
                         "%s is not a .npy file, or its header is damaged: copy the file again",
                         path);
    start[end] = '\0';
    if (!header_read(start + begin, array, error))
        return false;
    array->chunks = allocate(1, sizeof *array->chunks);
    array->chunks[0].offset = (int64_t)end;
    array->chunk_count = 1;
    return array_open(array, error);
}

/* ---- arrays ---- */

/* True if NAME exists in the folder, with an ending. */
static bool has_member(const struct array_path *self, const char *name, const char *ending)
{
    OWNED char *path = allocate_text("%s/%s%s", self->path, name, ending);
    return access(path, F_OK) == 0;
}

/* True if a .npy file is NAME.npy or NAME. */
static bool is_npy_of(const char *path, const char *name)
{
    const char *base = text_base_name(path);
    const size_t length = strlen(name);
    return strncmp(base, name, length) == 0 &&
           (base[length] == '\0' || strcmp(base + length, npy) == 0);
}

bool array_path_has(const struct array_path *self, const char *name)
{
    struct hdf5_object object;
    if (self->is_npy)
        return is_npy_of(self->path, name);
    if (!self->is_folder)
        return hdf5_object_find(self->reader, name, &object);
    return has_member(self, name, npy) || has_member(self, name, "");
}

bool array_path_sibling(const struct array_path *self, const char *array, const char *name,
                        char path[HDF5_NAME])
{
    const int group = (int)(text_base_name(array) - array);
    return snprintf(path, HDF5_NAME, "%.*s%s", group, array, name) < HDF5_NAME &&
           array_path_has(self, path);
}

bool array_path_array(const struct array_path *self, const char *name, struct array *array,
                      struct error *error)
{
    if (self->is_npy)
        return npy_open(self->path, name, array, error) &&
               (is_npy_of(self->path, name) ||
                error_set(error, ERROR_DATA,
                          "no array %s in %s: a .npy file has one array, of the name of the file "
                          "without .npy; for several arrays, set data.root to their folder",
                          name, self->path));
    if (!self->is_folder)
        return hdf5_open(self, name, array, error);
    if (has_member(self, name, npy)) {
        OWNED char *path = allocate_text("%s/%s%s", self->path, name, npy);
        const bool good = npy_open(path, name, array, error);
        array->path = self->path;
        return good;
    }
    return array_zarr_open(self->path, name, array, error);
}

/* ---- the list of arrays ---- */

/* Add the name of a .npy file without its ending. */
static void npy_add(struct listing *names, const char *file)
{
    OWNED char *name = allocate_copy(file);
    if (is_npy_name(name))
        name[strlen(name) - strlen(npy)] = '\0';
    listing_add(names, name);
}

static bool npy_folder_list(const char *folder, struct listing *names, struct error *error)
{
    struct listing files = {0};
    const bool good = listing_read(folder, NULL, &files, is_npy_name, error);
    for (size_t n = 0; n < files.count; n++)
        npy_add(names, files.names[n]);
    listing_free(&files);
    return good;
}

/* Add the arrays of a Zarr group, whose name is "" or ends with a slash. */
static bool group_list(const char *store, const char *group, int depth, struct listing *names,
                       struct error *error)
{
    enum { DEEPEST = 32 };
    OWNED char *folder = allocate_text("%s/%s", store, group);
    struct listing folders = {0};
    bool good = listing_read(folder, &folders, NULL, NULL, error);
    for (size_t n = 0; good && depth < DEEPEST && n < folders.count; n++) {
        OWNED char *name = allocate_text("%s%s", group, folders.names[n]);
        OWNED char *path = allocate_text("%s/%s", store, name);
        OWNED char *below = allocate_text("%s/", name);
        if (array_zarr_is_array(path))
            listing_add(names, name);
        else if (array_zarr_is_store(path))
            good = group_list(store, below, depth + 1, names, error);
    }
    listing_free(&folders);
    return good;
}

bool array_path_list(const struct array_path *self, struct listing *names, struct error *error)
{
    const char *name;
    json_t *description;
    struct hdf5_object object;
    if (self->is_npy) {
        npy_add(names, text_base_name(self->path));
    } else if (self->is_folder && array_zarr_is_array(self->path)) {
        listing_add(names, "");
    } else if (self->is_folder) {
        return array_zarr_is_store(self->path) ? group_list(self->path, "", 0, names, error)
                                               : npy_folder_list(self->path, names, error);
    } else {
        json_object_foreach(self->reader->objects, name, description)
        {
            if (hdf5_object_find(self->reader, name, &object) && object.kind != HDF5_GROUP)
                listing_add(names, name);
        }
    }
    return true;
}

/* ---- attributes ---- */

json_t *array_attributes(const struct array_path *source, const char *array)
{
    OWNED char *folder = allocate_text("%s/%s", source->path, array);
    if (source->file != NULL)
        return json_incref((json_t *)hdf5_attributes(source->reader, array));
    return source->is_folder ? array_zarr_attributes(folder) : NULL;
}

const char *array_attribute_text(const json_t *attributes, const char *name)
{
    const json_t *value = json_object_get(attributes, name);
    const char *text = json_string_value(json_is_array(value) ? json_array_get(value, 0) : value);
    return text != NULL ? text : "";
}

int array_attribute_numbers(const json_t *attributes, const char *name, double *numbers, int most)
{
    const json_t *value = json_object_get(attributes, name);
    const size_t size = json_is_array(value) ? json_array_size(value) : 1;
    int count = 0;
    for (size_t n = 0; n < size && count < most; n++)
        count +=
            hdf5_real(json_is_array(value) ? json_array_get(value, n) : value, numbers + count);
    return count;
}
