// SPDX-License-Identifier: BSD-3-Clause
/* HDF5 files of checkpoints and packed data sets. Numbers are stored in native byte order, which
 * HDF5 records; a machine of the other byte order rejects the file. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memfd_create, SEEK_DATA, syscall */
#endif
#include "core/hdf5_file.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/crc32c.h"
#include "core/durable.h"

void hdf5_library_open(void)
{
    H5dont_atexit();
    /* In an MPI program HDF5 attaches its clean-up to MPI_COMM_SELF, unless it is opened before. */
    H5open();
}

hid_t hdf5_text_type(size_t size)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    if (type >= 0 && H5Tset_size(type, size) < 0) {
        H5Tclose(type);
        return -1;
    }
    return type;
}

hid_t hdf5_file_access(void)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    bool good = access >= 0 && H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V18) >= 0 &&
                H5Pset_alignment(access, HDF5_ALIGNMENT, HDF5_ALIGNMENT) >= 0;
#if H5_VERSION_GE(1, 10, 7)
    /* Some network file systems have no locks. A folder belongs to one run, so none are needed. */
    good = good && H5Pset_file_locking(access, false, true) >= 0;
#endif
    if (good)
        return access;
    H5Pclose(access);
    return -1;
}

static herr_t keep_innermost(unsigned depth, const H5E_error2_t *entry, void *data)
{
    struct hdf5_errors *errors = data;
    if (depth == 0)
        snprintf(errors->reason, sizeof errors->reason, "%s",
                 entry->desc != NULL ? entry->desc : "HDF5 gives no reason");
    return 0;
}

static herr_t keep_first(hid_t stack, void *data)
{
    struct hdf5_errors *errors = data;
    if (errors->reason[0] == '\0')
        H5Ewalk2(stack, H5E_WALK_UPWARD, keep_innermost, errors);
    return 0;
}

/* Set the reason of an error that HDF5 does not report, unless a reason is set. */
__attribute__((format(printf, 1, 2))) static void errors_note(const char *format, ...)
{
    H5E_auto2_t handler = NULL;
    void *data = NULL;
    H5Eget_auto2(H5E_DEFAULT, &handler, &data);
    struct hdf5_errors *errors = handler == keep_first ? data : NULL;
    va_list arguments;
    va_start(arguments, format);
    if (errors != NULL && errors->reason[0] == '\0')
        vsnprintf(errors->reason, sizeof errors->reason, format, arguments);
    va_end(arguments);
}

void hdf5_errors_begin(struct hdf5_errors *errors)
{
    ENSURE((pid_t)syscall(SYS_gettid) == getpid(),
           "HDF5 is called by a thread other than the main thread");
    errors->reason[0] = '\0';
    H5Eset_auto2(H5E_DEFAULT, keep_first, errors);
}

bool hdf5_errors_end(struct hdf5_errors *errors)
{
    /* HDF5 stays silent: after errors in damaged files it would print more at exit. */
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    if (errors->reason[0] == '\0')
        return true;
    for (char *c = errors->reason; *c != '\0'; c++)
        if (*c == '\n')
            *c = ' ';
    return false;
}

bool hdf5_attribute_write(hid_t object, const char *name, hid_t type, const void *value)
{
    hid_t space = H5Screate(H5S_SCALAR);
    hid_t attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    bool good = attribute >= 0 && H5Awrite(attribute, type, value) >= 0;
    H5Aclose(attribute);
    H5Sclose(space);
    return good;
}

bool hdf5_text_write(hid_t object, const char *name, const char *text)
{
    hid_t type = hdf5_text_type(strlen(text) + 1);
    bool good = type >= 0 && hdf5_attribute_write(object, name, type, text);
    H5Tclose(type);
    return good;
}

