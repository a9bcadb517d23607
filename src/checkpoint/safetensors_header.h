/* The header of a safetensors file, checked: what it says can be relied on. Private to safetensors.
 */
#ifndef VITTRAIN_CHECKPOINT_SAFETENSORS_HEADER_H
#define VITTRAIN_CHECKPOINT_SAFETENSORS_HEADER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"

enum { SAFETENSORS_DIMENSIONS = 8 };

enum safetensors_type { SAFETENSORS_F32, SAFETENSORS_F16, SAFETENSORS_BF16, SAFETENSORS_F64 };

struct safetensors_entry {
    const char *name;  /* belongs to the header */
    const char *dtype; /* as the file says; belongs to the header */
    int64_t element;   /* bytes of one */
    int dimensions;
    int64_t shape[SAFETENSORS_DIMENSIONS];
    int64_t count; /* elements */
    int64_t begin; /* of its bytes, after the header */
};

struct safetensors_header {
    json_t *json;
    struct safetensors_entry *entry; /* by `begin` */
    int64_t count;
    int64_t data_offset; /* of the first byte after the header */
};

/* Checks a header's text for a file with `data_bytes` bytes after it: every tensor's type, shape
 * and bytes agree, and the tensors fill the data from begin to end without overlap or hole, as the
 * format demands. `path` is for messages. Give the header to _free in any case. */
bool safetensors_header_parse(const char *text, size_t length, int64_t data_bytes, const char *path,
                              struct safetensors_header *header, struct error *error);

/* The same for an open file. */
bool safetensors_header_read(int descriptor, const char *path, struct safetensors_header *header,
                             struct error *error);

void safetensors_header_free(struct safetensors_header *header);

const struct safetensors_entry *safetensors_find(const struct safetensors_header *header,
                                                 const char *name);

/* Is this a type of which weights can be read, and which? */
bool safetensors_is_weight(const struct safetensors_entry *entry, enum safetensors_type *type);

#endif
