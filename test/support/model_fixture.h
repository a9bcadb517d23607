// SPDX-License-Identifier: BSD-3-Clause
/* A small model on a mesh, for tests of files. It has units like a ViT, and values that identify
 * their position. */
#ifndef VITTRAIN_TEST_MODEL_FIXTURE_H
#define VITTRAIN_TEST_MODEL_FIXTURE_H

#include "checkpoint/checkpoint_file.h"
#include "mesh/flat.h"
#include "options/options.h"
#include "rank_tests.h"

enum { FIXTURE_UNITS = 3, FIXTURE_TENSORS = 6 };

/* Shape of the model; zero: the default, which is in the comments. */
struct fixture_shape {
    int64_t width;   /* 24 */
    int64_t side;    /* rows of the grid of positions; 4 */
    int64_t columns; /* of this grid; side */
    int64_t classes; /* 10 */
    int64_t hidden;  /* rows of the block's matrix; 1003 */
    bool no_class_token;
};

struct fixture {
    struct options options; /* the defaults, with model.name=fake and checkpoint.keep=0 */
    struct comm *world;
    struct mesh mesh;
    struct device *device;
    struct stream *stream;
    struct flat_model flat;
    struct unit units[FIXTURE_UNITS];
    struct unit_tensor tensors[FIXTURE_UNITS][FIXTURE_TENSORS];
    struct arena arena;
};

/* Collective. Open the model on the world's ranks with shard groups of `shard` ranks; all values
 * are zero. */
void fixture_open(struct fixture *fixture, int shard, const struct fixture_shape *shape,
                  int moments, bool averaged);
void fixture_open_on(struct fixture *fixture, struct comm *comm, int shard,
                     const struct fixture_shape *shape, int moments, bool averaged);
void fixture_close(struct fixture *fixture);

/* Declare and open a model that is closed at the end of the block. */
#define FIXTURE(name, ...)                                                                         \
    __attribute__((cleanup(fixture_close))) struct fixture name;                                   \
    fixture_open(&name, __VA_ARGS__)

/* Set every element to a value that depends on salt, unit, state kind and position; zero in gaps
 * and padding. */
void fixture_fill(struct fixture *fixture, uint32_t salt);

/* Return the number of elements of this rank's shard of `kind` that are not, bit for bit, what
 * fixture_fill(salt) gives to kind `as`. */
int64_t fixture_wrong(const struct fixture *fixture, uint32_t salt, enum flat_vector kind,
                      enum flat_vector as);

/* Return the number of wrong elements in this rank's shards of all kinds. */
int64_t fixture_all_wrong(const struct fixture *fixture, uint32_t salt);

/* Find a tensor by name, and its first element on a mesh with one shard. */
float *fixture_tensor(const struct fixture *fixture, const char *name,
                      const struct unit_tensor **tensor);

/* Create a temporary directory, the same on all ranks; and remove it with its contents. */
void fixture_directory(char *path, size_t size);
void fixture_remove(const char *path);

/* A temporary folder for each test: functions to run before and after it. Paths are valid until the
 * second next call. */
extern char folder[64];
const char *folder_path(const char *name);
const char *folder_step(int64_t step); /* of the checkpoint of a step */

/* Collective. True if rank 0 sees a file or link of this name. */
bool folder_has(const char *name);

/* Collective. Write a file on rank 0. */
void folder_write(const char *name, const void *content, size_t bytes);

/* Collective. Write a checkpoint in the foreground. */
bool fixture_checkpoint(const struct fixture *fixture, const struct checkpoint_target *target,
                        const struct checkpoint_order *order, struct error *failure);

/* Collective. Fill the model with the number of a step and write its checkpoint to the folder. Fill
 * the model with other values, read this checkpoint, and assert that it has those of the step. */
bool fixture_write(struct fixture *fixture, enum writers_choice writers, int64_t step,
                   struct error *failure);
void fixture_assert_read(struct fixture *fixture, const char *path, bool weights_only,
                         int64_t step);

void fixture_folder_make(void);
void fixture_folder_remove(void);

/* The sum of the counts of all ranks. */
int64_t fixture_total(int64_t count);

#endif
