// SPDX-License-Identifier: BSD-3-Clause
/* The image files of a data set. Rank 0 lists them; then each rank has the list. The ranks of a
 * node share one copy of a large list. */
#ifndef VITTRAIN_DATA_IMAGE_LIST_H
#define VITTRAIN_DATA_IMAGE_LIST_H

#include "comm/comm.h"
#include "data/dataset.h"

/* One file: offsets of its folder and its name in the texts. */
struct image_entry {
    size_t folder, name;
    int64_t label;
};

/* Initialize with zeros. dataset->self of the formats that use the functions below. */
struct image_list {
    struct byte_buffer entries, texts; /* while rank 0 lists the files */
    struct joined_bytes index;         /* of all ranks: header, entries, texts */
    const struct image_entry *entry;   /* [dataset->count] */
    const char *text;                  /* each with a terminating zero */
    struct image_entry *kept;          /* the entries without broken files, or NULL */
};

/* Add a text and return its offset. The first ones must be the names of the classes. */
size_t image_list_text(struct image_list *list, const char *text);
/* Add a file. An empty folder: `name` is its path. */
void image_list_add(struct image_list *list, size_t folder, const char *name, int64_t label);
/* Add the images of the folder and of all folders below it, in torchvision's order: Python's
 * sorted(os.walk(folder)) and sorted(files). skip_broken: as in listing_walk. */
MUST_CHECK bool image_list_walk(struct image_list *list, const char *folder, bool skip_broken,
                                int64_t label, struct error *error);

/* Collective over dataset->comm. Copy the list of rank 0 and its classes, class_name and held_out
 * to all ranks. Set dataset->count, dataset->sum, and dataset->seen from the sizes of some files.
 */
void image_list_share(struct dataset *dataset);
/* Collective. Check every file, each by one rank. Files that are not images are an error, or
 * removed with data.skip_broken=on. */
MUST_CHECK bool image_list_check(struct dataset *dataset, const struct options *options,
                                 struct error *error);

/* Functions of struct dataset_format. */
bool image_list_load(struct dataset *dataset, int64_t record, struct byte_buffer *bytes,
                     int32_t *label, struct error *error);
bool image_list_label(struct dataset *dataset, int64_t record, int32_t *label, struct error *error);
void image_list_name(const struct dataset *dataset, int64_t record, char *path, size_t size);
void image_list_close(struct dataset *dataset);

/* Image files without labels, for predictions: files, folders and lists of files. Not a value of
 * data.format. */

/* Open the operands in their order: the images of a folder and of its subfolders, sorted; the files
 * in a list, which is a file *.txt with one name per line, relative to its folder; other names are
 * image files. All labels are 0, and there are no classes. An image that cannot be used is an
 * error, or with data.skip_broken=on a fault (dataset->fault). Collective over `comm`; NULL: one
 * rank. */
MUST_CHECK bool file_list_open(struct dataset *dataset, const struct options *options,
                               const char *const *operands, int count, struct comm *comm,
                               struct error *error);

#endif
