/* A small model on a mesh, without a device library: units like a vision transformer's, whose
 * numbers say where they belong. For tests of files. */
#ifndef VITTRAIN_TEST_MODEL_FIXTURE_H
#define VITTRAIN_TEST_MODEL_FIXTURE_H

#include "checkpoint/state.h"
#include "mesh/flat.h"

enum { FIXTURE_UNITS = 3, FIXTURE_TENSORS = 6 };

/* What kind of model; zero: the usual. */
struct fixture_shape {
    int64_t width;   /* 24 */
    int64_t side;    /* of the grid of positions; 4 */
    int64_t classes; /* 10 */
    int64_t hidden;  /* rows of the block's matrix; 1003 */
    bool no_class_token;
};

struct fixture {
    struct comm *world;
    struct mesh mesh;
    struct device device;
    struct flat_model flat;
    struct unit units[FIXTURE_UNITS];
    struct unit_tensor tensors[FIXTURE_UNITS][FIXTURE_TENSORS];
    struct arena arena;
};

/* The world of a test program of several ranks, which says nothing but its results. Ends the program
 * where there is none. */
struct comm *fixture_world_open(int *argc, char ***argv);

/* The model on world's ranks with shards over `shard` of them; everything zero. Collective. */
void fixture_open(struct fixture *fixture, struct comm *world, int shard,
                  const struct fixture_shape *shape, int moments, bool averaged);
void fixture_close(struct fixture *fixture);

/* Gives every element of every vector a value that depends on salt, unit, vector and place; zero
 * between tensors and behind the last. */
void fixture_fill(struct fixture *fixture, uint32_t salt);

/* How many elements of this rank's part of a vector are not bit for bit what fixture_fill(salt)
 * gave them; of vector `kind` when compared with what was filled into vector `as`. */
int64_t fixture_wrong(const struct fixture *fixture, uint32_t salt, enum state_kind kind,
                      enum state_kind as);

/* How many elements of this rank's part of all vectors are wrong. */
int64_t fixture_all_wrong(const struct fixture *fixture, uint32_t salt);

/* The tensor of that name, and a pointer to its first element on a mesh of one shard. */
float *fixture_tensor(const struct fixture *fixture, const char *name,
                      const struct unit_tensor **tensor);

/* A directory of this test run's own, the same on all ranks, and its removal with all in it. */
void fixture_directory(struct comm *world, char *path, size_t size);
void fixture_remove(struct comm *world, const char *path);

/* The sum of all ranks' counts. */
int64_t fixture_total(struct comm *world, int64_t count);

#endif
