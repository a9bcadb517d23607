// SPDX-License-Identifier: BSD-3-Clause
/* Reading of regular files. */
#include "core/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"

int text_file_descriptor(const char *path, int64_t *bytes)
{
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0)
        return -1;
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
        close(file);
        errno = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
        return -1;
    }
    *bytes = status.st_size;
    return file;
}

static FILE *stream_open(const char *path)
{
    int64_t bytes;
    const int file = text_file_descriptor(path, &bytes);
    if (file < 0)
        return NULL;
    FILE *stream = fdopen(file, "r");
    ENSURE_MEMORY(stream != NULL, "no memory for %s", path);
    return stream;
}

char *text_file_read(const char *path, size_t *length)
{
    FILE *stream = stream_open(path);
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

bool text_file_number(const char *path, const char *word, unsigned long long *number)
{
    char line[256], name[128];
    bool found = false;
    FILE *file = stream_open(path);
    if (file == NULL)
        return false;
    while (!found && fgets(line, sizeof line, file) != NULL)
        found = word[0] == '\0'
                    ? sscanf(line, "%llu", number) == 1
                    : sscanf(line, "%127s %llu", name, number) == 2 && strcmp(name, word) == 0;
    fclose(file);
    return found;
}
