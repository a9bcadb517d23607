// SPDX-License-Identifier: BSD-3-Clause
/* The tar shards of a data set: their files and the records in them. */
#ifndef VITTRAIN_DATA_TAR_SHARDS_H
#define VITTRAIN_DATA_TAR_SHARDS_H

#include "comm/comm.h"
#include "core/open_file.h"
#include "data/image_file.h"
#include "data/split_files.h"

enum { TAR_PROBLEM = 512, TAR_BLOCK = 512 };

/* One sample: an image in a shard, and its label. */
struct tar_record {
    int64_t offset;       /* of the image's bytes in the shard */
    uint32_t bytes;       /* size of the image file */
    int32_t label;        /* 0 to CLASSES_MOST - 1 */
    uint32_t pixels;      /* width times height, at most UINT32_MAX; 0: not an image */
    uint32_t header;      /* bytes of the member's tar headers, which precede the image */
    uint32_t sum;         /* CRC32C of the last of these headers, TAR_BLOCK bytes */
    uint16_t orientation; /* of the image's EXIF, 1 to 8; 0: not an image */
    uint16_t has_alpha;
};

struct tar_shard {
    const char *path;
    int descriptor; /* -1: not open */
    struct file_stamp stamp;
    int64_t first; /* number of its first record in the data set */
    int64_t count;
    const struct tar_record *records; /* [count] in the order of the archive */
    struct joined_bytes joined;       /* in the first shard of a tar_index_build: all its records */
    struct tar_record *own;    /* allocated: records that are not in joined memory, or NULL */
    int64_t problems;          /* samples that cannot be used */
    char problem[TAR_PROBLEM]; /* the first one: "MEMBER at byte N: why" */
    bool damaged;              /* reading ended before the end of the archive */
};

/* Find the shards of data.root (split_files_find). */
MUST_CHECK bool tar_shards_find(const char *root, struct split_files *files, struct comm *comm,
                                struct error *error);

/* Open shards for reading and set their stamps. All stay open, so the soft limit of open
 * files is raised if necessary. */
MUST_CHECK bool tar_shards_open(struct tar_shard *shards, int64_t count, struct error *error);

/* Check that the files of open shards still have the stamps of tar_shards_open. */
MUST_CHECK bool tar_shards_check(const struct tar_shard *shards, int64_t count,
                                 struct error *error);

/* Close shards and free their records. */
void tar_shards_close(struct tar_shard *shards, int64_t count);

/* Index of the samples in a tar shard, as WebDataset groups them: consecutive members with the same
 * path up to the first dot of the file name are one sample. */

/* Read the headers, labels and image headers of open shards (ustar, GNU and pax archives) and set
 * their records. Samples that cannot be used are counted in shard->problems. Collective over
 * dataset->comm: rank r indexes every size-th shard from number r on, in several threads, and all
 * get the result. Fails on all ranks if memory is too small or a shard has changed. */
MUST_CHECK bool tar_index_build(const struct dataset *dataset, struct tar_shard *shards,
                                int64_t count, struct error *error);

/* Read the header of an image. Return its pixels, or 0 and the reason. */
uint32_t tar_index_pixels(const struct tar_shard *shard, const struct tar_record *record,
                          struct byte_buffer *buffer, int64_t most_pixels,
                          struct image_header *header, struct error *reason);

/* Read the image of a record. Fails if the member's header differs from the index, because the
 * shard was rewritten. Thread-safe. */
MUST_CHECK bool tar_index_load(const struct tar_shard *shard, const struct tar_record *record,
                               uint8_t *bytes, struct error *error);

/* Write the path of a record's member, for messages; it is read from the shard. */
void tar_index_name(const struct tar_shard *shard, const struct tar_record *record, char *name,
                    size_t size);

#endif
