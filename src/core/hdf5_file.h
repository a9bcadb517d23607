// SPDX-License-Identifier: BSD-3-Clause
/* HDF5 files. HDF5 writes and reads the metadata (groups, attributes, tables). Large data sets are
 * contiguous and are written and read without HDF5, at the offsets that it returned. The file
 * format is that of HDF5 1.8, in which all metadata have checksums. Only the main thread calls
 * HDF5. */
#ifndef VITTRAIN_CORE_HDF5_FILE_H
#define VITTRAIN_CORE_HDF5_FILE_H

#include <hdf5.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

/* Initialize HDF5 so that neither exit nor MPI_Finalize closes open files: after a failed write,
 * HDF5 crashes while it closes the file. Call it before MPI_Init. */
void hdf5_library_open(void);

/* Return a new string type, to be closed by the caller; negative if HDF5 failed. */
hid_t hdf5_text_type(size_t size);

/* Return file access properties, for creating and for reading. Objects of at least HDF5_ALIGNMENT
 * bytes are aligned in the file. */
enum { HDF5_ALIGNMENT = 4096 };
hid_t hdf5_file_access(void);

/* Open a file for reading. Links to other files are not followed. Negative if HDF5 failed. */
hid_t hdf5_file_open(const char *path);

/* Open a data set. Negative if HDF5 failed, or if its raw data are not one block of bytes in the
 * file itself: chunked, compressed, virtual or in another file. */
hid_t hdf5_dataset_open(hid_t group, const char *name);

/* Write and read attributes. */
bool hdf5_attribute_write(hid_t object, const char *name, hid_t type, const void *value);
bool hdf5_text_write(hid_t object, const char *name, const char *text);
bool hdf5_number_read(hid_t object, const char *name, hid_t type, void *value);
/* A text of `size` or more bytes is truncated. */
bool hdf5_text_read(hid_t object, const char *name, char *text, size_t size);

/* Create a group whose members are listed in order of creation. */
hid_t hdf5_group_make(hid_t parent, const char *name);

/* Create a data set to be written later without HDF5, at *offset in the file. `extent` has
 * `dimensions` elements. */
bool hdf5_space_leave(hid_t group, const char *name, hid_t type, int dimensions,
                      const hsize_t *extent, int64_t *offset);

/* Write a table (rows < 0: a scalar) with its CRC32C as attribute crc32c. */
bool hdf5_table_write(hid_t group, const char *name, hid_t type, int64_t rows, const void *data);

/* Collect HDF5's errors between begin and end; the innermost reason of the first one is kept. From
 * the first begin on HDF5 prints nothing. */
enum { HDF5_REASON = 256 };

struct hdf5_errors {
    char reason[HDF5_REASON];
};

void hdf5_errors_begin(struct hdf5_errors *errors);

/* Return false if a call failed since begin. Check it in addition to the calls' results, as closing
 * an object can fail to write. */
bool hdf5_errors_end(struct hdf5_errors *errors);

/* True if the reason is a file shorter than HDF5 wrote it; sets its size and the expected one. */
bool hdf5_is_cut(const char *reason, int64_t *bytes, int64_t *needed);

/* Create a file in memory with the metadata written by `fill`; unwritten data sets are holes
 * without memory. HDF5 does not write to disk, because it may crash at exit after a failed write.
 * `path` is for messages; *bytes is the size of the file. Return its descriptor, to be closed by
 * the caller, or -1. */
int hdf5_frame_make(const char *path, bool (*fill)(hid_t file, void *context), void *context,
                    int64_t *bytes, struct error *error);

/* Copy the file in memory except for its holes, and truncate the output to its size. */
MUST_CHECK bool hdf5_frame_copy(int frame, int descriptor, const char *path, int64_t bytes,
                                struct error *error);

#endif
