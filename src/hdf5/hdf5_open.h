// SPDX-License-Identifier: BSD-3-Clause
/* HDF5 itself: the library, its errors, and the opening of files for reading. Only the main thread
 * calls HDF5. */
#ifndef VITTRAIN_HDF5_HDF5_OPEN_H
#define VITTRAIN_HDF5_HDF5_OPEN_H

#include <hdf5.h>
#include <stdbool.h>

/* Initialize HDF5 so that neither exit nor MPI_Finalize closes open files: after a failed write,
 * HDF5 crashes while it closes the file. Call it before MPI_Init. */
void hdf5_library_open(void);

/* Return a new file access property list. */
hid_t hdf5_access_open(void);

/* Open a file for reading; links to other files are not followed. The file may be damaged: call it
 * in the child of hdf5_reader.h. Return a negative value if HDF5 failed. */
hid_t hdf5_file_open(const char *path);

#if !H5_VERSION_GE(1, 14, 0)
/* Between begin and end, H5Dread_chunk reads nothing. end returns the offset of the chunk that was
 * to be read, or HADDR_UNDEF. */
void hdf5_chunk_note_begin(void);
haddr_t hdf5_chunk_note_end(void);
#endif

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

#endif
