/* Reads weights on a mesh: rank 0 reads block by block and sends each block to everybody, who keep
 * what is their own. */
#include <stdlib.h>

#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_stream.h"
#include "checkpoint/vectors.h"

/* Collective: one tensor to whoever holds it. */
static void spread_tensor(struct weights_input *input, const struct flat_model *flat,
                          struct weights_source *source, float *block, struct error *error)
{
    const struct unit_tensor *tensor = source->tensor;
    for (int64_t done = 0; done < tensor->count; done += VECTOR_BLOCK) {
        int64_t left = tensor->count - done, count = left < VECTOR_BLOCK ? left : VECTOR_BLOCK;
        if (input->descriptor >= 0)
            weights_input_read(input, source, done, count, block, error);
        comm_broadcast(flat->mesh->world, block, count, COMM_FP32, 0);
        vector_keep(flat, source->u, VECTOR_MASTER, tensor->offset + done, count, block);
    }
}

/* Collective: the kinds as rank 0 chose them. */
static void share_sources(struct weights_input *input, struct comm *world)
{
    int64_t *kind = calloc((size_t)input->source_count, sizeof *kind);
    ENSURE(kind != NULL, "no memory for a list of tensors");
    for (int s = 0; s < input->source_count; s++)
        kind[s] = input->source[s].kind;
    comm_broadcast(world, kind, input->source_count, COMM_INT64, 0);
    for (int s = 0; s < input->source_count; s++)
        input->source[s].kind = kind[s];
    free(kind);
}

bool safetensors_read(const char *path, struct flat_model *flat, struct error *error)
{
    struct comm *world = flat->mesh->world;
    struct weights_input input;
    /* the first unit of all of the model's */
    weights_input_list(&input, path, flat->buffers[0].unit, flat->count);
    if (world->rank == 0)
        weights_input_open(&input, error);
    bool good = comm_agree(world, error);
    if (good) {
        share_sources(&input, world);
        float *block = calloc(VECTOR_BLOCK, sizeof(float));
        ENSURE(block != NULL, "no memory to read weights");
        for (int s = 0; s < input.source_count; s++)
            if (input.source[s].kind != SOURCE_NONE)
                spread_tensor(&input, flat, &input.source[s], block, error);
        free(block);
        vector_restart_average(flat);
        good = comm_agree(world, error);
    }
    weights_input_close(&input);
    return good;
}
