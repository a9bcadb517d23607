/* Writes weights as safetensors: names, fp32, in the model's order, to a file that is whole or not
 * there. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/safetensors_stream.h"
#include "core/durable.h"

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

/* The header's text, to be freed; *data_bytes: of all tensors. NULL: two have one name. */
static char *make_header(const struct unit *units, int unit_count, int64_t *data_bytes)
{
    json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    int64_t begin = 0;
    size_t tensors = 0;
    for (int u = 0; u < unit_count; u++)
        for (int t = 0; t < units[u].tensor_count; t++) {
            const struct unit_tensor *tensor = &units[u].tensors[t];
            int failed = json_object_set_new(header, tensor->name, describe_tensor(tensor, begin));
            ENSURE(failed == 0, "no memory for the header of weights");
            begin += tensor->count * (int64_t)sizeof(float);
            tensors++;
        }
    bool different = json_object_size(header) == tensors + 1;
    char *text = json_dumps(header, JSON_COMPACT);
    ENSURE(text != NULL, "no memory for the header of weights");
    json_decref(header);
    *data_bytes = begin;
    if (different)
        return text;
    free(text);
    return NULL;
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

/* The file with its header. */
static bool start_file(struct weights_output *output, const char *text, int64_t data_bytes,
                       struct error *error)
{
    output->offset = 8 + (int64_t)padded_length(text);
    output->descriptor = durable_create(output->part, error);
    return output->descriptor >= 0 &&
           durable_reserve(output->descriptor, output->part, output->offset + data_bytes, error) &&
           write_header(output->descriptor, output->part, text, error);
}

bool weights_output_open(struct weights_output *output, const char *path, const struct unit *units,
                         int unit_count, struct error *error)
{
    int64_t data_bytes;
    output->descriptor = -1;
    if (snprintf(output->part, sizeof output->part, "%s.part", path) >= (int)sizeof output->part)
        return error_set(error, ERROR_FILE, "the name %s is too long", path);
    snprintf(output->path, sizeof output->path, "%s", path);
    char *text = make_header(units, unit_count, &data_bytes);
    if (text == NULL)
        return error_set(error, ERROR_CHECKPOINT,
                         "%s cannot be written: two tensors of the model have one name", path);
    bool good = start_file(output, text, data_bytes, error);
    free(text);
    if (!good)
        weights_output_close(output, error);
    return good;
}

void weights_output_append(struct weights_output *output, const float *block, int64_t count,
                           struct error *error)
{
    size_t bytes = (size_t)count * sizeof(float);
    if (error->kind == ERROR_NONE)
        durable_write(output->descriptor, output->part, block, bytes, output->offset, error);
    output->offset += (int64_t)bytes;
}

bool weights_output_close(struct weights_output *output, struct error *error)
{
    if (output->descriptor < 0)
        return false;
    bool good = error->kind == ERROR_NONE && durable_sync(output->descriptor, output->part, error);
    good = durable_close(output->descriptor, output->part, error) && good &&
           durable_rename(output->part, output->path, error);
    if (!good)
        unlink(output->part);
    return good;
}
