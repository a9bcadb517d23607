/* Folders of images as torchvision's ImageFolder reads them: one folder per class with files at any
 * depth. Private to image_folder*.c. */
#ifndef VITTRAIN_DATA_IMAGE_FOLDER_H
#define VITTRAIN_DATA_IMAGE_FOLDER_H

#include "data/dataset.h"

struct options;

/* One file: its folder and the offset of its name in `names`. */
struct folder_record {
    uint64_t name;
    uint32_t folder;
};

/* A folder with files, and its class. */
struct folder {
    char *path;
    int32_t label;
};

struct image_folder {
    struct folder *folders;
    struct folder_record *records;
    char *names; /* concatenated, each with a terminating zero */
    size_t folder_count, folder_capacity, record_count, record_capacity, names_bytes,
        names_capacity;
    int64_t most_pixels;
};

/* List the classes of a split: its subfolders, sorted. The caller frees the names and the array. */
MUST_CHECK bool folder_list_classes(const char *directory, char ***names, int64_t *count,
                                    struct error *error);

/* Add the images of a class's folder and of its subfolders, in order of paths. Symbolic links are
 * followed. */
MUST_CHECK bool folder_add_class(struct image_folder *self, const char *directory, int32_t label,
                                 struct error *error);

/* Check every file, in several threads. Files that are no images are an error with their number and
 * the first name, or are removed from the list and counted in *left_out. */
MUST_CHECK bool folder_check(struct image_folder *self, const struct options *options,
                             int64_t *left_out, struct error *error);

void folder_path(const struct image_folder *self, int64_t record, char *path, size_t size);

/* Open a regular file for reading and get its size; -1 on error. The error does not name the file.
 */
int folder_open_file(const char *path, size_t *bytes, struct error *error);

/* Read bytes [offset, offset + bytes) of a file. */
MUST_CHECK bool folder_read(int descriptor, uint8_t *to, size_t offset, size_t bytes,
                            struct error *error);

#endif
