// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/checkpoint_name.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/file.h"
#include "core/text.h"

enum { MEMORY_RECORD = MEMORY_ID + 24 };

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

/* The contents of RUN/.memory: the id, and the inode of the run folder, which differs in a copy of
 * it but not in a moved folder. */
static bool memory_record(const char *run, const char *id, char text[MEMORY_RECORD])
{
    struct stat status;
    const bool good = stat(run, &status) == 0;
    snprintf(text, MEMORY_RECORD, "%.*s\n%llu\n", MEMORY_ID - 1, id,
             good ? (unsigned long long)status.st_ino : 0);
    return good;
}

bool checkpoint_memory_id(const char *run, char id[MEMORY_ID], bool *unusable)
{
    char path[PATH_MAX], expected[MEMORY_RECORD];
    snprintf(path, sizeof path, "%s/.memory", run);
    char *text = text_file_read(path, NULL);
    const bool good = text != NULL && strspn(text, "0123456789abcdef") == MEMORY_ID - 1 &&
                      memory_record(run, text, expected) && strcmp(text, expected) == 0;
    if (unusable != NULL)
        *unusable = !good && (text != NULL || access(path, F_OK) == 0);
    snprintf(id, MEMORY_ID, "%s", good ? text : "");
    free(text);
    return good;
}

bool checkpoint_memory_id_write(const char *run, const char *id, struct error *error)
{
    char path[PATH_MAX], text[MEMORY_RECORD];
    snprintf(path, sizeof path, "%s/.memory", run);
    return memory_record(run, id, text)
               ? atomic_file_write(path, text, error)
               : error_set(error, ERROR_FILE, "cannot read %s: %s", run, strerror(errno));
}

void checkpoint_memory_id_remove(const char *run)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/.memory", run);
    unlink(path);
}
