/* Weights in a safetensors file as a stream of blocks, for who has no mesh: one rank calls these. A
 * model of any size passes through a few MiB. Private to the room. */
#ifndef VITTRAIN_CHECKPOINT_SAFETENSORS_STREAM_H
#define VITTRAIN_CHECKPOINT_SAFETENSORS_STREAM_H

#include <limits.h>

#include "checkpoint/safetensors_header.h"
#include "core/error.h"
#include "mesh/unit.h"

/* ---- reading ---- */

/* What becomes of one of the model's tensors: its random start, the file's bytes, or the file's
 * position embeddings resized. */
enum weights_source_kind { SOURCE_NONE, SOURCE_COPY, SOURCE_RESIZE };

struct weights_source {
    int64_t kind; /* enum weights_source_kind */
    int u;
    const struct unit_tensor *tensor;
    const struct safetensors_entry *entry; /* NULL until the file is open */
    float *resized;                        /* the whole tensor, or NULL */
};

struct weights_input {
    const char *path;
    const struct unit *units;
    int unit_count;
    int descriptor; /* -1: not open */
    struct safetensors_header header;
    struct weights_source *source; /* [source_count]: unit by unit, tensor by tensor */
    int source_count;
    unsigned char *raw; /* a block as it is in the file */
};

/* Lists the model's tensors; the file is not touched. Give it to weights_input_close in any case.
 */
void weights_input_list(struct weights_input *input, const char *path, const struct unit *units,
                        int unit_count);

/* Opens the file and decides for each tensor where it comes from; what does not fit is an error
 * that lists it all (see safetensors_read). */
bool weights_input_open(struct weights_input *input, struct error *error);

/* Elements [begin, begin + count) of a tensor that is not SOURCE_NONE, as fp32; at most
 * VECTOR_BLOCK. Nothing is read once `error` is set. */
void weights_input_read(struct weights_input *input, struct weights_source *source, int64_t begin,
                        int64_t count, float *to, struct error *error);

void weights_input_close(struct weights_input *input);

/* ---- writing ---- */

struct weights_output {
    int descriptor;
    int64_t offset; /* where the next element goes */
    char path[PATH_MAX], part[PATH_MAX];
};

/* Makes path.part with a header for these units' tensors, whose elements are then appended one
 * after another in their order. When it fails nothing is left. */
bool weights_output_open(struct weights_output *output, const char *path, const struct unit *units,
                         int unit_count, struct error *error);

/* Nothing is written once `error` is set. */
void weights_output_append(struct weights_output *output, const float *block, int64_t count,
                           struct error *error);

/* Syncs and renames; or, where `error` is set or that fails, removes the part. */
bool weights_output_close(struct weights_output *output, struct error *error);

#endif
