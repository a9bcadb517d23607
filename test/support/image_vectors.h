// SPDX-License-Identifier: BSD-3-Clause
/* The image files of test/vectors/image_files.safetensors. */
#ifndef VITTRAIN_TEST_IMAGE_VECTORS_H
#define VITTRAIN_TEST_IMAGE_VECTORS_H

#include <stddef.h>
#include <stdint.h>

/* A file and its pixels as Pillow decodes them. */
struct sample {
    char name[64];
    const uint8_t *bytes, *truth;
    size_t count;
    int64_t width, height;
};

/* Set-up and teardown functions for cmocka: open and close the file of the vectors. */
int image_vectors_open(void **state);
int image_vectors_close(void **state);

/* Return the sample with this name; its memory is valid until image_vectors_close. */
struct sample sample_find(const char *kind);

#endif
