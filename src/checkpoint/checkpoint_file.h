/* What a checkpoint file holds, and the HDF5 side of it: for the checkpoint itself and for who
 * looks into one without a mesh. HDF5 makes the file's frame (groups, attributes, tables, and space
 * for the vectors) and finds it again; the vectors themselves are read and written with pread and
 * pwrite at the offsets that HDF5 gave. Nothing here is collective: one rank calls it. */
#ifndef VITTRAIN_CHECKPOINT_CHECKPOINT_FILE_H
#define VITTRAIN_CHECKPOINT_CHECKPOINT_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/vectors.h"
#include "core/error.h"
#include "mesh/unit.h"

/* What one rank writes of a unit's vectors in one go (at most VECTOR_BLOCK elements), and its
 * CRC32C in each vector (0 where there is no such vector). */
struct checkpoint_piece {
    int64_t begin, count;
    uint32_t crc[VECTOR_KINDS];
};

/* Where a unit lies in the file, and which of the pieces are its own. */
struct checkpoint_layout {
    char name[TENSOR_NAME]; /* the unit's */
    int64_t count;
    int64_t offset[VECTOR_KINDS]; /* in the file, bytes; -1: no such vector */
    int64_t table_offset;         /* of the table of pieces */
    int64_t first_piece, piece_count;
};

enum { CHECKPOINT_TEXT = 64 };

struct checkpoint_contents {
    char model[CHECKPOINT_TEXT];
    int64_t format; /* that it was read in */
    struct training_state state;
    int64_t finished; /* state.finished, as it is stored */
    int64_t moments, averaged, replica, shard;
    /* For the reader's eyes: the compute type, which program wrote it and when. */
    char compute[CHECKPOINT_TEXT], program[CHECKPOINT_TEXT], date[CHECKPOINT_TEXT];
    char *deck;
    char *algorithms; /* that the device chose (device.h: choices_export); NULL: none */
    struct unit *units;
    bool units_borrowed; /* the units' tensors belong to somebody else */
    int64_t unit_count;
    struct checkpoint_layout *layout; /* [unit_count] */
    struct checkpoint_piece *pieces;  /* [piece_count], unit by unit, by `begin` in a unit */
    int64_t piece_count;
    int64_t bytes; /* of the whole file */
};

static inline bool checkpoint_has(const struct checkpoint_contents *contents, enum vector_kind kind)
{
    switch (kind) {
    case VECTOR_MASTER:
        return true;
    case VECTOR_MOMENT1:
        return contents->moments >= 1;
    case VECTOR_MOMENT2:
        return contents->moments >= 2;
    default:
        return contents->averaged != 0;
    }
}

/* Where piece number p, which is of unit u, lies in the file: bytes from its beginning. */
static inline int64_t checkpoint_piece_offset(const struct checkpoint_contents *contents, int64_t u,
                                              enum vector_kind kind, int64_t p)
{
    return contents->layout[u].offset[kind] + contents->pieces[p].begin * (int64_t)sizeof(float);
}

/* Elements [*begin, *end) of a unit's vectors are written by replica number `replica` of shard
 * number `shard`: ranks that hold the same shard divide it. May be none. */
void checkpoint_part(const struct checkpoint_contents *contents, int64_t u, int64_t shard,
                     int64_t replica, int64_t *begin, int64_t *end);

/* Makes the file with all but the vectors and the sums of pieces, and fills in layout[].offset,
 * table_offset and bytes. The space for the rest is reserved where the file system can. */
bool checkpoint_file_create(const char *path, struct checkpoint_contents *contents,
                            struct error *error);

/* Reads all but the vectors, and checks that it is consistent. Give it to checkpoint_contents_free
 * in any case. */
bool checkpoint_file_read(const char *path, struct checkpoint_contents *contents,
                          struct error *error);

/* Reads piece number p, which is of unit u, of one vector and compares its sum. */
bool checkpoint_piece_read(int descriptor, const char *path,
                           const struct checkpoint_contents *contents, int64_t u, int64_t p,
                           enum vector_kind kind, float *block, struct error *error);

void checkpoint_contents_free(struct checkpoint_contents *contents);

#endif
