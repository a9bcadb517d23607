// SPDX-License-Identifier: BSD-3-Clause
/* Image files without labels, for predictions: files, folders and lists of files. Not a value of
 * data.format. */
#ifndef VITTRAIN_DATA_FILE_LIST_H
#define VITTRAIN_DATA_FILE_LIST_H

#include "data/dataset.h"

/* Open the operands in their order: the images of a folder and of its subfolders, sorted; the files
 * in a list, which is a file *.txt with one name per line, relative to its folder; other names are
 * image files. All labels are 0, and there are no classes. An image that cannot be used is an
 * error, or with data.skip_broken=on a fault (dataset->fault). Collective over `comm`; NULL: one
 * rank. */
MUST_CHECK bool file_list_open(struct dataset *dataset, const struct options *options,
                               const char *const *operands, int count, struct comm *comm,
                               struct error *error);

#endif
