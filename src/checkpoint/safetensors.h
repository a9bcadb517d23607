// SPDX-License-Identifier: BSD-3-Clause
/* Weights in the safetensors format (https://github.com/huggingface/safetensors): 8 bytes of header
 * length, a JSON header, the tensors. Only the functions for a mesh are collective. */
#ifndef VITTRAIN_CHECKPOINT_SAFETENSORS_H
#define VITTRAIN_CHECKPOINT_SAFETENSORS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "mesh/flat.h"

/* ---- on a mesh ---- */

/* Collective. Rank 0 writes the parameters in fp32 to path.part, syncs and renames. Each rank of
 * its shard group uses 4 MiB, whatever the size of the model. metadata: see
 * safetensors_output_open. */
MUST_CHECK bool safetensors_write(const char *path, const struct flat_model *flat,
                                  const char *metadata, struct error *error);

/* Collective. Rank 0 reads the parameters and broadcasts them; F32, F16, BF16 and F64 are accepted.
 * Missing tensors and wrong shapes are one error that lists them all. If that is accepted, a head
 * for another number of classes keeps its random initialisation. Position embeddings of another
 * grid are resized (timm's resample_abs_pos_embed). Both are logged. Extra tensors are ignored with
 * a warning. The EMA, if there is one, is set to the parameters. */
MUST_CHECK bool safetensors_read(const char *path, bool accepts_other_head, struct flat_model *flat,
                                 struct error *error);

/* Not collective. Return the member `__metadata__` of a file's header, which json_decref frees;
 * NULL without one or on failure. */
json_t *safetensors_metadata(const char *path, struct error *error);

/* ---- writing ---- */

struct safetensors_output {
    int descriptor;
    int64_t offset; /* of the next element */
    char *path, *part;
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
void safetensors_output_close(struct safetensors_output *output, struct error *error);

#endif
