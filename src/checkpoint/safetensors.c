// SPDX-License-Identifier: BSD-3-Clause
/* Rank 0 reads or writes block by block; blocks are broadcast to, or gathered from, the ranks. */
#include "checkpoint/safetensors.h"

#include <stdlib.h>

#include "checkpoint/safetensors_stream.h"
#include "checkpoint/vectors.h"

/* Collective. Read a tensor on rank 0 and store it in the shards. */
static void read_tensor(struct safetensors_input *input, const struct flat_model *flat,
                        struct safetensors_source *source, float *block, struct error *error)
{
    const struct unit_tensor *tensor = source->tensor;
    for (int64_t done = 0; done < tensor->count; done += VECTOR_BLOCK) {
        int64_t left = tensor->count - done, count = left < VECTOR_BLOCK ? left : VECTOR_BLOCK;
        if (input->descriptor >= 0)
            safetensors_input_read(input, source, done, count, block, error);
        comm_broadcast(flat->mesh->world, block, count, COMM_FP32, 0);
        vector_store(flat, source->u, FLAT_MASTER, tensor->offset + done, count, block);
    }
}

bool safetensors_read(const char *path, bool accepts_other_head, struct flat_model *flat,
                      struct error *error)
{
    struct comm *world = flat->mesh->world;
    struct safetensors_input input;
    /* buffers[0].unit is the first element of the array of all units. */
    safetensors_input_list(&input, path, flat->buffers[0].unit, flat->count, accepts_other_head);
    if (world->rank == 0)
        error_defer(safetensors_input_open(&input, error));
    bool good = comm_agree(world, error);
    if (good) {
        for (int s = 0; s < input.source_count; s++)
            comm_broadcast(world, &input.source[s].kind, 1, COMM_INT64, 0);
        float *block = calloc(VECTOR_BLOCK, sizeof(float));
        ENSURE_MEMORY(block != NULL, "no memory to read weights");
        for (int s = 0; s < input.source_count; s++)
            if (input.source[s].kind != SOURCE_NONE)
                read_tensor(&input, flat, &input.source[s], block, error);
        free(block);
        vector_reset_ema(flat);
        good = comm_agree(world, error);
    }
    safetensors_input_close(&input);
    return good;
}

/* Collective. After an error on rank 0 the other ranks still send, as they do not know of it. */
static void write_tensor(const struct flat_model *flat, const int *ranks, int u,
                         const struct unit_tensor *tensor, struct safetensors_output *output,
                         float *block, struct error *error)
{
    for (int64_t done = 0; done < tensor->count; done += VECTOR_BLOCK) {
        int64_t left = tensor->count - done, count = left < VECTOR_BLOCK ? left : VECTOR_BLOCK;
        vector_gather(flat, ranks, u, tensor->offset + done, count, block);
        if (flat->mesh->world->rank == 0)
            safetensors_output_append(output, block, count, error);
    }
}

bool safetensors_write(const char *path, const struct flat_model *flat, const char *metadata,
                       struct error *error)
{
    struct comm *world = flat->mesh->world;
    struct safetensors_output output;
    if (world->rank == 0)
        error_defer(safetensors_output_open(&output, path, flat->buffers[0].unit, flat->count,
                                            metadata, error));
    if (!comm_agree(world, error))
        return false;
    int *ranks = vector_ranks(flat->mesh);
    float *block = malloc(VECTOR_BLOCK * sizeof(float));
    ENSURE_MEMORY(block != NULL, "no memory to write weights");
    for (int u = 0; u < flat->count; u++) {
        const struct unit *unit = flat->buffers[u].unit;
        for (int t = 0; t < unit->tensor_count; t++)
            write_tensor(flat, ranks, u, &unit->tensors[t], &output, block, error);
    }
    free(block);
    free(ranks);
    if (world->rank == 0)
        error_defer(safetensors_output_close(&output, error));
    return comm_agree(world, error);
}
