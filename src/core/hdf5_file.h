/* HDF5 as this program uses it: it makes and finds the frame of a file (groups, attributes,
 * tables), while what is large lies contiguously in space that is written and read without HDF5, at
 * offsets that it gave. The format is that of version 1.8, in which all metadata carry sums. One
 * thread of a process calls HDF5: the main thread. */
#ifndef VITTRAIN_CORE_HDF5_FILE_H
#define VITTRAIN_CORE_HDF5_FILE_H

#include <hdf5.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

/* A new type, to be closed by the caller; negative when HDF5 failed. */
hid_t hdf5_text_type(size_t size);

/* Access properties, for making and for reading. What is larger than it is aligned in the file. */
enum { HDF5_ALIGNMENT = 4096 };
hid_t hdf5_file_access(void);

/* Attributes. */
bool hdf5_attribute_write(hid_t object, const char *name, hid_t type, const void *value);
bool hdf5_text_write(hid_t object, const char *name, const char *text);
bool hdf5_number_read(hid_t object, const char *name, hid_t type, void *value);
/* A text of `size` or more bytes is shortened. */
bool hdf5_text_read(hid_t object, const char *name, char *text, size_t size);

/* A group whose members are listed in the order in which they were made. */
hid_t hdf5_group_make(hid_t parent, const char *name);

/* Space for what is written later without HDF5; *offset: where in the file. extent: [dimensions].
 */
bool hdf5_space_leave(hid_t group, const char *name, hid_t type, int dimensions,
                      const hsize_t *extent, int64_t *offset);

/* Rows (< 0: one without a dimension) with their CRC32C as the attribute crc32c. */
bool hdf5_table_write(hid_t group, const char *name, hid_t type, int64_t rows, const void *data);

/* HDF5 prints nothing from the first begin on; of a failure between begin and end the innermost
 * reason is kept. */
enum { HDF5_REASON = 256 };

struct hdf5_errors {
    char reason[HDF5_REASON];
};

void hdf5_errors_begin(struct hdf5_errors *errors);

/* false: some call failed since begin. That is looked at and not only the results, as closing, too,
 * can fail to write. */
bool hdf5_errors_end(struct hdf5_errors *errors);

/* Of such a reason: is the file shorter than HDF5 left it? */
bool hdf5_is_cut(const char *reason, int64_t *bytes, int64_t *needed);

/* A file in memory that `fill` has filled; the space that was left is a hole and takes none.
 * HDF5 never touches the disk: after a write that failed it may crash when the program ends.
 * path: for messages. *bytes: of the file. -1: failed; close it. */
int hdf5_frame_make(const char *path, bool (*fill)(hid_t file, void *context), void *context,
                    int64_t *bytes, struct error *error);

/* Copies all but the holes, and cuts the file to the frame's length. */
MUST_CHECK bool hdf5_frame_copy(int frame, int descriptor, const char *path, int64_t bytes,
                                struct error *error);

#endif
