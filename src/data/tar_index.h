// SPDX-License-Identifier: BSD-3-Clause
/* Index of the samples in a tar shard, as WebDataset groups them: consecutive members with the same
 * path up to the first dot of the file name are one sample. */
#ifndef VITTRAIN_DATA_TAR_INDEX_H
#define VITTRAIN_DATA_TAR_INDEX_H

#include "data/image_file.h"
#include "data/tar_shards.h"

/* Read the headers, labels and image headers of open shards (ustar, GNU and pax archives) and set
 * their records. Samples that cannot be used are counted in shard->problems. Collective over
 * dataset->comm: rank r indexes every size-th shard from number r on, in several threads, and all
 * get the result. Fails on all ranks without memory, and if a shard is changed in the meantime. */
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
