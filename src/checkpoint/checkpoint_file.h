// SPDX-License-Identifier: BSD-3-Clause
/* The contents of a checkpoint file, and its HDF5 frame: groups, attributes, tables, and space for
 * the state vectors, which are read and written with pread and pwrite at the offsets that HDF5
 * assigned. Nothing here is collective: one rank calls it, from
 * its main thread. Layout of the file: docs/checkpoint.md. */
#ifndef VITTRAIN_CHECKPOINT_CHECKPOINT_FILE_H
#define VITTRAIN_CHECKPOINT_CHECKPOINT_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/vectors.h"
#include "core/error.h"
#include "mesh/unit.h"

/* Elements [begin, begin + count) of a unit, at most VECTOR_BLOCK, written by one rank; and their
 * CRC32C in the vector of each kind (0 if there is none). */
struct checkpoint_piece {
    int64_t begin, count;
    uint32_t crc[FLAT_VECTORS];
};

/* The location of a unit in the file. */
struct checkpoint_layout {
    char name[TENSOR_NAME];       /* of the unit */
    int64_t count;                /* elements of each vector */
    int64_t offset[FLAT_VECTORS]; /* of each vector, bytes; -1: no such vector */
    int64_t table_offset;         /* of the table of pieces, bytes */
    int64_t first_piece, piece_count;
};

enum { CHECKPOINT_TEXT = 64 };

struct checkpoint_contents {
    char model[CHECKPOINT_TEXT];
    int64_t format; /* of a file that was read */
    struct training_state state;
    int64_t finished; /* state.finished as an attribute */
    int64_t moments, averaged, replica, shard;
    /* Information for users: compute type, version of the program, local time. */
    char compute[CHECKPOINT_TEXT], program[CHECKPOINT_TEXT], date[CHECKPOINT_TEXT];
    char *deck;
    char *metadata;   /* model_metadata.h, or NULL */
    char *data;       /* train/resume.h; NULL: unknown */
    char *algorithms; /* chosen by the device (device.h: choices_export), or NULL */
    struct unit *units;
    bool units_borrowed; /* the units' tensors are not freed with the contents */
    int64_t unit_count;
    struct checkpoint_layout *layout; /* [unit_count] */
    struct checkpoint_piece *pieces;  /* [piece_count], by unit, then by `begin` */
    int64_t piece_count;
    int64_t bytes; /* of the whole file */
};

/* Begin the contents of a new file: units, texts, and name and count of the layout; all else is
 * zero. The tensors of the units are borrowed. */
void checkpoint_contents_open(struct checkpoint_contents *contents, const struct unit *units,
                              int unit_count, const char *model, const char *compute,
                              const char *deck);

/* True if the file has vectors of this kind. */
bool checkpoint_has(const struct checkpoint_contents *contents, enum flat_vector kind);

/* The offset in the file, in bytes, of piece p, which belongs to unit u. */
int64_t checkpoint_piece_offset(const struct checkpoint_contents *contents, int64_t u,
                                enum flat_vector kind, int64_t p);

/* Elements [*begin, *end) of unit u that the rank at this mesh position writes. Ranks that hold the
 * same shard divide it. May be empty. */
void checkpoint_range(const struct checkpoint_contents *contents, int64_t u, int64_t shard,
                      int64_t replica, int64_t *begin, int64_t *end);

/* Create the file with everything except the vectors and the tables of pieces, and set
 * layout[].offset, table_offset and bytes. Reserves the disk space of the whole file if the file
 * system supports it. */
MUST_CHECK bool checkpoint_file_create(const char *path, struct checkpoint_contents *contents,
                                       struct error *error);

/* The same for a file that is open for writing; `reserves`: reserve the disk space of the whole
 * file. What the vectors of the file contain is unchanged. */
MUST_CHECK bool checkpoint_frame_write(int descriptor, const char *path,
                                       struct checkpoint_contents *contents, bool reserves,
                                       struct error *error);

/* Read everything except the vectors, and check that it is consistent: all offsets and counts can
 * be trusted. Always pass the contents to checkpoint_contents_free, also on failure. */
MUST_CHECK bool checkpoint_file_read(const char *path, struct checkpoint_contents *contents,
                                     struct error *error);

/* Read piece p, which belongs to unit u, of one vector and verify its CRC32C. */
MUST_CHECK bool checkpoint_piece_read(int descriptor, const char *path,
                                      const struct checkpoint_contents *contents, int64_t u,
                                      int64_t p, enum flat_vector kind, float *block,
                                      struct error *error);

void checkpoint_contents_free(struct checkpoint_contents *contents);

#endif
