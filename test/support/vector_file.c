// SPDX-License-Identifier: BSD-3-Clause
/* Reads the whole file into memory and its JSON header with jansson. Any fault ends the program, so
 * that no test passes without its vectors. */
#include "vector_file.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

struct vector_file {
    char *memory;
    size_t size;
    const char *data; /* after the header */
    json_t *header;
    char name[256];
};

#define STOP(...)                                                                                  \
    do {                                                                                           \
        printf("Bail out! " __VA_ARGS__);                                                          \
        printf("\n");                                                                              \
        exit(1);                                                                                   \
    } while (0)

struct vector_file *vector_file_open(const char *name)
{
    const char *directory = getenv("srcdir");
    OWNED char *path =
        allocate_text("%s/test/vectors/%s", directory != NULL ? directory : ".", name);
    struct vector_file *file = allocate(1, sizeof *file);
    snprintf(file->name, sizeof file->name, "%s", name);
    file->memory = text_file_read(path, &file->size);
    if (file->memory == NULL)
        STOP("cannot read %s", path);
    uint64_t length = 0;
    if (file->size < sizeof length)
        STOP("%s is too short", path);
    memcpy(&length, file->memory, sizeof length);
    if (length > file->size - sizeof length)
        STOP("%s has a header that is too long", path);
    json_error_t json_error;
    file->header = json_loadb(file->memory + sizeof length, length, 0, &json_error);
    if (file->header == NULL)
        STOP("%s: %s", path, json_error.text);
    file->data = file->memory + sizeof length + length;
    return file;
}

void vector_file_close(struct vector_file **file)
{
    json_decref((*file)->header);
    free((*file)->memory);
    free(*file);
}

bool vector_file_has(const struct vector_file *file, const char *name)
{
    return json_object_get(file->header, name) != NULL;
}

static const void *find_tensor(const struct vector_file *file, const char *name, const char *type,
                               size_t element, int64_t *count)
{
    const json_t *tensor = json_object_get(file->header, name);
    if (tensor == NULL)
        STOP("%s has no tensor %s", file->name, name);
    const char *stored = json_string_value(json_object_get(tensor, "dtype"));
    if (stored == NULL || strcmp(stored, type) != 0)
        STOP("%s: tensor %s is no %s", file->name, name, type);
    const json_t *offsets = json_object_get(tensor, "data_offsets");
    json_int_t begin = json_integer_value(json_array_get(offsets, 0));
    json_int_t end = json_integer_value(json_array_get(offsets, 1));
    if (begin < 0 || end < begin || end > file->memory + file->size - file->data)
        STOP("%s: tensor %s lies outside", file->name, name);
    if (((uintptr_t)(file->data + begin)) % element != 0)
        STOP("%s: tensor %s is not aligned", file->name, name);
    if (count != NULL)
        *count = (int64_t)((size_t)(end - begin) / element);
    return file->data + begin;
}

const float *vector_file_floats(const struct vector_file *file, const char *name, int64_t *count)
{
    return find_tensor(file, name, "F32", 4, count);
}

const double *vector_file_doubles(const struct vector_file *file, const char *name, int64_t *count)
{
    return find_tensor(file, name, "F64", 8, count);
}

const int32_t *vector_file_integers(const struct vector_file *file, const char *name,
                                    int64_t *count)
{
    return find_tensor(file, name, "I32", 4, count);
}

const uint8_t *vector_file_bytes(const struct vector_file *file, const char *name, int64_t *count)
{
    return find_tensor(file, name, "U8", 1, count);
}

int64_t vector_file_size(const struct vector_file *file, const char *name, int dimension)
{
    const json_t *shape = json_object_get(json_object_get(file->header, name), "shape");
    const json_t *size = json_array_get(shape, (size_t)dimension);
    if (size == NULL)
        STOP("%s: tensor %s has no dimension %d", file->name, name, dimension);
    return json_integer_value(size);
}

const char *vector_file_text(const struct vector_file *file, const char *key)
{
    return json_string_value(json_object_get(json_object_get(file->header, "__metadata__"), key));
}

/* ---- image files ---- */

static struct vector_file *image_files;

void image_vectors_open(void)
{
    image_files = vector_file_open("image_files.safetensors");
}

void image_vectors_close(void)
{
    vector_file_close(&image_files);
}

struct sample sample_find(const char *kind)
{
    struct sample sample;
    char name[80];
    int64_t count;
    snprintf(name, sizeof name, "file.%s", kind);
    sample.bytes = vector_file_bytes(image_files, name, &count);
    sample.count = (size_t)count;
    snprintf(name, sizeof name, "pixels.%s", kind);
    sample.truth = vector_file_bytes(image_files, name, NULL);
    sample.height = vector_file_size(image_files, name, 0);
    sample.width = vector_file_size(image_files, name, 1);
    snprintf(sample.name, sizeof sample.name, "%s", kind);
    return sample;
}
