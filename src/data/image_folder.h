/* Folders of images as torchvision's ImageFolder reads them: a folder for each class, in it files
 * at any depth. Private to image_folder*.c. */
#ifndef VITTRAIN_DATA_IMAGE_FOLDER_H
#define VITTRAIN_DATA_IMAGE_FOLDER_H

#include "data/dataset.h"

struct options;

/* One file: its folder and where its name begins in `names`. */
struct folder_record {
    uint64_t name;
    uint32_t folder;
};

/* A folder that holds files, and the class that it belongs to. */
struct folder {
    char *path;
    int32_t label;
};

struct image_folder {
    struct folder *folders;
    struct folder_record *records;
    char *names; /* one behind the other, each with its 0 */
    size_t folder_count, folder_capacity, record_count, record_capacity, names_bytes,
        names_capacity;
    int64_t most_pixels;
};

/* The classes of a split: its sub-folders' names, sorted. The caller frees all. */
MUST_CHECK bool folder_list_classes(const char *directory, char ***names, int64_t *count,
                                    struct error *error);

/* Adds the images of a class's folder and of all folders in it: folders in the order of their
 * paths, files in the order of their names. Links are followed. */
MUST_CHECK bool folder_add_class(struct image_folder *self, const char *directory, int32_t label,
                                 struct error *error);

/* Looks into every file, in threads. Files that are no images are an error that counts them and
 * names the first; or they are left out (and counted in *left_out). */
MUST_CHECK bool folder_check(struct image_folder *self, const struct options *options,
                             int64_t *left_out, struct error *error);

void folder_path(const struct image_folder *self, int64_t record, char *path, size_t size);

/* Opens a regular file to read and says how long it is; -1: it cannot. Does not name the file. */
int folder_open_file(const char *path, size_t *bytes, struct error *error);

/* Reads [offset, offset + bytes) of it. */
MUST_CHECK bool folder_read(int descriptor, uint8_t *to, size_t offset, size_t bytes,
                            struct error *error);

#endif
