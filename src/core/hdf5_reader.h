// SPDX-License-Identifier: BSD-3-Clause
/* Reads HDF5 files that are not trusted. A child process reads the structure with HDF5, under
 * limits on time and memory, and sends a description of it. Data are read at the offsets in the
 * description, without HDF5. In a program without subprocess_set_program, such as a test, HDF5 runs
 * in this process. */
#ifndef VITTRAIN_CORE_HDF5_READER_H
#define VITTRAIN_CORE_HDF5_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"
#include "core/open_file.h"
#include "core/subprocess.h"

enum { HDF5_NAME = 256, HDF5_FAULT = 96, HDF5_DIMENSIONS = 8, HDF5_FILTERS = 8 };

/* Limits of a description: objects, attributes, bytes of their values, and chunks. */
enum { HDF5_MOST_OBJECTS = 1 << 16, HDF5_MOST_ATTRIBUTES = 1 << 18, HDF5_MOST_VALUES = 1 << 26 };
enum { HDF5_MOST_CHUNKS = 1 << 24 };

enum hdf5_value { HDF5_NO_VALUE, HDF5_INTEGER, HDF5_UNSIGNED, HDF5_REAL, HDF5_TEXT };

/* The attribute of a data set with its dimension scales. If hdf5_reader.datasets has the data set,
 * its values are texts: the path of the first scale of each dimension, or "". */
#define HDF5_SCALES "DIMENSION_LIST"

/* The attribute of a scale that lists the data sets with this scale. */
#define HDF5_SCALE_USES "REFERENCE_LIST"

/* The attribute NAME of a NetCDF-4 dimension without coordinates begins so. */
#define HDF5_DIMENSION_ONLY "This is a netCDF dimension but not a netCDF"

struct hdf5_attribute {
    char name[HDF5_NAME];
    int64_t kind;   /* enum hdf5_value; HDF5_NO_VALUE: neither numbers nor texts */
    int64_t count;  /* of the values: 8 bytes each, or consecutive null-terminated texts */
    int64_t offset; /* of the first value, in bytes, in hdf5_description.values */
};

enum hdf5_object_kind {
    HDF5_GROUP,
    HDF5_DATASET,
    HDF5_LINK, /* soft, external or user-defined; not followed */
    HDF5_OTHER /* a named type, or a data set of more than HDF5_DIMENSIONS dimensions */
};

enum hdf5_layout { HDF5_CONTIGUOUS, HDF5_CHUNKED, HDF5_COMPACT, HDF5_VIRTUAL, HDF5_EXTERNAL };

/* Types are texts as in NumPy's array interface: "<f4", "|u1", "|b1", "|S64" (text of 64 bytes),
 * "|O" (text of variable length), "|V32" (any other type of 32 bytes). */
struct hdf5_object {
    char name[HDF5_NAME];   /* the last component of its path; "" for the root group */
    int64_t kind;           /* enum hdf5_object_kind */
    int64_t depth;          /* 0: the root group */
    char fault[HDF5_FAULT]; /* why HDF5 cannot read the object or its attributes; "" if it can. Of a
                             * soft link: its target, "" if that is too long */
    int64_t first_attribute, attribute_count;
    /* Data sets only. A virtual one has no extent. */
    char type[16];
    int64_t element_bytes;
    int64_t dimensions, extent[HDF5_DIMENSIONS]; /* 0 dimensions: a scalar */
    int64_t layout;                              /* enum hdf5_layout */
    int64_t
        offset;  /* contiguous: position in the file; -1: no space is allocated. compact: position
                  * in hdf5_description.values, if hdf5_reader.datasets has it, else -1 */
    double fill; /* value of elements that were not written */
    int64_t chunk[HDF5_DIMENSIONS];
    int64_t filter_count, filter[HDF5_FILTERS]; /* HDF5's numbers of the filters, in order */
    int64_t first_chunk, chunk_count; /* chunks in the file, if hdf5_reader.datasets has it */
};

/* A chunk in the file. */
struct hdf5_chunk {
    int64_t index; /* in the grid of chunks, in row-major order */
    int64_t offset;
    uint32_t bytes;   /* in the file */
    uint32_t skipped; /* bit n is set: filter n was not applied */
};

/* Objects are in order of a depth-first walk; the members of a group are in order of creation if
 * the file has that order, else of their names. An object that several hard links refer to occurs
 * several times, but the members of a group occur once. */
struct hdf5_description {
    char fault[HDF5_NAME];        /* why HDF5 cannot read the file; "" if it can */
    char object_fault[HDF5_NAME]; /* "PATH: WHY" of the first object that HDF5 cannot read, or "" */
    int64_t object_count, attribute_count, value_bytes, chunk_count;
    struct hdf5_object *objects;
    struct hdf5_attribute *attributes;
    char *values;
    struct hdf5_chunk *chunks;
};

/* Describe a file with HDF5, which may crash or not return if the file is damaged. `datasets` is
 * that of hdf5_reader, not NULL. Call hdf5_description_free in any case. */
