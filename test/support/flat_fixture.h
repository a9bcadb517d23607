// SPDX-License-Identifier: BSD-3-Clause
/* Shared by the tests of flat buffers: a model of some units on a mesh of all ranks, on a device of
 * its own for each rank. */
#ifndef VITTRAIN_TEST_FLAT_FIXTURE_H
#define VITTRAIN_TEST_FLAT_FIXTURE_H

#include "device_test.h"
#include "mesh/flat.h"
#include "rank_tests.h"

struct flat_fixture {
    struct mesh mesh;
    struct flat_model flat;
    struct arena arena;
    void *memory; /* readable by the test */
};

/* Sharded between uses: nothing; gradients; gradients and weights; the same, with shared memory. */
enum flat_policy { KEEP_ALL, KEEP_WEIGHTS, KEEP_NOTHING, SHARE_MEMORY };

extern struct device_test flat_device;

/* Set-up and teardown of a program: the device. */
void flat_device_open(void);
void flat_device_close(void);

/* Wait until all queued operations have ended. */
void queue_wait(void);

/* Collective. Open the model; all memory contains NaN. grains: most grains of a pass of an exact
 * step of `passes` passes; 0: none. */
void flat_fixture_open(struct flat_fixture *fixture, struct unit *units, int count, int shard,
                       enum flat_policy policy, enum data_type type, int64_t grains,
                       int64_t passes);
void flat_fixture_close(struct flat_fixture *fixture);

/* Return the next shard size that divides the number of ranks, 0 after the last. */
int next_shard(int shard);

#endif
