// SPDX-License-Identifier: BSD-3-Clause
/* Reads the small reference vectors in test/vectors/ (from PyTorch, PIL, ...), which are
 * safetensors files. This reader trusts its files; users' files are read by src/checkpoint. */
#ifndef VITTRAIN_TEST_VECTOR_FILE_H
#define VITTRAIN_TEST_VECTOR_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vector_file;

/* Open test/vectors/NAME of the source tree (environment `srcdir`, else the working directory).
 * Ends the test program with a message on failure. */
struct vector_file *vector_file_open(const char *name);
void vector_file_close(struct vector_file **file);

/* Declare and open a file that is closed at the end of the block. */
#define VECTOR_FILE(variable, name)                                                                \
    __attribute__((cleanup(vector_file_close))) struct vector_file *variable =                     \
        vector_file_open(name)

bool vector_file_has(const struct vector_file *file, const char *name);

/* Return a tensor's elements, valid until the file is closed, and their *count (may be NULL). Ends
 * the program if there is no tensor of this name and type. */
const float *vector_file_floats(const struct vector_file *file, const char *name, int64_t *count);
const double *vector_file_doubles(const struct vector_file *file, const char *name, int64_t *count);
const int32_t *vector_file_integers(const struct vector_file *file, const char *name,
                                    int64_t *count);
const uint8_t *vector_file_bytes(const struct vector_file *file, const char *name, int64_t *count);

/* Size of a dimension. */
int64_t vector_file_size(const struct vector_file *file, const char *name, int dimension);

/* A text of the file's metadata, or NULL. */
const char *vector_file_text(const struct vector_file *file, const char *key);

/* ---- The image files of image_files.safetensors. ---- */

/* A file and its pixels as Pillow decodes them. */
struct sample {
    char name[64];
    const uint8_t *bytes, *truth;
    size_t count;
    int64_t width, height;
};

/* For TEST_MAIN: open and close the file of the vectors. */
void image_vectors_open(void);
void image_vectors_close(void);

/* Return the sample with this name; its memory is valid until image_vectors_close. */
struct sample sample_find(const char *kind);

#endif
