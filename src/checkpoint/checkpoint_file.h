// SPDX-License-Identifier: BSD-3-Clause
/* For the files of this module: the contents of a checkpoint file, its HDF5 frame (groups,
 * attributes, tables, and space for the state vectors), and the vectors, which are read and written
 * with pread and pwrite at the offsets that HDF5 assigned. Only functions that are marked so are
 * collective. Layout of the file: docs/checkpoint.md. */
#ifndef VITTRAIN_CHECKPOINT_CHECKPOINT_FILE_H
#define VITTRAIN_CHECKPOINT_CHECKPOINT_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "comm/comm.h"
#include "mesh/unit.h"

/* Elements of the largest block that is read, written or sent at once: 4 MiB. */
enum { VECTOR_BLOCK = 1 << 20 };

/* Elements [begin, begin + count) of a unit, at most VECTOR_BLOCK, written by one rank; and their
 * CRC32C in the vector of each kind (0 if there is none). A piece may contain elements of
 * several shards. */
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

/* The deck; the description of the weights (model_metadata.h) and of the data
 * (train/trainer_checkpoint.c); the algorithms that the device has chosen (device.h:
 * choices_export). Only the deck always exists. */
enum checkpoint_text { TEXT_DECK, TEXT_METADATA, TEXT_DATA, TEXT_ALGORITHMS, CHECKPOINT_TEXTS };

struct checkpoint_contents {
    char model[64];
    int64_t format; /* of a file that was read */
    struct training_state state;
    int64_t moments, averaged, replica, shard;
    int64_t unit_count, piece_count;
    int64_t bytes;                    /* of the whole file */
    const char *compute;              /* type, for users; NULL in a file that was read */
    char *text[CHECKPOINT_TEXTS];     /* a missing one is "" if the file was read, else NULL */
    const struct unit *units;         /* of the model or own_units; NULL: another rank has them */
    struct unit *own_units;           /* of a file that was read */
    struct checkpoint_layout *layout; /* [unit_count] */
    struct checkpoint_piece *pieces;  /* [piece_count], by unit, then by `begin` */
};

void checkpoint_contents_free(struct checkpoint_contents *contents);

/* True if the file has vectors of this kind. */
bool checkpoint_has(const struct checkpoint_contents *contents, enum flat_vector kind);

/* One piece of one vector; begin with zero. */
struct checkpoint_block {
    int64_t u, p; /* index of the unit and of the piece */
    enum flat_vector kind;
    struct checkpoint_piece *piece; /* pieces[p] */
    size_t bytes;                   /* of the elements */
    int64_t offset;                 /* of the first one in the file */
};

/* Set the next block, by unit, then by kind, then by piece. Return false after the last one. */
bool checkpoint_next(const struct checkpoint_contents *contents, struct checkpoint_block *block);

/* Write everything except the vectors and the tables of pieces to a file that is open for writing,
 * and set layout[].offset, table_offset and bytes. What the vectors of the file contain is
 * unchanged. `reserves`: reserve the disk space of the whole file if the file system supports it.
 */
MUST_CHECK bool checkpoint_frame_write(int descriptor, const char *path,
                                       struct checkpoint_contents *contents, bool reserves,
                                       struct error *error);

/* Write the tables of pieces. */
MUST_CHECK bool checkpoint_tables_write(int descriptor, const char *path,
                                        const struct checkpoint_contents *contents,
                                        struct error *error);

/* Read everything except the vectors, and check that it is consistent: all offsets and counts can
 * be trusted. Always pass the contents to checkpoint_contents_free, also on failure. */
MUST_CHECK bool checkpoint_file_read(const char *path, struct checkpoint_contents *contents,
                                     struct error *error);

/* Read the elements of a block and verify their CRC32C. */
MUST_CHECK bool checkpoint_block_read(int descriptor, const char *path,
                                      const struct checkpoint_contents *contents,
                                      const struct checkpoint_block *block, float *to,
                                      struct error *error);

/* ---- vectors of a model, in blocks through host memory, so that no rank holds a whole model */

/* Write "[2, 3]" to text. */
void vector_shape_text(const int64_t *shape, int dimensions, char *text, size_t size);

/* Intersect elements [begin, begin + count) with [other, other + other_count). Return the first
 * common element; *length may be 0. */
