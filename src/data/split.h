// SPDX-License-Identifier: BSD-3-Clause
/* Selection of a split's records. A split is a list of record numbers in ascending order, so
 * data.shuffle=off reads files in order. It depends only on the data and the arguments, so every
 * rank and every resumed run has the same split. */
#ifndef VITTRAIN_DATA_SPLIT_H
#define VITTRAIN_DATA_SPLIT_H

#include "comm/comm.h"
#include "data/dataset.h"

/* Return the split whose files are opened for `split`; -1: none. stored[s]: split s has files.
 * Without a test split, the validation split is the test split; without both, data.val=FRACTION
 * or periods hold out training samples. */
int split_stored(const struct options *options, enum data_split split, const bool stored[3]);

/* Keep `count` random samples. draw: number of this selection; others of the same seed are
 * independent. */
void split_draw(struct dataset *dataset, uint64_t seed, uint32_t draw, int64_t count);

/* Keep one of the three parts of all samples (data.val=reference): 3/4 for training, 1/12 for
 * validation, the rest for testing. Of the 60,000 images of CIFAR-10, training images first, the
 * parts have the images of PyTorch's random_split(images, [45000, 5000, 10000],
 * torch.Generator().manual_seed(seed)); of other sizes n, those of the lengths [n * 3 / 4, n / 12,
 * rest]. */
void split_reference(struct dataset *dataset, uint64_t seed, enum data_split split);

/* Write the samples ordered by class; those of class c are samples[begin[c]] to begin[c + 1].
 * samples: [count]. begin: [classes + 2], zeros. */
void split_by_class(const struct dataset *dataset, uint32_t *samples, size_t *begin);

/* Keep the samples that data.val=FRACTION holds out from the training samples, or all others. Of n
 * samples of a class, n * fraction (rounded) are held out, but at least one if n > 1, and at most
 * n - 1. The larger of two fractions holds out all samples of the smaller one, and more. */
void split_stratified(struct dataset *dataset, double fraction, bool held_out);

/* Keep the samples that data.val holds out by their times, or the others without those that share
 * values with them. Periods: the samples in them; a period without samples, and periods with all
 * samples, are an error. A fraction: the last n * fraction of n samples (rounded, at least one if
 * n > 1, at most n - 1), in the order of their times in all files; samples of the time of the first
 * one that is held out are held out, too. */
MUST_CHECK bool split_by_time(struct dataset *dataset, const struct options *options, bool held_out,
                              struct error *error);

/* ---- The files of a data set, whose names contain their split. */

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

/* Initialize with zeros. */
struct split_files {
    const struct split_file_kind *kind;
    char **path; /* [count] sorted by split, then by path */
    int64_t count;
    size_t capacity;
};

/* Return the split of a file: the word train, val, valid, validation or test in its name, or else
 * in the name of its folder; without such a word, SPLIT_TRAIN. */
enum data_split split_of_path(const char *path);

/* Find the files of data.root, which is a folder, or file names with braces ({000..146}, {a,b}) and
 * wildcards, separated by "::". Collective over `comm` (NULL: one rank): rank 0 finds them for all
 * ranks. Call split_files_free in any case. */
MUST_CHECK bool split_files_find(const char *root, const struct split_file_kind *kind,
                                 struct split_files *files, struct comm *comm, struct error *error);

/* Return the paths of a split and their number. */
char **split_files_of(const struct split_files *files, enum data_split split, int64_t *count);

/* Return the files to open for a split (split_stored); NULL and an error if there are none. */
char **split_files_choose(const struct split_files *files, const struct options *options,
                          enum data_split split, int64_t *count, struct error *error);

/* Sort the files by path and return all of them. Do not call split_files_of afterwards. */
char **split_files_all(struct split_files *files, int64_t *count);

void split_files_free(struct split_files *files);

#endif
