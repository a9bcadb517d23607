// SPDX-License-Identifier: BSD-3-Clause
/* The index of .npy files: describes the one array of a file. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrays/path.h"
#include "base/allocate.h"
#include "base/file.h"

enum { PREFIX = 12, MOST_HEADER = 1 << 16 };

/* Return the text after a key of the header, which is a Python dictionary; NULL if the key does not
 * exist. */
static const char *value_of(const char *header, const char *key)
{
    const char *at = strstr(header, key);
    if (at == NULL)
        return NULL;
    at += strlen(key);
    return at + strspn(at, " ");
}

/* Set the shape from a tuple: "(3, 4)", "(3,)" or "()". */
static bool shape_read(const char *text, struct array *array, struct error *error)
{
    bool good = *text++ == '(';
    while (good && *(text += strspn(text, " ")) != ')') {
        char *end;
        errno = 0;
        const int64_t extent = strtoll(text, &end, 10);
        good = end > text && errno == 0 && extent >= 0;
        if (!good)
            break;
        if (array->dimensions == ARRAY_DIMENSIONS)
            return array_refuse(array, error, "it has more than %d dimensions", ARRAY_DIMENSIONS);
        if (extent == 0)
            return array_refuse_empty(array, error);
        array->extent[array->dimensions] = array->chunk[array->dimensions] = extent;
        array->dimensions++;
        text = end + (*end == 'L'); /* Python 2 */
        text += strspn(text, " ");
        good = *text == ',' || *text == ')';
        text += *text == ',';
    }
    array->has_shape = good;
    return good || array_refuse(array, error, "its header is damaged: copy the file again");
}

static bool header_read(const char *header, struct array *array, struct error *error)
{
    char type[16];
    const char *descr = value_of(header, "'descr':");
    const char *order = value_of(header, "'fortran_order':");
    const char *shape = value_of(header, "'shape':");
    if (descr == NULL || order == NULL || shape == NULL)
        return array_refuse(array, error, "its header is damaged: copy the file again");
    if (sscanf(descr, "'%15[^']'", type) != 1 || !array_type_set(array, type))
        return array_refuse(array, error,
                            "its type %.*s is not an integer or a floating-point number of 1, 2, 4 "
                            "or 8 bytes: convert it with ARRAY.astype('float32')",
                            (int)strcspn(descr, ",}"), descr);
    if (strncmp(order, "False", 5) != 0)
        return array_refuse(array, error,
                            "it is in Fortran order: write it with "
                            "numpy.save(FILE, numpy.ascontiguousarray(ARRAY))");
    return shape_read(shape, array, error);
}

/* Return the text of the header, which the caller frees, and set `offset` to its end. Return NULL
 * if this is not a .npy file, the text is truncated or too long, or memory is exhausted. */
static char *header_load(int descriptor, const uint8_t *prefix, int64_t *offset)
{
    if (memcmp(prefix, "\x93NUMPY", 6) != 0 || prefix[6] < 1 || prefix[6] > 3)
        return NULL;
    size_t length = prefix[8] | (size_t)prefix[9] << 8;
    *offset = 10;
    if (prefix[6] > 1) {
        length |= (size_t)prefix[10] << 16 | (size_t)prefix[11] << 24;
        *offset = 12;
    }
    char *header = length < MOST_HEADER ? malloc(length + 1) : NULL;
    if (header == NULL || durable_pread(descriptor, header, length, *offset) < length) {
        free(header);
        return NULL;
    }
    header[length] = '\0';
    *offset += (int64_t)length;
    return header;
}

bool array_npy_open(const char *path, const char *name, struct array *array, struct error *error)
{
    int64_t offset = 0;
    uint8_t prefix[PREFIX] = {0};
    struct file_stamp stamp = {0};
    struct open_file *file = open_file_new(path, &stamp);
    const int descriptor = file != NULL ? open_file_take(file) : -1;
    const int reason = errno;
    array_begin(array, path, name, file, &stamp);
    array->owns_file = true;
    if (descriptor < 0)
        return durable_unreadable(error, ERROR_DATA, path, reason);
    const size_t count = durable_pread(descriptor, prefix, sizeof prefix, 0);
    OWNED char *header = count == PREFIX ? header_load(descriptor, prefix, &offset) : NULL;
    open_file_give(file);
    if (memcmp(prefix, "PK\3\4", 4) == 0)
        return error_set(error, ERROR_DATA,
                         "%s is an archive (.npz, .zip): unpack it, or write each array to a "
                         "separate file with numpy.save",
                         path);
    if (header == NULL)
        return error_set(error, ERROR_DATA,
                         "%s is not a .npy file, or its header is damaged: copy the file again",
                         path);
    if (!header_read(header, array, error))
        return false;
    array->chunks = allocate(1, sizeof *array->chunks);
    array->chunks[0].offset = offset;
    array->chunk_count = 1;
    return array_open(array, error);
}
