// SPDX-License-Identifier: BSD-3-Clause
/* Indexes of tar shards, stored in a file so that the headers are read once. */
#ifndef VITTRAIN_DATA_TAR_CACHE_H
#define VITTRAIN_DATA_TAR_CACHE_H

#include "data/tar_shards.h"

/* Set the records of open shards: from the stored index, else by reading the headers in several
 * threads and storing the index. It is stored beside the first shard or, if that folder is not
 * writable, in the user's cache folder. An index of other names, sizes or times, or a damaged one,
 * is replaced. Of processes that start at once, one builds the index and the others wait for it.
 * Not collective. Reports no problems of samples: see shard->problems. */
MUST_CHECK bool tar_cache_open(struct tar_shard *shards, int64_t count, struct error *error);

#endif
