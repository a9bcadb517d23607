// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/checkpoint_name.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

bool checkpoint_memory_id(const char *run, char id[MEMORY_ID])
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/.memory", run);
    char *text = text_file_read(path, NULL);
    const bool good =
        text != NULL && strspn(text, "0123456789abcdef") == MEMORY_ID - 1 && text[16] == '\n';
    snprintf(id, MEMORY_ID, "%s", good ? text : "");
    free(text);
    return good;
}
