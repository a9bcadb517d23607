// SPDX-License-Identifier: BSD-3-Clause
/* The files of a data set, whose names contain their split. */
#ifndef VITTRAIN_DATA_SPLIT_FILES_H
#define VITTRAIN_DATA_SPLIT_FILES_H

#include "comm/comm.h"
#include "data/dataset.h"

struct split_file_kind {
    const char *const *endings; /* of names of files in a folder, NULL-terminated: ".tar" */
    /* True if a folder counts as one file, such as a Zarr store. NULL if no folder does. */
    bool (*is_file)(const char *folder);
    /* For messages. */
    const char *plural;   /* "shards" */
    const char *expected; /* what is missing in a folder: "no shards (...)" */
    const char *advice;   /* "set data.root to the folder of the shards or to their names" */
};

/* Tar shards (webdataset.c). */
extern const struct split_file_kind split_files_shards;

struct split_file {
    char *path;
    enum data_split split;
};

/* Sorted by split, then by path. Initialize with zeros. */
struct split_files {
    const struct split_file_kind *kind;
    struct split_file *file;
    int64_t count;
    size_t capacity;
};

/* Find the files of data.root, which is a folder, or file names with braces ({000..146}, {a,b}) and
 * wildcards, separated by "::". The word train, val, valid, validation or test in a file's name, or
 * else in the name of its folder, sets its split; other files are training files. Collective over
 * `comm` (NULL: one rank): rank 0 finds them for all ranks. Call split_files_free in any case. */
MUST_CHECK bool split_files_find(const char *root, const struct split_file_kind *kind,
                                 struct split_files *files, struct comm *comm, struct error *error);

/* Return the files of a split and their number. */
struct split_file *split_files_of(const struct split_files *files, enum data_split split,
                                  int64_t *count);

/* Return the files to open for a split (split_stored); NULL and an error if there are none. */
struct split_file *split_files_choose(const struct split_files *files,
                                      const struct options *options, enum data_split split,
                                      int64_t *count, struct error *error);

/* Sort the files by path and return all of them. Do not call split_files_of afterwards. */
struct split_file *split_files_all(struct split_files *files, int64_t *count);

void split_files_free(struct split_files *files);

#endif
