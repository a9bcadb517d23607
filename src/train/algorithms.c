/* Ranks measure on their own and then adopt each other's choices. */
#include "train/algorithms.h"

#include <stdlib.h>

/* Collective. world->size: no rank has new choices. */
static int lowest_with_new(struct device *device, struct comm *world)
{
    int64_t lowest = device->backend->choices_are_new(device) ? world->rank : world->size;
    comm_all_reduce(world, &lowest, 1, COMM_INT64, COMM_MIN);
    return (int)lowest;
}

void algorithms_agree(struct device *device, struct stream *stream, struct comm *world)
{
    const struct device_backend *backend = device->backend;
    int from = world->size;
    if (backend->choices_are_new == NULL)
        return;
    /* A rank that measures waits for its stream, and so for collectives of all ranks' streams. */
    backend->stream_synchronize(stream);
    while ((from = lowest_with_new(device, world)) < world->size) {
        char *own = world->rank == from ? backend->choices_export(device) : NULL;
        char *text = comm_broadcast_text(world, own, from);
        backend->choices_adopt(device, text);
        free(own);
        free(text);
    }
}
