// SPDX-License-Identifier: BSD-3-Clause
/* Reads image files, and checks the images of an encoded data set before training. */
#ifndef VITTRAIN_DATA_RECORD_CHECK_H
#define VITTRAIN_DATA_RECORD_CHECK_H

#include "data/dataset.h"
#include "data/image_file.h"

/* Buffers of one thread. */
struct check_scratch {
    struct byte_buffer file;
    struct image_pixels pixels;
    size_t oriented; /* number of records with an EXIF orientation above 1 */
    size_t alpha;    /* number of records with alpha */
};

/* Check one record. The error does not name it. Thread-safe. */
typedef bool record_check_one(const struct dataset *dataset, int64_t record,
                              const struct options *options, struct check_scratch *scratch,
                              struct error *error);

/* Collective over dataset->comm. Check all records, each on one rank, in several threads, which
 * hide the latency of disks and networks. Records that cannot be used are an error with their
 * number and the name of the first one. With data.skip_broken=on they are a warning, and *broken
 * [count] is 1 for each one; it is NULL if there are none, else freed by the caller. The number of
 * records with an EXIF orientation or with alpha is logged. */
MUST_CHECK bool record_check(const struct dataset *dataset, const struct options *options,
                             record_check_one *check, uint8_t **broken, struct error *error);

/* Decode the whole image in scratch->file.data (data.check=full). */
MUST_CHECK bool record_check_decode(struct check_scratch *scratch, size_t bytes,
                                    const struct image_header *header,
                                    const struct options *options, struct error *error);

/* True if all images are decoded before training. data.skip_broken=on includes it, so that all
 * ranks have the same list of records. */
bool record_check_is_full(const struct options *options);

/* Count a record with this EXIF orientation, and with alpha. */
static inline void record_check_count(struct check_scratch *scratch, int orientation,
                                      bool has_alpha)
{
    scratch->oriented += orientation > 1;
    scratch->alpha += has_alpha;
}

/* ---- Image files. Files that are not regular are refused, and opening a pipe does not block.
 * Thread-safe. */

/* Load the whole file; the buffer is grown if necessary. The error names the file. */
MUST_CHECK bool record_file_load(const char *path, struct byte_buffer *bytes, struct error *error);

/* Read the header of an image of `bytes` bytes at an offset of an open file. `file`: buffer for the
 * bytes that are read. The error does not name the file. */
MUST_CHECK bool record_check_header(int descriptor, size_t offset, size_t bytes,
                                    int64_t most_pixels, struct byte_buffer *file,
                                    struct image_header *header, struct error *error);

/* Check format and size of the image in the first bytes of the file; with data.check=full decode
 * it. The error does not name the file. */
MUST_CHECK bool record_check_file(const char *path, const struct options *options,
                                  struct check_scratch *scratch, struct error *error);

#endif
