// SPDX-License-Identifier: BSD-3-Clause
/* Records of files of samples, in order: of each file on its own, or of one series that all files
 * make up. A record has values of other samples of its series, `offset` samples later. */
#ifndef VITTRAIN_DATA_FILE_SERIES_H
#define VITTRAIN_DATA_FILE_SERIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Initialize with zeros and the first three members. */
struct file_series {
    bool joined;              /* all files are one series */
    int64_t before, after;    /* samples at both ends of a series that are no records */
    int64_t samples, records; /* of all files */
    int64_t count;
    size_t capacity;
    struct series_file {
        int64_t first, count; /* first record and number of those whose last sample it has */
        int64_t sample;       /* of record `first`; negative: in an earlier file */
        int64_t samples;
    } * file;
};

/* A file and the records first .. first + count - 1 of which it has the targets: those of record
 * first + i are sample `sample` + i of its data sets. */
struct arrays_part {
    const char *path;
    int64_t first, count, sample;
    int64_t beyond; /* records after them whose targets are after the end of the series */
};

/* Add the next file. Return false if it is a series with too few samples for a record. */
bool file_series_add(struct file_series *series, int64_t samples);

/* Return the records of which a file has the value at an offset; the path is not set. */
struct arrays_part file_series_part(const struct file_series *series, int64_t file, int64_t offset);

/* Return the file that has a record's value at an offset, and the number of the sample in it; -1
 * after the end of the series. */
int64_t file_series_find(const struct file_series *series, int64_t record, int64_t offset,
                         int64_t *sample);

#endif