int64_t vector_overlap(int64_t begin, int64_t count, int64_t other, int64_t other_count,
                       int64_t *length);

/* Collective. Return the world rank of each mesh position, at [shard * replicas + replica]. The
 * caller frees it. */
int *vector_ranks(const struct mesh *mesh);

/* Copy from `block`, which holds elements [begin, begin + count) of unit u, to this rank's shard;
 * elements of other shards are skipped. Blocks until done. */
void vector_store(const struct flat_model *flat, int64_t u, enum flat_vector kind, int64_t begin,
                  int64_t count, const float *block);

/* Copy elements [begin, begin + count) of unit u to `block`. This rank must hold all of them.
 * vector_copy blocks until done; vector_copy_start queues the copy on the model's stream. */
void vector_copy(const struct flat_model *flat, int64_t u, enum flat_vector kind, int64_t begin,
                 int64_t count, float *block);
void vector_copy_start(const struct flat_model *flat, int64_t u, enum flat_vector kind,
                       int64_t begin, int64_t count, float *block);

/* Set the EMA, if there is one, to the parameters. */
void vector_reset_ema(const struct flat_model *flat);

/* ---- a file while it is written, and contents on several ranks */

/* A checkpoint while it is written: NAME.part, which is renamed when it is complete, or a file in
 * memory. */
struct checkpoint_part {
    const struct flat_model *flat;
    struct comm *world;
    struct checkpoint_contents contents;
    char *path, *final_path;
    int descriptor;  /* of the file on a disk; -1: not open on this rank */
    int *rank_at;    /* [ranks]: vector_ranks */
    int *writer;     /* [piece_count]: mesh position of the rank that joins the parts of a piece,
                      * computes its checksum and sends it to its receiver */
    int *receiver;   /* [ranks]: gets the pieces of each rank; itself: they are not sent */
    float *snapshot; /* the pieces that this rank joins and its parts of other pieces, in the
                      * order of checkpoint_next; or NULL */
    unsigned char *mapped; /* the file in memory, or NULL */
};

/* Return the rank that joins the parts of a piece. */
static inline int checkpoint_piece_writer(const struct checkpoint_part *part, int64_t p)
{
    return part->rank_at[part->writer[p]];
}

/* Collective. Set `contents`, which are the same on all ranks, except for the text of algorithms,
 * paths and writers without creating a file; each rank is its receiver. */
void checkpoint_part_plan(struct checkpoint_part *part, const char *directory,
                          const struct flat_model *flat, const struct checkpoint_order *order);

/* Collective. Write the frame to `descriptor`, the file of rank 0, and broadcast the offsets in the
 * file. */
MUST_CHECK bool checkpoint_part_frame(struct checkpoint_part *part, int descriptor, bool reserves,
                                      struct error *error);

/* Write the vectors of all pieces that this rank receives, with their checksums: from the snapshot
 * or the model to the mapped file, or to the file on the disk. The pieces of a snapshot must be
 * joined before. Without a snapshot, or if pieces are sent to receivers, it is collective; also
 * after an error. */
void checkpoint_part_write(struct checkpoint_part *part, struct error *error);

/* Collective. Combine the checksums that the ranks computed, on all ranks. */
void checkpoint_part_gather_sums(struct checkpoint_part *part);

/* Not collective. Close the file and free everything; if not `good`, rank 0 removes the file. */
void checkpoint_part_end(struct checkpoint_part *part, bool good);

/* Collective. Read the file on rank `root`; the other ranks get the contents without units. Always
 * pass the contents to checkpoint_contents_free. */
MUST_CHECK bool checkpoint_contents_read(const char *path, struct comm *world, int root,
                                         struct checkpoint_contents *contents, struct error *error);

/* Collective. Read the vectors that flat has, with weights_only no moments, and verify their
 * checksums. Each rank gets its shard, whose padding becomes zero. by_all: each block is read by
 * one of the ranks that need it, which sends it to the others; else rank 0 reads all. Only ranks
 * that read open the file. Without flat the ranks divide all vectors, which are only verified. */
MUST_CHECK bool checkpoint_vectors_read(const char *path, bool by_all, struct comm *world,
                                        const struct checkpoint_contents *contents,
                                        const struct flat_model *flat, bool weights_only,
                                        struct error *error);

#endif
