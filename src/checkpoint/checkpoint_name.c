// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/checkpoint_name.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/atomic_file.h"
#include "core/text.h"
#include "core/text_file.h"

enum { MEMORY_RECORD = MEMORY_ID + PATH_MAX + 1 };

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

/* The contents of RUN/.memory: the id, and the folder's path, which differs in a copy of it. */
static void memory_record(const char *run, const char *id, char text[MEMORY_RECORD])
{
    char path[PATH_MAX];
    const bool known = realpath(run, path) != NULL;
    snprintf(text, MEMORY_RECORD, "%.*s\n%s\n", MEMORY_ID - 1, id, known ? path : run);
}

bool checkpoint_memory_id(const char *run, char id[MEMORY_ID])
{
    char path[PATH_MAX], expected[MEMORY_RECORD];
    snprintf(path, sizeof path, "%s/.memory", run);
    char *text = text_file_read(path, NULL);
    bool good = text != NULL && strspn(text, "0123456789abcdef") == MEMORY_ID - 1;
    if (good) {
        memory_record(run, text, expected);
        good = strcmp(text, expected) == 0;
    }
    snprintf(id, MEMORY_ID, "%s", good ? text : "");
    free(text);
    return good;
}

bool checkpoint_memory_id_write(const char *run, const char *id, struct error *error)
{
    char path[PATH_MAX], text[MEMORY_RECORD];
    memory_record(run, id, text);
    snprintf(path, sizeof path, "%s/.memory", run);
    return atomic_file_write(path, text, error);
}
