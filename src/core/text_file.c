// SPDX-License-Identifier: BSD-3-Clause
/* Reading of regular files. */
#include "core/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"

FILE *text_file_open(const char *path)
{
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0)
        return NULL;
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
        close(file);
        errno = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
        return NULL;
    }
    FILE *stream = fdopen(file, "r");
    ENSURE(stream != NULL, "no memory for %s", path);
    return stream;
}

char *text_file_read(const char *path, size_t *length)
{
    FILE *stream = text_file_open(path);
    char *text = NULL;
    size_t size = 0, used = 0;
    bool has_memory;
    if (stream == NULL)
        return NULL;
    do {
        size = size == 0 ? 1 << 14 : 2 * size;
        char *larger = realloc(text, size);
        has_memory = larger != NULL;
        if (has_memory) {
            text = larger;
            used += fread(text + used, 1, size - 1 - used, stream);
        }
    } while (has_memory && used == size - 1);
    const int reason = has_memory && !ferror(stream) ? 0 : errno;
    fclose(stream);
    if (reason != 0) {
        free(text);
        errno = reason;
        return NULL;
    }
    text[used] = '\0';
    if (length != NULL)
        *length = used;
    return text;
}
