// SPDX-License-Identifier: BSD-3-Clause
/* Parse and validate the header of a safetensors file. Nothing here is collective. */
#ifndef VITTRAIN_CHECKPOINT_SAFETENSORS_HEADER_H
#define VITTRAIN_CHECKPOINT_SAFETENSORS_HEADER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"

enum { SAFETENSORS_DIMENSIONS = 8 };

enum safetensors_type { SAFETENSORS_F32, SAFETENSORS_F16, SAFETENSORS_BF16, SAFETENSORS_F64 };

struct safetensors_entry {
    const char *name;  /* owned by the header */
    const char *dtype; /* as in the file; owned by the header */
    int64_t element;   /* bytes per element */
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

/* Read and parse the header of an open file. */
MUST_CHECK bool safetensors_header_read(int descriptor, const char *path,
                                        struct safetensors_header *header, struct error *error);

void safetensors_header_free(struct safetensors_header *header);

/* Return the entry of this name, or NULL. */
const struct safetensors_entry *safetensors_find(const struct safetensors_header *header,
                                                 const char *name);

/* True if weights of this data type can be read; sets *type. */
bool safetensors_is_weight(const struct safetensors_entry *entry, enum safetensors_type *type);

#endif
