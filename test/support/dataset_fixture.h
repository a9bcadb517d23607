// SPDX-License-Identifier: BSD-3-Clause
/* The data set of a test: one at a time is open. */
#ifndef VITTRAIN_TEST_DATASET_FIXTURE_H
#define VITTRAIN_TEST_DATASET_FIXTURE_H

#include "data/dataset.h"
#include "options/options.h"

extern struct options options;
extern struct dataset dataset;
extern struct comm *dataset_comm; /* ranks that open splits together; NULL: each alone */

/* Set the options to their defaults and these settings ("data.val=none data.workers=1"); close the
 * data set. */
void dataset_begin(const char *settings);

/* The same, with a new empty folder as data.root. */
void dataset_begin_folder(const char *settings);

/* The path of a file in data.root, valid until the next call. */
__attribute__((format(printf, 1, 2))) const char *root_path(const char *format, ...);

/* Write a file in data.root, and create its folders. */
void root_write(const char *name, const void *content, size_t bytes);

/* The same as dataset_begin for data.format=arrays, with a path below the temporary directory. */
void arrays_begin(const char *root, const char *x, const char *y);

/* Change the options, close the data set and open a split. The test fails if the split cannot be
 * opened or has another number of samples. -1: any number. */
void split_opens(const char *settings, enum data_split split, int64_t count);

/* The test fails unless opening the split with these settings is an error whose text is one line
 * with `part`. */
void split_fails(const char *settings, enum data_split split, const char *part);

/* Fail unless the name of the record has this part. */
void record_is_named(int64_t record, const char *part);

#endif
