// SPDX-License-Identifier: BSD-3-Clause
/* Weights in a safetensors file as a stream of blocks, for one rank without a mesh. Uses a few MiB,
 * whatever the size of the model. Nothing here is collective. */
#ifndef VITTRAIN_CHECKPOINT_SAFETENSORS_STREAM_H
#define VITTRAIN_CHECKPOINT_SAFETENSORS_STREAM_H

#include <limits.h>

#include "checkpoint/safetensors_header.h"
#include "core/error.h"
#include "mesh/unit.h"

/* ---- reading ---- */

/* The source of one of the model's tensors: its random initialisation, the file, the file's
 * position embeddings after resizing, or its first convolution for other input channels. */
enum safetensors_source_kind { SOURCE_NONE, SOURCE_COPY, SOURCE_RESIZE, SOURCE_CHANNELS };

struct safetensors_source {
    int64_t kind; /* enum safetensors_source_kind */
    int u;
    const struct unit_tensor *tensor;
    const struct safetensors_entry *entry; /* NULL until the file is open */
    int64_t grid[2];                       /* rows and columns of the file's position embeddings */
    float *converted;                      /* the whole tensor, or NULL */
};

struct safetensors_input {
    const char *path;
    const struct unit *units;
    int unit_count;
    bool accepts_other_head; /* else a head for another number of classes is an error */
    int descriptor;          /* -1: not open */
    struct safetensors_header header;
    struct safetensors_source *source; /* [source_count]: by unit, then by tensor */
    int source_count;
    unsigned char *raw; /* a block in the file's data type */
};

/* List the model's tensors without opening the file. Always call safetensors_input_close. */
void safetensors_input_list(struct safetensors_input *input, const char *path,
                            const struct unit *units, int unit_count, bool accepts_other_head);

/* Open the file and choose the source of each tensor. Fails as safetensors_read does. */
MUST_CHECK bool safetensors_input_open(struct safetensors_input *input, struct error *error);

/* Read elements [begin, begin + count) of a tensor as fp32; count is at most VECTOR_BLOCK. The
 * source must not be SOURCE_NONE. Does nothing if `error` is set. */
void safetensors_input_read(struct safetensors_input *input, struct safetensors_source *source,
                            int64_t begin, int64_t count, float *to, struct error *error);

void safetensors_input_close(struct safetensors_input *input);

/* ---- writing ---- */

struct safetensors_output {
    int descriptor;
    int64_t offset; /* of the next element */
    char path[PATH_MAX], part[PATH_MAX];
};

/* Create path.part with a header for the units' tensors. Then append their elements in order.
 * metadata: the JSON object of `__metadata__` (model_metadata.h); NULL: only the format. On failure
 * the part is removed. */
MUST_CHECK bool safetensors_output_open(struct safetensors_output *output, const char *path,
                                        const struct unit *units, int unit_count,
                                        const char *metadata, struct error *error);

/* Does nothing if `error` is set. */
void safetensors_output_append(struct safetensors_output *output, const float *block, int64_t count,
                               struct error *error);

/* Sync and rename; remove the part if `error` is set or that fails. */
MUST_CHECK bool safetensors_output_close(struct safetensors_output *output, struct error *error);

#endif
