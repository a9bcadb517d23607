// SPDX-License-Identifier: BSD-3-Clause
/* Weights in the safetensors format (https://github.com/huggingface/safetensors): 8 bytes of header
 * length, a JSON header, the tensors. Here: read and write them on a mesh. */
#ifndef VITTRAIN_CHECKPOINT_SAFETENSORS_H
#define VITTRAIN_CHECKPOINT_SAFETENSORS_H

#include <stdbool.h>

#include "core/error.h"
#include "mesh/flat.h"

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

#endif
