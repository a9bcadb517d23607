// SPDX-License-Identifier: BSD-3-Clause
/* The data set of a test: one at a time is open. */
#ifndef VITTRAIN_TEST_DATASET_FIXTURE_H
#define VITTRAIN_TEST_DATASET_FIXTURE_H

#include "config/options.h"
#include "data/dataset.h"

extern struct options options;
extern struct dataset dataset;

/* Set the options to their defaults for a format; close the data set. */
void dataset_begin(const char *format);

/* Open a split in the place of the previous data set; the test fails if that is an error, or if it
 * has not this number of samples. -1: any number. */
void split_opens(enum data_split split, int64_t count);

/* The split cannot be opened: one line, which contains `part`. */
void split_fails(enum data_split split, const char *part);

#endif
