/* Weights as safetensors (https://github.com/huggingface/safetensors): 8 bytes of header length, a
 * JSON header, the tensors. The header is not trusted: offsets, overlaps, overflow and sizes are
 * checked before a byte of data is read. */
#ifndef VITTRAIN_CHECKPOINT_SAFETENSORS_H
#define VITTRAIN_CHECKPOINT_SAFETENSORS_H

#include <stdbool.h>

#include "core/error.h"
#include "mesh/flat.h"

/* Collective; rank 0 writes (fp32) to path.part, syncs, renames. Memory: one unit at a time. */
bool safetensors_write(const char *path, const struct flat_model *flat, struct error *error);

/* Collective; rank 0 reads and sends each rank its part. FP32, FP16, BF16 and FP64 are taken. A
 * missing or misshapen tensor is an error that lists them all; a head of another size keeps its
 * random start, positions of another grid are resized (bicubic with antialiasing, as timm's
 * resample_abs_pos_embed): both are said in the log. Extra tensors are named and ignored. A moving
 * average starts at what was read. */
bool safetensors_read(const char *path, struct flat_model *flat, struct error *error);

#endif
