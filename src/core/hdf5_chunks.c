// SPDX-License-Identifier: BSD-3-Clause
/* Places of the chunks of HDF5 data sets. HDF5 before 1.14 has no function that lists them in
 * linear time: H5Dget_chunk_info walks from the first chunk to the wanted one. There, H5Dread_chunk
 * is called for each chunk, in a file whose driver notes the place and does not read. */
#include "core/hdf5_file.h"

#if H5_VERSION_GE(1, 14, 0)

herr_t hdf5_chunks_access(hid_t access)
{
    return access < 0 ? -1 : 0;
}

bool hdf5_chunks_visit(hid_t dataset, const struct hdf5_object *sizes, hdf5_chunk_visit *visit,
                       void *context)
{
    (void)sizes;
    return H5Dchunk_iter(dataset, H5P_DEFAULT, visit, context) >= 0;
}

#else

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/file.h"

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
    struct driver_file *file = calloc(1, sizeof *file);
    struct stat status;
    (void)flags;
    (void)access;
    (void)most;
    if (file == NULL)
        return NULL;
    file->descriptor = open(name, O_RDONLY | O_CLOEXEC);
    if (file->descriptor < 0 || fstat(file->descriptor, &status) != 0) {
        free(file);
        return NULL;
    }
    file->end = (haddr_t)status.st_size;
    return &file->base;
}

static herr_t driver_close(H5FD_t *base)
{
    close(((struct driver_file *)base)->descriptor);
    free(base);
    return 0;
}

static herr_t driver_query(const H5FD_t *base, unsigned long *features)
{
    (void)base;
    *features = 0;
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

herr_t hdf5_chunks_access(hid_t access)
{
    static const H5FD_class_t driver = {.name = "vittrain",
                                        .maxaddr = INT64_MAX,
                                        .fc_degree = H5F_CLOSE_WEAK,
                                        .open = driver_open,
                                        .close = driver_close,
                                        .query = driver_query,
                                        .get_eoa = driver_used,
                                        .set_eoa = driver_use,
                                        .get_eof = driver_end,
                                        .read = driver_read,
                                        .write = driver_write,
                                        .fl_map = H5FD_FLMAP_DICHOTOMY};
    return H5Pset_driver(access, H5FDregister(&driver), NULL);
}

/* Find the place of one chunk, if it exists. */
static bool chunk_visit(hid_t dataset, const hsize_t *first, hdf5_chunk_visit *visit, void *context,
                        hsize_t *found)
{
    static char unused; /* the driver does not write to the buffer */
    hsize_t bytes = 0;
    uint32_t skipped = 0;
    bool exists;
    /* It fails if the chunk does not exist. */
    H5E_BEGIN_TRY
    {
        exists = H5Dget_chunk_storage_size(dataset, first, &bytes) >= 0 && bytes > 0;
    }
    H5E_END_TRY
    if (!exists)
        return true;
    noted.notes = true;
    noted.offset = HADDR_UNDEF;
    const bool good = H5Dread_chunk(dataset, H5P_DEFAULT, first, &skipped, &unused) >= 0;
    noted.notes = false;
    ++*found;
    return good && visit(first, skipped, noted.offset, bytes, context) >= 0;
}

bool hdf5_chunks_visit(hid_t dataset, const struct hdf5_object *sizes, hdf5_chunk_visit *visit,
                       void *context)
{
    hsize_t first[H5S_MAX_RANK] = {0}, count = 0, found = 0;
    hid_t space = H5Dget_space(dataset);
    bool good = H5Dget_num_chunks(dataset, space, &count) >= 0;
    H5Sclose(space);
    for (int d = 0; good && found < count && d >= 0;) {
        good = chunk_visit(dataset, first, visit, context, &found);
        for (d = sizes->dimensions - 1; d >= 0; d--) {
            first[d] += (hsize_t)sizes->chunk[d];
            if ((int64_t)first[d] < sizes->extent[d])
                break;
            first[d] = 0;
        }
    }
    return good && found == count;
}

#endif
