// SPDX-License-Identifier: BSD-3-Clause
/* Reads HDF5 files that are not trusted. A child process reads the structure with HDF5, under
 * limits on time and memory, and describes it in JSON. Data are read at the offsets in the
 * description, without HDF5. In a program without hdf5_child_set_program, such as a test, HDF5 runs
 * in this process.
 *
 * The description: {"objects": {PATH: OBJECT, ...}, "fault": TEXT}; "fault" states why HDF5 cannot
 * read the file. A path has no slash at its start; that of the root group is "". Objects are in
 * order of a depth-first walk; the members of a group are in order of creation if the file has that
 * order, else of their names. An object that several hard links refer to occurs several times, but
 * the members of a group occur once. The members of OBJECT are those of struct hdf5_object. */
#ifndef VITTRAIN_HDF5_HDF5_READER_H
#define VITTRAIN_HDF5_HDF5_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/file.h"

struct json_t;

enum { HDF5_NAME = 256 /* bytes of a path */, HDF5_DIMENSIONS = 8, HDF5_FILTERS = 8 };

enum hdf5_kind {
    HDF5_GROUP,
    HDF5_DATASET,
    HDF5_OTHER /* a named type, a link that is not followed (soft, external or user-defined), or a
                * data set of more than HDF5_DIMENSIONS dimensions */
};

enum hdf5_layout { HDF5_CONTIGUOUS, HDF5_CHUNKED, HDF5_COMPACT, HDF5_VIRTUAL, HDF5_EXTERNAL };

/* The attribute of a data set with its dimension scales: the path of the first scale of each
 * dimension, or "", if hdf5_reader.datasets has the data set or is empty. */
#define HDF5_SCALES "DIMENSION_LIST"

/* The attribute of a scale that lists the data sets with this scale. */
#define HDF5_SCALE_USES "REFERENCE_LIST"

/* The attribute NAME of a NetCDF-4 dimension without coordinates begins so. */
#define HDF5_DIMENSION_ONLY "This is a netCDF dimension but not a netCDF"

/* Types are texts as in NumPy's array interface: "<f4", "|u1", "|b1", "|S64" (text of 64 bytes),
 * "|O" (text of variable length), "|V32" (any other type of 32 bytes). */
struct hdf5_object {
    enum hdf5_kind kind;
    const char *fault; /* why HDF5 cannot read the object or its attributes; "" if it can */
    /* {NAME: VALUE}. A value is a number, a text, a list of numbers or texts, or null for other
     * types. Numbers that are not finite are "NaN", "Infinity" and "-Infinity". NULL: none */
    const struct json_t *attributes;
    /* Data sets only. A virtual one has no extent. */
    const char *type;
    int64_t element_bytes;
    int dimensions; /* 0: a scalar */
    int64_t extent[HDF5_DIMENSIONS], chunk[HDF5_DIMENSIONS];
    enum hdf5_layout layout;
    int64_t offset; /* contiguous: position in the file; -1: no space is allocated */
    double fill;    /* value of elements that were not written */
    int filter_count;
    int64_t filter[HDF5_FILTERS]; /* HDF5's numbers of the filters, in order */
    /* A text of hexadecimal numbers, "" unless hdf5_reader.datasets has the data set: lines of the
     * index in the grid of chunks, in row-major order, the offset, the bytes in the file, and a
     * mask in which bit n is set if filter n was not applied. */
    const char *chunks;
};

struct hdf5_reader {
    enum error_kind kind; /* of the error for an unusable file */
    const char *purpose;  /* for messages: "a checkpoint" */
    const char *datasets; /* paths of data sets without a slash at the start, separated by commas.
                           * The chunks of these and of all scales in use are described. NULL: of
                           * none */
    char *received; /* allocated description of the next file, from another rank, which the reader
                     * takes over; NULL: it describes the file */
    /* The caller sets the other members to zero before the first file. */
    const char *path;
    struct file_stamp stamp;
    int64_t bytes_read; /* by hdf5_dataset_read; at most the size of the file */
    bool is_open;       /* it has a descriptor */
    int descriptor;
    char *text;                           /* the description */
    struct json_t *description, *objects; /* parsed */
    struct hdf5_child {
        pid_t pid;  /* 0: not started */
        int socket; /* its standard input and output */
    } child;        /* reads all files that are opened with this reader */
};

