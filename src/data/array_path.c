// SPDX-License-Identifier: BSD-3-Clause
#include "data/array_path.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/file.h"
#include "core/folder.h"
#include "core/text.h"
#include "data/array_formats.h"

const char *const array_hdf5_endings[] = {".h5", ".hdf5", ".he5", ".nc", ".nc4", NULL};

/* True if a folder is a Zarr store or has .npy files. */
static bool is_container(const char *folder)
{
    DIR *entries = NULL;
    const char *name;
    if (array_zarr_is_store(folder))
        return true;
    while ((name = folder_next(&entries, folder)) != NULL)
        if (text_ends_with(name, ".npy")) {
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

/* True if NAME.npy exists in the folder. */
static bool has_npy(const char *folder, const char *name, char path[PATH_MAX])
{
    return snprintf(path, PATH_MAX, "%s/%s.npy", folder, name) < PATH_MAX &&
           access(path, F_OK) == 0;
}

/* True if a .npy file is NAME.npy or NAME. */
static bool is_npy_of(const char *path, const char *name)
{
    const char *base = text_base_name(path);
    const size_t length = strlen(name);
    return strncmp(base, name, length) == 0 &&
           (base[length] == '\0' || strcmp(base + length, ".npy") == 0);
}

bool array_path_has(const struct array_path *self, const char *name)
{
    char path[PATH_MAX];
    struct hdf5_object object;
    if (self->is_npy)
        return is_npy_of(self->path, name);
    if (!self->is_folder)
        return hdf5_object_find(self->reader, name, &object);
    return has_npy(self->path, name, path) ||
           (snprintf(path, sizeof path, "%s/%s", self->path, name) < PATH_MAX &&
            access(path, F_OK) == 0);
}

bool array_path_array(const struct array_path *self, const char *name, struct array *array,
                      struct error *error)
{
    char path[PATH_MAX];
    if (self->is_npy)
        return array_npy_open(self->path, name, array, error) &&
               (is_npy_of(self->path, name) ||
                error_set(error, ERROR_DATA,
                          "no array %s in %s: a .npy file has one array, of the name of the file "
                          "without .npy; for several arrays, set data.root to their folder",
                          name, self->path));
    if (!self->is_folder)
        return array_hdf5_open(self->reader, name, self->path, self->file, array, error);
    if (has_npy(self->path, name, path)) {
        const bool good = array_npy_open(path, name, array, error);
        array->path = self->path;
        return good;
    }
    return array_zarr_open(self->path, name, array, error);
}

void array_path_close(struct array_path *self)
{
    open_file_close(self->file);
    self->file = NULL;
}
