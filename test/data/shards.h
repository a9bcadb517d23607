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
extern char shard_path[2048];       /* of the last path_of */
extern const int default_labels[3]; /* labels of shard_put_default */

/* For TEST_MAIN; each test has its own folder. */
int shards_open(void **state);
int shards_close(void **state);
int shards_begin(void **state);

/* The path of a file in the folder. */
const char *path_of(const char *name);

struct archive *shard_begin(const char *name, const char *format);
void shard_add_file(struct archive *archive, const char *name, const void *bytes, size_t count);
void shard_add_text(struct archive *archive, const char *name, const char *content);
void shard_add_jpeg(struct archive *archive, const char *name);
void shard_end(struct archive *archive);

/* Write a shard: shard_put with samples 0, 1, ... and these labels, shard_put_default with the
 * labels `default_labels`, shard_put_problems with eight samples that cannot be used. */
void shard_put(const char *name, int count, const int *labels);
void shard_put_default(const char *name);
void shard_put_problems(void);

/* Read or write a whole file. An old file is removed first, because some file systems rewrite files
 * slowly. */
char *shard_read(const char *name, size_t *bytes);
void shard_write(const char *name, const void *content, size_t bytes);
void file_write(const char *path, const void *content, size_t bytes);

/* Set the checksum of a tar header. */
void header_sum(char *header);

/* Fail unless the record is the image with this label, and its name has this ending. */
void check_record(int64_t index, int32_t expected, const char *ending);

#endif
