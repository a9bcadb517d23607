/* Reads the small vectors in test/vectors/ that were computed elsewhere (PyTorch, PIL, ...):
 * .safetensors files, so that the scripts beside them need no format of their own. This reader
 * trusts its files, which come with the program; the one that users' files meet is in src/io. */
#ifndef VITTRAIN_TEST_VECTOR_FILE_H
#define VITTRAIN_TEST_VECTOR_FILE_H

#include <stdbool.h>
#include <stdint.h>

struct vector_file;

/* Opens test/vectors/NAME of the source tree (environment `srcdir`, as Automake sets it, else the
 * working directory). Ends the test program with a message when it cannot. */
struct vector_file *vector_file_open(const char *name);
void vector_file_close(struct vector_file *file);

bool vector_file_has(const struct vector_file *file, const char *name);

/* A tensor's elements, valid until the file is closed; *count (or NULL) gets how many there are.
 * Ends the program when there is no tensor of that name and type. */
const float *vector_file_floats(const struct vector_file *file, const char *name, int64_t *count);
const double *vector_file_doubles(const struct vector_file *file, const char *name, int64_t *count);
const int32_t *vector_file_integers(const struct vector_file *file, const char *name,
                                    int64_t *count);
const uint8_t *vector_file_bytes(const struct vector_file *file, const char *name, int64_t *count);

/* Size of a dimension. */
int64_t vector_file_size(const struct vector_file *file, const char *name, int dimension);

/* An entry of the file's metadata (a string), NULL when it has none of that name. */
const char *vector_file_text(const struct vector_file *file, const char *key);

#endif
