/* Packed data sets: what packed_file.c (the frame of a file), packed.c (the reader) and
 * packed_write.c (the writer) share. docs/data.md describes the files. */
#ifndef VITTRAIN_DATA_PACKED_H
#define VITTRAIN_DATA_PACKED_H

#include "comm/comm.h"
#include "config/option_types.h"
#include "data/dataset.h"

struct options;

enum { PACKED_VERSION = 1, PACKED_SPLITS = 3, PACKED_TEXT = 2 * OPTION_TEXT };
enum { PACKED_PATH = OPTION_TEXT + 64, PACKED_MOST_FILES = 99999, PACKED_CHANNELS = 4 };

/* What lies in one file of one split; places are bytes from the file's beginning. */
struct packed_part {
    int64_t first, records; /* records: 0, then there is no part */
    int64_t byte_count;     /* of all its records */
    int64_t bytes, offset, label, crc;
};

/* A set of files, as far as all have it in common. */
struct packed_set {
    bool encoded;
    bool shuffled;                   /* training records do not lie in the source's order */
    int64_t channels, height, width; /* encoded: 3, 0, 0 */
    int64_t classes;
    char **class_name;
    int64_t total[PACKED_SPLITS]; /* records, by enum data_split */
    bool normalised;              /* mean and std are the data's own */
    double mean[PACKED_CHANNELS], std[PACKED_CHANNELS];
    char source[PACKED_TEXT]; /* for the reader's eyes */
    char program[64];
    int64_t files;
    struct packed_part (*part)[PACKED_SPLITS]; /* [files] */
};

/* The sum of a record: of its bytes and its label. */
uint32_t packed_crc(const uint8_t *bytes, size_t count, int32_t label);

/* The name of one of `files` files: NAME.h5, or NAME-00000-of-00004.h5. `name` ends in .h5. */
void packed_path(char path[PACKED_PATH], const char *name, int64_t file, int64_t files);

/* What a user gave for a data set: one file, one of several, the name that several were made from,
 * or a folder with nothing else in it. Gives that name and the number of files. */
MUST_CHECK bool packed_find(const char *given, char name[PACKED_PATH], int64_t *files,
                            struct error *error);

/* Makes file number `file` in `descriptor`, with room for the records, and fills in the places of
 * its parts and its length. One rank calls it. */
MUST_CHECK bool packed_frame_create(int descriptor, const char *path, struct packed_set *set,
                                    int64_t file, int64_t *bytes, struct error *error);

/* Reads the frames of all files, and checks that they hang together. Give it to packed_set_free in
 * any case. */
MUST_CHECK bool packed_frames_read(const char *name, int64_t files, struct packed_set *set,
                                   struct error *error);

void packed_set_free(struct packed_set *set);

/* What becomes of a source's records. */
struct packed_plan {
    const char *name;   /* ends in .h5 */
    bool decode;        /* to pixels, */
    bool as_source;     /* or as the source has them: decode does not count */
    int64_t size;       /* decode: height and width, 0: as they are stored */
    int64_t file_bytes; /* a file is not made larger, 0: one file */
    bool shuffle;       /* training records */
};

/* Collective: makes the files from the data set that the options describe, in parallel. *bytes: of
 * the records. */
MUST_CHECK bool packed_write(const struct options *options, const struct packed_plan *plan,
                             struct comm *world, int64_t *bytes, struct error *error);

#endif
