// SPDX-License-Identifier: BSD-3-Clause
/* Writes WebDataset's tar shards into the folder of a test, data.root. */
#ifndef VITTRAIN_TEST_SHARDS_H
#define VITTRAIN_TEST_SHARDS_H

#include <archive.h>

#include "dataset_fixture.h"
#include "temporary.h"
#include "test.h"

extern const uint8_t *image; /* a JPEG file */
extern size_t image_bytes;

/* For TEST_MAIN; each test has its own folder. */
void shards_open(void);
void shards_close(void);
void shards_begin(void);

struct archive *shard_begin(const char *name, const char *format);
void shard_add_file(struct archive *archive, const char *name, const void *bytes, size_t count);
void shard_end(struct archive *archive);

/* Add members, which have | between them: NAME=TEXT, or NAME alone for the image. */
void shard_add(struct archive *archive, const char *members);

/* Write a shard of these members. */
void shard_make(const char *name, const char *format, const char *members);

/* Fail unless the record is the image with this label, and its name has this part. */
void check_record(int64_t index, int32_t expected, const char *part);

#endif
