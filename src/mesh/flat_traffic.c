/* What flat_mesh.c sends in a step, counted without sending it: the same order of units, the same
 * slots. A test compares it with what really goes over the mesh; change both together. */
#include "mesh/flat.h"

/* Bytes that a rank sends where each has `bytes` for all others, or gets as many of theirs. */
static double ring_volume(const struct comm *group, double bytes)
{
    return bytes * (group->size - 1);
}

/* Which units are whole while a step goes on. */
struct gathering {
    const struct flat_model *flat;
    int holder[FLAT_SLOTS]; /* whose whole weights a slot holds, -1: nobody's */
    int whole;              /* units below are, where weights stay whole */
    double sent;
};

static void gathering_visit(struct gathering *gathering, int unit)
{
    const struct flat_model *flat = gathering->flat;
    int *holder = &gathering->holder[unit % FLAT_SLOTS];
    bool whole = flat->slots_weights ? *holder == unit : unit < gathering->whole;
    if (whole)
        return;
    *holder = unit;
    if (!flat->slots_weights)
        gathering->whole = unit + 1;
    gathering->sent += ring_volume(flat->mesh->shard, (double)flat->buffers[unit].shard_count *
                                                          (double)type_size(flat->type));
}

static double gathers_count(const struct flat_model *flat, int64_t passes, int first_unit)
{
    struct gathering gathering = {.flat = flat, .holder = {-1, -1}};
    for (int64_t pass = 0; pass < passes; pass++) {
        for (int unit = 0; unit < flat->count; unit++)
            gathering_visit(&gathering, unit);
        for (int unit = flat->count - 1; unit >= first_unit; unit--)
            gathering_visit(&gathering, unit);
    }
    return gathering.sent;
}

struct flat_traffic flat_traffic(const struct flat_model *flat, int64_t passes, int first_unit)
{
    const struct comm *shard = flat->mesh->shard, *replica = flat->mesh->replica;
    double width = (double)type_size(flat->narrows ? flat->type : TYPE_FP32);
    struct flat_traffic traffic = {.shard = gathers_count(flat, passes, first_unit)};
    for (int unit = first_unit; unit < flat->count; unit++) {
        const struct flat_buffer *buffer = &flat->buffers[unit];
        double part = (double)buffer->shard_count * width;
        if (!buffer->learns)
            continue;
        traffic.shard += ring_volume(shard, part) * (double)(flat->slots_gradients ? passes : 1);
        traffic.replica += 2 * ring_volume(replica, part) / replica->size;
    }
    traffic.shard += 2 * ring_volume(shard, sizeof(double)) / shard->size; /* the norm */
    return traffic;
}
