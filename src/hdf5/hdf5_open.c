// SPDX-License-Identifier: BSD-3-Clause
/* HDF5 before 1.14 has no function that lists the chunks of a data set in linear time:
 * H5Dget_chunk_info walks from the first chunk to the wanted one. With these versions files are
 * opened with a driver that can note the place of a chunk instead of reading it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* syscall */
#endif
#include "hdf5/hdf5_open.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/base.h"
#include "base/file.h"
#include "base/text.h"

/* ---- the library ---- */

void hdf5_library_open(void)
{
    H5dont_atexit();
    /* In an MPI program HDF5 attaches its clean-up to MPI_COMM_SELF, unless it is opened before. */
    H5open();
}

hid_t hdf5_access_open(void)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
#if H5_VERSION_GE(1, 10, 7)
    /* Some network file systems have no locks. A folder belongs to one run, so none are needed. */
    H5Pset_file_locking(access, false, true);
#endif
    return access;
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

void hdf5_errors_begin(struct hdf5_errors *errors)
{
    ENSURE((pid_t)syscall(SYS_gettid) == getpid(),
           "HDF5 is called by a thread other than the main thread");
    errors->reason[0] = '\0';
    H5Eset_auto2(H5E_DEFAULT, keep_first, errors);
}

bool hdf5_errors_end(struct hdf5_errors *errors)
{
    /* Printing stays off, because HDF5 prints further errors of damaged files at exit. */
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    if (errors->reason[0] == '\0')
        return true;
    text_remove_control(errors->reason);
    return false;
}

/* ---- opening ---- */

#if !H5_VERSION_GE(1, 14, 0)

/* The place of the last chunk that HDF5 read while `notes` was true. */
static struct {
    bool notes;
    haddr_t offset;
} noted;

struct driver_file {
    H5FD_t base;
    int descriptor;
    haddr_t used, end;
};

static H5FD_t *driver_open(const char *name, unsigned flags, hid_t access, haddr_t most)
{
    int64_t bytes;
    (void)flags;
    (void)access;
    (void)most;
    const int descriptor = text_file_descriptor(name, &bytes);
    if (descriptor < 0)
        return NULL;
    struct driver_file *file = allocate(1, sizeof *file);
    file->descriptor = descriptor;
    file->end = (haddr_t)bytes;
    return &file->base;
}

static herr_t driver_close(H5FD_t *base)
{
    close(((struct driver_file *)base)->descriptor);
    free(base);
    return 0;
}

static haddr_t driver_used(const H5FD_t *base, H5FD_mem_t type)
{
    (void)type;
    return ((const struct driver_file *)base)->used;
}

static herr_t driver_use(H5FD_t *base, H5FD_mem_t type, haddr_t end)
{
    (void)type;
    ((struct driver_file *)base)->used = end;
    return 0;
}

static haddr_t driver_end(const H5FD_t *base, H5FD_mem_t type)
{
    (void)type;
    return ((const struct driver_file *)base)->end;
}

static herr_t driver_read(H5FD_t *base, H5FD_mem_t type, hid_t transfer, haddr_t offset,
                          size_t bytes, void *data)
{
    const struct driver_file *file = (const struct driver_file *)base;
    (void)transfer;
    if (noted.notes && type == H5FD_MEM_DRAW) {
        noted.offset = offset;
        return 0;
    }
    const size_t got = durable_pread(file->descriptor, data, bytes, (int64_t)offset);
    memset((char *)data + got, 0, bytes - got); /* beyond the end, as HDF5's own drivers do */
    return 0;
}

static herr_t driver_write(H5FD_t *base, H5FD_mem_t type, hid_t transfer, haddr_t offset,
                           size_t bytes, const void *data)
{
    (void)base;
    (void)type;
    (void)transfer;
    (void)offset;
    (void)bytes;
    (void)data;
    return -1;
}

static const H5FD_class_t driver = {.name = "vittrain",
                                    .maxaddr = INT64_MAX,
                                    .fc_degree = H5F_CLOSE_WEAK,
                                    .open = driver_open,
                                    .close = driver_close,
                                    .get_eoa = driver_used,
                                    .set_eoa = driver_use,
                                    .get_eof = driver_end,
                                    .read = driver_read,
                                    .write = driver_write,
                                    .fl_map = H5FD_FLMAP_DICHOTOMY};

void hdf5_chunk_note_begin(void)
{
    noted.notes = true;
    noted.offset = HADDR_UNDEF;
}

haddr_t hdf5_chunk_note_end(void)
{
    noted.notes = false;
    return noted.offset;
}

#endif

hid_t hdf5_file_open(const char *path)
{
    /* Without the class of external links, a call that follows one fails. */
    if (H5Lis_registered(H5L_TYPE_EXTERNAL) > 0 && H5Lunregister(H5L_TYPE_EXTERNAL) < 0)
        return -1;
    static hid_t access = -1; /* the same for all files */
    if (access < 0) {
        const hid_t made = hdf5_access_open();
#if !H5_VERSION_GE(1, 14, 0)
        if (H5Pset_driver(made, H5FDregister(&driver), NULL) < 0)
            return -1;
#endif
        access = made;
    }
    return H5Fopen(path, H5F_ACC_RDONLY, access);
}
