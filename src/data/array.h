// SPDX-License-Identifier: BSD-3-Clause
/* An array of numbers in a file: shape, element type, grid of chunks, filters. An index of a file
 * format (array_hdf5.h) fills in the description; everything else is common to all formats. Boxes
 * are read with pread and decoded by the calling thread. */
#ifndef VITTRAIN_DATA_ARRAY_H
#define VITTRAIN_DATA_ARRAY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"

enum { ARRAY_DIMENSIONS = 8, ARRAY_FILTERS = 8, ARRAY_MISSING = 4, ARRAY_NAME = 256 };

/* Filters in the order in which they were applied when the chunk was written. */
enum array_filter {
    ARRAY_DEFLATE, /* zlib */
    ARRAY_GZIP,
    ARRAY_SHUFFLE,
    ARRAY_FLETCHER32,
    ARRAY_CRC32C,
    ARRAY_ZSTD,
    ARRAY_LZ4,       /* as in HDF5: several blocks */
    ARRAY_LZ4_BLOCK, /* as in Zarr: one block */
    ARRAY_BLOSC
};

/* A chunk in the file. An array that is not chunked is one chunk of the array's shape. */
struct array_chunk {
    int64_t index; /* in the grid of chunks, in row-major order */
    int64_t offset;
    uint32_t bytes;   /* in the file; not used without filters */
    uint32_t skipped; /* bit n is set: filter n was not applied */
};

/* How a stored number becomes a value: NaN if it is missing or out of range, else number * scale +
 * offset. */
struct array_rule {
    bool active;
    double scale, offset;
    double least, most; /* of stored numbers */
    double missing[ARRAY_MISSING];
    int missing_count;
};

/* Chunks in files of a folder, as in Zarr. A file has one chunk, or is a shard: several chunks and
 * an index of them. */
struct array_files {
    char *folder;        /* allocated; NULL: all chunks are in one file */
    const char *prefix;  /* of a file's name, before its coordinates in the grid of files */
    char separator;      /* of the coordinates */
    bool sharded;        /* the files have an index */
    bool index_is_first; /* else it is at the end */
    bool index_has_sum;  /* CRC-32C */
    int64_t shard[ARRAY_DIMENSIONS]; /* chunks in a file */
};

struct array_reader;

struct array {
    const char *path; /* of the file, for messages */
    char name[ARRAY_NAME];
    int descriptor;       /* -1: none */
    bool owns_descriptor; /* array_close closes it */
    int64_t file_bytes;
    char kind;    /* of the elements: 'i' signed, 'u' unsigned, 'f' floating-point */
    bool swapped; /* the byte order is not that of this machine */
    int64_t element_bytes;
    int dimensions;
    int64_t extent[ARRAY_DIMENSIONS], chunk[ARRAY_DIMENSIONS];
    int filter_count;
    enum array_filter filter[ARRAY_FILTERS];
    struct array_chunk
        *chunks; /* [chunk_count], allocated; those that are missing have the fill value */
    int64_t chunk_count;
    struct array_files files; /* if files.folder is set, `chunks` and `descriptor` are not used */
    uint8_t *data; /* allocated: the whole array, if the file has it in its metadata, else NULL */
    double fill;
    struct array_rule rule;

    /* Set by array_open. */
    int64_t grid[ARRAY_DIMENSIONS]; /* number of chunks */
    int64_t chunk_bytes;            /* after decoding */
    bool is_plain;                  /* elements are native float32 without rule */
    pthread_mutex_t mutex;
    struct array_reader *readers; /* that are not in use */
};

/* A part of an array, and where it goes in memory. */
struct array_box {
    int64_t begin[ARRAY_DIMENSIONS], count[ARRAY_DIMENSIONS];
    int64_t stride[ARRAY_DIMENSIONS]; /* in memory, in elements */
};

/* Begin a description of an array in the open file `descriptor`. `path` must stay valid. Call
 * array_close in any case. */
void array_begin(struct array *array, const char *path, const char *name, int descriptor,
                 int64_t file_bytes);

/* Set the type of the elements from a text as in NumPy's array interface: "<f4", "|u1". False if
 * it is not an integer or a floating-point number of 1, 2, 4 or 8 bytes. */
bool array_type_set(struct array *array, const char *type);

/* Set the error "FILE: cannot read 'NAME': REASON". Return false. */
bool array_refuse(const struct array *array, struct error *error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Set the rule from attributes with NetCDF's conventions: scale_factor, add_offset, _FillValue,
 * missing_value, valid_min, valid_max, valid_range. `get` copies at most `most` values of an
 * attribute and returns their number; 0 if it is missing or not numbers. */
void array_rule_set(struct array *array,
                    int (*get)(const void *source, const char *name, double *values, int most),
                    const void *source);

/* Check the description and prepare reading. */
MUST_CHECK bool array_open(struct array *array, struct error *error);

/* Read a box to float32 or to doubles. Thread-safe. A reader keeps the chunks that it has decoded
 * last, so that reading samples in order decodes each chunk once. */
MUST_CHECK bool array_read(struct array *array, const struct array_box *box, float *to,
                           struct error *error);
MUST_CHECK bool array_read_doubles(struct array *array, const struct array_box *box, double *to,
                                   struct error *error);

void array_close(struct array *array);

/* Return the number of elements. */
int64_t array_elements(const struct array *array);

#endif
