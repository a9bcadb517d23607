// SPDX-License-Identifier: BSD-3-Clause
#include "image_vectors.h"

#include <stdio.h>

#include "vector_file.h"

static struct vector_file *vectors;

int image_vectors_open(void **state)
{
    (void)state;
    vectors = vector_file_open("image_files.safetensors");
    return 0;
}

int image_vectors_close(void **state)
{
    (void)state;
    vector_file_close(vectors);
    return 0;
}

struct sample sample_find(const char *kind)
{
    struct sample sample;
    char name[80];
    int64_t count;
    snprintf(name, sizeof name, "file.%s", kind);
    sample.bytes = vector_file_bytes(vectors, name, &count);
    sample.count = (size_t)count;
    snprintf(name, sizeof name, "pixels.%s", kind);
    sample.truth = vector_file_bytes(vectors, name, NULL);
    sample.height = vector_file_size(vectors, name, 0);
    sample.width = vector_file_size(vectors, name, 1);
    snprintf(sample.name, sizeof sample.name, "%s", kind);
    return sample;
}
