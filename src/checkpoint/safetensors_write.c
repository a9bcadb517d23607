/* Writes a model's weights from a mesh: rank 0 writes block by block what the ranks that hold it
 * send, so that it never holds more than a few MiB. */
#include <stdlib.h>

#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_stream.h"
#include "checkpoint/vectors.h"

/* Collective. After an error the ranks still send: they do not know of it yet. */
static void write_tensor(const struct flat_model *flat, const int *ranks, int u,
                         const struct unit_tensor *tensor, struct weights_output *output,
                         float *block, struct error *error)
{
    for (int64_t done = 0; done < tensor->count; done += VECTOR_BLOCK) {
        int64_t left = tensor->count - done, count = left < VECTOR_BLOCK ? left : VECTOR_BLOCK;
        vector_gather(flat, ranks, u, tensor->offset + done, count, block);
        if (flat->mesh->world->rank == 0)
            weights_output_append(output, block, count, error);
    }
}

static void write_tensors(const struct flat_model *flat, struct weights_output *output,
                          struct error *error)
{
    int *ranks = vector_ranks(flat->mesh);
    float *block = malloc(VECTOR_BLOCK * sizeof(float));
    ENSURE(block != NULL, "no memory to write weights");
    for (int u = 0; u < flat->count; u++) {
        const struct unit *unit = flat->buffers[u].unit;
        for (int t = 0; t < unit->tensor_count; t++)
            write_tensor(flat, ranks, u, &unit->tensors[t], output, block, error);
    }
    free(block);
    free(ranks);
}

bool safetensors_write(const char *path, const struct flat_model *flat, struct error *error)
{
    struct comm *world = flat->mesh->world;
    struct weights_output output;
    if (world->rank == 0) /* the first unit of all of the model's */
        weights_output_open(&output, path, flat->buffers[0].unit, flat->count, error);
    if (!comm_agree(world, error))
        return false;
    write_tensors(flat, &output, error);
    if (world->rank == 0)
        weights_output_close(&output, error);
    return comm_agree(world, error);
}
