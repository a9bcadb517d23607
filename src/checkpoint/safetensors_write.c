// SPDX-License-Identifier: BSD-3-Clause
/* Writes weights: a header, then the tensors in blocks. On a mesh rank 0 writes and gathers the
 * blocks from the ranks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/checkpoint_file.h"
#include "checkpoint/safetensors.h"
#include "core/base.h"
#include "core/columns.h"
#include "core/file.h"

/* Return the object for `__metadata__`, whose values must be texts. */
static json_t *metadata_of(const char *text)
{
    json_t *metadata = json_loads(text != NULL ? text : "{\"format\":\"pt\"}", 0, NULL), *value;
    const char *key;
    bool good = json_is_object(metadata);
    json_object_foreach(metadata, key, value) good = good && json_is_string(value);
    if (good)
        return metadata;
    json_decref(metadata);
    return metadata_of(NULL);
}

/* Return the header's text, which the caller frees, and the size of all tensors in bytes. NULL if
 * two tensors have the same name. */
static char *make_header(const struct unit *units, int unit_count, const char *metadata,
                         int64_t *data_bytes)
{
    json_t *header = json_object();
    size_t tensors = 0;
    *data_bytes = 0;
    value_put(header, "__metadata__", metadata_of(metadata));
    for (int u = 0; u < unit_count; u++)
        for (int t = 0; t < units[u].tensor_count; t++, tensors++) {
            const struct unit_tensor *tensor = &units[u].tensors[t];
            const json_int_t begin = *data_bytes;
            json_t *shape = json_array();
            *data_bytes += tensor->count * (int64_t)sizeof(float);
            for (int d = 0; d < tensor->dimensions; d++)
                value_append(shape, json_integer(tensor->shape[d]));
            value_put(header, tensor->name,
                      json_pack("{s:s, s:o, s:[I,I]}", "dtype", "F32", "shape", shape,
                                "data_offsets", begin, (json_int_t)*data_bytes));
        }
    const bool different = json_object_size(header) == tensors + 1;
    char *text = json_dumps(header, JSON_COMPACT);
    ENSURE_MEMORY(text != NULL, "no memory for the header of weights");
    json_decref(header);
    if (different)
        return text;
    free(text);
    return NULL;
}

bool safetensors_output_open(struct safetensors_output *output, const char *path,
                             const struct unit *units, int unit_count, const char *metadata,
                             struct error *error)
{
    int64_t data_bytes;
    output->descriptor = -1;
    if (snprintf(output->part, sizeof output->part, "%s.part", path) >= (int)sizeof output->part)
        return error_set(error, ERROR_FILE, "the name %s is too long", path);
    snprintf(output->path, sizeof output->path, "%s", path);
    char *text = make_header(units, unit_count, metadata, &data_bytes);
    if (text == NULL)
        return error_set(error, ERROR_CHECKPOINT,
                         "%s cannot be written: two tensors of the model have the same name", path);
    /* The length of the header, and the header, padded with blanks to a multiple of 8 bytes. */
    const size_t length = (size_t)round_up((int64_t)strlen(text), 8);
    char *start = allocate(8 + length, 1);
    for (int byte = 0; byte < 8; byte++)
        start[byte] = (char)(length >> (8 * byte) & 0xff);
    memset(start + 8, ' ', length);
    memcpy(start + 8, text, strlen(text));
    output->offset = 8 + (int64_t)length;
    output->descriptor = durable_create(output->part, error);
    const bool good =
        output->descriptor >= 0 &&
        durable_reserve(output->descriptor, output->part, output->offset + data_bytes, error) &&
        durable_write(output->descriptor, output->part, start, 8 + length, 0, error);
    free(start);
    free(text);
    if (!good)
        error_defer(safetensors_output_close(output, error));
    return good;
}

void safetensors_output_append(struct safetensors_output *output, const float *block, int64_t count,
                               struct error *error)
{
    size_t bytes = (size_t)count * sizeof(float);
    if (error->kind == ERROR_NONE)
        error_defer(
            durable_write(output->descriptor, output->part, block, bytes, output->offset, error));
    output->offset += (int64_t)bytes;
}

bool safetensors_output_close(struct safetensors_output *output, struct error *error)
{
    if (output->descriptor < 0)
        return false;
    if (error->kind == ERROR_NONE)
        return durable_commit(output->descriptor, output->part, output->path, error);
    close(output->descriptor);
    unlink(output->part);
    return false;
}

/* ---- on a mesh ---- */

/* Collective. Gather parameters [begin, begin + count) of unit u into rank 0's `block`, from the
 * first replica of each shard. `ranks` is the result of vector_ranks. */
static void gather(const struct flat_model *flat, const int *ranks, int u, int64_t begin,
                   int64_t count, float *block)
{
    const int64_t shard_count = flat->buffers[u].shard_count;
    struct comm *world = flat->mesh->world;
    for (int shard = 0; shard < flat->mesh->shard->size; shard++) {
        const int owner = ranks[shard * flat->mesh->replica->size];
        int64_t length;
        const int64_t first =
            vector_overlap(begin, count, shard * shard_count, shard_count, &length);
        float *part = block + (first - begin);
        const size_t bytes = (size_t)length * sizeof(float);
        if (length == 0)
            continue;
        if (owner == world->rank)
            vector_copy(flat, u, FLAT_MASTER, first, length, part);
        if (owner == world->rank && owner != 0)
            comm_send(world, part, bytes, 0);
        else if (world->rank == 0 && owner != 0)
            comm_receive(world, part, bytes, owner);
    }
}

/* After an error on rank 0 the other ranks still send, as they do not know of it. */
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
    float *block = allocate(VECTOR_BLOCK, sizeof *block);
    for (int u = 0; u < flat->count; u++)
        for (int t = 0; t < flat->buffers[u].unit->tensor_count; t++) {
            const struct unit_tensor *tensor = &flat->buffers[u].unit->tensors[t];
            for (int64_t done = 0; done < tensor->count; done += VECTOR_BLOCK) {
                const int64_t count = smaller(tensor->count - done, VECTOR_BLOCK);
                gather(flat, ranks, u, tensor->offset + done, count, block);
                if (world->rank == 0)
                    safetensors_output_append(&output, block, count, error);
            }
        }
    free(block);
    free(ranks);
    if (world->rank == 0)
        error_defer(safetensors_output_close(&output, error));
    return comm_agree(world, error);
}
