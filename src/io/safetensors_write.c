/* Writes a model's weights as safetensors: names, fp32, in the model's order. Rank 0 writes block
 * by block what the ranks that hold it send, so that it never holds more than a few MiB. */
#include "io/safetensors.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/durable.h"
#include "io/vectors.h"

static json_t *describe_tensor(const struct unit_tensor *tensor, int64_t begin)
{
    json_t *shape = json_array();
    for (int d = 0; d < tensor->dimensions; d++) {
        int failed = json_array_append_new(shape, json_integer(tensor->shape[d]));
        ENSURE(failed == 0, "no memory for the header of weights");
    }
    int64_t end = begin + tensor->count * (int64_t)sizeof(float);
    return json_pack("{s:s, s:o, s:[I,I]}", "dtype", "F32", "shape", shape, "data_offsets",
                     (json_int_t)begin, (json_int_t)end);
}

/* The header's text, to be freed; *data_bytes: of all tensors. NULL: no memory. */
static char *make_header(const struct flat_model *flat, int64_t *data_bytes)
{
    json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    int64_t begin = 0;
    for (int u = 0; u < flat->count; u++) {
        const struct unit *unit = flat->buffers[u].unit;
        for (int t = 0; t < unit->tensor_count; t++) {
            int failed = json_object_set_new(header, unit->tensors[t].name,
                                             describe_tensor(&unit->tensors[t], begin));
            ENSURE(failed == 0, "no memory for the header of weights");
            begin += unit->tensors[t].count * (int64_t)sizeof(float);
        }
    }
    char *text = json_dumps(header, JSON_COMPACT);
    json_decref(header);
    *data_bytes = begin;
    return text;
}

/* The length of the header as written: padded with blanks to a multiple of 8 bytes. */
static size_t padded_length(const char *text)
{
    return (strlen(text) + 7) / 8 * 8;
}

static bool write_header(int descriptor, const char *path, const char *text, struct error *error)
{
    size_t length = padded_length(text);
    char *bytes = malloc(8 + length);
    ENSURE(bytes != NULL, "no memory for the header of %s", path);
    for (int byte = 0; byte < 8; byte++)
        bytes[byte] = (char)(length >> (8 * byte) & 0xff);
    memset(bytes + 8, ' ', length);
    memcpy(bytes + 8, text, strlen(text));
    bool good = durable_write(descriptor, path, bytes, 8 + length, 0, error);
    free(bytes);
    return good;
}

/* Rank 0: the file with its header; returns its descriptor or -1. *offset: where the data begins.
 */
static int start_file(const struct flat_model *flat, const char *path, int64_t *offset,
                      struct error *error)
{
    int64_t data_bytes;
    char *text = make_header(flat, &data_bytes);
    ENSURE(text != NULL, "no memory for the header of %s", path);
    *offset = 8 + (int64_t)padded_length(text);
    int descriptor = durable_create(path, error);
    if (descriptor >= 0 && !(durable_reserve(descriptor, path, *offset + data_bytes, error) &&
                             write_header(descriptor, path, text, error))) {
        close(descriptor);
        descriptor = -1;
    }
    free(text);
    return descriptor;
}

/* Collective. Returns the offset behind the tensor. */
static int64_t write_tensor(const struct flat_model *flat, const int *ranks, int u,
                            const struct unit_tensor *tensor, int descriptor, const char *path,
                            int64_t offset, float *block, struct error *error)
{
    for (int64_t done = 0; done < tensor->count; done += VECTOR_BLOCK) {
        int64_t count = tensor->count - done;
        if (count > VECTOR_BLOCK)
            count = VECTOR_BLOCK;
        vector_gather(flat, ranks, u, tensor->offset + done, count, block);
        /* after an error the ranks still send: they do not know of it yet */
        if (descriptor >= 0 && error->kind == ERROR_NONE)
            durable_write(descriptor, path, block, (size_t)count * sizeof(float), offset, error);
        offset += count * (int64_t)sizeof(float);
    }
    return offset;
}

static void write_tensors(const struct flat_model *flat, int descriptor, const char *path,
                          int64_t offset, struct error *error)
{
    int *ranks = vector_ranks(flat->mesh);
    float *block = malloc(VECTOR_BLOCK * sizeof(float));
    ENSURE(block != NULL, "no memory to write weights");
    for (int u = 0; u < flat->count; u++) {
        const struct unit *unit = flat->buffers[u].unit;
        for (int t = 0; t < unit->tensor_count; t++)
            offset = write_tensor(flat, ranks, u, &unit->tensors[t], descriptor, path, offset,
                                  block, error);
    }
    free(block);
    free(ranks);
}

bool safetensors_write(const char *path, const struct flat_model *flat, struct error *error)
{
    struct comm *world = flat->mesh->world;
    char part[PATH_MAX];
    int descriptor = -1;
    int64_t offset = 0;
    if (snprintf(part, sizeof part, "%s.part", path) >= (int)sizeof part)
        error_set(error, ERROR_FILE, "the name %s is too long", path);
    else if (world->rank == 0)
        descriptor = start_file(flat, part, &offset, error);
    bool good = comm_agree(world, error);
    if (good)
        write_tensors(flat, descriptor, part, offset, error);
    if (descriptor >= 0) {
        good = good && error->kind == ERROR_NONE && durable_sync(descriptor, part, error);
        good = durable_close(descriptor, part, error) && good && durable_rename(part, path, error);
    }
    if (world->rank == 0 && !good)
        unlink(part);
    return comm_agree(world, error);
}
