// SPDX-License-Identifier: BSD-3-Clause
/* Checks the images of an encoded data set before training. */
#ifndef VITTRAIN_DATA_RECORD_CHECK_H
#define VITTRAIN_DATA_RECORD_CHECK_H

#include "data/dataset.h"
#include "image/image_file.h"

/* Number of records with an EXIF orientation above 1, with alpha, and that cannot be used. */
struct check_counts {
    int64_t oriented, alpha, unusable;
};

/* Buffers and counts of one thread. */
struct check_scratch {
    struct byte_buffer file;
    struct image_pixels pixels;
    struct check_counts counts;
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

/* True if all images are decoded before training. data.skip_broken=on includes it, so that all
 * ranks have the same list of records. */
bool record_check_is_full(const struct options *options);

/* ---- Images in an open file. Errors do not name the file. Thread-safe. */

/* Read exactly these bytes. */
MUST_CHECK bool record_read(int descriptor, uint8_t *to, size_t offset, size_t bytes,
                            struct error *error);

/* Read the header of an image of `bytes` bytes at an offset. `file`: buffer for the bytes that are
 * read. */
MUST_CHECK bool record_check_header(int descriptor, size_t offset, size_t bytes,
                                    int64_t most_pixels, struct byte_buffer *file,
                                    struct image_header *header, struct error *error);

/* Check format and size of an image in its first bytes; with data.check=full decode it. Its
 * orientation and alpha are counted. */
MUST_CHECK bool record_check_image(int descriptor, size_t offset, size_t bytes,
                                   const struct options *options, struct check_scratch *scratch,
                                   struct error *error);

#endif
