// SPDX-License-Identifier: BSD-3-Clause
/* Reads image files as encoded data sets need them: the whole file, its size, or a check. Opening a
 * pipe or device does not block; only regular files are read. Thread-safe. */
#ifndef VITTRAIN_DATA_ENCODED_FILE_H
#define VITTRAIN_DATA_ENCODED_FILE_H

#include "data/dataset.h"
#include "data/record_check.h"

/* Load the whole file; the buffer is grown if necessary. The error names the file. */
MUST_CHECK bool encoded_file_load(const char *path, struct byte_buffer *bytes, struct error *error);

/* Return the file's size in bytes. The error names the file. */
int64_t encoded_file_size(const char *path, struct error *error);

/* Read the header of the image of `bytes` bytes at this offset of an open file. `file`: a buffer.
 * The error does not name the file. */
MUST_CHECK bool encoded_file_header(int descriptor, size_t offset, size_t bytes,
                                    int64_t most_pixels, struct byte_buffer *file,
                                    struct image_header *header, struct error *error);

/* Check format and size of the image in the first bytes of the file; with data.check=full decode
 * it. The error does not name the file. */
MUST_CHECK bool encoded_file_check(const char *path, const struct options *options,
                                   struct check_scratch *scratch, struct error *error);

#endif
