// SPDX-License-Identifier: BSD-3-Clause
#include "flat_fixture.h"

struct device_test flat_device;

void flat_device_open(void)
{
    device_test_open_number(&flat_device, world->rank, 1);
}

void flat_device_close(void)
{
    device_test_close(&flat_device);
}

void queue_wait(void)
{
    flat_device.device->backend->stream_synchronize(flat_device.stream);
}

void flat_fixture_open(struct flat_fixture *fixture, struct unit *units, int count, int shard,
                       enum flat_policy policy, enum data_type type, int64_t grains, int64_t passes)
{
    struct device *device = flat_device.device;
    struct flat_model *flat = &fixture->flat;
    struct mesh *mesh = &fixture->mesh;
    const struct mesh_options options = {
        .strategy = STRATEGY_ZERO1, .shard = shard, .transport = TRANSPORT_RING};
    assert_true(mesh_open(mesh, world, &options, &error) && mesh_use_device(mesh, device, &error));
    mesh->reduce_compute = type != TYPE_FP32;
    mesh->shard_gradients = policy >= KEEP_WEIGHTS;
    mesh->shard_weights = policy >= KEEP_NOTHING;
    mesh->one_node = world->size > 1;
    if (policy == SHARE_MEMORY)
        assert_true(world->backend->set_transport(mesh->shard, TRANSPORT_SHARED, &error) &&
                    world->backend->set_transport(mesh->replica, TRANSPORT_SHARED, &error));
    flat_open(flat, units, count, mesh, device, flat_device.stream, type, 2, true, true);
    if (policy == SHARE_MEMORY && world->size > 1)
        flat_use_shared_memory(flat);
    if (grains > 0)
        flat_use_grains(flat, grains, passes, false);
    arena_measure(&fixture->arena);
    flat_allocate(flat, &fixture->arena);
    assert_true(flat_share(flat, &error));
    const size_t bytes = fixture->arena.peak;
    fixture->memory = device->backend->allocate_pinned(device, bytes, &error);
    assert_non_null(fixture->memory);
    memset(fixture->memory, 0xff, bytes);
    if (flat->node_memory != NULL)
        memset(flat->node_memory, 0xff,
               flat->common_bytes + flat->area_bytes * (size_t)(shard > 1 ? shard : world->size));
    comm_barrier(world);
    mesh_use_memory(mesh, fixture->memory, bytes);
    arena_begin(&fixture->arena, fixture->memory, bytes);
    flat_allocate(flat, &fixture->arena);
    assert_int_equal(fixture->arena.used, bytes);
}

void flat_fixture_close(struct flat_fixture *fixture)
{
    queue_wait();
    mesh_leave_device(&fixture->mesh);
    flat_close(&fixture->flat);
    flat_device.device->backend->release_pinned(flat_device.device, fixture->memory);
    mesh_close(&fixture->mesh);
}

int next_shard(int shard)
{
    for (shard++; shard <= world->size; shard++)
        if (world->size % shard == 0)
            return shard;
    return 0;
}
