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

/* Collective. Rank 0 writes the parameters in fp32 to path.part, syncs and renames. Uses a few MiB,
 * whatever the size of the model. metadata: see safetensors_output_open. */
MUST_CHECK bool safetensors_write(const char *path, const struct flat_model *flat,
                                  const char *metadata, struct error *error);

/* Collective. Rank 0 reads the parameters and broadcasts them; F32, F16, BF16 and F64 are accepted.
 * Missing tensors and wrong shapes are one error that lists them all. If that is accepted, a head
 * for another number of classes keeps its random initialisation. Position embeddings of another
 * grid are resized (timm's resample_abs_pos_embed). Both are logged. Extra tensors are ignored with
 * a warning. The EMA, if there is one, is set to the parameters. */
MUST_CHECK bool safetensors_read(const char *path, bool accepts_other_head, struct flat_model *flat,
                                 struct error *error);

/* ---- header ---- */

enum { SAFETENSORS_DIMENSIONS = 8 };

/* Types of weights; all others are larger numbers. */
enum safetensors_type { SAFETENSORS_F32, SAFETENSORS_F16, SAFETENSORS_BF16, SAFETENSORS_F64 };

struct safetensors_entry {
    const char *name;  /* owned by the header */
    const char *dtype; /* as in the file; owned by the header */
    enum safetensors_type type;
    int64_t element; /* bytes per element */
    int dimensions;
    int64_t shape[SAFETENSORS_DIMENSIONS];
    int64_t count; /* elements */
    int64_t begin; /* of its bytes, after the header */
};

struct safetensors_header {
    json_t *json;
    struct safetensors_entry *entry; /* [count], sorted by `begin` */
    int64_t count;
    int64_t data_offset; /* of the first byte after the header */
};

/* Parse the text of a header for a file with `data_bytes` bytes after it. Checks that the size of
 * each tensor agrees with its type and shape, and that the tensors fill the data without overlaps
 * or gaps, as the format requires. `path` is for messages. Always call safetensors_header_free. */
MUST_CHECK bool safetensors_header_parse(const char *text, size_t length, int64_t data_bytes,
                                         const char *path, struct safetensors_header *header,
                                         struct error *error);

/* Open a file for reading, and read and parse its header. Return the descriptor; -1 if it cannot be
 * opened. Always call safetensors_header_free. */
int safetensors_header_open(const char *path, struct safetensors_header *header,
                            struct error *error);

void safetensors_header_free(struct safetensors_header *header);

/* Return the entry of this name, or NULL. */
const struct safetensors_entry *safetensors_find(const struct safetensors_header *header,
                                                 const char *name);

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
MUST_CHECK bool safetensors_output_close(struct safetensors_output *output, struct error *error);

#endif
