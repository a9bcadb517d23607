// SPDX-License-Identifier: BSD-3-Clause
/* The mesh of each strategy, and strategies that do not fit the ranks. */
#include "mesh/mesh.h"

#include "options/options.h"
#include "test.h"

/* Returns the error of an invalid mesh, NULL for a valid one. */
static const char *imagined(int ranks, int node_ranks, int strategy, int64_t shard, char *described,
                            bool *one_node)
{
    struct options options = {.mesh = {.strategy = strategy, .shard = shard}};
    struct mesh mesh;
    error_clear(&error);
    if (!mesh_imagine(&mesh, ranks - 1, ranks, node_ranks, &options.mesh, &error))
        return error.text;
    mesh_describe(&mesh, described, 128);
    *one_node = mesh.one_node;
    assert_int_equal(mesh.shard->size * mesh.replica->size, ranks);
    assert_int_equal(mesh.replica->rank * mesh.shard->size + mesh.shard->rank, ranks - 1);
    mesh_close(&mesh);
    return NULL;
}

TEST(every_strategy_is_a_point_on_the_mesh)
{
    static const struct {
        int strategy;
        int64_t shard;
        bool one_node;
        const char *described;
    } cases[] = {
        {STRATEGY_DDP, 0, false, "ddp, 8 ranks on 2 nodes: replica 8 x shard 1"},
        {STRATEGY_DDP, 1, false, "ddp, 8 ranks on 2 nodes: replica 8 x shard 1"},
        {STRATEGY_ZERO1, 0, false, "zero1, 8 ranks on 2 nodes: replica 1 x shard 8"},
        {STRATEGY_ZERO2, 2, true, "zero2, 8 ranks on 2 nodes: replica 4 x shard 2"},
        {STRATEGY_FSDP, 0, false, "fsdp, 8 ranks on 2 nodes: replica 1 x shard 8"},
        {STRATEGY_HSDP, 0, true, "hsdp, 8 ranks on 2 nodes: replica 2 x shard 4"},
        {STRATEGY_HSDP, 8, false, "hsdp, 8 ranks on 2 nodes: replica 1 x shard 8"},
    };
    char described[128];
    bool one_node;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_null(imagined(8, 4, cases[i].strategy, cases[i].shard, described, &one_node));
        assert_string_equal(described, cases[i].described);
        assert_int_equal(one_node, cases[i].one_node);
    }
    /* The last three of six ranks are on two nodes. */
    assert_null(imagined(6, 4, STRATEGY_FSDP, 3, described, &one_node));
    assert_false(one_node);
}

TEST(meshes_that_cannot_be_are_errors)
{
    char described[128];
    bool one_node;
    const char *text = imagined(8, 4, STRATEGY_FSDP, 3, described, &one_node);
    assert_non_null(text);
    assert_has(text, "mesh.shard=3 does not divide the 8 ranks");
    text = imagined(8, 4, STRATEGY_DDP, 4, described, &one_node);
    assert_non_null(text);
    assert_has(text, "mesh.strategy=ddp does not shard");
    text = imagined(8, 3, STRATEGY_HSDP, 0, described, &one_node);
    assert_non_null(text);
    assert_has(text, "the nodes have different numbers of ranks: start as many");
}

TEST_MAIN()
