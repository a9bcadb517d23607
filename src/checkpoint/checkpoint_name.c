// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/checkpoint_name.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/atomic_file.h"
#include "core/text.h"
#include "core/text_file.h"

void checkpoint_name(char name[CHECKPOINT_NAME], int64_t step)
{
    snprintf(name, CHECKPOINT_NAME, "step-%08lld.h5", (long long)step);
}

int64_t checkpoint_name_step(const char *path)
{
    const char *name = text_base_name(path);
    long long step = -1;
    int end = 0;
    return sscanf(name, "step-%lld.h5%n", &step, &end) == 1 && end > 0 && name[end] == '\0' ? step
                                                                                            : -1;
}

void checkpoint_memory_folder(const char *id, char *path, size_t size)
{
    snprintf(path, size, "/dev/shm/vittrain-%u-%s", (unsigned)geteuid(), id);
}

/* True if `text`, the contents of RUN/.memory, was copied with its folder: the folder that it was
 * written for has another file with the same contents. */
static bool memory_is_copy(const char *text, const char *path)
{
    char original[PATH_MAX];
    struct stat here, there;
    const char *folder = text + MEMORY_ID;
    snprintf(original, sizeof original, "%.*s/.memory", (int)strcspn(folder, "\n"), folder);
    if (stat(path, &here) != 0 || stat(original, &there) != 0 ||
        (here.st_dev == there.st_dev && here.st_ino == there.st_ino))
        return false;
    char *other = text_file_read(original, NULL);
    const bool equal = other != NULL && strcmp(text, other) == 0;
    free(other);
    return equal;
}

bool checkpoint_memory_id(const char *run, char id[MEMORY_ID])
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/.memory", run);
    char *text = text_file_read(path, NULL);
    const bool good = text != NULL && strspn(text, "0123456789abcdef") == MEMORY_ID - 1 &&
                      text[MEMORY_ID - 1] == '\n' && !memory_is_copy(text, path);
    snprintf(id, MEMORY_ID, "%s", good ? text : "");
    free(text);
    return good;
}

bool checkpoint_memory_id_write(const char *run, const char *id, struct error *error)
{
    char path[PATH_MAX], folder[PATH_MAX], text[MEMORY_ID + PATH_MAX + 1];
    const bool known = realpath(run, folder) != NULL;
    snprintf(text, sizeof text, "%s\n%s\n", id, known ? folder : run);
    snprintf(path, sizeof path, "%s/.memory", run);
    return atomic_file_write(path, text, error);
}

void checkpoint_memory_id_remove(const char *run)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/.memory", run);
    unlink(path);
}