/* Close the previous file and describe another, with the stamp that it had before. `path` must stay
 * valid. Call hdf5_reader_close in any case. */
MUST_CHECK bool hdf5_reader_describe(struct hdf5_reader *reader, const char *path,
                                     const struct file_stamp *stamp, struct error *error);

/* The same, and open the file, which must be a regular file, for hdf5_dataset_read. */
MUST_CHECK bool hdf5_reader_open(struct hdf5_reader *reader, const char *path, struct error *error);

void hdf5_reader_close(struct hdf5_reader *reader);

/* Set an error of the reader's kind: "FILE cannot be used as PURPOSE: FORMAT". Return false. */
bool hdf5_refuse(const struct hdf5_reader *reader, struct error *error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Describe the object of this path, such as "/fields/u"; texts are valid until the reader opens
 * another file. Return false if there is none. */
bool hdf5_object_find(const struct hdf5_reader *reader, const char *path,
                      struct hdf5_object *object);

/* Return the attributes of the object of this path, or NULL. */
const struct json_t *hdf5_attributes(const struct hdf5_reader *reader, const char *path);

/* Return the number of elements of a data set, or -1 if an int64_t cannot hold it. */
int64_t hdf5_elements(const struct hdf5_object *dataset);

/* Convert the value of an attribute that is one number. Return false if it is another value. */
bool hdf5_real(const struct json_t *value, double *real);

enum hdf5_number_kind { HDF5_INTEGER, HDF5_UNSIGNED, HDF5_REAL };

/* An attribute of the root group that is one number, and the member of a struct that stores it: an
 * int64_t, uint64_t or double. */
struct hdf5_number {
    const char *name;
    enum hdf5_number_kind kind;
    size_t offset;      /* in the struct */
    double least, most; /* valid range; every value is valid if both are equal */
};

/* Read such an attribute into the struct `to` and check its range. On failure set the error. */
MUST_CHECK bool hdf5_number_read(const struct hdf5_reader *reader, const struct hdf5_number *number,
                                 void *to, struct error *error);

/* Copy an attribute of the root group that is a text; one of `size` or more bytes is truncated. On
 * failure set the error. */
MUST_CHECK bool hdf5_text_read(const struct hdf5_reader *reader, const char *name, char *text,
                               size_t size, struct error *error);

/* The byte order of this machine in the text of a type. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define HDF5_NATIVE "<"
#else
#define HDF5_NATIVE ">"
#endif

/* Find a contiguous data set of this type, not empty and inside the file. `type`: "|S" is a text of
 * any fixed length. On failure set the error. */
MUST_CHECK bool hdf5_dataset_find(const struct hdf5_reader *reader, const char *path,
                                  const char *type, struct hdf5_object *dataset,
                                  struct error *error);

/* Find such a data set and read it into new memory, followed by a zero byte. Verify its attribute
 * crc32c, if it has one. On failure set the error and return NULL. */
void *hdf5_dataset_read(struct hdf5_reader *reader, const char *path, const char *type,
                        struct hdf5_object *dataset, struct error *error);

/* ---- The child: this program with the argument HDF5_CHILD. */

#define HDF5_CHILD "describe-hdf5"

/* Set the program that is started; the text must stay valid. NULL, the default: none. */
void hdf5_child_set_program(const char *path);

/* Set the limits, and describe each file whose path the parent sends, until it closes the socket.
 */
_Noreturn void hdf5_child_run(void);

/* For the child and tests: limit memory and time. The process ends with its parent, and no core is
 * dumped. The limits on time send SIGXCPU and SIGALRM. False: too little memory is left. */
MUST_CHECK bool hdf5_child_limit(unsigned cpu_seconds);

/* Describe a file with HDF5, which may crash or not return if the file is damaged. `datasets` is
 * that of hdf5_reader, not NULL. Return the JSON text, to be freed by the caller. */
char *hdf5_describe(const char *path, const char *datasets);

#endif
