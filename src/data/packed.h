// SPDX-License-Identifier: BSD-3-Clause
/* Packed data sets: declarations shared by packed_file.c (names of files), packed_hdf5.c (their
 * headers), packed.c (reader) and packed_write.c (writer). docs/data.md describes the format. */
#ifndef VITTRAIN_DATA_PACKED_H
#define VITTRAIN_DATA_PACKED_H

#include "comm/comm.h"
#include "config/option_types.h"
#include "data/dataset.h"

struct options;

enum { PACKED_VERSION = 1, PACKED_SPLITS = 3, PACKED_TEXT = 2 * OPTION_TEXT };
enum { PACKED_PATH = OPTION_TEXT + 64, PACKED_MOST_FILES = 99999 };

/* The records of one split in one file; positions in bytes from the beginning of the file. */
struct packed_part {
    int64_t first, records; /* records = 0: no records of this split */
    int64_t byte_count;     /* bytes of all its records */
    int64_t bytes, offset, label, crc;
};

/* Properties of a set of files. */
struct packed_set {
    bool encoded;
    bool shuffled;                   /* shuffle training records */
    int64_t channels, height, width; /* encoded: 3, 0, 0 */
    int64_t classes;
    char **class_name;
    int64_t total[PACKED_SPLITS]; /* number of records, by enum data_split */
    bool normalised;              /* mean and std are those of the data */
    double mean[IMAGE_CHANNELS], std[IMAGE_CHANNELS];
    char source[PACKED_TEXT]; /* a comment */
    char program[64];
    int64_t files;
    struct packed_part (*part)[PACKED_SPLITS]; /* [files] */
};

enum { PACKED_MOST_SIDE = 1 << 16 };

/* CRC32C of a record: its bytes and its label. */
uint32_t packed_crc(const uint8_t *bytes, size_t count, int32_t label);

/* Name of one of `files` files: NAME.h5 or NAME-00000-of-00004.h5. `name` ends in .h5. */
void packed_path(char path[PACKED_PATH], const char *name, int64_t file, int64_t files);

/* Find the data set that a user named: one file, one of several, their common name, or a folder
 * that contains only them. Returns the common name and the number of files. */
MUST_CHECK bool packed_find(const char *given, char name[PACKED_PATH], int64_t *files,
                            struct error *error);

/* Create file number `file` in `descriptor` with space for its records, and set the positions of
 * its parts and its length. Called by one rank. */
MUST_CHECK bool packed_frame_create(int descriptor, const char *path, struct packed_set *set,
                                    int64_t file, int64_t *bytes, struct error *error);

/* Read the headers of all files and check that they are consistent. Call packed_set_free in any
 * case. */
MUST_CHECK bool packed_frames_read(const char *name, int64_t files, struct packed_set *set,
                                   struct error *error);

void packed_set_free(struct packed_set *set);

/* Settings of packing. */
struct packed_plan {
    const char *name;    /* ends in .h5 */
    bool decode;         /* convert images to pixels */
    bool as_source;      /* store what the source has; decode is ignored */
    bool restarts;       /* encode JPEG files again with restart markers */
    int64_t most_pixels; /* restarts: larger images are stored unchanged */
    int64_t size;        /* decode: height and width; 0: unchanged */
    int64_t file_bytes;  /* limit of a file's size; 0: one file */
    bool shuffle;        /* training records */
};

/* Collective. Write the files in parallel from the data set that the options describe. *bytes:
 * total size of the records. */
MUST_CHECK bool packed_write(const struct options *options, const struct packed_plan *plan,
                             struct comm *world, int64_t *bytes, struct error *error);

#endif
