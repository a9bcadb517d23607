// SPDX-License-Identifier: BSD-3-Clause
/* An array of numbers in a file: shape, element type, grid of chunks, filters. The index of a file
 * format (path.h) fills in the description; everything else is common to all formats. The
 * calling thread reads boxes with pread and decodes them. */
#ifndef VITTRAIN_ARRAYS_ARRAY_H
#define VITTRAIN_ARRAYS_ARRAY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/file.h"

enum { ARRAY_DIMENSIONS = 8, ARRAY_FILTERS = 8, ARRAY_MISSING = 4, ARRAY_NAME = 256 };

/* A filter that was applied to a chunk when it was written: HDF5's registered number, or a negative
 * number if HDF5 does not have it. Other numbers of HDF5 are filters that are not supported. */
enum array_filter {
    ARRAY_CRC32C = -3,
    ARRAY_LZ4_BLOCK = -2, /* as in Zarr: one block */
    ARRAY_GZIP = -1,      /* deflate in a gzip stream */
    ARRAY_DEFLATE = 1,    /* in a zlib stream */
    ARRAY_SHUFFLE = 2,
    ARRAY_FLETCHER32 = 3,
    ARRAY_BLOSC = 32001,
    ARRAY_LZ4 = 32004, /* as in HDF5: several blocks */
    ARRAY_ZSTD = 32015
};

/* A chunk in the file. An array that is not chunked is one chunk of the array's shape. In a folder:
 * a file, of which only the index is used. */
struct array_chunk {
    int64_t index;    /* in the grid of chunks, or of files, in row-major order */
    int64_t offset;   /* in the file, in bytes */
    uint32_t bytes;   /* stored size; not used without filters */
    uint32_t skipped; /* bit n is set: filter n was not applied */
};

/* Conversion of a stored number to a value: NaN if the number is missing or out of range, else
 * number * scale + offset. */
struct array_rule {
    bool active;
    double scale, offset;
    double least, most;            /* valid range of stored numbers */
    double missing[ARRAY_MISSING]; /* stored numbers that mean a missing value */
    int missing_count;
};

/* Chunks in the files of a folder, as in Zarr. A file has one chunk, or is a shard: several chunks
 * and their index. */
struct array_files {
    char *folder;        /* allocated; NULL: all chunks are in one file */
    char prefix[4];      /* of a file's name, before its coordinates in the grid of files */
    char separator;      /* between the coordinates */
    bool sharded;        /* the files are shards */
    bool index_is_first; /* at the start of the shard, else at the end */
    bool index_has_sum;  /* a CRC-32C follows the index */
    int64_t shard[ARRAY_DIMENSIONS]; /* number of chunks in a file, per dimension */
    int64_t count;                   /* set by array_open: number of files if all chunks exist */
};

struct array_cache;

struct array {
    const char *path; /* of the file, for messages */
    char name[ARRAY_NAME];
    struct open_file *file;  /* NULL: none */
    bool owns_file;          /* array_close closes it */
    struct file_stamp stamp; /* of the file when its description was read */
    char kind;               /* of the elements: 'i' signed, 'u' unsigned, 'f' floating-point */
    bool is_bool;            /* 'u' of one byte, 0 or 1 */
    bool swapped;            /* the byte order is not that of this machine */
    int64_t element_bytes;
    bool has_shape;  /* shape and filters are known, also if the array cannot be read */
    bool is_chunked; /* stored in chunks, although one may be the whole array */
    int dimensions;
    int64_t extent[ARRAY_DIMENSIONS], chunk[ARRAY_DIMENSIONS];
    int filter_count;
    int64_t filter[ARRAY_FILTERS];
    struct array_chunk *chunks; /* [chunk_count], allocated; chunks that are not listed have the
                                 * fill value. Of a folder, array_open lists the files */
    int64_t chunk_count;
    struct array_files files; /* if files.folder is set, `file` is not used */
    double fill;
    struct array_rule rule;

    /* Set by array_open. */
    int64_t grid[ARRAY_DIMENSIONS]; /* number of chunks per dimension */
    int64_t chunk_bytes;            /* after decoding */
    bool is_plain;                  /* elements are native float32 without a rule */
    struct array_cache *cache;      /* of array_use_cache, or NULL */
    const struct array *original;   /* array whose chunks in the cache are used */
};

/* A part of an array and its layout in memory. */
struct array_box {
    int64_t begin[ARRAY_DIMENSIONS], count[ARRAY_DIMENSIONS];
    int64_t stride[ARRAY_DIMENSIONS]; /* in memory, in elements */
};

/* Begin a description of an array in the open file `file`, which must not change from the
 * time of `stamp` on (NULL: no file). `path` must stay valid. Call array_close in any case. */
void array_begin(struct array *array, const char *path, const char *name, struct open_file *file,
                 const struct file_stamp *stamp);

/* Set the type of the elements from a text as in NumPy's array interface: "<f4", "|u1". Return
 * false if it is not an integer of 1, 2, 4 or 8 bytes, a floating-point number of 2, 4 or 8 bytes,
 * or a Boolean. */
bool array_type_set(struct array *array, const char *type);

/* Set the error "FILE: cannot read 'NAME': REASON". Return false. */
bool array_refuse(const struct array *array, struct error *error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

struct json_t;

/* Set the rule from attributes (path.h) with NetCDF's conventions: scale_factor,
 * add_offset, _FillValue, missing_value, valid_min, valid_max, valid_range. A scale_factor or
 * add_offset that is not one number is an error. */
MUST_CHECK bool array_rule_set(struct array *array, const struct json_t *attributes,
                               struct error *error);

/* Check the description and set the members that depend on it. */
MUST_CHECK bool array_open(struct array *array, struct error *error);

/* Return the chunk, or the file of a folder, with this index, or NULL if it does not exist. */
const struct array_chunk *array_chunk_find(const struct array *array, int64_t index);

/* Use this cache, and in it the chunks of `original`: an array of the same data set in the same
 * file, which may be `array` itself. No other thread may read meanwhile. */
static inline void array_use_cache(struct array *array, struct array_cache *cache,
                                   const struct array *original)
{
    array->cache = cache;
    array->original = original;
}

/* Read a box as float32 or as double. Thread-safe. Decoded chunks are kept in the cache, if there
 * is one, unless the box contains them completely. */
MUST_CHECK bool array_read(struct array *array, const struct array_box *box, float *to,
                           struct error *error);
MUST_CHECK bool array_read_doubles(struct array *array, const struct array_box *box, double *to,
                                   struct error *error);

void array_close(struct array *array);

/* Return the number of elements. */
int64_t array_elements(const struct array *array);

#endif