void hdf5_describe(const char *path, const char *datasets, struct hdf5_description *description);

void hdf5_description_free(struct hdf5_description *description);

struct hdf5_reader {
    enum error_kind kind; /* of the error for an unusable file */
    const char *purpose;  /* for messages: "a checkpoint" */
    const char *datasets; /* paths of data sets without a slash at the start, separated by commas.
                           * The chunks and compact data of these and of all scales in use are
                           * described. NULL: of none */
    bool allows_faults;   /* an object that HDF5 cannot read is no error */
    /* If not NULL: called for each file after the description or its error is known, also if the
     * file cannot be opened. It may exchange them with other processes; a process with
     * `receives` does not describe the file. Return false if `error` is set. */
    bool (*exchange)(void *context, struct hdf5_description *file, struct error *error);
    void *context;
    bool receives;
    /* The caller sets the other members to zero before the first file. */
    const char *path;
    int descriptor;
    struct file_stamp stamp;
    int64_t bytes;      /* of the file */
    int64_t bytes_read; /* by hdf5_dataset_read; at most `bytes` */
    struct hdf5_description file;
    bool has_child, is_open;
    struct subprocess child; /* reads all files that are opened with this reader */
};

/* Close the previous file and open another, which must be a regular file. Check that the
 * description is consistent and that `objects` begins with the root group. `path` must stay valid.
 * Call hdf5_reader_close in any case. */
MUST_CHECK bool hdf5_reader_open(struct hdf5_reader *reader, const char *path, struct error *error);

void hdf5_reader_close(struct hdf5_reader *reader);

/* Set an error of the reader's kind: "FILE cannot be used as PURPOSE: FORMAT". Return false. */
bool hdf5_refuse(const struct hdf5_reader *reader, struct error *error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Return the member of a group after `member` (NULL: the first), or NULL. */
const struct hdf5_object *hdf5_next(const struct hdf5_reader *reader,
                                    const struct hdf5_object *group,
                                    const struct hdf5_object *member);

/* Return the object of this path, such as "/fields/u", or NULL. */
const struct hdf5_object *hdf5_path_find(const struct hdf5_reader *reader, const char *path);

/* Return an attribute that has values, or NULL. */
const struct hdf5_attribute *hdf5_attribute_find(const struct hdf5_reader *reader,
                                                 const struct hdf5_object *object,
                                                 const char *name);

/* Copy at most `most` values of an attribute that is numbers, and return their number; 0 if it is
 * NULL or not numbers. `from` has the values of its file. */
int hdf5_attribute_reals(const struct hdf5_attribute *attribute, const char *from, double *values,
                         int most);

/* Return the member of this name, or NULL. */
const struct hdf5_object *hdf5_find(const struct hdf5_reader *reader,
                                    const struct hdf5_object *group, const char *name);

/* Copy an attribute that is one number to *value: an int64_t, uint64_t or double, as `kind` states.
 * Return false if the attribute is missing, of another kind, or does not fit. */
bool hdf5_number_get(const struct hdf5_reader *reader, const struct hdf5_object *object,
                     const char *name, enum hdf5_value kind, void *value);

/* An attribute that is one number, and the member of a struct that stores it. */
struct hdf5_number {
    const char *name;
    enum hdf5_value kind;
    size_t offset;      /* in the struct */
    double least, most; /* valid range; every value is valid if both are equal */
};

/* Read such an attribute into the struct `to` and check its range. On failure set the error. */
MUST_CHECK bool hdf5_number_read(const struct hdf5_reader *reader, const struct hdf5_object *object,
                                 const struct hdf5_number *number, void *to, struct error *error);

/* Copy an attribute that is a text; one of `size` or more bytes is truncated. On failure set the
 * error. */
MUST_CHECK bool hdf5_text_read(const struct hdf5_reader *reader, const struct hdf5_object *object,
                               const char *name, char *text, size_t size, struct error *error);

/* The byte order of this machine in the text of a type. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define HDF5_NATIVE "<"
#else
#define HDF5_NATIVE ">"
#endif

/* Return a member of a group that must be a contiguous data set of this type, not empty and inside
 * the file. `type`: "|S" is a text of any fixed length. On failure set the error and return NULL.
 */
const struct hdf5_object *hdf5_dataset_find(const struct hdf5_reader *reader,
                                            const struct hdf5_object *group, const char *name,
                                            const char *type, struct error *error);

/* Return the number of elements, or -1 if an int64_t cannot hold it. */
int64_t hdf5_elements(const struct hdf5_object *dataset);

/* Read a data set that hdf5_dataset_find returned into new memory, followed by a zero byte, and
 * verify its attribute crc32c, if it has one. On failure set the error and return NULL. */
void *hdf5_dataset_read(struct hdf5_reader *reader, const struct hdf5_object *dataset,
                        struct error *error);

/* The child process is this program with the argument HDF5_CHILD. It sends a description of each
 * file whose path it receives. */
#define HDF5_CHILD "describe-hdf5"
_Noreturn void hdf5_child_run(void);

#endif