/* Create a data set (0 dimensions: a scalar) with early allocation, so that its offset is known. */
static hid_t make_dataset(hid_t group, const char *name, hid_t type, int dimensions,
                          const hsize_t *extent)
{
    hid_t space =
        dimensions == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(dimensions, extent, NULL);
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    hid_t dataset = -1;
    if (space >= 0 && creation >= 0 && H5Pset_layout(creation, H5D_CONTIGUOUS) >= 0 &&
        H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY) >= 0 &&
        H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER) >= 0 &&
        H5Pset_obj_track_times(creation, false) >= 0)
        dataset = H5Dcreate2(group, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    H5Pclose(creation);
    H5Sclose(space);
    return dataset;
}

bool hdf5_space_leave(hid_t group, const char *name, hid_t type, int dimensions,
                      const hsize_t *extent, int64_t *offset)
{
    hid_t dataset = make_dataset(group, name, type, dimensions, extent);
    haddr_t address = dataset < 0 ? HADDR_UNDEF : H5Dget_offset(dataset);
    *offset = (int64_t)address;
    H5Dclose(dataset);
    return address != HADDR_UNDEF;
}

bool hdf5_table_write(hid_t group, const char *name, hid_t type, int64_t rows, const void *data)
{
    size_t bytes = H5Tget_size(type) * (size_t)(rows < 0 ? 1 : rows);
    uint32_t crc = crc32c_update(0, data, bytes);
    hsize_t extent = (hsize_t)rows;
    hid_t dataset = make_dataset(group, name, type, rows < 0 ? 0 : 1, &extent);
    bool good = dataset >= 0 && H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0 &&
                hdf5_attribute_write(dataset, "crc32c", H5T_NATIVE_UINT32, &crc);
    H5Dclose(dataset);
    return good;
}

hid_t hdf5_group_make(hid_t parent, const char *name)
{
    hid_t creation = H5Pcreate(H5P_GROUP_CREATE);
    hid_t group = -1;
    if (creation >= 0 &&
        H5Pset_link_creation_order(creation, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED) >= 0 &&
        H5Pset_obj_track_times(creation, false) >= 0)
        group = H5Gcreate2(parent, name, H5P_DEFAULT, creation, H5P_DEFAULT);
    H5Pclose(creation);
    return group;
}

hid_t hdf5_file_open(const char *path)
{
    hid_t access = hdf5_file_access();
    hid_t file = -1;
    /* Without its class, an external link is an error of the call that reaches it. */
    if (access >= 0 &&
        (H5Lis_registered(H5L_TYPE_EXTERNAL) <= 0 || H5Lunregister(H5L_TYPE_EXTERNAL) >= 0))
        file = H5Fopen(path, H5F_ACC_RDONLY, access);
    H5Pclose(access);
    return file;
}

hid_t hdf5_dataset_open(hid_t group, const char *name)
{
    hid_t dataset = H5Dopen2(group, name, H5P_DEFAULT);
    hid_t creation = dataset < 0 ? -1 : H5Dget_create_plist(dataset);
    bool good = creation >= 0 && H5Pget_layout(creation) == H5D_CONTIGUOUS &&
                H5Pget_external_count(creation) == 0;
    if (creation >= 0 && !good)
        errors_note("data set '%s' is chunked, virtual or in another file", name);
    H5Pclose(creation);
    if (good)
        return dataset;
    H5Dclose(dataset);
    return -1;
}

bool hdf5_number_read(hid_t object, const char *name, hid_t type, void *value)
{
    hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
    hid_t space = attribute < 0 ? -1 : H5Aget_space(attribute);
    bool good = space >= 0 && H5Sget_simple_extent_npoints(space) == 1 &&
                H5Aread(attribute, type, value) >= 0;
    H5Sclose(space);
    H5Aclose(attribute);
    return good;
}

bool hdf5_text_read(hid_t object, const char *name, char *text, size_t size)
{
    hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
    hid_t stored = attribute < 0 ? -1 : H5Aget_type(attribute);
    hid_t type = hdf5_text_type(size);
    const htri_t variable = stored < 0 ? -1 : H5Tis_variable_str(stored);
    char *copy = NULL;
    bool good = type >= 0 && variable >= 0 && H5Tget_class(stored) == H5T_STRING;
    /* h5py writes texts of variable length. Longer texts are truncated: those of fixed length by
     * HDF5. */
    if (good && variable > 0) {
        good = H5Aread(attribute, stored, &copy) >= 0 && copy != NULL;
        snprintf(text, size, "%s", good ? copy : "");
        H5free_memory(copy);
    } else if (good) {
        good = H5Aread(attribute, type, text) >= 0;
    }
    H5Tclose(type);
    H5Tclose(stored);
    H5Aclose(attribute);
    return good;
}

