// SPDX-License-Identifier: BSD-3-Clause
/* Sorted lists of the names in a folder. Symbolic links are followed. */
#ifndef VITTRAIN_DATA_LISTING_H
#define VITTRAIN_DATA_LISTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Initialize with zeros; freed by listing_free. */
struct listing {
    char **names;
    size_t count, capacity;
};

/* List the subfolders and the files for which `keep` is true (NULL: all); either list may be NULL.
 * Names are sorted byte by byte, as Python's sorted() sorts UTF-8. */
MUST_CHECK bool listing_read(const char *folder, struct listing *folders, struct listing *files,
                             bool (*keep)(const char *name), struct error *error);
/* Compare two names, for qsort and bsearch. */
int listing_compare(const void *left, const void *right);

void listing_add(struct listing *listing, const char *name);
void listing_free(struct listing *listing);

bool listing_is_folder(const char *path);

/* Ranks compare sizes of files, to find nodes with other data. Return the number of files, out of
 * `count`, whose size each of `ranks` ranks reads: the more ranks, the fewer. */
int64_t listing_compared(int64_t count, int64_t ranks);
/* Continue a checksum with the size of a file, or -1 if there is none. */
uint32_t listing_sum_size(uint32_t sum, const char *path);

/* Messages about a data.root without the data set. They list what was found instead. */

/* Return true if data.root is a folder. Else set ERROR_DATA. advice: the end of the message. */
MUST_CHECK bool data_root_check(const char *root, const char *advice, struct error *error);

/* Set ERROR_DATA for a folder without `expected` ("no folder train"), with some names in it and the
 * advice. Hidden names are left out. Return false. */
bool data_root_unexpected(const char *root, const char *expected, const char *advice,
                          struct error *error);

#endif