bool hdf5_is_cut(const char *reason, int64_t *bytes, int64_t *needed)
{
    long long have, base, end;
    bool cut =
        sscanf(reason, "truncated file: eof = %lld, sblock->base_addr = %lld, stored_eof = %lld",
               &have, &base, &end) == 3;
    if (cut) {
        *bytes = have;
        *needed = end;
    }
    return cut;
}

static bool make_file(const char *path, bool (*fill)(hid_t file, void *context), void *context)
{
    hid_t access = hdf5_file_access();
    hid_t creation = H5Pcreate(H5P_FILE_CREATE);
    /* Without times, the same content gives the same file. The stdio driver accepts a path in
     * /proc/self/fd. */
    hid_t file = access < 0 || creation < 0 || H5Pset_obj_track_times(creation, false) < 0 ||
                         H5Pset_fapl_stdio(access) < 0
                     ? -1
                     : H5Fcreate(path, H5F_ACC_TRUNC, creation, access);
    bool good = file >= 0 && fill(file, context) && H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0;
    good = H5Fclose(file) >= 0 && good;
    H5Pclose(creation);
    H5Pclose(access);
    return good;
}

/* True if this errno can be from a failed write or open. Other values may be left from earlier
 * calls whose failure is not an error. */
static bool is_of_writing(int number)
{
    static const int numbers[] = {ENOSPC, EDQUOT, EFBIG, EIO, EMFILE, ENFILE, ENOMEM};
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
        if (number == numbers[n])
            return true;
    return false;
}

int hdf5_frame_make(const char *path, bool (*fill)(hid_t file, void *context), void *context,
                    int64_t *bytes, struct error *error)
{
    char name[64];
    struct stat file;
    int frame = memfd_create("frame", MFD_CLOEXEC);
    if (frame < 0) {
        durable_failed(error, "create in memory", path, errno);
        return -1;
    }
    snprintf(name, sizeof name, "/proc/self/fd/%d", frame);
    struct hdf5_errors errors;
    hdf5_errors_begin(&errors);
    errno = 0;
    bool good = make_file(name, fill, context);
    const int number = errno; /* HDF5's text does not contain it */
    good = hdf5_errors_end(&errors) && good;
    if (!good && is_of_writing(number))
        durable_failed(error, "create the metadata of", path, number);
    else if (!good)
        error_set(error, ERROR_INTERNAL, "cannot create the metadata of %s: %s", path,
                  errors.reason);
    else if (fstat(frame, &file) != 0)
        durable_failed(error, "create", path, errno);
    else {
        *bytes = (int64_t)file.st_size;
        return frame;
    }
    close(frame);
    return -1;
}

bool hdf5_frame_copy(int frame, int descriptor, const char *path, int64_t bytes,
                     struct error *error)
{
    char block[65536];
    off_t begin = 0, end;
    bool good = true;
    while (good && (begin = lseek(frame, begin, SEEK_DATA)) >= 0 && begin < bytes) {
        end = lseek(frame, begin, SEEK_HOLE); /* the end of the file counts as a hole */
        for (; good && begin < end; begin += (off_t)sizeof block) {
            size_t count = (size_t)(end - begin);
            count = count < sizeof block ? count : sizeof block;
            good = durable_read(frame, path, block, count, begin, error) &&
                   durable_write(descriptor, path, block, count, begin, error);
        }
        begin = end;
    }
    if (good && begin < 0 && errno != ENXIO) /* ENXIO: only a hole is left */
        good = durable_failed(error, "read the metadata of", path, errno);
    return good &&
           (ftruncate(descriptor, bytes) == 0 || durable_failed(error, "truncate", path, errno));
}
